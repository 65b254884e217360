"""All that can happen to one scheduler, its machines and its runners; each is a coroutine.

The model: what was asked for, the supplier's truth, every runner and what it said. Nothing here
asserts anything about rows; that is `holding`'s.
"""

import itertools
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from tests.scheduler.walk.mortal import Killed, MortalDatabase
from tests.scheduler.walk.runners import Exit, Phase, Runner, Sent, deliver
from tests.scheduler.walk.supplier import Made, ScriptedSupplier

from nodus_api.clock import ManualClock
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.scheduler import Passes, Scheduler
from nodus_api.storage import tables as t
from nodus_api.storage.allowance_store import AllowanceStore
from nodus_api.storage.errors import FencedOff
from nodus_api.storage.fund_store import FundStore
from nodus_api.storage.leader_store import LeaderStore
from nodus_api.storage.report_store import Standing
from nodus_api.suppliers.supplier import ExitRecord

SECOND = timedelta(seconds=1)


@dataclass
class Walk:
    database: MortalDatabase
    clock: ManualClock
    supplier: ScriptedSupplier
    submitted: list[str] = field(default_factory=list)
    """Names, in the order in which they were given first."""
    runners: dict[str, Runner] = field(default_factory=dict)
    """By handle and fence: a machine's tenants one after the other."""
    late: list[tuple[Runner, Sent, timedelta]] = field(default_factory=list)
    """Reports that are under way still, with the age they left with."""
    starts: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How often a program was truly started, by Attempt uid and epoch."""
    deposed: list[Passes] = field(default_factory=list)
    leader: Passes | None = None
    errors: list[str] = field(default_factory=list)
    """What the loop could not do, by an error of its own."""
    broken: list[str] = field(default_factory=list)
    """What happened in truth and never may."""
    _beaten: tuple[int, datetime] | None = None
    _keys: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    # what is asked for

    async def ask(self, verb: str, target: str, *, kind: str | None = "Job", **body: Any) -> None:
        row = {
            "key": f"walk-{next(self._keys)}", "project": "default", "verb": verb, "kind": kind,
            "target": target, "body": body, "asked_by": "walk",
        }  # fmt: skip
        async with self.database.transaction() as connection:
            await connection.execute(sa.insert(t.commands).values(row))

    async def submit(self, name: str, spec: dict[str, Any]) -> None:
        if name not in self.submitted:
            self.submitted.append(name)
        given = {"template": {"command": ["true"]}} | spec
        whole = WorkloadSpec.from_json(OwnerKind.JOB, given).to_json()
        await self.ask("submit", name, spec=whole)

    async def drill(self, attempt: str, **body: Any) -> None:
        await self.ask("drill", attempt, kind=None, **body)

    # the scheduler

    async def lead(self) -> Passes:
        """Begin a reign with a new scheduler object."""
        reign = await LeaderStore(self.database).take_over("walk")
        self.leader = Scheduler(self.database, self.supplier, self.clock).passes(reign)
        return self.leader

    async def make_pass(self, *, full: bool = True, step: str | None = None) -> bool:
        """Make a pass, or one step of it, and let the calls come back."""
        passes = self.leader or await self.lead()
        if self._beaten != (passes.loop.reign.token, self.clock.now()):
            await LeaderStore(self.database).beat(passes.loop.reign.token)
            self._beaten = passes.loop.reign.token, self.clock.now()
        again = bool(await (passes.step(step) if step else passes.once(full=full)))
        await passes.loop.calls.settled()
        return again

    async def settle(self) -> None:
        """Make passes until one leaves nothing to do."""
        for turn in range(40):
            again = await self.make_pass(full=turn == 0)
            if not again and self.leader is not None and self.leader.loop.calls.idle:
                return
        raise AssertionError("the passes never settle")

    async def crash(self, statements: int, *, call: str | None, after: bool, away: float) -> bool:
        """Let the leader die in its next passes, and lead anew; return whether it died.

        At its n-th statement or commit; or at its n-th call of a kind, with or without effect.
        """
        passes = self.leader or await self.lead()
        if call is None:
            self.database.left = statements
        elif after:
            self.supplier.after_call = lambda name: self._die_at(name == call)
        else:
            self.supplier.on_call = lambda name: self._die_at(name == call)
        died = False
        try:
            for _ in range(2):
                await passes.once()
                await passes.loop.calls.settled()
        except Killed:
            died = True
        self.database.left = None
        self.supplier.on_call = self.supplier.after_call = lambda _: None
        await passes.loop.calls.close()
        self.leader = None
        if away:
            await self.pass_time(away)
        await self.lead()
        return died

    def _die_at(self, here: bool) -> None:
        if here:
            self.database.left = 0
            raise ConnectionResetError("the process is gone before it hears the answer")

    async def take_over(self) -> None:
        """Let a standby lead while the old leader knows nothing of it."""
        if self.leader is not None:
            self.deposed.append(self.leader)
        await self.lead()

    async def old_leader_goes_on(self, which: int) -> bool:
        """Let a deposed leader make a pass; return whether it was told that it is none."""
        passes = self.deposed[which % len(self.deposed)]
        try:
            await passes.once()
        except FencedOff:
            refused = True
        else:
            refused = False
        await passes.loop.calls.settled()
        return refused

    async def close(self) -> None:
        for passes in (*self.deposed, *filter(None, [self.leader])):
            await passes.loop.calls.close()

    async def pay_in(self, usd: str) -> None:
        """Let somebody add to the funds; it stands once the command has answered."""
        await FundStore(self.database).deposit("default", Decimal(usd))

    async def allow(self, most: int | None) -> None:
        """Let somebody set the project's quota."""
        await AllowanceStore(self.database).set_quota("default", "cpu", most)

    # time, machines and runners

    async def pass_time(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        self.supplier.catch_up()

    def meet_runners(self) -> list[Runner]:
        """Return the runners whose machine is there; end those whose machine is not."""
        now = self.clock.now()
        for handle, made in self.supplier.truth.items():
            runner = self.runners.setdefault(_seat(made), Runner(made))
            condition = self._condition(handle)
            if condition in (None, "failed") or not made.tenant:
                runner.kill(now)
            elif made.order is not None and made.order.kind == "stop":
                runner.obey(now)
        tenants = {_seat(made) for made in self.supplier.truth.values() if made.tenant}
        for seat, runner in self.runners.items():
            if seat not in tenants:
                runner.kill(now)  # with the wipe
        booted = [
            self.runners[_seat(made)]
            for handle, made in self.supplier.truth.items()
            if made.tenant and self._condition(handle) in ("running", "gone")
        ]
        return [runner for runner in booted if runner.speaks]

    def _condition(self, handle: str) -> str | None:
        made = self.supplier.truth[handle]
        view = self.supplier.machines.get(made.intent.key)
        return view.condition.value if view is not None and view.handle == handle else None

    async def say(self, runner: Runner, sent: Sent, *, how: str = "heard") -> None:
        """Send a report: it and its answer arrive, the answer is lost, or both are late."""
        now = self.clock.now()
        if how == "late":
            self.late.append((runner, sent, now - sent.event))
            runner.unanswered = sent
            return
        standing = await deliver(self.database, runner, sent, now)
        if how == "unanswered":
            runner.unanswered = sent
            return
        before = runner.started
        runner.hear(sent, standing, now)
        if runner.started != before:
            intent = runner.made.intent
            self.starts[str(intent.attempt_uid), intent.epoch] += 1
            self._barrier_holds(runner)

    def _barrier_holds(self, runner: Runner) -> None:
        """P-23, SC-133: a rank's program starts once every rank has said that it registered."""
        seat = runner.made.intent.incarnation.gang
        if seat is None:
            return
        there = {rank for one, rank in self.ranks_of(seat.id, seat.epoch) if one.registered}
        if there != set(range(seat.size)):
            name = runner.made.intent.incarnation.attempt_name
            self.broken.append(f"P-23: {name} started, and only ranks {there} have registered")

    def ranks_of(self, gang: str, epoch: int) -> list[tuple[Runner, int]]:
        """Return every runner that a gang epoch has had, with its rank."""
        seats = [(one, one.made.intent.incarnation.gang) for one in self.runners.values()]
        return [
            (one, seat.rank)
            for one, seat in seats
            if seat and (seat.id, seat.epoch) == (gang, epoch)
        ]

    async def goes_on(self, runner: Runner, *, how: str = "heard") -> None:
        """Let a runner say its next word, as everything normal goes on."""
        now = self.clock.now()
        if runner.works and runner.stop_at is not None:
            runner.end(Exit(at=now, code=143, signal=15, stopped_at=runner.stop_at))
        await self.say(runner, runner.word(now), how=how)

    async def works_on(self, runner: Runner, *, code: int = 0) -> None:
        """The same, and a program that runs ends."""
        if runner.phase is Phase.RUNNING and runner.unanswered is None:
            runner.end(Exit(at=self.clock.now(), code=code, stopped_at=runner.stop_at))
        await self.goes_on(runner)

    async def beat(self) -> None:
        """Let every program's runner say that it lives."""
        for runner in self.meet_runners():
            if runner.phase is Phase.RUNNING and runner.unanswered is None:
                await self.say(runner, runner.word(self.clock.now()))

    async def propose(self, runner: Runner, seq: int) -> None:
        """Let a runner propose the checkpoint after its last, or a wrong one."""
        if runner.phase is Phase.RUNNING and runner.unanswered is None:
            sent = runner.checkpoint(self.clock.now(), runner.last_seq + seq)
            await self.say(runner, sent)

    async def saves_together(self) -> None:
        """Let every program save; of a gang, whose ranks save at the same point, all do."""
        for runner in self.meet_runners():
            if runner.proposed is None:
                await self.propose(runner, 1)

    async def fails_checks(self, runner: Runner) -> None:
        if runner.phase is Phase.NEW and runner.unanswered is None:
            body = {"checks": {"failed": ["disk"]}}
            await self.say(runner, runner.says("registered", self.clock.now(), **body))

    async def cannot_start(self, runner: Runner, error: str) -> None:
        """The runner gives up before its program, or a granted program cannot be begun."""
        if runner.phase in (Phase.NEW, Phase.REGISTERED) and runner.unanswered is None:
            runner.end(Exit(at=self.clock.now(), code=None, error=error))
            await self.goes_on(runner)

    async def exits(self, runner: Runner, code: int, *, oom: bool, how: str, age: float) -> None:
        """A program ends; it is told by report, by its machine's record alone, or by both."""
        if not runner.works:
            return
        now, started = self.clock.now(), runner.started or self.clock.now()
        at = max(now - age * SECOND, started, runner.stop_at or started)
        signal = code - 128 if code > 128 else None
        runner.end(Exit(at=at, code=code, signal=signal, oom=oom, stopped_at=runner.stop_at))
        if how != "report":
            self._record(runner)
        if how == "record":
            runner.phase = Phase.TOLD
        elif runner.unanswered is None:
            await self.goes_on(runner)

    def _record(self, runner: Runner) -> None:
        now, ended = self.clock.now(), runner.exit
        assert ended is not None
        record = ExitRecord(
            at=now,
            exit_code=ended.code,
            signal=ended.signal,
            oom=ended.oom,
            started_age=_age(now, runner.started),
            exit_age=(now - ended.at).total_seconds(),
            stop_age=_age(now, ended.stopped_at),
            error=ended.error,
        )
        self.supplier.note_exit(runner.made.handle, record)

    def reclaim_is_announced(self, which: int, seconds: int, *, comes: bool) -> None:
        there = [handle for handle in self.supplier.truth if self.supplier.runs(handle)]
        if there:
            deadline = self.clock.now() + seconds * SECOND
            self.supplier.announce_reclaim(there[which % len(there)], deadline, comes=comes)

    def machine_fails(self, which: int, fate: str) -> None:
        """A machine dies, is reclaimed, or vanishes altogether."""
        there = [handle for handle in self.supplier.truth if self._condition(handle) is not None]
        if there:
            handle = there[which % len(there)]
            if fate == "vanishes":
                self.supplier.end(handle)
            else:
                self.supplier.fail(handle, reclaimed=fate == "reclaimed")
            self.meet_runners()

    async def late_one_arrives(self, which: int) -> Standing | None:
        """Bring a report that was long under way; nobody hears its answer."""
        runner, sent, age = self.late.pop(which % len(self.late))
        return await deliver(self.database, runner, sent, self.clock.now(), age=age)

    # the end

    async def carry_on(
        self, *, code: int = 0, ends: bool = True, words: int = 1, lags: int | None = None
    ) -> None:
        """Let everything go its way once: two passes, then a word, or more, of every runner.

        One may lag behind and say nothing: the ranks of a gang are seldom equally fast.
        """
        await self.make_pass()
        await self.make_pass(full=False)
        heard = [one for n, one in enumerate(self.meet_runners()) if n != lags]
        for runner in heard * words:
            if ends and runner.speaks:
                await self.works_on(runner, code=code)
            elif runner.speaks:
                await self.goes_on(runner)

    def heal(self) -> None:
        """End every fault; what was under way is lost."""
        self.supplier.faults.clear()
        self.supplier.slots = 12
        self.late.clear()


def _seat(made: Made) -> str:
    return f"{made.handle}/{made.intent.fence}"


def _age(now: Any, at: Any) -> float | None:
    return None if at is None else float((now - at).total_seconds())
