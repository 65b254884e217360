"""A scheduler over real Postgres, a fake supplier and a clock that stands; tests move all three."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from tests.scheduler.fake_supplier import FakeSupplier

from nodus_api.clock import ManualClock
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.scheduler import Pace, Passes, Scheduler
from nodus_api.scheduler.intents import token_hash
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database
from nodus_api.storage.leader_store import LeaderStore
from nodus_api.storage.report_store import GivenReport, ReportStore, Standing
from nodus_api.suppliers.supplier import MachineIntent, Supplier

_commands = itertools.count(1)


@dataclass
class Runner:
    """What a runner on one machine sends: reports counted by n."""

    database: Database
    intent: MachineIntent
    n: int = 0

    async def report(
        self, kind: str, *, age: float = 0.0, n: int | None = None, **body: Any
    ) -> Standing | None:
        if n is None:
            self.n += 1
        return await ReportStore(self.database).accept(
            token_hash(self.intent.token),
            GivenReport(
                attempt=self.intent.attempt_uid,
                epoch=self.intent.epoch,
                n=self.n if n is None else n,
                kind=kind,
                age=timedelta(seconds=age),
                body=body,
            ),
        )


@dataclass
class World:
    database: Database
    clock: ManualClock
    supplier: Supplier
    pace: Pace = field(default_factory=Pace)
    passes: Passes | None = None
    runners: dict[str, Runner] = field(default_factory=dict)

    @property
    def fake(self) -> FakeSupplier:
        assert isinstance(self.supplier, FakeSupplier)
        return self.supplier

    async def lead(self, holder: str = "test") -> Passes:
        """Begin a reign with a new scheduler object, as after a crash of the last one."""
        reign = await LeaderStore(self.database).take_over(holder)
        scheduler = Scheduler(self.database, self.supplier, self.clock, pace=self.pace)
        self.passes = scheduler.passes(reign)
        return self.passes

    async def settle(self, seconds: float = 0.0) -> None:
        """Let time pass, then make passes until one leaves nothing to do."""
        await self.clock.advance(seconds)
        passes = self.passes or await self.lead()
        await LeaderStore(self.database).beat(passes.loop.reign.token)
        for turn in range(30):
            again = await passes.once(full=turn == 0)
            await passes.loop.calls.settled()
            if not again and passes.loop.calls.idle:
                return
        raise AssertionError("the passes never settle")

    async def ask(
        self,
        verb: str,
        target: str = "train",
        kind: str | None = "Job",
        *,
        project: str = "default",
        **body: Any,
    ) -> int:
        async with self.database.transaction() as connection:
            row = {
                "key": f"key-{next(_commands)}",
                "project": project,
                "verb": verb,
                "kind": kind,
                "target": target,
                "body": body,
                "asked_by": "test",
            }
            answer = await connection.execute(
                sa.insert(t.commands).values(row).returning(t.commands.c.no)
            )
            return int(answer.scalar_one())

    async def submit(
        self,
        name: str = "train",
        *,
        kind: OwnerKind = OwnerKind.JOB,
        project: str = "default",
        **spec: Any,
    ) -> int:
        given = {"template": {"command": ["true"]}} | spec
        whole = WorkloadSpec.from_json(kind, given).to_json()
        return await self.ask("submit", name, kind.value, project=project, spec=whole)

    async def run(self, **spec: Any) -> Runner:
        """Submit a workload, and bring its first Attempt to Running."""
        await self.submit(**spec)
        await self.settle()
        return await self.start()

    async def outcome(self, command: int) -> str | None:
        query = sa.select(t.commands.c.outcome).where(t.commands.c.no == command)
        async with self.database.single_reads() as connection:
            found: str | None = (await connection.execute(query)).scalar_one()
        return found

    async def all_documents(self) -> list[dict[str, Any]]:
        """Return the published documents."""
        async with self.database.single_reads() as connection:
            docs = (await connection.execute(sa.select(t.attempt_objects.c.doc))).scalars().all()
        return [json.loads(doc) for doc in docs]

    async def documents(self) -> dict[str, dict[str, Any]]:
        """Return the published documents by `slot/epoch`, of a world with one workload."""
        found = await self.all_documents()
        return {f"{one['spec']['slot']}/{one['spec']['epoch']}": one for one in found}

    async def status(self, which: str = "0/1") -> dict[str, Any]:
        documents = await self.documents()
        status: dict[str, Any] = documents[which]["status"]
        return status

    async def stage(self, which: str = "0/1") -> str:
        return str((await self.status(which))["progress"]["stage"])

    async def runner(self, which: str = "0/1") -> Runner:
        """Return the runner of an Attempt's latest machine."""
        return self._runner((await self.documents())[which]["metadata"]["uid"])

    async def runner_of(self, owner: str) -> Runner:
        """Return the runner of the one Attempt of a workload."""
        for one in await self.all_documents():
            if one["metadata"]["ownerReferences"][0]["name"] == owner:
                return self._runner(one["metadata"]["uid"])
        raise LookupError(owner)

    def _runner(self, uid: str) -> Runner:
        intents = [one for one in self.fake.intents.values() if str(one.attempt_uid) == uid]
        intent = intents[-1]
        known = self.runners.get(intent.key)
        if known is None or known.intent.fence != intent.fence:  # another tenant of the machine
            self.runners[intent.key] = Runner(self.database, intent)
        return self.runners[intent.key]

    async def start(self, which: str = "0/1") -> Runner:
        """Bring an Attempt from its grant to Running, a second a step."""
        runner = await self.runner(which)
        await runner.report("registered", checks={}, pullMs=0)
        await self.settle(1)
        standing = await runner.report("canStart")
        assert standing is not None
        assert not standing.won
        await self.settle()
        standing = await runner.report("canStart")
        assert standing is not None
        assert standing.won
        await self.settle(1)
        await runner.report("started")
        await self.settle()
        return runner

    async def workload(self) -> Mapping[str, Any]:
        async with self.database.single_reads() as connection:
            row = (await connection.execute(sa.select(t.workloads))).mappings().one()
        return dict(row)

    async def workloads(self) -> list[Mapping[str, Any]]:
        return await self.rows(t.workloads)

    async def rows(self, table: sa.Table) -> list[Mapping[str, Any]]:
        async with self.database.single_reads() as connection:
            query = sa.select(table).order_by(*table.primary_key)
            return [dict(row) for row in (await connection.execute(query)).mappings()]
