"""Random lives of a whole installation: P-01 to P-07, P-09 to P-15, P-22 to P-25, P-27, P-28.

With gangs (SC-130 to SC-135), drills (SC-630) and reclaims that are announced (SC-013), and with
who pays for all of it (SC-520).

`make test` makes the same walks each time. NODUS_WALKS=2000 makes so many, at random.
"""

import asyncio
import logging
import os
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.conftest import START, FirstRows
from tests.scheduler.walk.machine import SchedulerWalk
from tests.scheduler.walk.mortal import Killed, MortalDatabase
from tests.scheduler.walk.races import RaceWalk
from tests.scheduler.walk.spending import FundsWalk
from tests.scheduler.walk.stage import Stage

from nodus_api.clock import ManualClock

pytestmark = pytest.mark.slow  # many whole lives
MANY = os.environ.get("NODUS_WALKS")
WALKS = settings(
    max_examples=int(MANY or 6),
    stateful_step_count=30,
    derandomize=MANY is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate,)
    if os.environ.get("NODUS_WALKS_RAW")
    else (Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
    print_blob=False,
)


@pytest.fixture
def stage(clean_database: str) -> Iterator[Stage]:
    """A loop of its own: Hypothesis is no coroutine, and drives it by hand."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_unless_killed)
    eyes = loop.run_until_complete(asyncpg.connect(clean_database))
    first_rows = FirstRows(eyes)
    loop.run_until_complete(first_rows.remember())
    database = MortalDatabase(clean_database, pinned_now=lambda: made.clock.now())
    made = Stage(loop, database, eyes, first_rows, ManualClock(START))
    logger = logging.getLogger("nodus_api.scheduler")
    logger.addHandler(made.errors)
    yield made
    logger.removeHandler(made.errors)
    loop.run_until_complete(first_rows.restore())
    loop.run_until_complete(database.close())
    loop.run_until_complete(eyes.close())
    loop.close()


def _unless_killed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Let a call die with its process; nobody is there to ask how."""
    if not isinstance(context.get("exception"), Killed):
        loop.default_exception_handler(context)


@pytest.mark.parametrize("walk", [SchedulerWalk, RaceWalk, FundsWalk])
def test_whatever_happens_the_properties_hold(stage: Stage, walk: type[SchedulerWalk]) -> None:
    here = type("Here", (walk,), {"stage": stage})
    try:
        run_state_machine_as_test(here, settings=WALKS)
    finally:
        seen = ", ".join(f"{name}: {times}" for name, times in sorted(stage.seen.items()))
        print(f"{stage.walks} walks, {stage.steps} steps\n{seen}")  # noqa: T201 - the figures are wanted
