"""A writer that goes on through every fault, and remembers when it could write."""

import asyncio
import random
import threading
from collections.abc import Mapping

import sqlalchemy as sa
from tests.cli.live import eventually
from tests.clients.writing import Lives

from nodus_api.attempts.projection import render
from nodus_api.clock import SystemClock
from nodus_api.kernel.attempt import AttemptView
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import StorageError

LOAD = "load"
"""What its sessions are called."""

_PACE = 0.1
_AGAIN = 0.05
_SEED = 7


class Load:
    """Commits real lives of Attempts, on a thread of its own, straight to Postgres.

    A commit whose answer was lost may have been made or not: that is looked up then.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._clock = SystemClock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._write()), name="load")
        self.wrote: list[float] = []
        """When each commit was answered, in monotonic seconds."""
        self.refused: list[str] = []

    def first(self, since: float) -> float:
        """Wait for the first commit after a moment; return when it was answered."""
        eventually(lambda: self.wrote and self.wrote[-1] > since, 60)
        return next(moment for moment in list(self.wrote) if moment > since)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    async def _write(self) -> None:
        lives = Lives(
            database=Database(self._url, role=Role.SCHEDULER, pool_size=2),
            clock=self._clock,
            chance=random.Random(_SEED),  # noqa: S311 -- a load, not a secret
        )
        try:
            await lives.begin()
            await self._go_on(lives)
        finally:
            await lives.database.close()

    async def _go_on(self, lives: Lives) -> None:
        before = lives.views
        while not self._over.is_set():
            try:
                if lives.views is not before:
                    await settle(lives, before)
                before = lives.views
                lives.views = dict(before)
                await lives.step()
                before = lives.views
                self.wrote.append(self._clock.monotonic())
                await self._clock.sleep(_PACE)
            except StorageError as error:
                self.refused.append(str(error))
                await self._clock.sleep(_AGAIN)


async def settle(lives: Lives, before: Mapping[int, AttemptView]) -> None:
    """See what became of a commit that was not answered: all of it was made, or nothing."""
    async with lives.database.snapshot() as connection:
        columns = (t.attempt_objects.c.attempt, t.attempt_objects.c.doc)
        rows = await connection.execute(sa.select(*columns))
        stored = {row.attempt: bytes(row.doc) for row in rows}
    made = lives.views
    for views in (made, before):
        if all(render(view).doc == stored.get(no) for no, view in views.items()):
            lives.views = dict(views)
            return
    gone = {no: view for no, view in made.items() if no in stored}
    assert all(render(view).doc == stored[no] for no, view in gone.items()), "half a commit"
    lives.views = gone
