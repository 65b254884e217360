"""A watch as a response: the headers at once, a line an event, a clean end (section 5).

The stream asks its source for events whenever it was woken, so a slow client has no queue here. It
writes through ASGI `send`, at most 64 KiB at a time; a protocol that hands out its transport may
later take that part over without a change to the rest.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from nodus_api.apiserver.answers import Receive, Send
from nodus_api.apiserver.errors import CACHE_ERRORS, StatusRenderer, expired_watch, of_cache
from nodus_api.apiserver.metrics import Metrics
from nodus_api.apiserver.peer import peer_of
from nodus_api.apiserver.render import Rendering
from nodus_api.apiserver.request import Request
from nodus_api.clock import Clock, give_way
from nodus_api.metav1 import watch_event
from nodus_api.metav1.errors import APIError, InternalError
from nodus_api.metav1.list_options import ListOptions
from nodus_api.metav1.negotiation import JSON
from nodus_api.metav1.watch_event import EventType
from nodus_api.tasks import end, spawn
from nodus_api.watchcache.watcher import WatchOver

log = logging.getLogger(__name__)

MOST_BYTES = 64 * 1024
LAST_BOOKMARK_SECONDS = 2.0
SHORTEST_SECONDS = 1.0
"""A watch that ends sooner without an event counts as failed for client-go (LW-145)."""


class Item(Protocol):
    """One change for the client."""

    @property
    def type(self) -> str:
        """ADDED, MODIFIED or DELETED."""
        ...

    @property
    def rev(self) -> int:
        """The change's resourceVersion."""
        ...

    @property
    def body(self) -> bytes:
        """The object, compact, with that resourceVersion."""
        ...


class WatchSource(Protocol):
    """Where a stream takes its events from: a position in some history."""

    @property
    def position(self) -> int:
        """Everything up to here was taken, or stands in the initial events."""
        ...

    @property
    def process_position(self) -> int:
        """How far the process has come."""
        ...

    @property
    def over(self) -> str | None:
        """Why the stream must end, None while it runs."""
        ...

    def initial_pieces(self) -> Iterator[Sequence[tuple[int, bytes]]] | None:
        """Give the initial objects with their revisions, rising; None where none were asked."""
        ...

    async def take(self) -> Sequence[Item]:
        """Return the next changes; empty when nothing is left. Raises WatchOver."""
        ...

    async def wait(self) -> None:
        """Wait until woken."""
        ...

    async def crowded(self, unsent: int) -> bool:
        """Return whether much waits for the client, `unsent` bytes of it taken already (AS-093)."""
        ...

    def wake_at(self, due: float) -> None:
        """Wake at a moment of the monotonic clock."""
        ...

    def end(self, why: str) -> None:
        """End the stream cleanly."""
        ...

    def close(self) -> None:
        """Take the source out of its registry."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTimes:
    """Seconds that bound a stream."""

    lasts: float
    bookmark_interval: float
    stuck: float
    stuck_in_the_way: float


class WatchStream:
    """Answers one watch."""

    def __init__(
        self,
        begin: Callable[[], Awaitable[WatchSource]],
        *,
        options: ListOptions,
        rendering: Rendering,
        times: StreamTimes,
        clock: Clock,
        statuses: StatusRenderer,
        metrics: Metrics,
        opened: Callable[[Request, WatchSource], Callable[[], None]],
    ) -> None:
        """`begin` finds the source; `opened` registers it and returns what takes it out again."""
        self._begin = begin
        self._options = options
        self._rendering = rendering
        self._times = times
        self._clock = clock
        self._statuses = statuses
        self._metrics = metrics
        self._opened = opened
        self._started = 0.0
        self._first = True
        self._last_sent = 0

    async def send(self, request: Request, receive: Receive, send: Send) -> None:
        """Run the watch to its end; the response is always ended cleanly."""
        self._started = self._clock.monotonic()
        out = _Writer(request, send, self._times, self._metrics)
        await out.start()
        self._metrics.running(request.info, 1)
        try:
            await self._run(request, receive, out)
        except CACHE_ERRORS as error:
            await self._fail(request, out, of_cache(error, too_old=expired_watch))
        except Exception:
            # the stream stands at the end of an event, so it can say so and end cleanly (AS-094)
            log.exception("a watch failed", extra={"request_id": request.request_id})
            await self._fail(request, out, InternalError(request.request_id))
        finally:
            self._metrics.running(request.info, -1)
        if out.alive:
            await self._not_too_short()
            await out.finish()

    async def _fail(self, request: Request, out: "_Writer", error: APIError) -> None:
        """Send the ERROR event that ends a stream (LW-140)."""
        status = self._statuses.status(error, request.request_id)
        self._first = False
        await out.write(watch_event.error(status))

    async def _run(self, request: Request, receive: Receive, out: "_Writer") -> None:
        source = await self._begin()
        closed = self._opened(request, source)
        ends = self._started + self._times.lasts
        out.ending = lambda: source.over is not None or self._clock.monotonic() >= ends
        out.crowded = source.crowded
        listener = spawn("watch-disconnect", _until_disconnect(receive, source, out))
        try:
            if await self._send_initial(source, out):
                await self._send_changes(source, out)
        finally:
            closed()
            source.close()
            await end(listener)

    # -- initial events --------------------------------------------------------------------

    async def _send_initial(self, source: WatchSource, out: "_Writer") -> bool:
        """Send the state of the start; return False where the stream had to end before its end.

        Nothing may follow then: whoever resumes from a later revision would miss the rest.
        """
        initial = source.initial_pieces()
        if initial is None:
            self._last_sent = source.position
            return True
        for piece in initial:
            if source.over is not None:
                return False
            await self._send_events(out, [(EventType.ADDED, body, rev) for rev, body in piece])
            await give_way()
        if self._options.allow_watch_bookmarks:
            await self._bookmark(out, source.position, ends_initial=True)
        return True

    # -- changes ---------------------------------------------------------------------------

    async def _send_changes(self, source: WatchSource, out: "_Writer") -> None:
        ends = self._started + self._times.lasts
        last_bookmark = ends - LAST_BOOKMARK_SECONDS
        due = min(self._clock.monotonic() + self._times.bookmark_interval, last_bookmark)
        source.wake_at(min(due, ends))
        with suppress(WatchOver):
            while out.alive:
                while changes := await source.take():
                    events = [(EventType[item.type], item.body, item.rev) for item in changes]
                    await self._send_events(out, events)
                    if source.over is not None or not out.alive:
                        break
                now = self._clock.monotonic()
                if source.over is not None or now >= ends:
                    break
                if now >= due:
                    await self._progress(source, out)
                    due = now + self._times.bookmark_interval
                    due = last_bookmark if now < last_bookmark < due else due
                    source.wake_at(min(due, ends))
                await source.wait()
        if source.over is not None:
            await self._progress(source, out)

    async def _send_events(
        self, out: "_Writer", events: Sequence[tuple[EventType, bytes, int]]
    ) -> None:
        """Send events, each its type, object and revision; ages are as of now (LW-252)."""
        rendering = self._rendering.at(self._clock.now())
        lines = []
        for kind, body, rev in events:
            lines.append(rendering.event(kind, body, rev, first=self._first))
            self._first = False
            self._last_sent = rev
        self._metrics.watch_events(rendering.form.resource, lines)
        await out.write(b"".join(lines))

    async def _progress(self, source: WatchSource, out: "_Writer") -> None:
        """Send a bookmark if one was allowed and everything before it was sent (LW-136)."""
        caught_up = source.position >= source.process_position
        if self._options.allow_watch_bookmarks and caught_up and source.position > self._last_sent:
            await self._bookmark(out, source.position)

    async def _bookmark(self, out: "_Writer", rev: int, *, ends_initial: bool = False) -> None:
        line = self._rendering.bookmark(rev, first=self._first, ends_initial=ends_initial)
        self._first = False
        self._last_sent = rev
        await out.write(line)

    async def _not_too_short(self) -> None:
        passed = self._clock.monotonic() - self._started
        if self._first and passed < SHORTEST_SECONDS:
            await self._clock.sleep(SHORTEST_SECONDS - passed)


class _Writer:
    """Writes the body in pieces; a peer that takes nothing for too long is cut off (AS-093)."""

    def __init__(self, request: Request, send: Send, times: StreamTimes, metrics: Metrics) -> None:
        self._request = request
        self._send = send
        self._times = times
        self._metrics = metrics
        self.alive = True
        self.ending: Callable[[], bool] = lambda: False
        """Whether the stream is to end: then a peer that takes nothing gets less time (LW-144)."""
        self.crowded: Callable[[int], Awaitable[bool]] = _never
        """Whether much waits besides so many bytes: then it gets less time, too (AS-093)."""
        self._unsent = 0

    async def start(self) -> None:
        """Send status and headers at once, before any event (LW-121)."""
        peer_of(self._request.scope).begin_stream()
        await self._send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", JSON.encode()), (b"x-accel-buffering", b"no")],
            }
        )

    async def write(self, data: bytes) -> None:
        """Send lines, at most 64 KiB at a time."""
        for at in range(0, len(data), MOST_BYTES):
            if not self.alive:
                return
            self._unsent = len(data) - at
            await self._body(data[at : at + MOST_BYTES])
        self._unsent = 0

    async def finish(self) -> None:
        """End the body cleanly (LW-144)."""
        self.ending = lambda: True
        await self._body(b"", more=False)

    async def _body(self, data: bytes, *, more: bool = True) -> None:
        peer = peer_of(self._request.scope)
        taken, stood = peer.acknowledged(), 0.0
        pause = min(self._times.stuck, self._times.stuck_in_the_way)
        while stood < await self._patience(taken, stood):
            try:
                async with asyncio.timeout(pause):
                    await self._send(
                        {"type": "http.response.body", "body": data, "more_body": more}
                    )
                return
            except TimeoutError:
                # the server waits for room before it writes, so a second try repeats nothing
                before, taken = taken, peer.acknowledged()
                stood = stood + pause if taken is None or taken == before else 0.0
        self.alive = False
        self._metrics.terminated_watchers += 1
        peer.abort()

    async def _patience(self, taken: int | None, stood: float) -> float:
        """Return how long the peer may stand still; the longer time where none can see it move."""
        if stood == 0.0 or taken is None:
            return self._times.stuck
        in_the_way = self.ending() or await self.crowded(self._unsent)
        return self._times.stuck_in_the_way if in_the_way else self._times.stuck


async def _never(_unsent: int) -> bool:
    return False


async def _until_disconnect(receive: Receive, source: WatchSource, out: _Writer) -> None:
    """End the source when the client is gone (LW-148)."""
    while (await receive())["type"] != "http.disconnect":
        pass
    out.alive = False
    source.end("the client left")
