"""What a machine costs Nodus over its rate periods (SC-504)."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from nodus_api.kernel.money import cumulative_usd
from nodus_api.kernel.supplier_cost import RatePeriod, SupplierCost, supplier_cost

START = datetime(2026, 1, 1, tzinfo=UTC)
rates = st.decimals("0", "200", places=6)


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def period(start: int, end: int | None, rate: str) -> RatePeriod:
    return RatePeriod(
        start=at(start), end=None if end is None else at(end), rate_usd_per_hour=Decimal(rate)
    )


def test_each_period_has_its_rate() -> None:
    cost = supplier_cost([period(0, 3600, "1.25"), period(3600, 7200, "2.00")], at(9000))
    assert cost == SupplierCost(seconds=7200, usd=Decimal("3.25"))


def test_one_that_lasts_costs_until_now() -> None:
    assert supplier_cost([period(0, None, "3.60")], at(100)).usd == Decimal("0.1")


def test_the_end_is_rounded_up_at_the_last_rate() -> None:  # SC-507
    periods = [period(0, 1800, "1"), period(1800, 2700, "2")]
    cost = supplier_cost(periods, at(9000), increment=timedelta(hours=1))
    assert cost == SupplierCost(seconds=3600, usd=Decimal("1.5"))
    longer = supplier_cost(periods, at(9000), minimum=timedelta(hours=2))
    assert longer == SupplierCost(seconds=7200, usd=Decimal("3.5"))


def test_a_machine_that_cost_nothing() -> None:
    assert supplier_cost([], at(5)) == SupplierCost()
    assert supplier_cost([period(3, 3, "5")], at(9), increment=timedelta(hours=1)).usd == 0


@given(
    lengths=st.lists(st.tuples(st.integers(1, 10**6), rates), min_size=1, max_size=6),
    same=rates,
)
def test_periods_add_up(lengths: list[tuple[int, Decimal]], same: Decimal) -> None:
    """At one rate the cuts cost nothing; at several each costs its own, to a micro-dollar."""
    periods, one_rate, end = [], [], 0
    exact = Decimal(0)
    for length, rate in lengths:
        periods.append(period(end, end + length, f"{rate:f}"))
        one_rate.append(period(end, end + length, f"{same:f}"))
        end += length
        exact += rate * length / 3600
    assert supplier_cost(one_rate, at(end)).usd == cumulative_usd(same, end)
    assert abs(supplier_cost(periods, at(end)).usd - exact) <= Decimal("0.000001") * len(periods)
