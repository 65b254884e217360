"""The system's clock and the clock that tests move."""

import asyncio
from datetime import UTC, datetime, timedelta

from nodus_api.clock import ManualClock, SystemClock
from nodus_api.tasks import end, spawn

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


async def test_the_system_clock_is_aware_and_never_goes_back() -> None:
    clock = SystemClock()
    before, mark = clock.now(), clock.monotonic()
    await clock.sleep(0)

    assert before.tzinfo is UTC
    assert clock.now() >= before
    assert clock.monotonic() >= mark


async def test_a_manual_clock_stands_until_it_is_moved() -> None:
    clock = ManualClock(START)
    assert (clock.now(), clock.monotonic()) == (START, 0.0)

    await clock.advance(1.5)

    assert clock.now() == START + timedelta(seconds=1.5)
    assert clock.monotonic() == 1.5


async def test_sleepers_wake_each_at_its_own_moment_in_order() -> None:
    clock = ManualClock(START)
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    tasks = [spawn(name, sleeper(name, at)) for name, at in (("b", 2.0), ("a", 1.0), ("c", 9.0))]
    await clock.advance(5.0)

    assert woken == [("a", 1.0), ("b", 2.0)]
    for task in tasks:
        await end(task)


async def test_a_sleeper_that_was_cancelled_does_not_stop_the_others() -> None:
    clock = ManualClock(START)
    gone = spawn("gone", clock.sleep(1.0))
    stays = spawn("stays", clock.sleep(2.0))
    await asyncio.sleep(0)
    await end(gone)
    await clock.advance(3.0)

    await stays
    assert gone.cancelled()
