"""Reading a query string: the first of repeated keys counts, unknown ones are kept (LW-018)."""

import re
from collections.abc import Mapping
from urllib.parse import unquote_plus

from nodus_api.metav1.errors import BadRequest
from nodus_api.metav1.golang import parse_int64

MAX_PAIRS = 100
MAX_VALUE_BYTES = 16 * 1024
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def parse_query(query: bytes | str) -> dict[str, str]:
    """Return a query string's values by key, the first of each (LW-018).

    Pairs with a `;` or a broken escape are dropped, as Go does (LW-022). Raises
    BadRequest for more than 100 pairs or a value over 16 KiB (AS-089).
    """
    text = query.decode("latin-1") if isinstance(query, bytes) else query
    pairs = [pair for pair in text.split("&") if pair]
    if len(pairs) > MAX_PAIRS:
        raise BadRequest(
            f"the query has {len(pairs)} parameters, at most {MAX_PAIRS} are read",
            fix=f"Send at most {MAX_PAIRS} query parameters.",
        )
    values: dict[str, str] = {}
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
        values.setdefault(unquote_plus(key), unquote_plus(value))
    return values


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
