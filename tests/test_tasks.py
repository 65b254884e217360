"""Background tasks."""

import asyncio
from datetime import UTC, datetime

import pytest

from nodus_api.clock import ManualClock
from nodus_api.tasks import Crashes, end, spawn


async def answer() -> int:
    return 7


async def fail() -> None:
    raise RuntimeError("broken")


async def test_a_task_has_a_name_and_a_result() -> None:
    task = spawn("answer", answer())

    assert task.get_name() == "answer"
    assert await task == 7


async def test_ending_cancels_and_waits() -> None:
    task = spawn("waits", asyncio.Event().wait())
    await end(task)

    assert task.cancelled()


async def test_what_a_task_raised_before_is_raised_at_its_end() -> None:
    task = spawn("fails", fail())
    await asyncio.wait([task])

    with pytest.raises(RuntimeError, match="broken"):
        await end(task)


async def test_three_crashes_in_a_minute_are_often() -> None:  # AS-094
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    crashes = Crashes(clock)
    for seconds in (0, 31, 31, 29):
        await clock.advance(seconds)
        crashes.note()
        assert crashes.often() is (seconds == 29)
    await clock.advance(30)

    assert not crashes.often()
    assert crashes.total == 4
