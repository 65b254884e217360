"""A world of its own for each test, whose log and ledger are checked at the end."""

from collections.abc import AsyncIterator

import pytest
from tests.history import rows
from tests.history.checking import assert_sound
from tests.scheduler.fake_supplier import FakeSupplier
from tests.scheduler.local_world import LocalWorld, a_local_world
from tests.scheduler.world import World

from nodus_api.clock import ManualClock
from nodus_api.storage.engine import Database


@pytest.fixture
async def world(scheduler_database: Database, clock: ManualClock) -> AsyncIterator[World]:
    supplier = FakeSupplier(clock)
    yield World(scheduler_database, clock, supplier)
    assert_sound(rows.history_of(await rows.read(scheduler_database), supplier.machines))


@pytest.fixture
async def local(clean_database: str) -> AsyncIterator[LocalWorld]:
    async with a_local_world(clean_database) as world:
        yield world
