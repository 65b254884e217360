"""A world of its own for each test."""

import pytest
from tests.scheduler.fake_supplier import FakeSupplier
from tests.scheduler.world import World

from nodus_api.clock import ManualClock
from nodus_api.storage.engine import Database


@pytest.fixture
def world(scheduler_database: Database, clock: ManualClock) -> World:
    return World(scheduler_database, clock, FakeSupplier(clock))
