"""The one duration type."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodus_api.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("300ms", timedelta(milliseconds=300)),
        ("1.5h", timedelta(minutes=90)),
        (".5s", timedelta(milliseconds=500)),
        ("250us", timedelta(microseconds=250)),
        ("250µs", timedelta(microseconds=250)),
        ("1500ns", timedelta(microseconds=1)),
        ("720h", timedelta(days=30)),
        (" 2m ", timedelta(minutes=2)),
        ("0", timedelta(0)),
        ("PT90S", timedelta(seconds=90)),
        ("pt1h30m", timedelta(hours=1, minutes=30)),
        ("P90D", timedelta(days=90)),
        ("P1DT12H", timedelta(days=1, hours=12)),
        ("PT0.25S", timedelta(milliseconds=250)),
    ],
)
def test_both_forms_are_read(text: str, expected: timedelta) -> None:  # AS-117
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    ["90", "1.5", "", "s", "1d", "-5s", "1h 30m", "P", "PT", "P1DT", "P1Y", "90 s", "1h-3m", "٣s"],
)
def test_anything_else_is_refused_with_what_to_write(text: str) -> None:  # AS-117
    with pytest.raises(ValueError, match="is not a duration: write it with a unit, such as 90s"):
        parse_duration(text)


@pytest.mark.parametrize("text", [f"{'9' * 30}h", f"P{'9' * 400}D"])
def test_one_that_no_clock_holds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is too long: write at most 999999999 days"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(hours=1, minutes=30), "1h30m"),
        (timedelta(hours=24), "24h"),
        (timedelta(milliseconds=300), "0.3s"),
        (timedelta(hours=1, microseconds=1), "1h0.000001s"),
        (timedelta(seconds=20), "20s"),
    ],
)
def test_durations_are_shown_in_go_s_form(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=4000)))
def test_what_is_shown_is_read_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration
