"""Money, hours, rates and scores as decimal strings (LW-218), rounded half up."""

from decimal import ROUND_HALF_UP, Decimal

_SIX = Decimal("0.000001")
_FOUR = Decimal("0.0001")


def usd(amount: Decimal) -> str:
    """Return USD with exactly 6 decimals, such as `3.052431`."""
    return f"{amount.quantize(_SIX, ROUND_HALF_UP):f}"


def hours(amount: Decimal) -> str:
    """Return decimal hours with exactly 6 decimals, such as `1.034722`."""
    return usd(amount)


def score(value: Decimal) -> str:
    """Return a score with exactly 4 decimals, such as `0.8750`."""
    return f"{value.quantize(_FOUR, ROUND_HALF_UP):f}"


def rate(value: Decimal) -> str:
    """Return a rate with 2 to 6 decimals, such as `2.95` or `0.001`."""
    whole, _, fraction = usd(value).partition(".")
    return f"{whole}.{fraction[:2]}{fraction[2:].rstrip('0')}"
