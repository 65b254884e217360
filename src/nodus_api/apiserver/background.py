"""The tasks that run for as long as the application does, started by ASGI lifespan."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from nodus_api.apiserver.answers import Receive, Send
from nodus_api.tasks import end, spawn

log = logging.getLogger(__name__)


class Background:
    """Owns the background tasks: starts them, and ends them with the server."""

    def __init__(self, runs: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        """`runs` are endless coroutines by the name of their task."""
        self._runs = runs
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start every task."""
        self._tasks = [spawn(name, _logged(name, run)) for name, run in self._runs.items()]

    async def stop(self) -> None:
        """End every task."""
        for task in reversed(self._tasks):
            await end(task)
        self._tasks = []

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


async def _logged(name: str, run: Callable[[], Awaitable[None]]) -> None:
    try:
        await run()
    except Exception:  # the task's edge: nobody awaits it before the end
        log.exception("a background task ended", extra={"task": name})
