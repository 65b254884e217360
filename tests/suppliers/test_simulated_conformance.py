"""The simulated supplier passes the suite of every supplier (SC-702)."""

import pytest
from tests.suppliers.conformance import Conformance
from tests.suppliers.simulated_fleet import SimulatedFleet


@pytest.fixture
def fleet() -> SimulatedFleet:
    return SimulatedFleet()


class TestSimulated(Conformance):
    """Machines in memory."""
