"""USD and hours: half up, fixed digits, nothing but digits and a point (SC-505, LW-218)."""

import re
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodus_api.kernel.money import (
    affordable_seconds,
    cumulative_usd,
    format_hours,
    format_rate,
    format_score,
    format_usd,
    hours_of,
    parse_decimal,
    parse_usd,
    round_half_up,
)

amounts = st.decimals(min_value=0, max_value=10**11, allow_nan=False, allow_infinity=False)
rates = st.integers(0, 10**9).map(lambda micros: Decimal(micros).scaleb(-6))
seconds = st.integers(0, 10**7)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        ("0.0000005", "0.000001"),  # a tie goes away from zero, as PostgreSQL's does
        ("0.0000025", "0.000003"),  # half even would give 0.000002
        ("0.0000004", "0.000000"),
        ("-0.0000005", "-0.000001"),
        ("3.0524306", "3.052431"),
    ],
)
def test_ties_go_away_from_zero(value: str, rounded: str) -> None:  # SC-505
    assert str(round_half_up(Decimal(value))) == rounded


def test_no_callers_context_changes_a_bill() -> None:
    with localcontext(prec=3):
        assert cumulative_usd(Decimal("23.60"), 775) == Decimal("5.080556")
        assert round_half_up(Decimal("1234567.8901234")) == Decimal("1234567.890123")


@given(rate=rates, length=seconds)
def test_a_clocks_cost_is_the_exact_product_rounded_half_up(rate: Decimal, length: int) -> None:
    with localcontext(prec=60):
        exact = rate * length / 3600
    assert abs(cumulative_usd(rate, length) - exact) <= Decimal("0.0000005")
    assert cumulative_usd(rate, length) == round_half_up(exact)


@given(rate=rates, start=seconds, length=st.integers(0, 10_000), usd=amounts)
def test_the_affordable_seconds_are_the_last_that_can_be_paid(
    rate: Decimal, start: int, length: int, usd: Decimal
) -> None:  # SC-522
    end = start + length
    until = affordable_seconds(rate, usd, start=start, end=end)

    def cost(second: int) -> Decimal:
        return cumulative_usd(rate, second) - cumulative_usd(rate, start)

    assert start <= until <= end
    assert cost(until) <= usd
    assert until == end or cost(until + 1) > usd


@pytest.mark.parametrize(
    ("length", "hours"), [(0, "0.000000"), (9, "0.002500"), (3725, "1.034722")]
)
def test_hours_have_six_decimals(length: int, hours: str) -> None:  # SC-506
    assert format_hours(hours_of(length)) == hours


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("2.95"), "2.950000"),
        (Decimal("1E+3"), "1000.000000"),
        (Decimal("1E-7"), "0.000000"),
        (Decimal("-0"), "0.000000"),
        (Decimal("123456789012.3456785"), "123456789012.345679"),
    ],
)
def test_usd_has_exactly_six_decimals_and_no_exponent(value: Decimal, text: str) -> None:
    assert format_usd(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("2.95", "2.95"),
        ("0.001", "0.001"),
        ("0.05", "0.05"),
        ("10", "10.00"),
        ("2.5", "2.50"),
        ("21.957642", "21.957642"),
        ("0.0000005", "0.000001"),
        ("0", "0.00"),
    ],
)
def test_a_rate_has_two_to_six_decimals(value: str, text: str) -> None:  # LW-218
    assert format_rate(Decimal(value)) == text


@pytest.mark.parametrize(
    ("value", "text"), [("0.705", "0.7050"), ("1", "1.0000"), ("0.98325", "0.9833")]
)
def test_a_score_has_four_decimals(value: str, text: str) -> None:  # SC-320
    assert format_score(Decimal(value)) == text


@given(value=amounts)
def test_every_shown_number_is_digits_and_a_point(value: Decimal) -> None:  # LW-218, field case C17
    shown = [format_usd(value), format_hours(value), format_rate(value), format_score(value)]

    assert all(re.fullmatch(r"[0-9]+\.[0-9]{2,6}", text) for text in shown)
    assert parse_usd(format_usd(value)) == round_half_up(value)


@pytest.mark.parametrize("value", ["-0.01", "NaN", "Infinity"])
def test_what_is_no_amount_is_not_shown(value: str) -> None:
    with pytest.raises(ValueError, match="finite and not negative"):
        format_usd(Decimal(value))


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1e3", "1,000", "1.", ".5", "1 USD", "NaN", "\u0661"]
)
def test_what_is_no_plain_decimal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="digits and a point"):
        parse_decimal(text)


def test_parsing_keeps_the_digits_and_usd_has_six() -> None:
    assert str(parse_decimal("23.60")) == "23.60"
    assert str(parse_usd("23.60")) == "23.600000"
    with pytest.raises(ValueError, match="more than 6 decimals"):
        parse_usd("0.0000001")
