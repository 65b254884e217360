"""The stream over a source that the test plays: what a bookmark may promise."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
from tests.asgi_client import Message
from tests.watchcache.feed_log import document

from nodus_api.apiserver.errors import StatusRenderer
from nodus_api.apiserver.metrics import Metrics
from nodus_api.apiserver.render import ATTEMPT_FORM, Rendering
from nodus_api.apiserver.request import Request, read_request_info
from nodus_api.apiserver.streaming import StreamTimes, WatchStream
from nodus_api.clock import ManualClock
from nodus_api.metav1.list_options import ListOptions
from nodus_api.metav1.negotiation import PLAIN
from nodus_api.metav1.table import IncludeObject
from nodus_api.watchcache.watcher import Delivery

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Source:
    """Has one event to give; then it ends, with more in the process than was taken."""

    def __init__(self, *, position: int, process_position: int) -> None:
        self.position = 10
        self.process_position = process_position
        self.over: str | None = None
        self._after = position

    def initial_pieces(self) -> Iterator[Sequence[tuple[int, bytes]]] | None:
        return None

    async def take(self) -> Sequence[Delivery]:
        if self.over is not None:
            return []
        self.over, self.position = "the server stops", self._after
        body = document(  # a document of the log, its resourceVersion put in
            UUID(int=1), "p", "a", {}, {}, 0
        )
        return [Delivery("ADDED", 12, body)]

    async def wait(self) -> None:
        await asyncio.sleep(0)

    async def crowded(self, unsent: int) -> bool:
        raise AssertionError("whoever reads is not asked for")

    def wake_at(self, due: float) -> None:
        """Time stands still here."""

    def end(self, why: str) -> None:
        self.over = why

    def close(self) -> None:
        """Nothing is held."""


async def lines_of(source: Source, *, bookmarks: int = 1) -> list[Any]:
    clock, metrics = ManualClock(START), Metrics()
    scope = {"type": "http", "method": "GET", "state": {}, "headers": []}
    path = b"/apis/nodus.dev/v1/attempts"
    request = Request(
        scope=scope,
        info=read_request_info("GET", path, {"watch": "1"}),
        query={},
        audit_id="a",
        request_id="a",
        received=0.0,
    )

    async def begin() -> Source:
        return source

    stream = WatchStream(
        begin,
        options=ListOptions.parse(f"watch=1&resourceVersion=10&allowWatchBookmarks={bookmarks}"),
        rendering=Rendering(
            form=ATTEMPT_FORM, representation=PLAIN, include=IncludeObject.METADATA, now=START
        ),
        times=StreamTimes(lasts=100.0, bookmark_interval=60.0, stuck=5.0, stuck_in_the_way=5.0),
        clock=clock,
        statuses=StatusRenderer(""),
        metrics=metrics,
        opened=lambda _request, _source: lambda: None,
    )
    sent = b""

    async def send(message: Message) -> None:
        nonlocal sent
        sent += message.get("body", b"")

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("the client stays")

    await stream.send(request, receive, send)
    return [orjson.loads(line) for line in sent.splitlines()]


async def test_a_bookmark_before_the_end_tells_where_everything_was_sent() -> None:  # LW-136
    events = await lines_of(Source(position=15, process_position=15))

    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["resourceVersion"] == "15"


async def test_no_bookmark_to_whom_did_not_allow_one() -> None:  # LW-136
    events = await lines_of(Source(position=15, process_position=15), bookmarks=0)

    assert [event["type"] for event in events] == ["ADDED"]


async def test_no_bookmark_over_what_was_not_taken() -> None:  # LW-136, LW-137, AS-095
    """A stream that ends with changes left must not tell the client that it has them."""
    events = await lines_of(Source(position=15, process_position=20))

    assert [event["type"] for event in events] == ["ADDED"]
