"""The runner's own clock; no other module of it reads the time.

It may not import `nodus_api.clock`, since it stands alone.
"""

import time
from datetime import UTC, datetime


def elapsed() -> float:
    """Return seconds that never go back and that go on while the host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def age_ms(moment: float) -> int:
    """Return the whole milliseconds since a moment of `elapsed`, at least 0 (SC-615)."""
    return max(0, round((elapsed() - moment) * 1000))


def wall() -> datetime:
    """Return the wall time, aware, in UTC."""
    return datetime.fromtimestamp(time.time(), UTC)
