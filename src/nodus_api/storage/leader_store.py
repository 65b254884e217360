"""Who leads, and the line that a leader hangs on (SC-601 to SC-604, SC-614)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from nodus_api.kernel.deadlines import take_over_shift
from nodus_api.storage import tables as t
from nodus_api.storage.attempt_store import fence
from nodus_api.storage.driver import DriverConnection
from nodus_api.storage.engine import Database
from nodus_api.storage.errors import StorageUnavailable
from nodus_api.storage.statements import database_now
from nodus_api.storage.wakeups import LOOP, notify

LEADER_LOCK = 7237381
ANSWER_SECONDS = 10.0

_SESSION = """
SELECT set_config('statement_timeout', '10s', false),
       set_config('tcp_keepalives_idle', '5', false),
       set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reign:
    """What a new leader knows: its token, the installation, and how long nobody led.

    `epoch_began` is the marker of the epoch of revisions that began with this reign, if one did.
    """

    token: int
    since: datetime
    away: timedelta
    installation: UUID
    runner_key: bytes
    epoch_began: int | None = None


class LeaderLine:
    """A dedicated connection that holds the lock and hears the loop's channel.

    Whoever holds the lock leads until this connection ends; `lost` is called then.
    """

    def __init__(self, connection: DriverConnection) -> None:
        self._connection = connection

    async def try_lock(self) -> bool:
        """Take the leader's lock if nobody holds it; never waits."""
        return bool(await self._connection.fetchval("SELECT pg_try_advisory_lock($1)", LEADER_LOCK))

    async def listen(self, wake: Callable[[], None], lost: Callable[[], None]) -> None:
        """Call `wake` at each notification of the loop's channel, `lost` when the line ends."""
        await self._connection.add_listener(LOOP, lambda *_: wake())
        self._connection.add_termination_listener(lambda *_: lost())

    async def check(self) -> None:
        """Ask the server for a sign of life; raises StorageUnavailable if the line is dead.

        A network that swallows everything would leave us waiting for a quarter of an hour.
        """
        try:
            await self._connection.fetchval("SELECT 1", timeout=ANSWER_SECONDS)
        except TimeoutError as error:
            raise StorageUnavailable("the leader's line", "no answer in time") from error


class LeaderStore:
    """The door to leadership."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def line(self) -> AsyncIterator[LeaderLine]:
        """Open the dedicated connection of one candidate."""
        async with self._database.dedicated() as connection:
            await connection.fetch(_SESSION)
            yield LeaderLine(connection)

    async def take_over(self, holder: str) -> Reign:
        """Become the one leader: raise the token, and move limits if nobody led for long.

        Waits for open transactions of the old leader (they share-lock the row), so none
        of its writes lands after this returns. Locks the row of `leader`. First of all it locks the
        feed once: on a server that was promoted or restored the marker of the new epoch is there
        at once, not with the first change (storage.md section 8).
        """
        began = await self._open_feed()
        async with self._database.transaction() as connection:
            row = (
                (
                    await connection.execute(
                        sa.update(t.leader)
                        .values(token=t.leader.c.token + 1, holder=holder, since=database_now)
                        .returning(t.leader.c.token, t.leader.c.since)
                    )
                )
                .mappings()
                .one()
            )
            beat = (await connection.execute(sa.select(t.leader_heartbeat.c.at))).scalar_one()
            away = row["since"] - beat
            shift = take_over_shift(beat, row["since"])
            if shift:
                await connection.execute(_moved_limits(shift))
            await connection.execute(sa.update(t.leader_heartbeat).values(at=row["since"]))
            installation = (await connection.execute(sa.select(t.installation.c.id))).scalar_one()
            key = (await connection.execute(sa.select(t.runner_key.c.key))).scalar_one()
        return Reign(
            token=row["token"],
            since=row["since"],
            away=away,
            installation=installation,
            runner_key=key,
            epoch_began=began,
        )

    async def _open_feed(self) -> int | None:
        """Return the marker of the epoch that begins, because this is another server; else None."""
        async with self._database.transaction() as connection:
            epoch = sa.select(t.feed.c.epoch)
            before = (await connection.execute(epoch)).scalar_one()
            head = (
                await connection.execute(sa.select(sa.func.nodus.start_epoch(False)))
            ).scalar_one()
            after = (await connection.execute(epoch)).scalar_one()
        return int(head) if after != before else None

    async def beat(self, token: int) -> None:
        """Write the leader's sign of life; raises FencedOff if another leads.

        Raises StorageUnavailable where no answer comes: a network may swallow this, too.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._database.transaction() as connection:
                now = await fence(connection, token)
                await connection.execute(sa.update(t.leader_heartbeat).values(at=now))
        except TimeoutError as error:
            raise StorageUnavailable("the leader's heartbeat", "no answer in time") from error

    async def wake_loop(self) -> None:
        """Tell the leader that a command or a report waits; a hint, no payload."""
        await notify(self._database, LOOP)

    async def reachable(self) -> bool:
        """Return True, or raise StorageUnavailable."""
        async with self._database.single_reads() as connection:
            return bool((await connection.execute(sa.select(sa.true()))).scalar())


_MOVED = ("limit_at", "drain_deadline", "drill_at")
"""What a time without a leader may not use up; a drill is not over because nobody looked."""


def _moved_limits(later: timedelta) -> sa.Update:
    """Move every open limit of live Attempts. Uses `attempts_live`; costs no revision."""
    work = t.attempt_work.c
    moved: dict[str, Any] = {name: work[name] + later for name in _MOVED}
    return (
        sa.update(t.attempt_work)
        .where(t.attempts.c.no == work.attempt, t.attempts.c.finished.is_(None))
        .where(sa.or_(*(work[name].is_not(None) for name in _MOVED)))
        .values(moved)
    )
