"""Values as Go reads and prints them: LW-020, LW-081, LW-102, AS-056."""

from datetime import timedelta

import pytest

from nodus_api.metav1.golang import parse_duration, parse_int64, parse_uint64, quote


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("abc", '"abc"'),
        ("", '""'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("tab\tline\n", '"tab\\tline\\n"'),
        ("\x00\x7f", '"\\x00\\x7f"'),
        ("grün 日本", '"grün 日本"'),
        ("\u200b", '"\\u200b"'),
        ("\U000e0001", '"\\U000e0001"'),
    ],
)
def test_text_is_quoted_as_go_quotes_it(text: str, quoted: str) -> None:
    assert quote(text) == quoted


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("+7", 7),
        ("-5", -5),
        ("0009", 9),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
    ],
)
def test_int64_takes_a_sign(text: str, number: int) -> None:  # LW-081
    assert parse_int64(text) == number


@pytest.mark.parametrize("text", ["", "abc", "1.5", " 1", "1_000", "0x1", "--1", "\uff11"])
def test_a_malformed_int64_says_so_in_gos_words(text: str) -> None:  # LW-081
    with pytest.raises(
        ValueError, match=r"^strconv\.ParseInt: parsing .*: invalid syntax$"
    ) as error:
        parse_int64(text)
    assert quote(text) in str(error.value)


@pytest.mark.parametrize("text", [str(2**63), str(-(2**63) - 1), "9" * 5000])
def test_an_int64_out_of_range_says_so(text: str) -> None:  # LW-081
    with pytest.raises(ValueError, match=r"value out of range$"):
        parse_int64(text)


def test_uint64_takes_no_sign() -> None:  # LW-102
    assert parse_uint64(str(2**64 - 1)) == 2**64 - 1
    for text in ("+1", "-1", ""):
        with pytest.raises(ValueError, match=r"^strconv\.ParseUint: parsing .*: invalid syntax$"):
            parse_uint64(text)
    with pytest.raises(ValueError, match="value out of range"):
        parse_uint64(str(2**64))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("32s", 32.0),
        ("300ms", 0.3),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("+2us", 0.000002),
        ("3µs", 0.000003),
        ("1500ns", 0.000001),
        ("-1s", -1.0),
        ("0", 0.0),
        ("-0", 0.0),
        ("0s", 0.0),
    ],
)
def test_durations_are_gos(text: str, seconds: float) -> None:  # LW-020
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("xyz", 'time: invalid duration "xyz"'),
        ("5", 'time: missing unit in duration "5"'),
        ("5x", 'time: unknown unit "x" in duration "5x"'),
        ("1s.", 'time: invalid duration "1s."'),
        ("9999999999h", 'time: invalid duration "9999999999h"'),
    ],
)
def test_a_malformed_duration_says_so_in_gos_words(text: str, message: str) -> None:  # LW-020
    with pytest.raises(ValueError, match=r"^time: ") as error:
        parse_duration(text)
    assert str(error.value) == message
