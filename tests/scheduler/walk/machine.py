"""Hypothesis walks over the whole loop: what happens next is drawn, what must hold is checked."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

import asyncpg
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.conftest import START, FirstRows
from tests.scheduler.walk.holding import Books
from tests.scheduler.walk.life import Walk
from tests.scheduler.walk.mortal import MortalDatabase
from tests.scheduler.walk.runners import Phase, Runner, deliver
from tests.scheduler.walk.supplier import FAULTS, ScriptedSupplier

from nodus_api.clock import ManualClock
from nodus_api.scheduler.observing import MISSED_LISTS
from nodus_api.suppliers.supplier import SupplierCaps

T = TypeVar("T")

NAMES = ("one", "two")
STEPS = (
    "intake", "stop", "limits", "drill", "notices", "fill", "offers", "place", "request", "signal",
    "reports", "observe", "deadlines", "end", "replace", "release", "retire", "accrue", "sweep",
    "forget",
)  # fmt: skip
TIMES = (1, 0.4, 10, 35, 70, 130, 700, 3600)

whichever = st.integers(0, 5)
names = st.sampled_from(NAMES)
hows = st.sampled_from(("heard", "heard", "unanswered", "late"))
codes = st.sampled_from((0, 0, 1, 3, 137, 139))
faults = st.sampled_from([(call, fault) for call in FAULTS for fault in FAULTS[call]])
specs = st.fixed_dictionaries(
    {
        "completions": st.integers(1, 3),
        "restart": st.fixed_dictionaries({"maxRetries": st.integers(0, 2)}),
        "checkpoint": st.fixed_dictionaries({"restartable": st.booleans()}),
        "stopGraceSeconds": st.sampled_from((30, 0, 300)),
        "limits": st.fixed_dictionaries(
            {},
            optional={
                "maxCostUSD": st.sampled_from(("0.05", "0.03", "0.002")),
                "maxDurationSeconds": st.sampled_from((60, 600)),
                "startDeadlineSeconds": st.sampled_from((60, 600)),
            },
        ),
    },
    optional={"parallelism": st.just(1)},
)


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

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(what)


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
        slots=st.integers(1, 4),
        sync=st.booleans(),
        delay=st.sampled_from((0, 20)),
        name=names,
        spec=specs,
        going=st.integers(0, 4),
    )
    def begins(
        self, slots: int, sync: bool, delay: int, name: str, spec: dict[str, Any], going: int
    ) -> None:
        supplier = self.walk.supplier
        supplier.slots = slots
        supplier.caps = SupplierCaps(sync_delete=sync, visibility_delay=timedelta(seconds=delay))
        self.begun = True
        self._run(self.walk.lead())
        self._run(self.walk.submit(name, spec))
        for _ in range(going):
            self._run(self.walk.carry_on(ends=False, words=2))

    # what is asked for

    @rule(name=names, spec=specs)
    def submit(self, name: str, spec: dict[str, Any]) -> None:
        self._run(self.walk.submit(name, spec))

    @rule(name=names, verb=st.sampled_from(("stop", "suspend", "resume", "resume", "delete")))
    def command(self, name: str, verb: str) -> None:
        self._run(self.walk.ask(verb, name))

    @rule(name=names, count=st.integers(1, 3))
    def scale(self, name: str, count: int) -> None:
        self._run(self.walk.ask("scale", name, count=count))

    # the scheduler

    @rule(full=st.booleans())
    def a_pass(self, full: bool) -> None:
        self._run(self.walk.make_pass(full=full))

    @rule(step=st.sampled_from(STEPS))
    def one_step(self, step: str) -> None:
        self._run(self.walk.make_pass(step=step))

    @rule()
    def settled_is_settled(self) -> None:
        """P-07: what the supplier says twice, and passes over the same rows, change nothing."""
        self._run(self._settles())

    async def _settles(self) -> None:
        if any(self.walk.supplier.faults.values()):
            return
        for _ in range(MISSED_LISTS + 1):  # what so many looks do not show is lost (SC-612)
            await self.walk.settle()
        before = await self.books.read()
        await self.walk.make_pass()
        assert await self.books.read() == before, "P-07: a pass with nothing new changed a row"

    @rule(statements=st.integers(0, 60), after=st.booleans(), away=st.sampled_from((0, 5, 90)))
    def crash_at_a_statement(self, statements: int, after: bool, away: float) -> None:
        self._run(self.walk.crash(statements, call=None, after=after, away=away))

    @rule(
        call=st.sampled_from(("create", "delete", "signal", "find", "observe")),
        after=st.booleans(),
        away=st.sampled_from((0, 5, 90)),
    )
    def crash_at_a_call(self, call: str, after: bool, away: float) -> None:
        self._run(self.walk.crash(0, call=call, after=after, away=away))

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

    @rule(what=faults, times=st.sampled_from((1, 1, 3)))
    def supplier_will(self, what: tuple[str, str], times: int) -> None:
        call, fault = what
        self.walk.supplier.faults.setdefault(call, []).extend([fault] * times)

    @rule(slots=st.integers(0, 4))
    def capacity(self, slots: int) -> None:
        self.walk.supplier.slots = slots

    @precondition(lambda self: self.walk.supplier.machines)
    @rule(which=whichever, fate=st.sampled_from(("dies", "reclaimed", "vanishes")))
    def machine_fails(self, which: int, fate: str) -> None:
        self.walk.machine_fails(which, fate)

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

    @rule(code=codes, ends=st.sampled_from((False, False, True)), seconds=st.sampled_from((1, 20)))
    def all_goes_on(self, code: int, ends: bool, seconds: int) -> None:
        self._run(self.walk.carry_on(code=code, ends=ends))
        self._run(self.walk.pass_time(seconds))

    @rule(rounds=st.integers(1, 2))
    def programs_get_going(self, rounds: int) -> None:
        for _ in range(rounds):
            self._run(self.walk.carry_on(ends=False, words=2))
            self._run(self.walk.pass_time(1))

    @rule(which=whichever, seq=st.sampled_from((1, 1, 1, 0, 2)))
    def checkpoint(self, which: int, seq: int) -> None:
        runner = self._runner(which, Phase.RUNNING)
        if runner is not None:
            self._run(self.walk.propose(runner, seq))

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
        idle = 0
        for _ in range(250):
            before = await books.read()
            await walk.carry_on(words=3)
            if await books.at_rest():
                break
            idle = idle + 1 if await books.read() == before else 0
            await walk.pass_time((1, 6, 40, 301, 700)[min(idle, 4)])
        else:
            raise AssertionError(f"P-28: something is stuck: {await books.unrest()}")
        await books.check_quiet()

    def _runner(self, which: int, *phases: Phase) -> Runner | None:
        there = [one for one in self.walk.meet_runners() if not phases or one.phase in phases]
        return there[which % len(there)] if there else None

    def _run(self, what: Coroutine[Any, Any, T]) -> T:
        return self.stage.run(what)
