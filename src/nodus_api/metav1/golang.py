"""Values as Go's standard library reads and prints them, since clients see its texts.

Error messages of the protocol quote what a client sent with `%q` and repeat the
words of `strconv` (LW-081, LW-102, AS-056).
"""

import re
from datetime import timedelta
from decimal import Decimal

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
UINT64_MAX = 2**64 - 1

_SIGNED = re.compile(r"[+-]?[0-9]+")
_UNSIGNED = re.compile(r"[0-9]+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([^0-9.]*)")
_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,  # Go takes the micro sign and the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_ESCAPES = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    '"': r"\"",
    "\\": r"\\",
}


def quote(text: str) -> str:
    """Return `text` as `%q` prints it: in double quotes, unprintable characters escaped."""
    return '"' + "".join(map(_quoted, text)) + '"'


def parse_int64(text: str) -> int:
    """Return a base-10 int64 with an optional sign.

    Raises ValueError with the text of `strconv.ParseInt` (LW-081).
    """
    return _parse("ParseInt", text, _SIGNED, INT64_MIN, INT64_MAX)


def parse_uint64(text: str) -> int:
    """Return a base-10 uint64 without a sign.

    Raises ValueError with the text of `strconv.ParseUint` (LW-102).
    """
    return _parse("ParseUint", text, _UNSIGNED, 0, UINT64_MAX)


def parse_duration(text: str) -> timedelta:
    """Return a duration such as `32s`, `300ms` or `1h30m`, to a microsecond.

    Raises ValueError with the text of `time.ParseDuration` (LW-020).
    """
    sign, body = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if body == "0":
        return timedelta(0)
    nanoseconds = Decimal(0)
    at = 0
    while at < len(body) or not body:
        part = _DURATION_PART.match(body, at)
        if part is None:
            raise ValueError(f"time: invalid duration {quote(text)}")
        number, unit = part.groups()
        if not unit:
            raise ValueError(f"time: missing unit in duration {quote(text)}")
        if unit not in _NANOSECONDS:
            raise ValueError(f"time: unknown unit {quote(unit)} in duration {quote(text)}")
        nanoseconds += Decimal(number) * _NANOSECONDS[unit]
        at = part.end()
    if nanoseconds > INT64_MAX:
        raise ValueError(f"time: invalid duration {quote(text)}")
    duration = timedelta(microseconds=int(nanoseconds / 1000))
    return -duration if sign == "-" else duration


def _parse(function: str, text: str, form: re.Pattern[str], least: int, most: int) -> int:
    if not form.fullmatch(text):
        raise ValueError(f"strconv.{function}: parsing {quote(text)}: invalid syntax")
    # A number of more than 30 digits is out of range whatever it is; int() would be slow on it.
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > 30 or not least <= int(text) <= most:
        raise ValueError(f"strconv.{function}: parsing {quote(text)}: value out of range")
    return int(text)


def _quoted(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char == " " or char.isprintable():
        return char
    point = ord(char)
    if point < 0x80:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
