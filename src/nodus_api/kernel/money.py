"""USD and decimal hours: exact, half up, never a float, never an exponent (SC-505, LW-218).

PostgreSQL's `round(numeric)` takes ties away from zero, so half up is the one
rounding here; Python's default (half even) would disagree with it.
"""

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal

USD_DIGITS = 6
SCORE_DIGITS = 4
ZERO = Decimal("0.000000")

_CONTEXT = Context(prec=60, rounding=ROUND_HALF_UP)  # ours: no caller's context can change a bill
_QUANTA = tuple(Decimal(1).scaleb(-digits) for digits in range(USD_DIGITS + 1))
_DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)


def round_half_up(value: Decimal, digits: int = USD_DIGITS) -> Decimal:
    """Return `value` with exactly `digits` decimals, ties away from zero."""
    return value.quantize(_QUANTA[digits], context=_CONTEXT)


def millionths(value: float) -> int:
    """Return a value in whole millionths, half up."""
    return math.floor(value * 1e6 + 0.5)


def cumulative_usd(rate_usd_per_hour: Decimal, seconds: int) -> Decimal:
    """Return the USD of `seconds` from the start of a clock, to a micro-dollar (SC-505).

    The rate counts to 6 digits. An interval costs the difference of two of these, so
    that segments always add up to the rounded whole.
    """
    micros = int(round_half_up(rate_usd_per_hour).scaleb(USD_DIGITS, _CONTEXT))
    return Decimal((2 * micros * seconds + 3600) // 7200).scaleb(-USD_DIGITS, _CONTEXT)


def affordable_seconds(rate_usd_per_hour: Decimal, usd: Decimal, *, start: int, end: int) -> int:
    """Return the last whole second in [start, end] up to which `usd` pays from `start` (SC-522)."""
    base = cumulative_usd(rate_usd_per_hour, start)
    low, high = start, end
    while low < high:
        middle = (low + high + 1) // 2
        if cumulative_usd(rate_usd_per_hour, middle) - base <= usd:
            low = middle
        else:
            high = middle - 1
    return low


def hours_of(seconds: int) -> Decimal:
    """Return whole seconds as hours with 6 decimals, half up (SC-506)."""
    return Decimal((2_000_000 * seconds + 3600) // 7200).scaleb(-USD_DIGITS, _CONTEXT)


def format_usd(value: Decimal) -> str:
    """Return USD with exactly 6 decimals: `3.052431` (LW-218).

    Raises ValueError for a negative or non-finite value.
    """
    return _fixed(value, USD_DIGITS)


def format_hours(value: Decimal) -> str:
    """Return hours with exactly 6 decimals: `1.034722` (LW-218)."""
    return _fixed(value, USD_DIGITS)


def format_rate(value: Decimal) -> str:
    """Return a rate with 2 to 6 decimals: `2.95`, `0.001` (LW-218)."""
    whole, decimals = _fixed(value, USD_DIGITS).split(".")
    return f"{whole}.{decimals[:2]}{decimals[2:].rstrip('0')}"


def format_score(value: Decimal) -> str:
    """Return a score with exactly 4 decimals: `0.7050` (LW-218, SC-320)."""
    return _fixed(value, SCORE_DIGITS)


def parse_decimal(text: str) -> Decimal:
    """Return the value of a plain decimal string, such as `23.60`; digits are kept as written.

    Raises ValueError for a sign, an exponent, a thousands mark or a unit.
    """
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"{text!r} is not a decimal number: write digits and a point, like 23.60")
    return Decimal(text)


def parse_usd(text: str) -> Decimal:
    """Return an amount or a rate in USD with 6 decimals.

    Raises ValueError if it is no plain decimal, or names parts of a micro-dollar.
    """
    value = parse_decimal(text)
    rounded = round_half_up(value)
    if rounded != value:
        raise ValueError(
            f"{text!r} has more than {USD_DIGITS} decimals: round it to a micro-dollar"
        )
    return rounded


def _fixed(value: Decimal, digits: int) -> str:
    if not value.is_finite() or value < 0:
        raise ValueError(f"{value} cannot be shown: amounts are finite and not negative")
    return f"{abs(round_half_up(value, digits)):f}"
