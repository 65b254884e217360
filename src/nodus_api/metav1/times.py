"""Times on the wire: UTC, whole seconds, `Z` (LW-212, LW-213)."""

from datetime import UTC, datetime


def format_time(moment: datetime) -> str:
    """Return `2026-03-01T12:02:40Z` for an aware datetime; fractions of a second are dropped."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """Return the aware datetime that `format_time` wrote.

    Raises ValueError for any other form.
    """
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
