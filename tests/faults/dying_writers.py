"""A program whose writers are killed, one at each statement of a publishing transaction.

`python -m tests.faults.dying_writers URL` makes a process for each statement and for each way to
die at it; the process begins to commit four Attempts and kills itself there by SIGKILL. A line of
JSON tells what each was to commit, at what it died, and whether it did. The last one of each way
lives.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import uuid5

from sqlalchemy.ext.asyncio import AsyncConnection
from tests.clients.writing import _NAMESPACE, ONE, OTHER, Lives

from nodus_api.clock import SystemClock
from nodus_api.kernel.attempt import Owner
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.storage.driver import Deadline
from nodus_api.storage.engine import Database, Role
from nodus_api.tasks import spawn

AT_ONCE = 4
FIRST_SLOT = 1_000_000
BEFORE, UNANSWERED = "before", "unanswered"
_ON_ITS_WAY = 0.005  # seconds, for a statement to have left the process


class Mortal(Database):
    """A database whose user dies at a statement, BEGIN and COMMIT included."""

    def __init__(self, url: str, number: int, way: str, told: Any) -> None:
        super().__init__(url, role=Role.SCHEDULER, pool_size=1)
        self._left = number
        self._way = way
        self._told = told

    async def at(self, what: str, work: Any) -> Any:
        """Do what is done at a statement, or die."""
        self._left -= 1
        if self._left >= 0:
            return await work
        os.write(self._told, what.encode())
        if self._way == UNANSWERED:
            self._sent = spawn("sent", work)
            await asyncio.sleep(_ON_ITS_WAY)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still alive")

    @contextlib.asynccontextmanager
    async def transaction(
        self, read_only: bool = False, *, deadline: Deadline | None = None
    ) -> AsyncIterator[AsyncConnection]:
        entered = super().transaction(read_only, deadline=deadline)
        connection = await self.at("begin", entered.__aenter__())
        yield cast(AsyncConnection, _Statements(self, connection))
        await self.at("commit", entered.__aexit__(None, None, None))


class _Statements:
    def __init__(self, database: Mortal, connection: AsyncConnection) -> None:
        self._database = database
        self._connection = connection

    async def execute(self, statement: Any, *given: Any) -> Any:
        what = str(getattr(getattr(statement, "table", None), "name", statement))
        return await self._database.at(what, self._connection.execute(statement, *given))


async def write(url: str, first_slot: int, number: int, way: str, told: int) -> None:
    """Commit four Attempts, and wake the readers; die on the way."""
    lives = Lives(
        database=Mortal(url, number, way, told),
        clock=SystemClock(),
        chance=random.Random(number),  # noqa: S311 -- never used
        owners={
            project: Owner(kind=OwnerKind.JOB, name=name, uid=uuid5(_NAMESPACE, name))
            for project, name in ((ONE, "train"), (OTHER, "serve"))
        },
    )
    lives._made = first_slot
    await lives.add(AT_ONCE, ONE)
    await lives.database.close()


def one(url: str, first_slot: int, number: int, way: str) -> tuple[bool, str]:
    """Let one writer live or die; return whether it died, and at what."""
    read, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(write(url, first_slot, number, way, told))
            code = 0
        finally:
            os._exit(code)
    os.close(told)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(read, "rb") as pipe:
        what = pipe.read().decode()
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, (number, way)
    return os.WIFSIGNALED(status), what


def main(url: str) -> None:
    """Go through all statements, both ways."""
    slot = FIRST_SLOT
    for way in (BEFORE, UNANSWERED):
        number, died = 0, True
        while died:
            died, what = one(url, slot, number, way)
            line = {"slots": [str(slot + n) for n in range(AT_ONCE)], "died": died}
            print(json.dumps({**line, "number": number, "way": way, "at": what}), flush=True)  # noqa: T201
            slot += AT_ONCE
            number += 1


if __name__ == "__main__":
    main(sys.argv[1])
