"""What the objects come to, so that whoever holds a copy can find out whether it is true (G11)."""

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.storage.driver import Deadline
from nodus_api.storage.engine import Database
from nodus_api.storage.feed import ANSWER_SECONDS, HISTORY_TIMEOUT, read_head
from nodus_api.storage.tables import attempt_objects


class DigestSnapshot:
    """The objects in one view of the database, whose newest revision is `head`."""

    def __init__(self, connection: AsyncConnection, head: int, deadline: Deadline) -> None:
        """`deadline` is that of the walk of all objects."""
        self._connection = connection
        self._deadline = deadline
        self.head = head

    async def projects(self) -> dict[str, tuple[int, int]]:
        """Return how many objects each project has, and the sum of their digests."""
        self._deadline.again()
        rows = await self._connection.execute(read_digests())
        return {row.project: (row.count, int(row.total)) for row in rows}


class FeedDigests:
    """Views of one database's objects; raises `storage.errors`, StorageTimeout among them."""

    def __init__(self, database: Database, *, timeout: timedelta = HISTORY_TIMEOUT) -> None:
        """A digest that takes longer than `timeout` is given up."""
        self._database = database
        self._timeout = timeout

    @contextlib.asynccontextmanager
    async def snapshot(self) -> AsyncIterator[DigestSnapshot]:
        """Open one REPEATABLE READ view."""
        deadline = Deadline(ANSWER_SECONDS)
        async with self._database.snapshot(deadline=deadline) as connection:
            milliseconds = str(int(self._timeout.total_seconds() * 1000))
            await connection.execute(
                sa.select(sa.func.set_config("statement_timeout", milliseconds, True))
            )
            head = (await connection.scalars(read_head())).one()
            deadline.seconds += self._timeout.total_seconds()  # the server ends the walk itself
            yield DigestSnapshot(connection, int(head), deadline)


def read_digests() -> sa.Select[Any]:
    """Count, and sum of digests, by project; reads every object once.

    An object's digest are the first 60 bits of the MD5 of `uid rev name sel md5(doc)`: a number
    that changes with any byte of what is served, not one that withstands an adversary.
    """
    stored = attempt_objects.c
    text = sa.func.concat_ws(
        " ",
        sa.cast(stored.uid, sa.Text),
        sa.cast(stored.rev, sa.Text),
        stored.name,
        sa.cast(stored.sel, sa.Text),
        sa.func.md5(stored.doc),
    )
    digits = sa.func.concat("x", sa.func.substr(sa.func.md5(text), 1, 15))
    number = sa.cast(sa.cast(digits, sa.dialects.postgresql.BIT(60)), sa.BigInteger)
    return sa.select(
        stored.project, sa.func.count().label("count"), sa.func.sum(number).label("total")
    ).group_by(stored.project)
