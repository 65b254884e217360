"""What every client program here shares: telling what it sees, folding it, and ending by SIGTERM.

A line of output is a JSON object: an event that a client saw (`event`, `uid`, `name`, `rv`), where
a stream begins (`stream`: `state` or `resume`, `from`), a list (`list`, `items`), what the client
holds at the end (`store`), or an error that it got over (`error`).
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

PAUSE = 0.3  # seconds before another watch
LIST_PAUSE = 1.0  # seconds before another list
WATCH_SECONDS = 3
PAGE = 7
_output = threading.Lock()


def tell(client: str, **said: Any) -> None:
    """Write one line."""
    line = json.dumps({"client": client, **said})
    with _output:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def tell_list(client: str, version: str, items: Iterable[Any]) -> None:
    """Tell a list of objects, as dicts."""
    found = [[one["metadata"]["uid"], one["metadata"]["resourceVersion"]] for one in items]
    tell(client, list=version, items=found)


class View:
    """What one client knows: the events folded, as a program that uses it would."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.store: dict[str, Any] = {}
        self.version = ""
        self._ready = False
        views.append(self)

    def begins(self) -> None:
        """A stream begins: with the state at first, later from the last version seen."""
        if self.version:
            tell(self.client, stream="resume", **{"from": self.version})
        else:
            self.forgets()

    def forgets(self) -> None:
        """A stream begins with the state."""
        self.store = {}
        tell(self.client, stream="state")

    def ready(self) -> None:
        if not self._ready:
            self._ready = True
            tell(self.client, ready=True)

    def took(self, kind: str, obj: Any) -> None:
        """Take an event."""
        metadata = obj["metadata"]
        self.version = metadata["resourceVersion"]
        if kind == "DELETED":
            self.store.pop(metadata["uid"], None)
        elif kind != "BOOKMARK":
            self.store[metadata["uid"]] = obj
        said = {"uid": metadata.get("uid", ""), "name": metadata.get("name", "")}
        tell(self.client, event=kind, rv=self.version, **said)
        self.ready()

    def failed(self, error: object) -> None:
        tell(self.client, error=f"{type(error).__name__}: {error}"[:500])


views: list[View] = []


def tell_stores() -> None:
    for view in views:
        tell(view.client, store=list(view.store.values()))


def again(client: str, once: Callable[[], None], pause: float = PAUSE) -> Callable[[], None]:
    """Return a loop that repeats something for ever, and tells what it failed of."""

    def loop() -> None:
        while True:
            try:
                once()
            except Exception as error:
                tell(client, error=f"{type(error).__name__}: {error}"[:500])
            time.sleep(pause)

    return loop


async def again_async(
    client: str, once: Callable[[], Awaitable[None]], pause: float = PAUSE
) -> None:
    """Do the same on an event loop."""
    while True:
        try:
            await once()
        except Exception as error:
            tell(client, error=f"{type(error).__name__}: {error}"[:500])
        await asyncio.sleep(pause)


def run(*loops: Callable[[], None]) -> None:
    """Run each loop on a thread of its own until SIGTERM, then tell what every view holds."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    for loop in loops:
        threading.Thread(target=loop, daemon=True).start()
    while not over.wait(0.1):
        pass
    tell_stores()
    os._exit(0)  # the threads stand in reads that never end
