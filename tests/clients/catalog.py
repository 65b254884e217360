"""Which client programs there are, what each of them watches or lists, and why one is missing."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests import programs

HERE = Path(__file__).parent
ALL = "/apis/nodus.dev/v1/attempts"
ONE = "/apis/nodus.dev/v1/namespaces/default/attempts"
SCOPES = {
    "all": ALL,
    "default": ONE,
    "running": f"{ONE}?fieldSelector=status.phase%3DRunning",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A program with its clients: `watchers` by their scope, and `listers`.

    `brief` counts the watches that the client asks the server to end after 3 s.
    """

    command: Sequence[str] | None
    missing: str
    watchers: Mapping[str, str]
    listers: Sequence[str] = ()
    brief: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def clients(self) -> list[str]:
        return [*self.watchers, *self.listers]


def _go(*, watch_list: bool) -> Wanted:
    program = programs.client_go()
    suffix = "watchlist" if watch_list else "list"
    extras = [] if watch_list else ["watcher", "pager", "discovery"]
    scopes = {"dynamic": "all", "running": "running", "metadata": "all"}
    watchers = {f"go-{name}-{suffix}": scope for name, scope in scopes.items()}
    return Wanted(
        command=[str(program), suffix, *extras] if program else None,
        missing="client-go was not built (Go 1.26, module proxy): see tests/programs.py",
        watchers=watchers if watch_list else watchers | {"go-retry": "default"},
        listers=[] if watch_list else ["go-pager", "go-discovery"],
        brief=3 if watch_list else 4,
        environment={
            "KUBE_FEATURE_WatchListClient": str(watch_list).lower(),
            "KUBE_WATCHLIST_INCONSISTENCY_DETECTOR": "true",
        },
    )


def _python(script: str, brief: int, watchers: Mapping[str, str], *listers: str) -> Wanted:
    python = programs.client_python()
    return Wanted(
        command=[str(python), str(HERE / "python" / f"{script}.py")] if python else None,
        missing="the Python clients were not fetched: see tests/programs.py",
        watchers=watchers,
        listers=listers,
        brief=brief,
    )


def _kubectl(version: str) -> Wanted:
    program = programs.kubectl(version)
    script = str(HERE / "python" / "kubectl_client.py")
    name = f"kubectl-{version}"
    return Wanted(
        command=[sys.executable, script, str(program), name] if program else None,
        missing=f"kubectl {version} was not fetched: see tests/programs.py",
        watchers=dict.fromkeys((name, f"{name}-raw"), "default"),
        brief=1,
    )


def _node(program: tuple[Path, Path] | None, package: str, name: str) -> Wanted:
    return Wanted(
        command=[*map(str, program), package, name] if program else None,
        missing=f"Node, or {package}, could not be had: see tests/programs.py",
        watchers=dict.fromkeys(
            (f"{name}-{one}" for one in ("informer", "informer-on", "fetch")), "all"
        ),
        brief=2,
    )


WANTED: Mapping[str, Wanted] = {
    "go-watchlist": _go(watch_list=True),
    "go-list": _go(watch_list=False),
    "official": _python(
        "official",
        2,
        {"py-watch": "default", "py-watch-on": "all", "py-dynamic": "all"},
        *("py-list", "py-pages", "py-dynamic-list"),
    ),
    "aio": _python("aio", 1, {"aio-watch": "default"}, "aio-list"),
    "kr8s": _python("kr8s_client", 0, {"kr8s": "all"}, "kr8s-list"),
    "lightkube": _python("lightkube_client", 1, {"lightkube": "all"}, "lightkube-list"),
    "kopf": _python("kopf_client", 1, {"kopf": "all"}),
    "pykube": _python("pykube_client", 0, {"pykube": "all"}, "pykube-list"),
    "node": _node(programs.client_node(), "@kubernetes/client-node", "node"),
    "node-2": _node(programs.client_node_2(), "client-node-2", "node-2"),
    **{f"kubectl-{version}": _kubectl(version) for version in ("1.32", "1.37")},
}
"""By the name of the program's user; one that cannot be had has no command."""

HAD = {name: one for name, one in WANTED.items() if one.command is not None}
