"""Quotas and entitlements while a batch is placed: what one takes is missing for the next."""

from collections import Counter

from nodus_api.kernel.offering import OfferingClass
from nodus_api.storage.allowance_store import Allowances


class Remaining:
    """What projects may still take in one step of placing (SC-310 rows 9 and 16, SC-371)."""

    def __init__(self, allowances: Allowances) -> None:
        self._allowances = allowances
        self._taken: Counter[tuple[str, str]] = Counter()

    def left(self, project: str) -> dict[str, int]:
        """Return what the project may still take, by accelerator."""
        found = self._allowances.left(project)
        return {name: left - self._taken[project, name] for name, left in found.items()}

    def closed(self, project: str) -> tuple[str, ...]:
        """Return the classes that are not open to the project."""
        return self._allowances.closed(project)

    def take(self, project: str, offering: OfferingClass, machines: int) -> None:
        """Count machines that the project was given."""
        name, count = offering.quota_unit
        self._taken[project, name] += count * machines
