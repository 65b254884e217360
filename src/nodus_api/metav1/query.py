"""Reading a query string: the first of repeated keys counts, unknown ones are kept (LW-018)."""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from urllib.parse import unquote_plus

from nodus_api.metav1.errors import BadRequest
from nodus_api.metav1.golang import parse_duration, parse_int64, quote

MAX_PAIRS = 100
MAX_VALUE_BYTES = 16 * 1024
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FOR_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def parse_query(query: bytes | str) -> dict[str, str]:
    """Return a query string's values by key, the first of each (LW-018).

    Pairs with a `;` or a broken escape are dropped, as Go does (LW-022). Raises
    BadRequest for more than 100 pairs, a value over 16 KiB (AS-089), or a NUL character.
    """
    values: dict[str, str] = {}
    for key, value in _pairs(query):
        values.setdefault(key, value)
    return values


def all_values(query: bytes | str, key: str) -> list[str]:
    """Return every value of a key, for the few that may be repeated (AS-104's `exclude`).

    Raises BadRequest as `parse_query` does.
    """
    return [value for found, value in _pairs(query) if found == key]


def boolean(values: Mapping[str, str], key: str) -> bool | None:
    """Return a flag: None if absent, false for `0` and `false`, true for all else (LW-080)."""
    value = values.get(key)
    return None if value is None else value.lower() not in ("0", "false")


def integer(values: Mapping[str, str], key: str) -> int | None:
    """Return an int64, None if absent. Raises BadRequest for anything else (LW-081)."""
    value = values.get(key)
    if value is None:
        return None
    try:
        return parse_int64(value)
    except ValueError as wrong:
        raise BadRequest(
            str(wrong), fix=f"Give {key} as a whole number, such as {key}=500."
        ) from None


def is_pretty(values: Mapping[str, str], *, user_agent: str = "") -> bool:
    """Return whether the body is to be indented: as asked, else for people's programs (LW-019)."""
    asked = values.get("pretty", "")
    if asked:
        return asked in _TRUE
    return user_agent.startswith(_FOR_PEOPLE)


def request_timeout(values: Mapping[str, str], *, maximum: timedelta) -> timedelta:
    """Return how long a request that is no watch may take: as asked, at most `maximum` (LW-020).

    Raises BadRequest for a `timeout` that is no duration.
    """
    asked = values.get("timeout", "")
    if not asked:
        return maximum
    try:
        duration = parse_duration(asked)
    except ValueError as wrong:
        raise BadRequest(
            f"invalid timeout specified in the request URL - {wrong}",
            fix="Give timeout as a number with a unit, such as timeout=32s.",
        ) from None
    return min(duration, maximum) if duration > timedelta(0) else maximum


def _pairs(query: bytes | str) -> Iterator[tuple[str, str]]:
    text = query.decode("latin-1") if isinstance(query, bytes) else query
    pairs = [pair for pair in text.split("&") if pair]
    if len(pairs) > MAX_PAIRS:
        raise BadRequest(
            f"the query has {len(pairs)} parameters, at most {MAX_PAIRS} are read",
            fix=f"Send at most {MAX_PAIRS} query parameters.",
        )
    for pair in pairs:
        if ";" in pair or _BROKEN_ESCAPE.search(pair):
            continue
        key, _, value = pair.partition("=")
        if len(value) > MAX_VALUE_BYTES:
            raise BadRequest(
                f"the query parameter {unquote_plus(key)[:64]} has {len(value)} bytes, "
                f"at most {MAX_VALUE_BYTES} are read",
                fix=f"Shorten the parameter to {MAX_VALUE_BYTES} bytes.",
            )
        decoded = unquote_plus(key), unquote_plus(value)
        if any("\0" in text for text in decoded):  # no database text can hold one
            raise BadRequest(
                f"the query parameter {quote(decoded[0][:64])} holds a NUL character",
                fix="Leave the NUL character (%00) out.",
            )
        yield decoded
