"""A recorder beside a running server: it watches, keeps what clients were answered, and checks.

    with Recorder(server):
        ...  # whatever the test does, killing the server included

It follows the server over HTTPS with the standard library alone, resuming as a client does, on a
thread for each watch. At the end it lists, pages, gets and resumes once more, reads the log and the
ledger from Postgres, and runs every checker. What the test's own client asked comes in by `took`.
"""

import asyncio
import http.client
import json
import re
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from tests.history import rows
from tests.history.checking import LIVES, WIRE, Checker, assert_sound
from tests.history.facts import Answer, Ending, Event, Head, History, Stream, event_of
from tests.history.processes import running

from nodus_api.clock import SystemClock
from nodus_api.storage.engine import Database, Role

T = TypeVar("T")
ALL = "/apis/nodus.dev/v1/attempts"
ONE = "/apis/nodus.dev/v1/namespaces/default/attempts"
_STATE = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
_HALVES = tuple(
    f"shardSelector=shardRange(object.metadata.uid,%270x{start}%27,%270x{end}%27)"
    for start, end in (("0" * 16, "8" + "0" * 15), ("8" + "0" * 15, "1" + "0" * 16))
)
WATCHES = {
    "everything": f"{ALL}?watch=1&{_STATE}",
    "running": f"{ONE}?watch=1&resourceVersion=0&fieldSelector=status.phase%3DRunning",
    "others": f"{ONE}?watch=1&allowWatchBookmarks=true&fieldSelector=status.phase%21%3DRunning",
    "lower half": f"{ALL}?watch=1&allowWatchBookmarks=true&{_HALVES[0]}",
    "upper half": f"{ALL}?watch=1&resourceVersion=0&{_HALVES[1]}",
    # ends every 4 s, with a bookmark before, and goes on from it
    "brief": f"{ONE}?watch=1&{_STATE}&fieldSelector=status.phase%3DRunning&timeoutSeconds=4",
}
_START = ("resourceVersion", "sendInitialEvents")
"""The options that say where a watch begins."""
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_COMPARISONS = re.compile(r'^nodus_consistency_checks_total\{result="(\w+)"\} (\S+)', re.M)
_DIFFERS = "the watch cache differs from the database"
_DEADLINE = 30.0
_PAUSE = 0.05


class Server(Protocol):
    """Where a server is and how to be let in; asked again at each connection."""

    @property
    def server(self) -> str:
        """The https:// URL."""
        ...

    @property
    def token(self) -> str: ...

    @property
    def root(self) -> Path:
        """The data directory: `ca.crt`, `database-url` and `machines` are in it."""
        ...


@dataclass
class Following:
    """One watch that is being recorded: the streams that ended, and the one that goes on."""

    client: str
    target: str
    position: int = 0
    done: list[Stream] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Keep an event; after 410 the next stream begins with the state again."""
        self.events.append(event)
        self.position = 0 if event.code else max(self.position, event.rev)

    def resumed(self) -> str:
        """Return the target of the next stream."""
        if not self.position:
            return self.target
        path, _, query = self.target.partition("?")
        options = [one for one in query.split("&") if not one.startswith(_START)]
        return f"{path}?{'&'.join(options)}&resourceVersion={self.position}"


class Recorder:
    """Records one server from `__enter__` on; leaving it without an error checks the history."""

    def __init__(
        self,
        server: Server,
        *,
        quiet: bool = False,
        checkers: tuple[Checker, ...] = (*WIRE, *LIVES),
    ) -> None:
        """`quiet` tells that nothing will be left to do at the end (P-09).

        Ledger and machines are read only if all checkers of lives are among `checkers`.
        """
        self._server = server
        self._quiet = quiet
        self._checkers = checkers
        self._clock = SystemClock()
        self._began, self._at = self._clock.now(), self._clock.monotonic()
        self._followed = [Following(client=name, target=WATCHES[name]) for name in WATCHES]
        self._threads: list[threading.Thread] = []
        self._sockets: set[socket.socket] = set()
        self._over = threading.Event()
        self._answers: list[Answer] = []
        self._heads: list[Head] = []
        self._streams: list[Stream] = []
        self._wrong: list[bytes] = []
        self._kills: list[datetime] = []

    def __enter__(self) -> "Recorder":
        self.start()
        return self

    def start(self) -> None:
        """Begin to watch."""
        for one in self._followed:
            thread = threading.Thread(target=self._follow, args=(one,), name=one.client)
            thread.start()
            self._threads.append(thread)

    def by_the_clock_of(self, other: "Recorder") -> None:
        """Tell the same moments as another, to the microsecond."""
        self._began, self._at = other._began, other._at

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                assert_sound(self.history(), self._checkers)
        finally:
            self.stop()

    def now(self) -> datetime:
        """Return the moment, on a clock that starts at the wall's time and never goes back."""
        return self._began + timedelta(seconds=self._clock.monotonic() - self._at)

    def took(self, target: str, asked: datetime, status: int, body: bytes) -> None:
        """Keep an answer that the test's own client got for a list or a get."""
        self._keep("test", target, asked, status, body)

    def killed(self) -> None:
        """Note that something is about to be cut off by hand, so that streams may break."""
        self._kills.append(self.now())

    def stop(self) -> None:
        """End every watch; more than once does nothing."""
        self._over.set()
        for one in list(self._sockets):
            # past the TLS layer, which may be in use by its reader
            with suppress(OSError):
                socket.socket.shutdown(one, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def history(self) -> History:
        """Look once more, from several sides, end the watches, and return all that was seen."""
        head = _apart(self._read_head)
        self._caught_up(head)
        self._look()
        self._resume(head)
        self._compared()
        self.stop()
        assert not self._wrong, self._wrong
        followed = (stream for one in self._followed for stream in one.done)
        return replace(
            _apart(self._read_rows),
            streams=(*followed, *self._streams),
            answers=tuple(self._answers),
            heads=tuple(self._heads),
            kills=tuple(self._kills),
            quiet=self._quiet,
        )

    # -- watching --------------------------------------------------------------------------------

    def _follow(self, following: Following) -> None:
        while not self._over.is_set():
            stream = self._watch(following)
            following.done.append(stream)
            following.events = []
            self._over.wait(_PAUSE)

    def _watch(self, following: Following) -> Stream:
        target, asked = following.resumed(), self.now()
        ending: Ending = "cut"
        status = 0
        with suppress(OSError, http.client.HTTPException), self._open(target) as answer:
            status = answer.status
            ending = self._read(following, answer) if status == 200 else "clean"
        return Stream(
            client=following.client,
            target=target,
            asked=asked,
            events=tuple(following.events),
            ending="left" if self._over.is_set() else ending,
            status=status,
            ended=self.now(),
        )

    def _read(self, following: Following, answer: http.client.HTTPResponse) -> Ending:
        for line in iter(answer.readline, b""):
            if not line.endswith(b"\n"):
                return "cut"
            try:
                following.take(event_of(line, self.now()))
            except (AssertionError, KeyError, TypeError, ValueError):
                self._wrong.append(line)
                raise
        return "clean"

    @contextmanager
    def _open(
        self, target: str, *, seconds: float | None = None, accept: str = ""
    ) -> Iterator[http.client.HTTPResponse]:
        server = self._server
        context = ssl.create_default_context(cafile=str(server.root / "ca.crt"))
        connection = http.client.HTTPSConnection(
            server.server.removeprefix("https://"), timeout=seconds, context=context
        )
        headers = {"Authorization": f"Bearer {server.token}"}
        connection.connect()
        opened = connection.sock
        self._sockets.add(opened)
        try:
            if self._over.is_set():
                raise ConnectionError("the recording is over")
            connection.request(
                "GET", target, headers=headers | ({"Accept": accept} if accept else {})
            )
            yield connection.getresponse()
        finally:
            self._sockets.discard(opened)
            connection.close()

    # -- the last look ---------------------------------------------------------------------------

    def _caught_up(self, head: int) -> None:
        """Wait until the watch of everything stands at the head (H-06)."""
        deadline = self._clock.monotonic() + _DEADLINE
        everything = self._followed[0]
        while everything.position < head:
            assert self._clock.monotonic() < deadline, f"the watch never came to {head}"
            self._over.wait(_PAUSE)

    def _look(self) -> None:
        """List, page, get, and list in other forms."""
        whole = self._ask(ALL)
        for target in (ALL, f"{ALL}?resourceVersion=0", f"{ONE}?limit=4&resourceVersion=0"):
            self._ask(target)
        for query in (
            "fieldSelector=status.phase%3DRunning",
            "labelSelector=nodus.dev%2Fjob%21%3D",
        ):
            self._ask(f"{ONE}?{query}")
        for half in _HALVES:
            self._ask(f"{ALL}?{half}")
        page = self._ask(f"{ALL}?limit=4")
        while token := page["metadata"].get("continue"):
            page = self._ask(f"{ALL}?limit=4&continue={quote(token)}")
        for accept in (_METADATA, _TABLE, _TABLE):
            self._ask(ALL, accept)
        for one in whole["items"][:2]:
            self._ask(f"{ALL.removesuffix('attempts')}{_path(one)}")
        for rev in self._seen():
            self._ask(f"{ALL}?resourceVersion={rev}&resourceVersionMatch=Exact")

    def _compared(self) -> None:
        """Wait until the cache was compared with the database once more; never a mismatch (G11)."""
        deadline = self._clock.monotonic() + _DEADLINE
        before = self._comparisons()
        while (now := self._comparisons()).get("ok", 0) <= before.get("ok", 0):
            assert not now.get("mismatch"), f"the cache differed from the database: {now}"
            assert self._clock.monotonic() < deadline, f"the cache was not compared: {now}"
            self._over.wait(_PAUSE)
        assert not now.get("mismatch"), f"the cache differed from the database: {now}"

    def _comparisons(self) -> dict[str, int]:
        with self._open("/metrics", seconds=_DEADLINE) as answer:
            text = answer.read().decode()
        return {result: int(float(count)) for result, count in _COMPARISONS.findall(text)}

    def _events(self) -> list[Event]:
        """Return the events of objects that the watch of everything has shown."""
        everything = self._followed[0]
        events = [event for stream in everything.done for event in stream.events]
        return [event for event in (*events, *everything.events) if event.uid]

    def _seen(self) -> list[int]:
        """Return a few of their revisions, from the first on."""
        revs = sorted({event.rev for event in self._events()})
        return [revs[len(revs) * n // 4] for n in range(4)] if revs else []

    def _resume(self, head: int) -> None:
        """Watch again: from the state, and from revisions that were seen; all, and one object."""
        for target in (f"{ALL}?watch=1&{_STATE}", f"{WATCHES['others']}&resourceVersion=0"):
            self.catch_up(target, 0, head)
        events = self._events()
        for rev in self._seen():
            self.catch_up(f"{ALL}?watch=1", rev, head)
            later = [event for event in events if event.rev > rev]
            if later:
                name = later[len(later) // 2].name
                last = max(event.rev for event in later if event.name == name)
                self.catch_up(f"{ALL}?watch=1&fieldSelector=metadata.name%3D{name}", rev, last)

    def catch_up(self, target: str, rev: int, last: int) -> None:
        """Watch until a revision, or the end of the state, has come, and keep the stream."""
        following = Following(client=f"late-{len(self._streams)}", target=target, position=rev)
        asked, target, status = self.now(), following.resumed(), 0
        with self._open(target, seconds=_DEADLINE) as answer:
            status = answer.status
            while following.position < last and (line := answer.readline()):
                following.take(event_of(line, self.now()))
                if following.events[-1].code or following.events[-1].ends_state:
                    break
        self._streams.append(
            Stream(
                client=following.client,
                target=target,
                asked=asked,
                events=tuple(following.events),
                ending="left",
                status=status,
            )
        )

    def ask(self, target: str, client: str = "test") -> tuple[int, Any]:
        """Get a path as a client, keep the answer, and return its status and decoded body."""
        asked = self.now()
        with self._open(target, seconds=_DEADLINE) as answer:
            status, body = answer.status, answer.read()
        self._keep(client, target, asked, status, body)
        return status, json.loads(body)

    def _ask(self, target: str, accept: str = "") -> Any:
        asked = self.now()
        with self._open(target, seconds=_DEADLINE, accept=accept) as answer:
            status, body = answer.status, answer.read()
        self._keep("recorder", target, asked, status, body, accept)
        return json.loads(body)

    def _keep(
        self,
        client: str,
        target: str,
        asked: datetime,
        status: int,
        body: bytes,
        accept: str = "",
    ) -> None:
        self._answers.append(
            Answer(
                client=client,
                target=target,
                asked=asked,
                answered=self.now(),
                status=status,
                body=body,
                accept=accept,
            )
        )

    # -- Postgres --------------------------------------------------------------------------------

    async def _read_head(self) -> int:
        """Keep the newest revision; return the newest of an object."""
        async with self._database() as database:
            asked = self.now()
            newest = await rows.newest(database)
            answered = self.now()
            self._heads.append(
                Head(asked=asked, answered=answered, rev=newest.head, oldest=newest.oldest)
            )
        return newest.changed

    async def _read_rows(self) -> History:
        """Return what the rows tell, with the machines as they run."""
        async with self._database() as database:
            if not set(LIVES) <= set(self._checkers):
                return History(log=await rows.read_log(database))
            kept = await rows.read(database)
        alive = running(self._server.root / "machines", kept.machines)
        return rows.history_of(kept, alive)

    @asynccontextmanager
    async def _database(self) -> AsyncIterator[Database]:
        url = (self._server.root / "database-url").read_text().strip()
        database = Database(url, role=Role.SCHEDULER, pool_size=1)
        try:
            yield database
        finally:
            await database.close()


def assert_never_differed(log: str) -> None:
    """Fail if any process that wrote to a log found its cache to be wrong (G11)."""
    lines = [line for line in log.splitlines() if _DIFFERS in line]
    assert not lines, lines


def _path(obj: Any) -> str:
    metadata = obj["metadata"]
    return f"namespaces/{metadata['namespace']}/attempts/{metadata['name']}"


def _apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a loop of its own, whatever loop the caller may be in."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(lambda: asyncio.run(work())).result()
