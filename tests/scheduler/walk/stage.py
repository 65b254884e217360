"""What all walks of a test share."""

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import asyncpg
from tests.conftest import FirstRows
from tests.scheduler.walk.mortal import MortalDatabase

from nodus_api.clock import ManualClock

T = TypeVar("T")


class Errors(logging.Handler):
    """Keeps what the loop could not do by an error of its own: no walk may bring it there."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.said.append(logging.Formatter().format(record))

    def clear(self) -> None:
        self.said.clear()


@dataclass
class Stage:
    """What all walks of a test share: one loop, one database, and who empties it."""

    loop: asyncio.AbstractEventLoop
    database: MortalDatabase
    eyes: "asyncpg.Connection[asyncpg.Record]"
    first_rows: FirstRows
    clock: ManualClock
    errors: Errors = field(default_factory=Errors)
    walks: int = 0
    steps: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(what)
