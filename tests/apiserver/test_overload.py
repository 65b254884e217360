"""Real kubectl where a server does not go on: told 429, it comes again and succeeds.

A watch that the server ends it takes for done.
"""

import asyncio
import os
import subprocess
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from tests import programs
from tests.apiserver.conftest import ADMIN, A
from tests.apiserver.serving import Served, served
from tests.watchcache.conftest import until

from nodus_api.apiserver import ServerOptions
from nodus_api.apiserver.identity import User
from nodus_api.apiserver.request import read_request_info
from nodus_api.cli import kubeconfig

OPTIONS = ServerOptions(shutdown_delay=timedelta(0), max_lists_per_user=1, max_watches_per_user=1)


@pytest.fixture(params=list(programs.KUBECTL))
def kubectl(request: pytest.FixtureRequest) -> Path:
    found = programs.kubectl(request.param)
    if found is None:
        pytest.skip(f"kubectl {request.param} was not fetched: see tests/programs.py")
    return found


def run(
    program: Path, one: Served, certificates: Path, folder: Path, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    config = folder / "kubeconfig"
    config.write_text(
        kubeconfig.render(
            server=f"https://127.0.0.1:{one.port}",
            ca=(certificates / "ca.crt").read_text(),
            token=ADMIN.text,
            project="example",
            user="admin",
        )
    )
    return subprocess.run(  # noqa: S603 -- fetched by its hash
        [str(program), "--kubeconfig", str(config), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "KUBECACHEDIR": str(folder / "cache")},
    )


@pytest.mark.conformance
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_kubectl_gets_over_an_overload(
    kubectl: Path, verb: str, certificates: Path, tmp_path: Path
) -> None:  # LW C-91, LW-154, LW-183
    """The one place of its user is taken, until it was refused once."""
    arguments = ["get", "attempts"] if verb == "list" else ["wait", "attempt/train-1-e1"]
    if verb == "watch":
        arguments += ["--for=jsonpath={.status.phase}=Running", "--timeout=50s"]
    user = User(name="admin", groups=("nodus:admins",))
    taken = read_request_info("GET", A.encode(), {"watch": "1"} if verb == "watch" else {})
    async with served(certificates, OPTIONS) as one:
        refused = one.replica.app.metrics.terminations
        with ExitStack() as held:
            held.enter_context(one.replica.app.in_flight.slot(user, taken))
            running = asyncio.create_task(
                asyncio.to_thread(run, kubectl, one, certificates, tmp_path, *arguments)
            )
            await until(lambda: refused.get("429", 0) > 0 or running.done(), 60)
            assert not running.done(), running.result().stderr
        if verb == "watch":
            one.replica.change("example", "train-1-e1", "Running")
        done = await running

    assert done.returncode == 0, done.stderr
    if verb == "list":
        assert len(done.stdout.splitlines()) == 13
    else:
        assert done.stdout == "attempt.nodus.dev/train-1-e1 condition met\n"


@pytest.mark.conformance
@pytest.mark.parametrize("kubectl", [max(programs.KUBECTL)], indirect=True)
async def test_kubectl_takes_the_end_of_its_watch_for_done(
    kubectl: Path, certificates: Path, tmp_path: Path
) -> None:  # LW C-79, LW-144
    arguments = ("get", "attempts", "-w", "--output-watch-events", "--no-headers")
    options = ServerOptions(shutdown_delay=timedelta(0), shutdown_watch_grace=timedelta(0))
    async with served(certificates, options) as one:
        replica = one.replica
        running = asyncio.create_task(
            asyncio.to_thread(run, kubectl, one, certificates, tmp_path, *arguments)
        )
        await until(lambda: len(replica.app.watches) == 1 or running.done(), 60)
        assert not running.done(), running.result().stderr
        replica.change("example", "train-0-e1", "Failed")
        gone = replica.delete("example", "train-1-e1")
        [watcher] = replica.cache.watchers.all()
        await until(lambda: watcher.position >= gone, 30)
        await replica.app.watches.drain(0)
        done = await running

    rows = [line.split()[:3] for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "")
    assert [event for event, *_ in rows[:12]] == ["ADDED"] * 12
    assert rows[12:] == [
        ["MODIFIED", "train-0-e1", "Failed"],
        ["DELETED", "train-1-e1", "Queued"],
    ]
