"""A world of its own for each test."""

from collections.abc import AsyncIterator

import pytest
from tests.scheduler.fake_supplier import FakeSupplier
from tests.scheduler.local_world import LocalWorld, a_local_world
from tests.scheduler.world import World

from nodus_api.clock import ManualClock
from nodus_api.storage.engine import Database


@pytest.fixture
def world(scheduler_database: Database, clock: ManualClock) -> World:
    return World(scheduler_database, clock, FakeSupplier(clock))


@pytest.fixture
async def local(clean_database: str) -> AsyncIterator[LocalWorld]:
    async with a_local_world(clean_database) as world:
        yield world
