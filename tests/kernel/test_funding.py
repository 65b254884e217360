"""Holds, captures and the account they move money in (SC-620, SC-621, P-15)."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodus_api.kernel.funding import (
    NOTHING,
    Account,
    Hold,
    InsufficientFunds,
    Price,
    ahead_amount,
    charged_to,
    cheapest,
    payable,
    raised,
    start_amount,
)
from nodus_api.kernel.money import cumulative_usd

USD = Decimal
NOW = datetime(2026, 1, 1, tzinfo=UTC)
amounts = st.decimals("0", "1000", places=6)


def price(rate: str = "3.60", increment: int = 1, minimum: int = 0) -> Price:
    return Price(
        rate_usd_per_hour=USD(rate),
        boot=timedelta(seconds=180),
        teardown=timedelta(seconds=120),
        increment=timedelta(seconds=increment),
        minimum=timedelta(seconds=minimum),
    )


def test_a_start_holds_boot_15_minutes_and_teardown() -> None:  # SC-620
    assert start_amount(price(), None) == USD("1.200000")  # 1,200 s at 0.001 a second


def test_a_hold_is_rounded_up_to_increment_and_minimum() -> None:  # SC-620, SC-507
    assert start_amount(price(increment=3600), None) == USD("3.600000")
    assert start_amount(price(minimum=7200), None) == USD("7.200000")
    assert start_amount(price(increment=3600, minimum=3601), None) == USD("7.200000")


def test_a_hold_is_at_most_what_the_limit_leaves() -> None:  # SC-620
    assert start_amount(price(), USD("0.5")) == USD("0.5")
    assert start_amount(price(), USD(0)) == 0
    ahead = ahead_amount(price(), charged=USD("4.9"), clock=timedelta(seconds=4900), budget=USD(5))
    assert ahead == 5


def test_a_renewal_holds_15_minutes_and_the_end_after_them() -> None:  # SC-621
    clock = timedelta(seconds=600)
    amount = ahead_amount(price(), charged=USD("0.6"), clock=clock, budget=None)
    assert amount == USD("0.6") + USD("1.02")
    covered = ahead_amount(price(), charged=USD("0.1"), clock=clock, budget=None)
    assert covered == USD("0.1") + USD("1.02")


def test_a_renewal_knows_that_the_end_is_rounded_up() -> None:  # SC-507
    clock = timedelta(seconds=3000)
    amount = ahead_amount(price(increment=3600), charged=USD(3), clock=clock, budget=None)
    assert amount == USD("7.2")  # 4,020 s become two hours


def test_what_is_not_there_cannot_be_held() -> None:
    account = Account(organization="default", balance=USD("1"))
    with pytest.raises(InsufficientFunds) as lack:
        account.after(None, Hold(amount=USD("1.000001")))
    assert (lack.value.asked, lack.value.balance) == (USD("1.000001"), USD(1))
    assert account.after(None, Hold(amount=USD(1))).balance == 0


def test_without_control_every_hold_succeeds() -> None:  # SC-620
    account = Account(organization="default").after(None, Hold(amount=USD(10**6)))
    assert (account.controlled, account.balance, account.held) == (False, None, USD(10**6))
    assert payable(account, None) is None


def test_hold_and_balance_pay() -> None:  # SC-522
    account = Account(organization="default", balance=USD(2))
    assert payable(account, Hold(amount=USD(3), captured=USD(1))) == 5
    assert payable(account, None) == 2


def test_the_cheapest_is_the_estimate() -> None:
    assert cheapest([price("2"), price("1"), price("3")]) == price("1")
    assert cheapest([]) is None


@given(paid_in=amounts, steps=st.lists(st.tuples(amounts, amounts, st.booleans()), max_size=12))
def test_money_only_moves(  # P-15
    paid_in: Decimal, steps: list[tuple[Decimal, Decimal, bool]]
) -> None:
    """Whatever is held, captured, covered again and released: the sums are those of the holds."""
    account = Account(organization="default", balance=paid_in)
    hold: Hold | None = None
    for amount, cost, ends in steps:
        for after in (
            raised(hold, amount),
            charged_to(raised(hold, amount), cost),
            Hold(amount=amount, captured=min(cost, amount), released=NOW) if ends else NOTHING,
        ):
            try:
                account = account.after(hold, after)
            except InsufficientFunds:
                continue
            hold = after
            assert account.balance is not None
            assert account.balance >= 0
            assert account.balance + account.held + account.captured == paid_in
            assert (account.held, account.captured) == (hold.held, hold.captured)


@given(
    rate=st.decimals("0.01", "200", places=6),
    clock=st.integers(0, 10**6),
    increment=st.sampled_from((1, 60, 3600)),
    minimum=st.sampled_from((0, 60, 7200)),
    more=st.integers(0, 1020),
)
def test_what_is_held_pays_an_end_within_15_minutes(  # SC-621
    rate: Decimal, clock: int, increment: int, minimum: int, more: int
) -> None:
    """However a machine's clock is rounded up, and wherever within the lead it ends."""
    asked = price(f"{rate:f}", increment, minimum)
    charged = cumulative_usd(rate, clock)
    amount = ahead_amount(asked, charged=charged, clock=timedelta(seconds=clock), budget=None)
    assert asked.usd(timedelta(seconds=clock + more)) <= amount
