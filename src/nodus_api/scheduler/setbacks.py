"""Items that failed, and when each is tried again: 1 s, 2 s, 4 s … 5 min (SC-606).

In memory alone: after a restart everything is tried at once.
"""

from typing import TypeAlias
from uuid import UUID

Item: TypeAlias = int | UUID | str
"""An Attempt's or a command's number, a workload's uid, or a project's name."""

Key: TypeAlias = tuple[str, Item]
"""The step that failed, and the item it failed on."""

LONGEST_SECONDS = 300.0


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

    def failed(self, key: Key, now: float) -> float:
        """Count a failure; return the seconds until the next try."""
        times, _ = self._failures.get(key, (0, now))
        wait = min(2.0**times, LONGEST_SECONDS)
        self._failures[key] = (times + 1, now + wait)
        return wait

    def passed(self, key: Key) -> None:
        """Forget the failures of an item that went well."""
        self._failures.pop(key, None)
