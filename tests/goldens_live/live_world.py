"""One host in one process: Postgres, loop, local machines, their runners, and the API over HTTPS.

Everything is real but the passing of time: the database's clock stands until a test moves it, so
that minutes pass at once and each moment in a document is one that the test chose. Three doors hold
what would else happen too fast to be seen: runners reach the scheduler once `open_door` was called,
machines are made unless `creating` is clear, and deleted while `deleting` is set.
"""

import asyncio
import bisect
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4, uuid5

import httpx
import sqlalchemy as sa
from tests.history import rows
from tests.history.checking import assert_sound
from tests.history.processes import running
from tests.scheduler.world import World
from tests.suppliers.conformance import an_intent

from nodus_api.clock import ManualClock, SystemClock
from nodus_api.runner.identity import read_identity, read_spawned
from nodus_api.runner.session import kill_members, process_stat
from nodus_api.scheduler import Scheduler
from nodus_api.scheduler.context import Pace
from nodus_api.scheduler.listening import unix_socket
from nodus_api.scheduler.reports import ReportServer
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database
from nodus_api.storage.report_store import ReportStore
from nodus_api.suppliers.local import LocalSupplier
from nodus_api.suppliers.supplier import (
    DeletionObservation,
    FaultInjection,
    MachineIntent,
    MachineView,
    Notice,
    SupplierOffer,
)
from nodus_api.tasks import spawn
from nodus_api.watchcache import AttemptCache

ATTEMPTS = "/apis/nodus.dev/v1/namespaces/default/attempts"
QUICK = Pace(
    full_pass=timedelta(seconds=0.5),
    offers=timedelta(seconds=0.5),
    sweep=timedelta(hours=1),
    supplier_timeout=timedelta(minutes=5),  # a machine that is held is no failed call
)
BEAT = timedelta(seconds=0.4)
PATIENCE = 60.0
BUSY = (429, 503, 504)
"""What the API answers while this machine has no time for it: ask again."""


class StandingClock(ManualClock):
    """A clock that stands until it is moved, and knows where it stood at any real moment."""

    def __init__(self, start: datetime) -> None:
        super().__init__(start)
        self._moved = [datetime.min.replace(tzinfo=start.tzinfo)]
        self.stands = [start]

    async def advance(self, seconds: float) -> None:
        await super().advance(seconds)
        self._moved.append(SystemClock().now())
        self.stands.append(self.now())

    def at(self, real: datetime) -> datetime:
        """Return where this clock stood at a moment of the system's clock."""
        return self.stands[bisect.bisect_right(self._moved, real) - 1]


class Host(LocalSupplier):
    """The local supplier, whose moments are told by the clock that stands."""

    def __init__(self, root: Path, standing: StandingClock, **how: Any) -> None:
        super().__init__(root, clock=SystemClock(), heartbeat=BEAT, **how)
        self.root = root
        self.creating, self.deleting = asyncio.Event(), asyncio.Event()
        self.creating.set()
        self.offered = 0
        """How often it has said what it offers."""
        self._standing = standing
        self._deadlines: dict[str, datetime] = {}

    async def offers(self) -> Sequence[SupplierOffer]:
        offers = await super().offers()
        self.offered += 1
        return offers

    async def create(self, intent: MachineIntent) -> MachineView:
        await self.creating.wait()
        return self._told(await super().create(intent))

    async def find(self, key: str) -> MachineView | None:
        view = await super().find(key)
        return None if view is None else self._told(view)

    async def delete(self, handle: str) -> None:
        await self.deleting.wait()
        await super().delete(handle)

    async def prove_deleted(self, handle: str) -> DeletionObservation:
        look = await super().prove_deleted(handle)
        return replace(look, at=self._moment(look.at))

    async def inject(self, handle: str, fault: FaultInjection) -> None:
        deadline = self._standing.now() + (fault.notice or timedelta(0))
        self._deadlines.setdefault(handle, deadline)
        await super().inject(handle, fault)

    async def notices(self) -> AsyncIterator[Notice]:
        async for notice in super().notices():
            yield replace(notice, deadline=self._deadlines[notice.handle])

    def _told(self, view: MachineView) -> MachineView:
        ending = view.exit
        return replace(
            view,
            billing_start=self._moment(view.billing_start),
            ended_at=self._moment(view.ended_at),
            exit=None if ending is None else replace(ending, at=self._standing.at(ending.at)),
        )

    def _moment(self, real: datetime | None) -> datetime | None:
        return None if real is None else self._standing.at(real)

    async def keys(self, installation: UUID) -> list[str]:
        return [view.key async for view in self.list_owned(installation)]


@dataclass
class LiveWorld:
    """What a test drives, and what a client sees."""

    database: Database
    clock: StandingClock
    host: Host
    installation: UUID
    folder: Path
    http: httpx.AsyncClient
    cache: AttemptCache
    world: World
    scheduler: Scheduler
    _door: AsyncExitStack = field(default_factory=AsyncExitStack)

    # what a client sees ---------------------------------------------------------------------

    async def served(self) -> list[dict[str, Any]]:
        """Return the Attempts as the API serves them, by slot and epoch."""
        answer = await self.http.get(ATTEMPTS)
        assert answer.status_code == 200, answer.text
        items: list[dict[str, Any]] = answer.json()["items"]
        for one in items:  # a list's items name neither (LW-107); a GET of each does
            single = await self.http.get(f"{ATTEMPTS}/{one['metadata']['name']}")
            assert single.status_code == 200, single.text
            assert single.json() == {"apiVersion": "nodus.dev/v1", "kind": "Attempt"} | one
        return sorted(items, key=lambda one: _order(one["spec"]))

    async def attempt(self, which: str = "0/1") -> dict[str, Any]:
        """Return an Attempt by `slot/epoch`, an empty object if there is none."""
        async with asyncio.timeout(PATIENCE):
            while (answer := await self.http.get(ATTEMPTS)).status_code in BUSY:
                await SystemClock().sleep(0.2)
        assert answer.status_code == 200, answer.text
        items: list[dict[str, Any]] = answer.json()["items"]
        found = {f"{one['spec']['slot']}/{one['spec']['epoch']}": one for one in items}
        return found.get(which, {})

    async def until(self, what: Callable[[], Awaitable[object]], pause: float = 0.02) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await what():
                await SystemClock().sleep(pause)

    async def until_served(self, what: Callable[[], Awaitable[object]]) -> None:
        """Wait until what is served is so; it is asked for again once the server knows more."""
        looked_at = -1

        async def changed_and_so() -> bool:
            nonlocal looked_at
            if self.cache.position == looked_at:
                return False
            looked_at = self.cache.position
            return bool(await what())

        await self.until(changed_and_so)

    async def until_stage(self, stage: str, which: str = "0/1") -> None:
        async def reached() -> bool:
            status = (await self.attempt(which)).get("status", {})
            return bool(status.get("progress", {}).get("stage") == stage)

        try:
            await self.until_served(reached)
        except TimeoutError:
            raise AssertionError(f"{which} is not {stage}: {await self.attempt(which)}") from None

    async def until_waiting(self) -> None:
        """Wait until the Attempt was looked at and found no capacity (T4)."""

        async def waits() -> bool:
            metadata = (await self.attempt()).get("metadata", {})
            waiting = metadata.get("annotations", {}).get("nodus.dev/waiting-for")
            return bool(waiting == "Capacity")

        await self.until_served(waits)

    async def until_proven(self, which: str = "0/1") -> None:
        async def proven() -> bool:
            status = (await self.attempt(which)).get("status", {})
            return "deletionProvenTime" in status.get("timings", {})

        await self.until_served(proven)

    # what happens ---------------------------------------------------------------------------

    async def pass_time(self, seconds: float) -> None:
        """Move the database's clock, and let the loop look."""
        await self.clock.advance(seconds)
        await self.scheduler.wake()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Let runners reach the scheduler."""
        server = ReportServer(
            ReportStore(self.database),
            wake=self.scheduler.wake,
            metrics=self.scheduler.metrics,
            new_id=uuid4,
        )
        stop = asyncio.Event()
        serving = spawn("reports", server.serve([unix_socket(self.folder / "runner.sock")], stop))
        try:
            yield
        finally:
            stop.set()
            await serving

    async def open_door(self) -> None:
        await self._door.enter_async_context(self.listening())

    async def close_door(self) -> None:
        await self._door.aclose()

    async def begin(self, boot: float = 20, which: str = "0/1") -> None:
        """Bring an Attempt from its submission to Running, `boot` seconds after its grant."""
        await self.until_stage("Starting", which)
        await self.pass_time(boot)
        await self.open_door()
        await self.until_stage("Running", which)

    async def run(self, seconds: float) -> None:
        """Let a running program's time pass, at most a minute at once, heartbeats between."""
        while seconds > 0:
            await self.heard()
            await self.pass_time(min(seconds, 60))
            seconds -= 60
        await self.heard()

    async def heard(self) -> None:
        """Wait until every running program's last heartbeat is of now."""
        query = sa.select(t.attempt_work.c.last_heartbeat).join(
            t.attempts, t.attempts.c.no == t.attempt_work.c.attempt
        )
        of_running = query.where(t.attempts.c.stage == "Running")

        async def all_heard() -> bool:
            async with self.database.single_reads() as connection:
                beats = (await connection.execute(of_running)).scalars().all()
            late = timedelta(seconds=5)
            return all(beat and self.clock.now() - beat < late for beat in beats)

        await self.until(all_heard, 0.1)

    async def looked(self) -> None:
        """Wait until the loop has made two whole passes since now."""
        for _ in range(3):  # the first may have begun before
            before = self._passes()
            await self.scheduler.wake()

            async def made(before: float = before) -> bool:
                return self._passes() > before

            await self.until(made)

    async def offered(self) -> None:
        """Wait until the loop knows what is offered now."""
        before = self.host.offered

        async def answered() -> bool:
            return self.host.offered > before

        await self.until(answered)
        await self.looked()

    def _passes(self) -> float:
        (metric,) = self.scheduler.metrics.passes.collect()
        return float(metric.samples[0].value)

    async def ask(self, verb: str, target: str = "train", **body: Any) -> None:
        """Give a command, and let the loop take it at once."""
        await self.world.ask(verb, target, **body)
        await self.scheduler.wake()

    def waits(self, then: str, name: str = "go") -> dict[str, Any]:
        """Return a template whose program waits for a file of ours, then runs a script."""
        wait = f"while [ ! -e {self.folder / name} ]; do sleep 0.02; done"
        return {"command": ["/bin/sh", "-c", f"{wait}; {then}"]}

    def saves(self) -> dict[str, Any]:
        """Return the spec of a program that saves thrice, hangs, and ends once it resumes."""
        program = Path(__file__).parent.parent / "scheduler" / "saving_program.py"
        command = [sys.executable, str(program), str(self.folder), "40", "5", "18"]
        return {"template": {"command": command}, "checkpoint": {"restartable": True}}

    async def hanging(self) -> None:
        """Wait until the program of `saves` hangs: three checkpoints are committed."""

        async def there() -> bool:
            return await asyncio.to_thread((self.folder / "hanging").exists)

        await self.until(there)

    async def claimed(self) -> None:
        """Wait until the runner of the one machine takes signals."""
        directory = await self.machine()

        async def there() -> bool:
            return await asyncio.to_thread(read_identity, directory) is not None

        await self.until(there)

    async def kill_machine(self) -> None:
        """Kill everything of the one machine from outside, its runner first."""
        runner = await self.runner()
        os.kill(runner, signal.SIGKILL)
        kill_members(runner)

    async def freeze(self) -> None:
        """Freeze the runner of the one machine, what it says and what it hears."""
        runner = await self.runner()
        os.kill(runner, signal.SIGSTOP)

        async def stopped() -> bool:
            stat = process_stat(runner)
            return stat is not None and stat.state == "T"

        await self.until(stopped)

    def go(self, name: str = "go") -> None:
        """Let the programs that wait for a file go on."""
        (self.folder / name).touch()

    async def finish(
        self,
        which: str = "0/1",
        stage: str = "Failed",
        *,
        following: tuple[str, str] | None = None,
        also: Sequence[str] = (),
        teardown: float = 5,
    ) -> None:
        """Wait for a terminal stage, let the teardown take its time, and wait for its proof.

        `following` is another Attempt and the stage that it has reached before; `also` are others
        that have ended and are proven gone with it.
        """
        await self.until_stage(stage, which)
        if following is not None:
            await self.until_stage(following[1], following[0])
        await self.pass_time(teardown)
        self.host.deleting.set()
        for one in (which, *also):
            await self.until_proven(one)
        self.host.deleting.clear()

    async def machine(self) -> Path:
        """Return the work directory of the one machine."""
        (key,) = await self.host.keys(self.installation)
        return self.host.root / key

    async def runner(self) -> int:
        """Return the pid of the one machine's runner."""
        directory = await self.machine()
        identity = read_identity(directory) or read_spawned(directory)
        assert identity is not None
        return identity.pid


def _order(spec: Mapping[str, Any]) -> tuple[str, int]:
    return str(spec["slot"]), int(spec["epoch"])


@asynccontextmanager
async def a_live_world(
    database: Database,
    clock: StandingClock,
    http: httpx.AsyncClient,
    cache: AttemptCache,
    **how: Any,
) -> AsyncIterator[LiveWorld]:
    """Make the world and run its loop; end it with the checks of H-01 to H-23."""
    folder = Path(tempfile.mkdtemp(prefix="nodus-"))
    async with database.transaction(read_only=True) as connection:
        installation: UUID = (await connection.execute(sa.select(t.installation.c.id))).scalar_one()
    given = {"slots": 2, "rate": Decimal(36), "delete_grace": timedelta(seconds=1)} | how
    host = Host(
        folder / "machines",
        clock,
        installation=installation,
        runner_socket=folder / "runner.sock",
        **given,
    )
    scheduler = Scheduler(database, host, SystemClock(), pace=QUICK)
    world = World(database, clock, host)
    live = LiveWorld(database, clock, host, installation, folder, http, cache, world, scheduler)
    stop = asyncio.Event()
    loop = spawn("scheduler", scheduler.run(stop))
    try:
        yield live
    finally:
        stop.set()
        await loop
        await live.close_door()
        host.creating.set()
        host.deleting.set()
        kept = await rows.read(database)
        alive = running(host.root, kept.machines)
        for key in await host.keys(installation):
            await host.delete(key)
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)
    assert_sound(rows.history_of(kept, alive))


@asynccontextmanager
async def taken_slots(live: LiveWorld, *keys: str) -> AsyncIterator[None]:
    """Take slots of the host by machines of another installation, one a key."""
    other = uuid5(live.installation, "other")
    neighbour = LocalSupplier(
        live.host.root,
        installation=other,
        runner_socket=live.folder / "none.sock",
        slots=2,
        rate=Decimal(1),
        clock=SystemClock(),
        delete_grace=timedelta(seconds=1),
    )
    for key in keys:
        await neighbour.create(replace(an_intent(key, "sleep", "600"), installation=other))
    try:
        await live.offered()
        yield
    finally:
        for key in keys:
            await neighbour.delete(key)
