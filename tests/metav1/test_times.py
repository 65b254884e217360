"""Times on the wire: LW-212."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from nodus_api.metav1.times import format_time, parse_time


def test_times_are_utc_and_whole_seconds() -> None:
    moment = datetime(2026, 3, 1, 13, 2, 40, 999_999, tzinfo=timezone(timedelta(hours=1)))
    assert format_time(moment) == "2026-03-01T12:02:40Z"
    assert parse_time("2026-03-01T12:02:40Z") == datetime(2026, 3, 1, 12, 2, 40, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["2026-03-01T12:02:40+00:00", "2026-03-01T12:02:40.5Z", "2026-03-01 12:02:40Z", ""]
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_time(text)
