"""The one duration type: `90s`, `1h30m`, `300ms` or ISO 8601 `PT90S` (AS-117).

A bare number is refused, because it does not say of what.
"""

import re
from datetime import timedelta
from decimal import Decimal

_UNITS = {
    "ns": Decimal("0.000000001"),
    "us": Decimal("0.000001"),
    "µs": Decimal("0.000001"),
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_NUMBER = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_GO = re.compile(rf"(?:(?:{_NUMBER})(?:ns|us|µs|ms|s|m|h))+")
_GO_PART = re.compile(rf"({_NUMBER})(ns|us|µs|ms|s|m|h)")
_ISO = re.compile(
    rf"P(?:({_NUMBER})D)?(?:T(?=.)(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)


def parse_duration(text: str) -> timedelta:
    """Return the duration that `text` says, to a microsecond.

    Raises ValueError with what to write instead.
    """
    word = text.strip()
    if word == "0":
        return timedelta(0)
    if _GO.fullmatch(word):
        seconds = sum(
            (Decimal(number) * _UNITS[unit] for number, unit in _GO_PART.findall(word)), Decimal(0)
        )
        return _of_seconds(seconds, text)
    iso = _ISO.fullmatch(word.upper())
    if iso and any(iso.groups()):
        days, hours, minutes, seconds_ = (Decimal(part or 0) for part in iso.groups())
        total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds_
        return _of_seconds(total, text)
    raise ValueError(
        f"{text!r} is not a duration: write it with a unit, such as 90s, 1h30m or PT90S"
    )


def _of_seconds(seconds: Decimal, text: str) -> timedelta:
    try:
        return timedelta(microseconds=int(seconds * 1_000_000))
    except OverflowError:
        raise ValueError(f"{text[:40]!r} is too long: write at most 999999999 days") from None


def format_duration(duration: timedelta) -> str:
    """Return a duration in Go's form, such as `1h30m0s` shortened to `1h30m`."""
    seconds = Decimal(duration // timedelta(microseconds=1)) / 1_000_000
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    parts = [f"{int(value)}{unit}" for value, unit in ((hours, "h"), (minutes, "m")) if value]
    if left or not parts:
        parts.append(f"{left.normalize():f}s")
    return "".join(parts)
