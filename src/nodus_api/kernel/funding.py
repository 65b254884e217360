"""What an organization's money may pay, and what is set aside for each Attempt (SC-620, SC-621).

Pure. Money stands in three sums: the balance is free, `held` is set aside for Attempts, `captured`
was charged. Every change of a hold moves money between the three and makes or loses none, so that
deposits = balance + held + captured, to the micro-dollar. Amounts are USD with 6 decimals.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from nodus_api.kernel.money import ZERO, cumulative_usd

AHEAD = timedelta(minutes=15)
"""What is held beyond what is charged, besides what an end takes (SC-620, SC-621)."""

_SECOND = timedelta(seconds=1)


class InsufficientFunds(Exception):
    """The balance does not cover what would have to leave it."""

    def __init__(self, asked: Decimal, balance: Decimal) -> None:
        super().__init__(f"{asked} USD are asked for, {balance} USD are free")
        self.asked = asked
        self.balance = balance


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The money of one Attempt: `amount` was set aside in all, `captured` of it is charged.

    What is left of it goes back to the balance with `released`.
    """

    amount: Decimal = ZERO
    captured: Decimal = ZERO
    released: datetime | None = None

    @property
    def held(self) -> Decimal:
        """What is still set aside."""
        return ZERO if self.released is not None else self.amount - self.captured


NOTHING = Hold()
"""The hold of an Attempt that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An organization's money; a `balance` of None is not controlled: every hold succeeds."""

    organization: str
    balance: Decimal | None = None
    held: Decimal = ZERO
    captured: Decimal = ZERO

    @property
    def controlled(self) -> bool:
        """Whether money can run out."""
        return self.balance is not None

    def after(self, before: Hold | None, hold: Hold) -> "Account":
        """Return the account once a hold has become another (SC-621).

        Raises InsufficientFunds if the balance does not cover it.
        """
        old = before or NOTHING
        held = hold.held - old.held
        captured = hold.captured - old.captured
        balance = self.balance
        if balance is not None:
            if held + captured > balance:
                raise InsufficientFunds(held + captured, balance)
            balance -= held + captured
        return replace(
            self, balance=balance, held=self.held + held, captured=self.captured + captured
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a machine costs and how long it takes to come and to go, as a hold reckons with it."""

    rate_usd_per_hour: Decimal
    boot: timedelta
    """At the 95th percentile, as `teardown`."""
    teardown: timedelta
    increment: timedelta = _SECOND
    minimum: timedelta = timedelta(0)

    def usd(self, length: timedelta) -> Decimal:
        """Return the bill of a whole clock of that length, rounded as at its end (SC-507)."""
        seconds = -(-max(length, self.minimum) // _SECOND)
        increment = max(1, self.increment // _SECOND)
        return cumulative_usd(self.rate_usd_per_hour, -(-seconds // increment) * increment)


def start_amount(price: Price, budget: Decimal | None) -> Decimal:
    """Return the hold of a start (SC-620), at most `budget`: what maxCostUSD leaves, if anything.

    It is rate × (boot p95 + 15 min + teardown p95), rounded up to increment and minimum.
    """
    return _within(price.usd(price.boot + AHEAD + price.teardown), budget)


def ahead_amount(
    price: Price, *, charged: Decimal, clock: timedelta, budget: Decimal | None
) -> Decimal:
    """Return the hold that pays 15 min more and the end after them (SC-621), at most `budget`.

    `clock` is the length of the bill so far, and `charged` what of it was charged.
    """
    so_far = cumulative_usd(price.rate_usd_per_hour, clock // _SECOND)
    return _within(charged + price.usd(clock + AHEAD + price.teardown) - so_far, budget)


def payable(account: Account, hold: Hold | None) -> Decimal | None:
    """Return what an Attempt may be charged in all: hold + balance (SC-522); None is any sum."""
    if account.balance is None:
        return None
    return (hold or NOTHING).amount + account.balance


def charged_to(hold: Hold | None, cost: Decimal) -> Hold:
    """Return a hold of which `cost` is captured, extended where it is too small (SC-621).

    A capture may be negative: what became covered is held again.
    """
    standing = hold or NOTHING
    return replace(standing, amount=max(standing.amount, cost), captured=cost)


def raised(hold: Hold | None, amount: Decimal) -> Hold:
    """Return a hold of `amount`, or of what is captured if that is more."""
    standing = hold or NOTHING
    return replace(standing, amount=max(amount, standing.captured))


def cheapest(prices: Iterable[Price]) -> Price | None:
    """Return the price that an estimate goes by where nothing is chosen yet (SC-620)."""
    return min(prices, key=lambda one: one.rate_usd_per_hour, default=None)


def _within(amount: Decimal, budget: Decimal | None) -> Decimal:
    return amount if budget is None else min(amount, max(budget, ZERO))
