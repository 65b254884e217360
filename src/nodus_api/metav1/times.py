"""Times on the wire: UTC, whole seconds, `Z` (LW-212, LW-213)."""

from datetime import UTC, datetime

_LENGTH = len("2026-03-01T12:02:40Z")


def format_time(moment: datetime) -> str:
    """Return `2026-03-01T12:02:40Z` for an aware datetime; fractions of a second are dropped."""
    naive = moment.astimezone(UTC).replace(tzinfo=None)
    return f"{naive.isoformat(timespec='seconds')}Z"


def parse_time(text: str) -> datetime:
    """Return the aware datetime that `format_time` wrote.

    Raises ValueError for any other form.
    """
    if len(text) != _LENGTH or text[10] != "T" or text[-1] != "Z":
        raise ValueError(f"{text!r} is not a time: write it as 2026-03-01T12:02:40Z")
    return datetime.fromisoformat(text)  # a quarter of strptime's time, and rows need two each
