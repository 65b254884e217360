"""Watches of both servers, side by side: opened, written to, read until both say the same.

Bookmarks that only tell how far a server is come by its clock; they are kept apart.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from tests.apiserver.raw import Answer, Connection
from tests.differential.asking import Ask, common, comparable, connect
from tests.differential.pair import Pair, Side

from nodus_api.clock import SystemClock
from nodus_api.tasks import end, spawn

END_OF_STATE = "k8s.io/initial-events-end"
_EVENT = b'{"type":"'
_PATIENCE = 60.0
_QUIET = 1.0
"""Seconds without any event after which what is the same on both sides counts as all."""
_AT_ONCE = 16
"""How many connections are opened at once."""


@dataclass
class Stream:
    """One watch of one server; `state` is how many events came before the writes."""

    side: Side
    connection: Connection
    answer: dict[str, Any] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)
    progress: list[Any] = field(default_factory=list)
    state: int = 0
    over: bool = False
    columns: list[Any] = field(default_factory=list)
    _head: Answer = field(default_factory=lambda: Answer(0))

    async def begin(self, one: Ask) -> None:
        """Ask, and read what comes at once: a refusal, or the headers of a stream."""
        self.connection.writer.write(one.raw(self.side))
        self._head = await self.connection.head()
        if b"transfer-encoding" not in self._head.headers:
            length = int(self._head.headers.get(b"content-length", [b"0"])[0])
            self._head.body = await self.connection.reader.readexactly(length)
            self.over = True
        self.answer = comparable(self._head, self.side)

    async def read(self) -> None:
        """Read events until the stream ends; or a body in chunks, which is none."""
        left = b""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while chunk := await self.connection.chunk():
                left += chunk
                if not left.startswith(_EVENT[: len(left)]):
                    continue
                *lines, left = left.split(b"\n")
                for line in lines:
                    self._take(orjson.loads(line))
            self.answer["end"] = "clean"
            if left:
                self._head.body = left
                self.answer = comparable(self._head, self.side)
        self.over = True

    def _take(self, event: Any) -> None:
        if event["type"] == "BOOKMARK" and END_OF_STATE not in str(event):
            self.progress.append(event)
        else:
            self.events.append(event)

    def seen(self) -> dict[str, Any]:
        """Return all that came, comparable with what the other server sent.

        The columns of a Table are told apart from its events, since kube-apiserver lets watchers
        share encoded events: some of its later ones have them, and some first ones have not.
        """
        found = [common(event, self.side) for event in self.events]
        state, changes = found[: self.state], found[self.state :]
        self.columns = [_columns(event) for event in found]
        return self.answer | {
            "columns": next(filter(None, self.columns), None),
            "order of the state": tuple(
                (int(_version(event)[1:]), _name(event))
                for event in state
                if event["type"] == "ADDED"
            ),
            "state": sorted(state, key=lambda event: (event["type"], _name(event))),
            "changes": changes,
        }


@dataclass
class Watch:
    """The same watch of both."""

    ask: Ask
    kube: Stream
    ours: Stream

    def seen(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what both saw, comparable; of the progress, the form alone."""
        kube, ours = self.kube.seen(), self.ours.seen()
        if self.kube.progress and self.ours.progress:
            for found, stream in ((kube, self.kube), (ours, self.ours)):
                found["progress"] = _versionless(common(stream.progress[0], stream.side))
                _columns(found["progress"])
        return kube, ours

    @property
    def even(self) -> bool:
        """Whether both have sent as much."""
        return len(self.kube.events) == len(self.ours.events) and self.kube.over == self.ours.over

    @property
    def count(self) -> int:
        """How much has come; a stream's end counts, too."""
        both = (self.kube, self.ours)
        return sum(len(stream.events) + stream.over for stream in both)

    @property
    def over(self) -> bool:
        """Whether both have ended."""
        return self.kube.over and self.ours.over


async def watch_all(
    pair: Pair,
    asks: Sequence[Ask],
    write: Callable[[Pair], Awaitable[None]] | None,
    until: Callable[[Watch], bool] = lambda watch: watch.even,
) -> list[Watch]:
    """Open every watch, write, and return what each saw of it; `until` says when that is all."""
    opened = asyncio.Semaphore(_AT_ONCE)

    async def stream(one: Ask, side: Side) -> Stream:
        async with opened:
            made = Stream(side, await connect(side.port, side.context))
            await made.begin(one)
            return made

    async def both(one: Ask) -> Watch:
        kube, ours = await asyncio.gather(*(stream(one, side) for side in pair.sides))
        return Watch(one, kube, ours)

    watches = await asyncio.gather(*map(both, asks))
    streams = [one for watch in watches for one in (watch.kube, watch.ours)]
    readers = [spawn("watch", one.read()) for one in streams if not one.over]
    try:
        await _settled(watches, lambda watch: until(watch) or (write is not None and watch.even))
        for one in streams:
            one.state = len(one.events)
        if write is not None:
            await write(pair)
            await _settled(watches, until)
    finally:
        for reader in readers:
            await end(reader)
        for one in streams:
            one.connection.writer.transport.abort()
    return watches


async def _settled(watches: Sequence[Watch], until: Callable[[Watch], bool]) -> None:
    """Wait until all is there and nothing more comes; or long enough to say that it never is."""
    clock = SystemClock()
    changed = clock.monotonic()
    deadline = changed + _PATIENCE
    count = -1
    while clock.monotonic() < deadline:
        now = sum(watch.count for watch in watches)
        if now != count:
            count, changed = now, clock.monotonic()
        elif clock.monotonic() - changed > _QUIET and all(map(until, watches)):
            return
        await clock.sleep(0.05)


def _versionless(value: Any) -> Any:
    """Leave the versions out: each server tells its progress by its own clock."""
    if isinstance(value, dict):
        return {
            key: "a version" if key == "resourceVersion" else _versionless(one)
            for key, one in value.items()
        }
    return [_versionless(one) for one in value] if isinstance(value, list) else value


def _columns(event: Any) -> Any:
    """Take the columns out of a Table, which the first event of a stream has."""
    table = event["object"]
    return table.pop("columnDefinitions") if table.get("kind") == "Table" else None


def _name(event: Any) -> str:
    table = event["object"]
    if table.get("kind") == "Table":
        row = table["rows"][0]
        if not row["object"]:
            return str(row["cells"][0])
        table = row["object"]
    metadata = table.get("metadata", {})
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def _version(event: Any) -> str:
    return str(event["object"].get("metadata", {}).get("resourceVersion", ""))
