"""What machines cost Nodus itself, in rate periods (SC-504): never what a customer pays.

A customer's rate is locked at the placement; a supplier's price may move meanwhile. The difference
is Nodus's gain or loss, and so is a machine that served nobody (SC-523).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from nodus_api.kernel.money import ZERO, cumulative_usd

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePeriod:
    """A time in which a machine cost Nodus one rate; `end` is None while it lasts."""

    start: datetime
    end: datetime | None
    rate_usd_per_hour: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class SupplierCost:
    """A machine's whole clock as its supplier bills it, in whole seconds and USD."""

    seconds: int = 0
    usd: Decimal = ZERO


def supplier_cost(
    periods: Sequence[RatePeriod],
    now: datetime,
    *,
    increment: timedelta = _SECOND,
    minimum: timedelta = timedelta(0),
) -> SupplierCost:
    """Return what a machine cost, its periods in order; up to `now` while it is there.

    Each period costs the difference of two cumulative amounts at its own rate. Once the last one
    has ended, the clock is rounded up to increment and minimum as a customer's is (SC-507), at the
    last rate.
    """
    if not periods:
        return SupplierCost()
    start = periods[0].start
    usd, at = ZERO, 0
    for one in periods:
        end = max(at, ((one.end or now) - start) // _SECOND)
        usd += _between(one.rate_usd_per_hour, at, end)
        at = end
    last = periods[-1]
    if last.end is not None and at:
        unit = max(1, increment // _SECOND)
        whole = -(-max(at, minimum // _SECOND) // unit) * unit
        usd += _between(last.rate_usd_per_hour, at, whole)
        at = whole
    return SupplierCost(seconds=at, usd=usd)


def _between(rate: Decimal, start: int, end: int) -> Decimal:
    return cumulative_usd(rate, end) - cumulative_usd(rate, start)
