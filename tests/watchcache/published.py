"""Attempts put in through `publish()` and `retire()`, with the plainest rows."""

from uuid import UUID

import orjson
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.watchcache.feed_log import document

from nodus_api.storage.engine import Database
from nodus_api.storage.wakeups import FEED, notify

WORKLOAD = UUID(int=1)
SEL = dict[str, dict[str, str]]


class Publisher:
    """Writes Attempts of one workload in project `default`."""

    def __init__(self, database: Database) -> None:
        """`database` is in the scheduler's role."""
        self._database = database
        self._made = 0

    async def begin(self) -> None:
        """Make the workload."""
        async with self._database.transaction() as connection:
            await connection.execute(
                sa.text(
                    "INSERT INTO nodus.workloads (uid, project, kind, name, spec, created) "
                    "VALUES (:uid, 'default', 'Job', 'train', '{}', nodus.now())"
                ),
                {"uid": WORKLOAD},
            )

    async def add(self, *names: str, phase: str = "Queued") -> int:
        """Insert Attempts and publish them, in one commit; returns the head."""
        numbers = []
        async with self._database.transaction() as connection:
            for name in names:
                self._made += 1
                numbers.append(self._made)
                values = {"no": self._made, "uid": UUID(int=self._made + 1000), "name": name,
                          "workload": WORKLOAD, "slot": str(self._made)}  # fmt: skip
                await connection.execute(
                    sa.text("INSERT INTO nodus.slots (workload, slot) VALUES (:workload, :slot)"),
                    values,
                )
                await connection.execute(
                    sa.text(
                        "INSERT INTO nodus.attempts (no, uid, project, name, workload, slot, "
                        "epoch, stage, queued) OVERRIDING SYSTEM VALUE VALUES "
                        "(:no, :uid, 'default', :name, :workload, :slot, 1, 'Pending', nodus.now())"
                    ),
                    values,
                )
            head = await self._publish(connection, dict(zip(numbers, names, strict=True)), phase)
        await notify(self._database, FEED)
        return head

    async def change(self, number: int, name: str, phase: str) -> int:
        """Publish an Attempt in another phase; returns the head."""
        async with self._database.transaction() as connection:
            await connection.execute(
                sa.text("UPDATE nodus.attempts SET ver = ver WHERE no = :no"), {"no": number}
            )
            head = await self._publish(connection, {number: name}, phase)
        await notify(self._database, FEED)
        return head

    async def retire(self, number: int) -> int:
        """End an Attempt and take it out of the API; returns the head."""
        async with self._database.transaction() as connection:
            await connection.execute(
                sa.text(
                    "UPDATE nodus.attempts SET stage = 'Stopped', reason = 'Stopped', "
                    "finished = nodus.now() WHERE no = :no"
                ),
                {"no": number},
            )
            await self._publish(connection, {number: f"n{number}"}, "Cancelled")
            retired = sa.func.nodus.retire(
                sa.bindparam("nos", [number], sa.ARRAY(sa.BigInteger)),
                sa.bindparam("docs", [b"{}"], sa.ARRAY(sa.LargeBinary)),
            )
            head = (await connection.scalars(sa.select(retired))).one()
        await notify(self._database, FEED)
        return int(head)

    async def _publish(self, connection: AsyncConnection, names: dict[int, str], phase: str) -> int:
        docs, sels = [], []
        for number, name in names.items():
            labels, fields = {"nodus.dev/job": "train"}, {"status.phase": phase}
            docs.append(document(UUID(int=number + 1000), "default", name, labels, fields, 0))
            sels.append(orjson.dumps({"labels": labels, "fields": fields}).decode())
        statement = sa.text("SELECT nodus.publish(:nos, :docs, CAST(:sels AS jsonb[]))").bindparams(
            sa.bindparam("nos", list(names), sa.ARRAY(sa.BigInteger)),
            sa.bindparam("docs", docs, sa.ARRAY(sa.LargeBinary)),
            sa.bindparam("sels", sels, sa.ARRAY(sa.Text)),
        )
        return int((await connection.scalars(statement)).one())
