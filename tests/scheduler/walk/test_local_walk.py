"""Hypothesis walks with real processes: programs, runners, a socket, Postgres (P-05, P-09, P-10).

A few a run, since each waits for real processes. NODUS_LOCAL_WALKS=30 makes so many, at random.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.conftest import FirstRows
from tests.history import rows
from tests.history.checking import assert_sound
from tests.history.processes import running
from tests.scheduler.local_world import LocalWorld, a_local_world

from nodus_api.clock import SystemClock
from nodus_api.scheduler import Scheduler
from nodus_api.scheduler.context import Pace
from nodus_api.storage import tables as t
from nodus_api.suppliers.local.processes import Processes

pytestmark = pytest.mark.slow  # many whole lives of real processes
MANY = os.environ.get("NODUS_LOCAL_WALKS")
WALKS = settings(
    max_examples=int(MANY or 4),
    stateful_step_count=6,
    derandomize=MANY is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate,),  # a run takes seconds, and none is like the other: no shrinking
    print_blob=False,
)
QUICK = Pace(full_pass=timedelta(seconds=0.2), offers=timedelta(seconds=0.5))
NAMES = ("one", "two")

_START = (
    "import os, pathlib, signal, sys, time\n"
    "name = '/'.join(os.environ[n] for n in ('NODUS_ATTEMPT', 'NODUS_EPOCH'))\n"
    "with open({folder!r} + '/starts', 'a') as starts: starts.write(name + chr(10))\n"
)
PROGRAMS = {
    "short": "",
    "fails": "raise SystemExit(3)\n",
    "segfaults": "os.kill(os.getpid(), signal.SIGSEGV)\n",
    "sleeps": "time.sleep(600)\n",
    "tidies up": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\nwhile True: time.sleep(0.05)\n"
    ),
    "forks": "if os.fork() == 0: time.sleep(600)\ntime.sleep(0.3)\n",
}


@dataclass
class Stage:
    """What the walks share."""

    loop: asyncio.AbstractEventLoop
    url: str
    first_rows: FirstRows
    walks: int = 0
    steps: int = 0
    attempts: int = 0


class LocalWalk(RuleBasedStateMachine):
    """One host from its first Job until nothing runs on it."""

    stage: ClassVar[Stage]

    def __init__(self) -> None:
        super().__init__()
        self.stage.walks += 1
        self._run(self.stage.first_rows.restore())
        self.local: LocalWorld
        self.scheduler: Scheduler | None = None
        self._exits = contextlib.AsyncExitStack()
        self._reign = contextlib.AsyncExitStack()
        self.local = self._run(self._exits.enter_async_context(a_local_world(self.stage.url)))
        self.submitted: set[str] = set()

    @property
    def folder(self) -> Path:
        return self.local.socket.parent

    @initialize(program=st.sampled_from(tuple(PROGRAMS)), completions=st.integers(1, 2))
    def begins(self, program: str, completions: int) -> None:
        self._run(self._submit(NAMES[0], program, completions, 1))
        self._run(self._start())
        self._run(self._wait(0.4))

    @precondition(lambda self: len(self.submitted) < len(NAMES))
    @rule(
        program=st.sampled_from(tuple(PROGRAMS)),
        completions=st.integers(1, 2),
        retries=st.integers(0, 1),
    )
    def submit(self, program: str, completions: int, retries: int) -> None:
        name = next(name for name in NAMES if name not in self.submitted)
        self._run(self._submit(name, program, completions, retries))

    @rule(
        name=st.sampled_from(NAMES), verb=st.sampled_from(("stop", "suspend", "resume", "resume"))
    )
    def command(self, name: str, verb: str) -> None:
        self._run(self._ask(verb, name))

    @rule(seconds=st.sampled_from((0.1, 0.3, 0.8)))
    def time_passes(self, seconds: float) -> None:
        self._run(self._wait(seconds))

    @rule(which=st.integers(0, 3), victim=st.sampled_from(("runner", "program", "session")))
    def is_killed(self, which: int, victim: str) -> None:
        """Someone on the host kills a runner, a program, or all of a machine."""
        self._run(self._kill(which, victim))

    @rule(away=st.sampled_from((0, 0.4)))
    def scheduler_is_started_again(self, away: float) -> None:
        self._run(self._crash())
        self._run(self._wait(away))
        self._run(self._start())

    def teardown(self) -> None:
        try:
            self._run(self._comes_to_rest())
        finally:
            self._run(self._crash())
            self._run(self._exits.aclose())

    async def _submit(self, name: str, program: str, completions: int, retries: int) -> None:
        code = _START.format(folder=str(self.folder)) + PROGRAMS[program]
        self.submitted.add(name)
        await self.local.world.submit(
            name,
            template={"command": [sys.executable, "-c", code]},
            completions=completions,
            restart={"maxRetries": retries},
            stopGraceSeconds=1,
        )
        await self._wake()

    async def _ask(self, verb: str, name: str) -> None:
        await self.local.world.ask(verb, name)
        await self._wake()

    async def _wake(self) -> None:
        if self.scheduler is not None:
            await self.scheduler.wake()
        await self._wait(0.1)

    async def _start(self) -> None:
        self.scheduler = await self._reign.enter_async_context(self.local.scheduling(pace=QUICK))

    async def _crash(self) -> None:
        self.scheduler = None
        await self._reign.aclose()
        self._reign = contextlib.AsyncExitStack()

    async def _wait(self, seconds: float) -> None:
        self.stage.steps += 1
        await SystemClock().sleep(seconds)

    async def _kill(self, which: int, victim: str) -> None:
        folders = sorted((self.folder / "machines").glob("*/intent.json"))
        if not folders:
            return
        processes = Processes(folders[which % len(folders)].parent)
        runner = processes.runner()
        alive = processes.alive()
        chosen = {
            "runner": [one for one in alive if runner is not None and one.pid == runner.pid],
            "program": [one for one in alive if runner is not None and one.pid != runner.pid],
            "session": alive,
        }[victim]
        for one in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        await self._wait(0.2)

    async def _comes_to_rest(self) -> None:
        """Everything is stopped; then nothing runs, and all that ran is accounted for."""
        for name in sorted(self.submitted):
            await self._ask("stop", name)
        await self.local.until(self._rests, 90)
        await self._crash()
        kept = await rows.read(self.local.database)
        alive = running(self.folder / "machines", kept.machines)
        assert_sound(replace(rows.history_of(kept, alive), quiet=True))  # P-09, P-10
        starts = self.folder / "starts"
        lines = starts.read_text().splitlines() if starts.exists() else []
        twice = {name for name, times in Counter(lines).items() if times > 1}
        assert not twice, f"P-05: started more than once: {twice}"
        self.stage.attempts += len(await self.local.world.all_documents())

    async def _rests(self) -> bool:
        world = self.local.world
        return (
            all(row["state"] != "Active" for row in await world.workloads())
            and all(row["finished"] is not None for row in await world.rows(t.attempts))
            and all(row["state"] == "Gone" for row in await world.rows(t.machines))
            and all(row["outcome"] is not None for row in await world.rows(t.commands))
        )

    def _run(self, what: Coroutine[Any, Any, Any]) -> Any:
        return self.stage.loop.run_until_complete(what)


@pytest.fixture
def stage(clean_database: str) -> Iterator[Stage]:
    loop = asyncio.new_event_loop()
    eyes = loop.run_until_complete(asyncpg.connect(clean_database))
    first_rows = FirstRows(eyes)
    loop.run_until_complete(first_rows.remember())
    yield Stage(loop, clean_database, first_rows)
    loop.run_until_complete(first_rows.restore())
    loop.run_until_complete(eyes.close())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def test_whatever_happens_on_a_host_nothing_is_left_running(stage: Stage) -> None:
    class Here(LocalWalk):
        pass

    Here.stage = stage
    try:
        run_state_machine_as_test(Here, settings=WALKS)
    finally:
        print(f"{stage.walks} walks, {stage.steps} waits, {stage.attempts} Attempts")  # noqa: T201 - the figure is wanted
