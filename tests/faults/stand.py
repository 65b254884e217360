"""A Postgres of its own, a `nodus serve` behind a network of ours, a writer, and who looks on."""

import http.client
import itertools
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.cli.live import environment, eventually
from tests.faults.load import LOAD, Load
from tests.faults.proxy import Proxy
from tests.history import rows
from tests.history.facts import History
from tests.history.recording import ALL, Recorder

from nodus_api.clock import SystemClock
from nodus_api.storage.embedded import SOCKET, EmbeddedPostgres
from nodus_api.tls import ensure_certificates

CLOCK = SystemClock()
NODUS = (sys.executable, "-m", "nodus_api.cli.main")
FRESH = f"{ALL}?limit=1"
CACHED = f"{ALL}?limit=1&resourceVersion=0"
NOBODY_LEADS = (
    "the scheduler's heartbeat in this database is old: no scheduler leads, or this primary was"
    " replaced"
)
_ASKED = (
    (FRESH,),
    (CACHED,),
    ("/livez", "/readyz", "/readyz?verbose", "/readyz/database", "/metrics"),
)
"""What is asked for, in turn by one thread each."""
_PAUSE = 0.3
_PATIENCE = 8.0

_LEAKS = (
    "SELECT", "INSERT", "UPDATE ", "sqlstate", "asyncpg", "sqlalchemy", "psycopg", "Traceback",
    "nodus.changes", "attempt_objects", "relation ", "permission denied", "postgres", "127.0.0.1:",
    "/dev/", "/var/", "/root", ".py",
)  # fmt: skip
"""What no answer may hold: statements, names of the schema, libraries, hosts, paths."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """One answer that somebody looking on was given; status 0: none."""

    target: str
    asked: float
    answered: float
    status: int
    headers: Mapping[str, str]
    body: str


class Onlooker:
    """Asks for lists, health and metrics all the time."""

    def __init__(self, stand: "Stand", recorder: Recorder) -> None:
        """`recorder` judges the lists that are answered (H-12 to H-14)."""
        self._stand = stand
        self._recorder = recorder
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(targets,), name=targets[0])
            for targets in _ASKED
        ]
        self.told: list[Told] = []

    def __enter__(self) -> "Onlooker":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def of(self, target: str, since: float = 0.0) -> list[Told]:
        """Return the answers to what was asked since a moment."""
        return [one for one in list(self.told) if one.target == target and one.asked >= since]

    def first(self, target: str, status: int, since: float, seconds: float = 60.0) -> Told:
        """Wait for the first answer of a status to what was asked since a moment."""

        def found() -> Told | None:
            return next((one for one in self.of(target, since) if one.status == status), None)

        return eventually(found, seconds)  # type: ignore[return-value]

    def _ask(self, targets: Sequence[str]) -> None:
        for target in itertools.cycle(targets):
            if self._over.wait(_PAUSE):
                return
            self.told.append(self._answer(target))

    def _answer(self, target: str) -> Told:
        asked, moment = CLOCK.monotonic(), self._recorder.now()
        status, headers, body = 0, dict[str, str](), b""
        with suppress(OSError, http.client.HTTPException):
            status, headers, body = self._stand.get(target)
        if status == 200 and target in (FRESH, CACHED):
            self._recorder.took(target, moment, status, body)
        return Told(
            target=target,
            asked=asked,
            answered=CLOCK.monotonic(),
            status=status,
            headers=headers,
            body=body.decode(errors="replace"),
        )


@dataclass
class Replica:
    """One `nodus serve` as a process."""

    root: Path
    url: str
    port: int
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Start it on its port, and wait until it is ready; the one before has ended."""
        if self.process is not None:
            self.process.wait(40)
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 -- ours
                [
                    *(*NODUS, "serve", "--database-url", self.url, "--data-dir", str(self.root)),
                    *("--bind", "127.0.0.1", "--port", str(self.port)),
                    *("--shutdown-delay-duration", "0s"),
                    *("--shutdown-watch-termination-grace-period", "0s"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment(), "NODUS_LOG_FORMAT": "json"},
            )
        eventually(self._ready, 60)

    def ended(self) -> int | None:
        """Return how it ended, None while it runs."""
        assert self.process is not None
        return self.process.poll()

    def memory(self) -> int:
        """Return how much address space it has, in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(one for one in status.splitlines() if one.startswith("VmSize:"))
        return int(line.split()[1]) * 1024

    def stop(self) -> None:
        """End it as an operator does, if it runs."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(40)
        finally:
            self.process.kill()
            self.process = None

    def get(self, target: str, token: str = "") -> tuple[int, dict[str, str], bytes]:
        """Return status, headers by lower-case names, and body."""
        connection = self.connection()
        try:
            connection.request(
                "GET", target, headers={"Authorization": f"Bearer {token}"} if token else {}
            )
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, headers, answer.read()
        finally:
            connection.close()

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=_PATIENCE, context=self._context
        )

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def lines(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the log's lines after so many characters, those of requests aside."""
        found = self.said()[since:].splitlines()
        assert all(one.startswith("{") for one in found), found
        return [one for one in map(json.loads, found) if "code" not in one]

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.root / "ca.crt"))

    @property
    def _log(self) -> Path:
        name = f"{self.root.name}-{self.port}.log"
        return self.root.with_name(name)  # beside it: its own disk may be full

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.said()
        with suppress(OSError):
            return self.get("/readyz")[0] == 200
        return False


@dataclass
class Stand:
    """Everything of one test module; what a test breaks it mends."""

    root: Path
    postgres: EmbeddedPostgres
    proxy: Proxy
    load: Load
    token: str
    replica: Replica
    """The one that clients are sent to."""
    report: dict[str, float] = field(default_factory=dict)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.replica.port}"

    @property
    def postmaster(self) -> int:
        return self.postgres.start()

    def get(self, target: str) -> tuple[int, dict[str, str], bytes]:
        """Ask the replica that clients are sent to."""
        return self.replica.get(target, self.token)

    def another(self) -> Replica:
        """Return a replica that is not started yet."""
        return Replica(self.root, self.replica.url, free_port())

    # Postgres -------------------------------------------------------------------------------

    def mend(self) -> None:
        """Let everything run again that a test, perhaps a failed one, has left broken."""
        self.proxy.heal()
        self.signal_postgres(signal.SIGCONT)

    def signal_postgres(self, number: signal.Signals) -> None:
        """Send a signal to the postmaster and all its children."""
        postmaster = self.postmaster
        for pid in (postmaster, *children(postmaster)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def children(parent: int) -> list[int]:
    """Return the children of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            stat = (entry / "stat").read_text()
            if int(stat[stat.rindex(")") + 2 :].split()[1]) == parent:
                found.append(int(entry.name))
    return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def standing(root: Path, token: str, postgres: EmbeddedPostgres) -> Iterator[Stand]:
    """Yield a stand on a migrated Postgres that runs, in `root`, with load on it.

    The token is one of an administrator.
    """
    files = ensure_certificates(root / "certs", names=(), clock=CLOCK)
    assert files.ca is not None
    shutil.copy(files.ca, root / "ca.crt")
    (root / "database-url").write_text(postgres.url)
    (root / "machines").mkdir()
    with (
        Proxy(str(root / "run" / SOCKET)) as proxy,
        Load(f"{postgres.url}&application_name={LOAD}") as load,
    ):
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/nodus"
        replica = Replica(root, url, free_port())
        stand = Stand(root, postgres, proxy, load, token, replica)
        load.first(0.0)
        replica.start()
        try:
            yield stand
        finally:
            replica.stop()
            for what, took in stand.report.items():
                print(f"fault table: {what}: {took:.2f} s")  # noqa: T201 -- `pytest -s` shows it


class Watching(Recorder):
    """A recorder that tells how far it is."""

    @property
    def position(self) -> int:
        """The newest revision that the watch of everything has shown."""
        return self._followed[0].position

    def shown(self) -> set[str]:
        """Return the slots of all that it has shown."""
        return {json.loads(event.body)["spec"]["slot"] for event in self._events()}

    async def _read_rows(self) -> History:
        """Return the log alone: the load keeps no ledger, and has no machines."""
        async with self._database() as database:
            return History(log=await rows.read_log(database))


@dataclass
class Fault:
    """What was seen of one fault."""

    stand: Stand
    onlooker: Onlooker
    recorder: Watching
    began: float
    log: int

    def over(self, name: str) -> dict[str, float]:
        """The fault has ended, or happened: wait until all goes on, and return how long each took.

        The seconds until a consistent read was answered, until a commit was, and until the watch
        of everything had an event of after that commit.
        """
        ended = CLOCK.monotonic()
        seconds = {"reads": self.onlooker.first(FRESH, 200, ended).answered - ended}
        seconds["writes"] = self.stand.load.first(ended) - ended
        head = int(self.metric("apiserver_watch_cache_resource_version"))
        eventually(lambda: self.recorder.position > head, 60)
        seconds["watch"] = CLOCK.monotonic() - ended
        self.stand.report |= {f"{name} {what}": took for what, took in seconds.items()}
        return seconds

    def metric(self, name: str) -> float:
        return metric(self.stand.get("/metrics")[2].decode(), name)

    def lines(self, *levels: str) -> list[str]:
        """Return what the server's log says of the time since the fault began."""
        found = self.stand.replica.lines(self.log)
        return [one["message"] for one in found if one["level"] in levels]

    def told_once(self, *messages: str, perhaps: Sequence[str] = ()) -> None:
        """The log has each of these lines once, `perhaps` once, no other, and no traceback."""
        said = self.stand.replica.said()[self.log :]
        found = Counter(self.lines("warning", "error", "critical"))
        del found[NOBODY_LEADS]  # true of every stand without a scheduler, 15 s after its start
        assert set(messages) <= set(found) <= {*messages, *perhaps}, said
        assert set(found.values()) <= {1}, said
        assert "Traceback" not in said, said


def metric(text: str, name: str) -> float:
    """Return a number of an exposition."""
    lines = (line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] == name)
    return float(next(lines).rpartition(" ")[2])


@contextmanager
def fault(stand: Stand) -> Iterator[Fault]:
    """Watch and ask on through what the block does; at the end nothing was lost, nothing twice.

    And no answer told what is not the client's business; every refusal says when to come again.
    """
    recorder = Watching(stand)
    with Onlooker(stand, recorder) as onlooker:
        onlooker.first(FRESH, 200, 0.0)
        with recorder:
            eventually(lambda: recorder.position)
            try:
                yield Fault(stand, onlooker, recorder, CLOCK.monotonic(), len(stand.replica.said()))
            finally:
                stand.mend()
    for one in onlooker.told:
        if one.status >= 400:
            assert not [word for word in _LEAKS if word.lower() in one.body.lower()], one
        if one.target in (FRESH, CACHED) and one.status:
            assert one.status in (200, 429, 503, 504), one
            assert one.status == 200 or "retry-after" in one.headers, one
