"""Hypothesis walks over the whole loop: what happens next is drawn, what must hold is checked."""

from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.conftest import START
from tests.scheduler.walk import together
from tests.scheduler.walk.drawing import (
    CALLS,
    LOSSES,
    NAMES,
    STEPS,
    TIMES,
    codes,
    deposits,
    faults,
    hows,
    laggards,
    notices,
    quotas,
    rounds,
    schedules,
    specs,
    verbs,
    whichever,
)
from tests.scheduler.walk.holding import Books
from tests.scheduler.walk.life import Walk
from tests.scheduler.walk.runners import Phase, Runner, deliver
from tests.scheduler.walk.seen import seen
from tests.scheduler.walk.stage import Stage
from tests.scheduler.walk.supplier import ScriptedSupplier

from nodus_api.clock import ManualClock
from nodus_api.scheduler.observing import MISSED_LISTS
from nodus_api.suppliers.supplier import SupplierCaps

T = TypeVar("T")

_SCHEDULE = (
    "INSERT INTO nodus.drill_schedules (project, trigger, per_hour, seed)"
    " VALUES ('default', $1, 60, 7)"
)
_NO_SCHEDULE = "DELETE FROM nodus.drill_schedules"


class SchedulerWalk(RuleBasedStateMachine):
    """One installation from its first row to the day when nothing is left to do."""

    stage: ClassVar[Stage]

    def __init__(self) -> None:
        super().__init__()
        stage = self.stage
        stage.walks += 1
        stage.clock = ManualClock(START)
        stage.run(stage.first_rows.restore())
        supplier = ScriptedSupplier(stage.clock)
        stage.errors.clear()
        self.walk = Walk(stage.database, stage.clock, supplier, errors=stage.errors.said)
        self.books = Books(self.walk, stage.eyes)
        self.begun = False

    @initialize(
        slots=st.sampled_from((6, 4, 3, 8, 2)),
        notices=st.sampled_from((True, True, False)),
        sync=st.booleans(),
        delay=st.sampled_from((0, 20)),
        warm=st.booleans(),
        schedule=schedules,
        spec=specs,
        going=st.sampled_from((4, 3, 2, 5, 0)),
        lags=laggards,
        deposit=deposits,
        quota=quotas,
    )
    def begins(
        self,
        slots: int,
        notices: bool,
        sync: bool,
        delay: int,
        warm: bool,
        schedule: str | None,
        spec: dict[str, Any],
        going: int,
        lags: int | None,
        deposit: str | None,
        quota: int | None,
    ) -> None:
        supplier = self.walk.supplier
        supplier.slots = slots
        supplier.caps = SupplierCaps(
            sync_delete=sync,
            visibility_delay=timedelta(seconds=delay),
            notices=notices,
            warm=warm,
            inject=True,
        )
        self.begun = True
        self._run(self.walk.lead())
        if schedule is not None:
            self._run(self.stage.eyes.execute(_SCHEDULE, schedule))
        if deposit is not None:
            self._run(self.walk.pay_in(deposit))
        if quota is not None:
            self._run(self.walk.allow(quota))
        self._run(self.walk.submit(NAMES[0], spec))
        self._goes_on(going, lags=lags)

    # what is asked for

    @precondition(lambda self: len(self.walk.submitted) < len(NAMES))
    @rule(spec=specs, then=rounds)
    def submit(self, spec: dict[str, Any], then: int) -> None:
        self._run(self.walk.submit(NAMES[len(self.walk.submitted)], spec))
        self._goes_on(then)

    @rule(which=whichever, verb=verbs, spec=specs, count=st.integers(1, 3), then=rounds)
    def command(self, which: int, verb: str, spec: dict[str, Any], count: int, then: int) -> None:
        name = self.walk.submitted[which % len(self.walk.submitted)]
        if verb == "submit":  # a name that is taken, or was: deleted Jobs leave theirs to others
            self._run(self.walk.submit(name, spec))
        else:
            body: dict[str, Any] = {"count": count} if verb == "scale" else {}
            self._run(self.walk.ask(verb, name, **body))
        self._goes_on(then)

    @rule(usd=deposits, then=rounds)
    def money_comes(self, usd: str | None, then: int) -> None:
        """SC-620, SC-623: the first deposit turns the control of funds on."""
        if usd is not None:
            self._run(self.walk.pay_in(usd))
        self._goes_on(then)

    @precondition(lambda self: self.books.drillable())
    @rule(turns=st.sampled_from((4, 8)))
    def money_is_spent(self, turns: int) -> None:
        """SC-621: what runs is heard of, billed and renewed, until the money is gone."""
        for _ in range(turns):
            self._goes_on(1)
            self._run(self.walk.pass_time(50))
            self._run(self.walk.beat())
            self._run(self.walk.make_pass())

    @precondition(lambda self: self.books.drillable())
    @rule(which=whichever, loss=st.sampled_from(LOSSES), notice=notices, then=rounds)
    def drill(self, which: int, loss: str, notice: int, then: int) -> None:
        """SC-630: an Attempt, or one rank, is lost on purpose; most are asked for in time."""
        self._drill(self.books.drillable(), which, loss, notice)
        self._goes_on(then)

    @precondition(lambda self: self.books.drillable(ranks=True))
    @rule(which=whichever, loss=st.sampled_from(LOSSES), notice=notices, then=rounds)
    def drill_a_rank(self, which: int, loss: str, notice: int, then: int) -> None:
        self._drill(self.books.drillable(ranks=True), which, loss, notice)
        self._goes_on(then)

    def _drill(self, there: list[tuple[str, str]], which: int, loss: str, notice: int) -> None:
        name, stage = there[which % len(there)]
        if loss == "whatever fits":
            loss = "readiness" if stage == "Starting" else "heartbeat"
        body = {"noticeSeconds": notice} if loss == "preemption" else {}
        self._run(self.walk.drill(name, trigger=loss, **body))

    # the scheduler

    @rule(what=st.sampled_from(("full", "quick", *STEPS)))
    def a_pass(self, what: str) -> None:
        """A whole pass, or one step of it alone."""
        step = what if what in STEPS else None
        self._run(self.walk.make_pass(full=what == "full", step=step))

    @rule()
    def settled_is_settled(self) -> None:
        """P-07: what the supplier says twice, and passes over the same rows, change nothing.

        And what time alone decides is decided.
        """
        self._run(self._settles())

    async def _settles(self) -> None:
        if any(self.walk.supplier.faults.values()):
            return
        await self.walk.settle()
        await self.walk.settle()  # bills what the looks of the first have shown
        await self.books.check()
        if self.books.missing():
            for _ in range(MISSED_LISTS):  # what so many looks do not show is lost (SC-612)
                await self.walk.settle()
        before = await self.books.read()
        await self.walk.make_pass()
        assert await self.books.read() == before, "P-07: a pass with nothing new changed a row"
        await self.books.check()
        for finding in together.late(self.books.tables, self.walk.clock.now()):
            raise AssertionError(finding)

    @rule(
        call=st.sampled_from((None, None, None, *CALLS)),
        statements=st.integers(0, 60),
        after=st.booleans(),
        away=st.sampled_from((0, 5, 90)),
    )
    def crash(self, call: str | None, statements: int, after: bool, away: float) -> None:
        """The leader dies at a statement, or at a call of the supplier."""
        self._run(self.walk.crash(statements, call=call, after=after, away=away))

    @rule()
    def standby_takes_over(self) -> None:
        self._run(self.walk.take_over())

    @precondition(lambda self: self.walk.deposed)
    @rule(which=whichever)
    def old_leader_goes_on(self, which: int) -> None:
        """P-27, and P-28 of what it does at the supplier."""
        self._run(self._old_leader(which))

    async def _old_leader(self, which: int) -> None:
        before = await self.books.read()
        await self.walk.old_leader_goes_on(which)
        assert await self.books.read() == before, "P-27: a deposed leader changed a row"

    # the supplier

    @rule(what=faults, times=st.sampled_from((1, 1, 3)), slots=st.sampled_from((None, 0, 2, 6)))
    def supplier_will(self, what: tuple[str, str], times: int, slots: int | None) -> None:
        """It will refuse or lose calls, or has another number of machines from now on."""
        call, fault = what
        if slots is not None:
            self.walk.supplier.slots = slots
        else:
            self.walk.supplier.faults.setdefault(call, []).extend([fault] * times)

    @precondition(lambda self: self.walk.supplier.machines)
    @rule(which=whichever, fate=st.sampled_from(("dies", "reclaimed", "vanishes")), then=rounds)
    def machine_fails(self, which: int, fate: str, then: int) -> None:
        self.walk.machine_fails(which, fate)
        self._goes_on(then)

    @precondition(lambda self: self.walk.supplier.machines)
    @rule(which=whichever, seconds=notices, comes=st.booleans(), then=rounds)
    def reclaim_is_announced(self, which: int, seconds: int, comes: bool, then: int) -> None:
        self.walk.reclaim_is_announced(which, seconds, comes=comes)
        self._goes_on(then)

    # time

    @rule(seconds=st.sampled_from(TIMES), beats=st.booleans())
    def time_passes(self, seconds: float, beats: bool) -> None:
        self._run(self.walk.pass_time(seconds))
        if beats:
            self._run(self.walk.beat())

    # runners

    @rule(which=whichever, how=hows)
    def runner_goes_on(self, which: int, how: str) -> None:
        runner = self._runner(which)
        if runner is not None:
            self._run(self.walk.goes_on(runner, how=how))

    @rule(
        code=codes,
        ends=st.sampled_from((False, False, True)),
        lags=laggards,
        seconds=st.sampled_from((1, 20)),
    )
    def all_goes_on(self, code: int, ends: bool, lags: int | None, seconds: int) -> None:
        self._run(self.walk.carry_on(code=code, ends=ends, lags=lags))
        self._run(self.walk.pass_time(seconds))
        self._goes_on(0 if ends else 2, lags=lags)

    @rule(which=whichever, seq=st.sampled_from((1, 1, 1, 0, 2)))
    def checkpoint(self, which: int, seq: int) -> None:
        runner = self._runner(which, Phase.RUNNING)
        if runner is not None:
            self._run(self.walk.propose(runner, seq))

    @rule(then=rounds)
    def programs_save(self, then: int) -> None:
        self._run(self.walk.saves_together())
        self._goes_on(then)

    @rule(
        which=whichever,
        code=codes,
        oom=st.booleans(),
        how=st.sampled_from(("report", "report", "record", "both")),
        age=st.sampled_from((0, 0.5, 7)),
    )
    def program_ends(self, which: int, code: int, oom: bool, how: str, age: float) -> None:
        runner = self._runner(which, Phase.RUNNING, Phase.GRANTED)
        if runner is not None:
            self._run(self.walk.exits(runner, code, oom=oom and code == 137, how=how, age=age))

    @rule(
        which=whichever,
        error=st.sampled_from(("checks", "ImagePullFailed", "StartFailed", "RestoreFailed", "odd")),
    )
    def start_fails(self, which: int, error: str) -> None:
        runner = self._runner(which, Phase.NEW, Phase.REGISTERED)
        if runner is None:
            return
        if error == "checks":
            self._run(self.walk.fails_checks(runner))
        else:
            self._run(self.walk.cannot_start(runner, error))

    @precondition(lambda self: self.walk.late)
    @rule(which=whichever)
    def late_report_arrives(self, which: int) -> None:
        self._run(self.walk.late_one_arrives(which))

    @rule(which=whichever, n=whichever)
    def report_comes_twice(self, which: int, n: int) -> None:
        """P-07: what was taken once changes nothing a second time."""
        kept = [(one, sent) for one in self.walk.runners.values() for sent in one.kept]
        if kept:
            self._run(self._twice(*kept[-1 - (which * 6 + n) % len(kept)]))

    async def _twice(self, runner: Runner, sent: Any) -> None:
        before = await self.books.read()
        await deliver(self.walk.database, runner, sent, self.walk.clock.now())
        assert await self.books.read() == before, f"P-07: {sent.kind} came twice and changed a row"

    @rule(
        which=whichever,
        kind=st.sampled_from(("heartbeat", "started", "exited", "checkpoint", "canStart")),
        wrong=st.sampled_from(("nothing", "nothing", "epoch", "token")),
    )
    def stale_report(self, which: int, kind: str, wrong: str) -> None:
        """P-06: a runner whose time is over, or that is not who it says it is, changes no row."""
        known = list(self.walk.runners.values())
        if wrong == "nothing":
            known = [one for one in known if self.books.is_over(one.made.intent)]
        if known:
            self._run(self._stale(known[which % len(known)], kind, wrong))

    async def _stale(self, runner: Runner, kind: str, wrong: str) -> None:
        walk, intent = self.walk, runner.made.intent
        before = await self.books.read()
        other = {
            "nothing": intent,
            "epoch": replace(intent, epoch=intent.epoch + 1),
            "token": replace(intent, token=intent.token[::-1]),
        }[wrong]
        liar = Runner(replace(runner.made, intent=other), n=runner.n + 5, last_seq=runner.last_seq)
        now = walk.clock.now()
        if kind == "checkpoint":
            sent = liar.checkpoint(now, runner.last_seq + 1)
        else:
            sent = liar.says(kind, now, **({"exitCode": 0} if kind == "exited" else {}))
        standing = await deliver(walk.database, liar, sent, now)
        assert standing is None or not standing.current, "P-06: a stale report has a standing"
        assert await self.books.read() == before, f"P-06: a stale {kind} changed a row"

    # what must hold

    @invariant()
    def holds(self) -> None:
        if self.begun:
            self.stage.steps += 1
            self.walk.meet_runners()
            self._run(self.books.check())

    def teardown(self) -> None:
        """Faults end, and everything comes to rest: P-09, P-28."""
        try:
            if self.begun:
                self._run(self._comes_to_rest())
        finally:
            self._run(self.walk.close())

    async def _comes_to_rest(self) -> None:
        walk, books = self.walk, self.books
        walk.heal()
        await self.stage.eyes.execute(_NO_SCHEDULE)
        await walk.pay_in("100")  # nobody waits for money for ever, or for quota
        await walk.allow(None)
        idle, before = 0, await books.read()
        for _ in range(250):
            await walk.carry_on(words=3)
            now = await books.read()
            if not books.unrest(now):
                break
            idle = idle + 1 if now == before else 0
            before = now
            await walk.pass_time((1, 6, 40, 301, 700)[min(idle, 4)])
        else:
            raise AssertionError(f"P-28: something is stuck: {books.unrest(before)}")
        await books.check_quiet()
        self.stage.seen += seen(books.tables)

    def _goes_on(self, times: int, *, lags: int | None = None) -> None:
        """Let everything go its way, so that new programs get to run, and none ends."""
        for _ in range(times):
            self._run(self.walk.carry_on(ends=False, words=2, lags=lags))
            self._run(self.walk.pass_time(1))

    def _runner(self, which: int, *phases: Phase) -> Runner | None:
        there = [one for one in self.walk.meet_runners() if not phases or one.phase in phases]
        return there[which % len(there)] if there else None

    def _run(self, what: Coroutine[Any, Any, T]) -> T:
        return self.stage.run(what)
