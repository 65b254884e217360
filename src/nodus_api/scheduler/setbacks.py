"""Items that failed, and when each is tried again: 1 s, 2 s, 4 s … 5 min (SC-606).

A supplier's calls are repeated after 60 s at the latest (SC-617). Each wait is shorter by up to a
fifth, so that what failed together is not tried together. In memory alone: after a restart
everything is tried at once.
"""

from hashlib import sha256
from typing import TypeAlias
from uuid import UUID

Item: TypeAlias = int | UUID | str
"""An Attempt's or a command's number, a workload's uid, or a project's name."""

Key: TypeAlias = tuple[str, Item]
"""The step that failed, and the item it failed on."""

LONGEST_SECONDS = 300.0
LONGEST_OF_CALLS = 60.0
"""Between two tries of a supplier's call, but for deletes (SC-617, SC-610)."""


def retry_wait(failures: int, of: str, *, longest: float) -> float:
    """Return the seconds until the next try after so many failures in a row, from 1 on.

    The jitter is a hash of `of` and the number, so it is the same in every process; it only
    takes away, up to 20 %, so that no wait is above what is promised.
    """
    digest = sha256(f"{of}/{failures}".encode()).digest()
    share = int.from_bytes(digest[:4]) / 2**32
    return min(2.0 ** min(failures - 1, 30), longest) * (1 - 0.2 * share)


class Setbacks:
    """Counts failures in a row. Moments are monotonic seconds."""

    def __init__(self) -> None:
        self._failures: dict[Key, tuple[int, float]] = {}

    def over(self, key: Key, now: float) -> bool:
        """Whether an item may be tried now."""
        _, again = self._failures.get(key, (0, now))
        return again <= now

    def resting(self, step: str, now: float) -> int:
        """Return how many items of a step may not be tried yet."""
        return sum(name == step and again > now for (name, _), (_, again) in self._failures.items())

    def failed(self, key: Key, now: float, *, longest: float = LONGEST_SECONDS) -> float:
        """Count a failure; return the seconds until the next try."""
        times, _ = self._failures.get(key, (0, now))
        step, item = key
        wait = retry_wait(times + 1, f"{step}/{item}", longest=longest)
        self._failures[key] = (times + 1, now + wait)
        return wait

    def passed(self, key: Key) -> None:
        """Forget the failures of an item that went well."""
        self._failures.pop(key, None)
