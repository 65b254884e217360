"""Field selectors: LW-097 to LW-100."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodus_api.metav1 import fields
from nodus_api.metav1.errors import BadRequest
from nodus_api.metav1.fields import Requirement


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        (",,", []),
        ("a=b", [("a", "b", False)]),
        ("a==b", [("a", "b", False)]),
        ("a!=b", [("a", "b", True)]),
        ("b=2,a=1", [("a", "1", False), ("b", "2", False)]),
        ("a=", [("a", "", False)]),
        (r"a=x\,y\=z\\", [("a", r"x,y=z\ "[:-1], False)]),
        ("=b", [("", "b", False)]),
        ("=", []),
        ("!=,a=b,==", [("a", "b", False)]),
    ],
)
def test_what_selectors_say(text: str, terms: list[tuple[str, str, bool]]) -> None:  # LW-097
    assert fields.parse(text).requirements == tuple(
        Requirement(field=field, value=value, negated=negated) for field, value, negated in terms
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ("a===b", "invalid field selector: unescaped character in value: 61"),
        (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
    ],
)
def test_what_is_wrong_is_said_in_kubernetes_words(text: str, message: str) -> None:  # LW-097
    with pytest.raises(BadRequest) as error:
        fields.parse(text)
    assert error.value.message == message


def test_an_absent_field_compares_as_empty() -> None:  # LW-099, LW C-60
    assert fields.parse("status.reason=").matches({})
    assert fields.parse("status.reason!=Stopped").matches({})
    assert not fields.parse("status.reason=Stopped").matches({})
    assert not fields.parse("status.reason=").matches({"status.reason": "Stopped"})


def test_unknown_fields_are_refused_by_name() -> None:  # LW-098, LW C-61
    selector = fields.parse("spec.foo=1,status.phase=Running")
    selector.check({"spec.foo", "status.phase"})
    with pytest.raises(BadRequest) as error:
        selector.check({"status.phase", "metadata.name"})
    assert error.value.message == "field label not supported: spec.foo"
    assert error.value.fix == "Select by one of: metadata.name, status.phase."


def test_a_name_can_be_asked_for_twice() -> None:  # kr8s repeats the term; AS-048
    selector = fields.parse("metadata.name=a,metadata.name=a,b!=c")
    assert selector.exact("metadata.name") == "a"
    assert selector.exact("b") is None
    assert selector.exact("x") is None


def test_a_selector_without_terms_is_empty() -> None:  # LW-111
    assert fields.EVERYTHING.empty
    assert fields.parse(",,").empty
    assert not fields.parse("metadata.name=a").empty


@pytest.mark.parametrize(
    ("text", "canonical"),
    [("b=1,a==2", "a=2,b=1"), ("a=1,a=1", "a=1"), ("a!=1", "a!=1"), (r"a=\,\=\\", r"a=\,\=\\")],
)
def test_the_canonical_form(text: str, canonical: str) -> None:  # LW-116
    assert str(fields.parse(text)) == canonical


@given(st.dictionaries(st.sampled_from(["a", "b.c", "metadata.name"]), st.text(), min_size=1))
def test_any_value_can_be_selected_by(values: dict[str, str]) -> None:  # LW-097
    text = ",".join(str(Requirement(field=field, value=value)) for field, value in values.items())
    assert fields.parse(text).matches(values)
