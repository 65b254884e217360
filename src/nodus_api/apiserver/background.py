"""The tasks that run for as long as the application does, started by ASGI lifespan."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from nodus_api.apiserver.answers import Receive, Send
from nodus_api.clock import Clock
from nodus_api.tasks import Crashes, end, spawn

RETRY_SECONDS = 1.0

log = logging.getLogger(__name__)


class Background:
    """Owns the background tasks: starts them, again after a crash, and ends them (AS-094)."""

    def __init__(self, runs: Mapping[str, Callable[[], Awaitable[None]]], *, clock: Clock) -> None:
        """`runs` are endless coroutines by the name of their task."""
        self._runs = runs
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self.crashes = {name: Crashes(clock) for name in runs}

    def start(self) -> None:
        """Start every task."""
        self._tasks = [spawn(name, self._kept_alive(name, run)) for name, run in self._runs.items()]

    async def stop(self) -> None:
        """End every task."""
        for task in reversed(self._tasks):
            await end(task)
        self._tasks = []

    def problem(self) -> str | None:
        """Return which task crashes again and again, None if none does."""
        names = [name for name, crashes in self.crashes.items() if crashes.often()]
        return f"crashed three times within a minute: {', '.join(names)}" if names else None

    async def lifespan(self, receive: Receive, send: Send) -> None:
        """Answer the two messages of ASGI lifespan."""
        try:
            while True:
                message = await receive()
                if message["type"] == "lifespan.startup":
                    self.start()
                    await send({"type": "lifespan.startup.complete"})
                else:
                    await self.stop()
                    await send({"type": "lifespan.shutdown.complete"})
                    return
        finally:
            await self.stop()

    async def _kept_alive(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await run()
            except Exception:  # the task's edge: nobody awaits it before the end
                log.exception("a background task crashed and starts again", extra={"task": name})
            self.crashes[name].note()  # an endless task that returns is as bad
            await self._clock.sleep(RETRY_SECONDS)
