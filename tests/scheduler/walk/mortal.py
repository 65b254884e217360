"""A database whose user dies before its n-th statement or commit."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from nodus_api.storage.engine import Database, Role


class Killed(BaseException):
    """The process died here: no handler of the product may catch it."""


class MortalDatabase(Database):
    """Counts statements and commits; at the one chosen, and at all later ones, it kills."""

    def __init__(self, url: str, *, pinned_now: Callable[[], datetime]) -> None:
        super().__init__(url, role=Role.SCHEDULER, plan_once=True, pinned_now=pinned_now)
        self.left: int | None = None
        """So many more statements and commits live; None: for ever."""
        for event in ("before_cursor_execute", "commit"):
            sa.event.listen(self._engine.sync_engine, event, self._count)

    def _count(self, *_: Any) -> None:
        if self.left is not None:
            if self.left <= 0:
                raise Killed
            self.left -= 1
