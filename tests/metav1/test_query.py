"""The query string: LW-018 to LW-022, LW-080, LW-081, AS-089."""

from datetime import timedelta

import pytest

from nodus_api.metav1.errors import BadRequest
from nodus_api.metav1.query import (
    all_values,
    boolean,
    integer,
    is_pretty,
    parse_query,
    request_timeout,
)

CAP = timedelta(seconds=60)


def test_the_first_of_repeated_keys_counts() -> None:  # LW-018
    assert parse_query(b"a=1&a=2&B=3&b=4&c") == {"a": "1", "B": "3", "b": "4", "c": ""}


def test_values_are_decoded_as_forms_are() -> None:  # LW-022
    assert parse_query("labelSelector=a%20in%20%28x%2Cy%29&q=a+b&u=%C3%BC&") == {
        "labelSelector": "a in (x,y)",
        "q": "a b",
        "u": "ü",
    }


def test_pairs_with_a_semicolon_or_a_broken_escape_are_dropped() -> None:  # LW-022
    assert parse_query(b"a=1;b=2&c=%zz&d=%4&e=5") == {"e": "5"}


def test_too_many_pairs_or_too_long_values_are_refused() -> None:  # AS-089, AS C22
    assert len(parse_query("&".join(f"k{i}=1" for i in range(100)))) == 100
    with pytest.raises(BadRequest, match="101 parameters"):
        parse_query("&".join(f"k{i}=1" for i in range(101)))
    assert parse_query("a=" + "x" * 16384)["a"] == "x" * 16384
    with pytest.raises(BadRequest, match="the query parameter a has 16385 bytes"):
        parse_query("a=" + "x" * 16385)


@pytest.mark.parametrize("query", [b"a=b%00c", b"a%00=b", b"fieldSelector=x%3D%00"])
def test_a_nul_character_is_refused(query: bytes) -> None:  # field case C07
    with pytest.raises(BadRequest, match="holds a NUL character"):
        parse_query(query)


def test_all_values_of_a_key() -> None:  # AS-104
    assert all_values(b"exclude=a&verbose&exclude=b", "exclude") == ["a", "b"]


@pytest.mark.parametrize(
    ("query", "flag"),
    [
        ("", None),
        ("watch=0", False),
        ("watch=false", False),
        ("watch=FALSE", False),
        ("watch=", True),
        ("watch", True),
        ("watch=banana", True),
        ("watch=1", True),
        ("watch=True", True),
    ],
)
def test_flags_are_true_unless_they_say_false(query: str, flag: bool | None) -> None:  # LW-080
    assert boolean(parse_query(query), "watch") is flag


def test_numbers_are_int64() -> None:  # LW-081, LW C-37
    assert integer({}, "limit") is None
    assert integer({"limit": "-5"}, "limit") == -5
    for text, quoted in (("abc", '"abc"'), ("", '""')):
        with pytest.raises(BadRequest) as error:
            integer({"limit": text}, "limit")
        assert error.value.message == f"strconv.ParseInt: parsing {quoted}: invalid syntax"
        assert "limit=500" in error.value.fix


@pytest.mark.parametrize(
    ("query", "agent", "pretty"),
    [
        ("", "kubectl/v1.32", False),
        ("", "curl/8.5", True),
        ("", "Wget/1.2", True),
        ("", "Mozilla/5.0 (X11)", True),
        ("pretty=", "curl/8.5", True),
        ("pretty=0", "curl/8.5", False),
        ("pretty=yes", "curl/8.5", False),
        ("pretty=1", "kubectl", True),
        ("pretty=True", "kubectl", True),
        *((f"pretty={word}", "", True) for word in ("t", "T", "TRUE", "true")),
    ],
)
def test_who_gets_indented_bodies(query: str, agent: str, pretty: bool) -> None:  # LW-019, LW C-03
    assert is_pretty(parse_query(query), user_agent=agent) is pretty


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("", 60.0),
        ("timeout=", 60.0),
        ("timeout=32s", 32.0),
        ("timeout=2m", 60.0),
        ("timeout=0s", 60.0),
        ("timeout=-1s", 60.0),
    ],
)
def test_a_request_may_shorten_its_time(query: str, seconds: float) -> None:  # LW-020
    assert request_timeout(parse_query(query), maximum=CAP) == timedelta(seconds=seconds)


def test_a_malformed_timeout_is_refused() -> None:  # LW-020, LW C-90
    with pytest.raises(BadRequest) as error:
        request_timeout({"timeout": "xyz"}, maximum=CAP)
    assert error.value.message == (
        'invalid timeout specified in the request URL - time: invalid duration "xyz"'
    )
