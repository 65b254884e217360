"""Label selectors: LW-093 to LW-095; the texts are those of Kubernetes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodus_api.metav1 import labels
from nodus_api.metav1.errors import BadRequest
from nodus_api.metav1.labels import Operator, Requirement

BAD_NAME = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
BAD_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def term(key: str, operator: Operator, *values: str) -> Requirement:
    return Requirement(key=key, operator=operator, values=values)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        (" \t\r\n", []),
        ("a", [term("a", Operator.EXISTS)]),
        ("!a", [term("a", Operator.DOES_NOT_EXIST)]),
        ("! a", [term("a", Operator.DOES_NOT_EXIST)]),
        ("a=b", [term("a", Operator.EQUALS, "b")]),
        ("a == b", [term("a", Operator.DOUBLE_EQUALS, "b")]),
        ("a!=b", [term("a", Operator.NOT_EQUALS, "b")]),
        ("a=", [term("a", Operator.EQUALS, "")]),
        ("a=,b", [term("a", Operator.EQUALS, ""), term("b", Operator.EXISTS)]),
        ("a in (c,b,c)", [term("a", Operator.IN, "b", "c")]),
        ("a notin ( b )", [term("a", Operator.NOT_IN, "b")]),
        ("a in ()", [term("a", Operator.IN, "")]),
        ("a in (,b)", [term("a", Operator.IN, "", "b")]),
        ("a in (b,)", [term("a", Operator.IN, "", "b")]),
        ("a in (b,,c)", [term("a", Operator.IN, "", "b", "c")]),
        ("a in (in,notin)", [term("a", Operator.IN, "in", "notin")]),
        ("in in (in)", [term("in", Operator.IN, "in")]),
        ("notin=in", [term("notin", Operator.EQUALS, "in")]),
        ("a>5,b<7", [term("a", Operator.GREATER_THAN, "5"), term("b", Operator.LESS_THAN, "7")]),
        ("nodus.dev/job=train", [term("nodus.dev/job", Operator.EQUALS, "train")]),
    ],
)
def test_what_selectors_say(text: str, terms: list[Requirement]) -> None:  # LW-093
    assert list(labels.parse(text).requirements) == terms


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,", "found '', expected: identifier after ','"),
        ("a,=b", "found '=', expected: identifier after ','"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("(a)", "found '(', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!in", "unable to parse requirement: found 'in', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a!b", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a==>b", "unable to parse requirement: found '>', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in (x,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("a in (x y)", "unable to parse requirement: found 'y', expected: ',' or ')'"),
        ("a in (x,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
        (
            "a>1x",
            "unable to parse requirement: values[0]: Invalid value: \"1x\": for 'Gt', 'Lt' "
            "operators, the value must be an integer",
        ),
        (
            "a>-x",
            "unable to parse requirement: [values[0]: Invalid value: \"-x\": for 'Gt', 'Lt' "
            "operators, the "
            f'value must be an integer, values[0][a]: Invalid value: "-x": {BAD_VALUE}]',
        ),
        ("a=-b", f'unable to parse requirement: values[0][a]: Invalid value: "-b": {BAD_VALUE}'),
        ("-a", f'unable to parse requirement: <nil>: Invalid value: "-a": name part {BAD_NAME}'),
        (
            "x/y/z",
            'unable to parse requirement: <nil>: Invalid value: "x/y/z": a valid label key '
            f"{BAD_NAME} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        ),
        (
            "x/",
            'unable to parse requirement: <nil>: Invalid value: "x/": name part must be '
            f"non-empty; name part {BAD_NAME}",
        ),
        (
            "/x",
            'unable to parse requirement: <nil>: Invalid value: "/x": prefix part must be '
            "non-empty",
        ),
        (
            "X_y/a",
            'unable to parse requirement: <nil>: Invalid value: "X_y/a": prefix part a lowercase '
            "RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            "and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
            "for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
    ],
)
def test_what_is_wrong_is_said_in_kubernetes_words(
    text: str, message: str
) -> None:  # LW-094, LW-095
    with pytest.raises(BadRequest) as error:
        labels.parse(text)
    assert error.value.message == message
    assert error.value.fix


def test_keys_and_values_have_lengths() -> None:  # LW-095
    assert labels.key_errors(f"{'a' * 253}/{'b' * 63}") == []
    assert labels.key_errors(f"{'a' * 254}/b") == ["prefix part must be no more than 253 bytes"]
    assert labels.key_errors("b" * 64) == ["name part must be no more than 63 bytes"]
    assert labels.value_errors("b" * 63) == []
    assert labels.value_errors("b" * 64) == ["must be no more than 63 bytes"]


@pytest.mark.parametrize(
    ("selector", "matching", "others"),
    [
        ("a", [{"a": ""}, {"a": "x"}], [{}]),
        ("!a", [{}], [{"a": ""}]),
        ("a=x", [{"a": "x"}], [{}, {"a": "y"}]),
        ("a==x", [{"a": "x"}], [{}, {"a": "y"}]),
        ("a=", [{"a": ""}], [{}, {"a": "y"}]),
        ("a!=x", [{}, {"a": "y"}], [{"a": "x"}]),
        ("a in (x,y)", [{"a": "x"}, {"a": "y"}], [{}, {"a": "z"}]),
        ("a notin (x,y)", [{}, {"a": "z"}], [{"a": "x"}]),
        ("a>5", [{"a": "6"}], [{}, {"a": "5"}, {"a": "4"}, {"a": "abc"}]),
        ("a<5", [{"a": "4"}], [{}, {"a": "5"}, {"a": "6"}, {"a": ""}]),
        ("a,b=1", [{"a": "", "b": "1"}], [{"a": ""}, {"b": "1"}]),
    ],
)
def test_who_matches(  # LW-094, LW C-56, LW C-58
    selector: str, matching: list[dict[str, str]], others: list[dict[str, str]]
) -> None:
    parsed = labels.parse(selector)
    assert all(parsed.matches(found) for found in matching)
    assert not any(parsed.matches(found) for found in others)


def test_an_empty_selector_matches_everything() -> None:  # LW-093
    assert labels.parse("").empty
    assert labels.EVERYTHING.matches({"a": "b"})
    assert not labels.parse("a").empty


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("b , a", "a,b"),
        ("a,a", "a"),
        ("a==b", "a=b"),
        ("!a", "!a"),
        ("a != b", "a!=b"),
        ("a in (c, b)", "a in (b,c)"),
        ("a notin (c)", "a notin (c)"),
        ("a > 5, a < 9", "a<9,a>5"),
    ],
)
def test_the_canonical_form_is_one_for_all_that_say_the_same(
    text: str, canonical: str
) -> None:  # LW-116
    assert str(labels.parse(text)) == canonical
    assert str(labels.parse(canonical)) == canonical


@given(st.text(alphabet="ab=!(),<> in", max_size=24))
def test_a_selector_is_read_or_refused(text: str) -> None:
    try:
        parsed = labels.parse(text)
    except BadRequest:
        return
    assert str(labels.parse(str(parsed))) == str(parsed)


@pytest.mark.parametrize("text", ["a" + " " * 100, "a in (" + " \t\r\n" * 25, " " * 100, ""])
def test_every_character_is_read_once(text: str) -> None:  # LW-093, AS-089
    """One that no token took would be read again for each blank before it: seconds for 8 KiB."""
    assert "".join(found.group() for found in labels._TOKEN.finditer(text)) == text
