"""Shard selectors: LW-160 to LW-166."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodus_api.metav1 import shards
from nodus_api.metav1.errors import BadRequest

LOW, MIDDLE, TOP = "0x0000000000000000", "0x8000000000000000", "0x10000000000000000"
UID = "object.metadata.uid"


def call(start: str = LOW, end: str = MIDDLE, path: str = UID) -> str:
    return f"shardRange({path}, '{start}', '{end}')"


@pytest.mark.parametrize(
    ("value", "hashed"),
    [
        ("", "0xcbf29ce484222325"),
        ("a", "0xaf63dc4c8601ec8c"),
        ("example", "0x430b1483c8d66041"),
        ("7d5c9a3e-2f1b-4c8d-9e0a-1b2c3d4e5f60", "0x31039adeab090876"),
    ],
)
def test_the_hash_is_fnv_1a(value: str, hashed: str) -> None:  # LW-162
    assert shards.hash_of(value) == hashed


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (call(), call()),
        (f"  shardRange( {UID} ,\n'{LOW}','{MIDDLE}' ) ", call()),
        (f'shardRange({UID},"{LOW}","{TOP}")', call(end=TOP)),
        (f"shardRange({UID}, r'{LOW}', R\"{TOP}\")", call(end=TOP)),
        (f"shardRange({UID}, '\\x30x\\u0030000000000000000', '{TOP}')", call(end=TOP)),
        (f"{call(MIDDLE, TOP)}||{call()}", f"{call(MIDDLE, TOP)} || {call()}"),
        (f"(({call()})||({call(MIDDLE, TOP)}))", f"{call()} || {call(MIDDLE, TOP)}"),
        (f"shardRange(object . metadata . uid, '{LOW}', '{TOP}')", call(end=TOP)),
    ],
)
def test_the_canonical_form_keeps_the_order(text: str, canonical: str) -> None:  # LW-160, LW-166
    assert str(shards.parse(text)) == canonical


def test_an_empty_parameter_is_not_given() -> None:  # LW-163
    assert shards.parse("") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" ", "empty shard selector is not allowed; omit the parameter for unfiltered lists"),
        (
            call("0x0"),
            f'hexStart must be a 0x-prefixed 16-digit hex value, got "0x0" (did you mean "{LOW}"?)',
        ),
        (
            call(end="0x" + "8" * 15),
            f'hexEnd must be a 0x-prefixed 16-digit hex value, got "0x{"8" * 15}" '
            f'(did you mean "0x0{"8" * 15}"?)',
        ),
        (call("8000000000000000"), "hexStart must have '0x' prefix, got \"8000000000000000\""),
        (call("0x"), "hexStart: hex value is required after '0x'"),
        (call("0x8" + "0" * 17), f'hexStart: hex value too long (18 chars, max 17): "8{"0" * 17}"'),
        (
            call(end="0x20000000000000000"),
            "hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), got "
            '"0x20000000000000000"',
        ),
        (
            call("0x000000000000000G"),
            'hexStart: invalid hex character "G" in "0x000000000000000G"',
        ),
        (
            call("0xFFFFFFFFFFFFFFFF", TOP),
            'hexStart: invalid hex character "F" in "0xFFFFFFFFFFFFFFFF"',
        ),
        (call(MIDDLE, LOW), f"shard range start {MIDDLE} must be less than end {LOW}"),
        (call(LOW, LOW), f"shard range start {LOW} must be less than end {LOW}"),
        (
            f"{call()} || {call(path='object.metadata.namespace')}",
            f'all shard ranges must use the same field, got "{UID}" and '
            '"object.metadata.namespace"',
        ),
        (
            call(path="object.metadata.name"),
            'unsupported field path "object.metadata.name"; supported: object.metadata.uid, '
            "object.metadata.namespace",
        ),
        (
            f"shardRange('{LOW}', '{LOW}', '{TOP}')",
            f'shardRange() first argument: expected field path (e.g. {UID}), got "{LOW}"',
        ),
        (
            f"shardRange({UID}, 1, '{TOP}')",
            "hexStart must be a string literal (e.g. '0xff'), got \"1\"",
        ),
        (f"shardRange({UID}, '{LOW}')", "shardRange() requires exactly 3 arguments, got 2"),
        ("shardRange()", "shardRange() requires exactly 3 arguments, got 0"),
        ("f(1)", 'unsupported function "f"; only shardRange() and || are allowed'),
        (
            f"{call()} && {call()}",
            'unsupported function "_&&_"; only shardRange() and || are allowed',
        ),
        (
            f"object.{call()}",
            "object.shardRange() may not be called on a value; write shardRange(...)",
        ),
        (
            "object.metadata.uid",
            'unexpected expression "object.metadata.uid"; expected shardRange() call or || '
            "operator",
        ),
        ("'x'", 'unexpected expression "x"; expected shardRange() call or || operator'),
        (f"{call()} {call()}", 'CEL parse error: Syntax error: unexpected "shardRange"'),
        (f"{call()} ||", "CEL parse error: Syntax error: unexpected end"),
        (f"({call()}", "CEL parse error: Syntax error: unexpected end"),
        ("shardRange(a b)", 'CEL parse error: Syntax error: unexpected "b"'),
        ("a.'b'", "CEL parse error: Syntax error: unexpected \"'b'\""),
        ("shardRange(#)", 'CEL parse error: Syntax error: unexpected "#"'),
        ("(" * 60 + call() + ")" * 60, "CEL parse error: expression recursion limit exceeded"),
        ("x" * 4097, "4097 characters are too many, at most 4096"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:  # LW-161, LW-164, LW-165, LW C-85
    with pytest.raises(BadRequest) as error:
        shards.parse(text)
    assert error.value.message == f"invalid shard selector: {message}"


def test_the_longest_selector_has_fewer_than_64_ranges() -> None:  # LW-165
    short = f"shardRange({UID},'{LOW}','{MIDDLE}')"
    longest = shards.parse("||".join([short] * 54))
    assert longest is not None
    assert len(longest.ranges) == 54
    with pytest.raises(BadRequest, match="characters are too many"):
        shards.parse("||".join([short] * 55))


def test_escapes_in_literals_are_cels() -> None:  # LW-160
    with pytest.raises(BadRequest) as error:
        shards.parse(f"shardRange({UID}, 'a\\n\\'b', '{TOP}')")
    assert 'got "a\\n\'b"' in error.value.message


@given(st.text(), st.text())
def test_two_halves_hold_every_object_once(uid: str, namespace: str) -> None:  # LW C-84
    halves = [shards.parse(call()), shards.parse(call(MIDDLE, TOP))]
    assert [
        half is not None and half.matches(uid=uid, namespace=namespace) for half in halves
    ].count(True) == 1


def test_a_namespace_shard_hashes_the_namespace() -> None:  # LW-162
    selector = shards.parse(
        call("0x430b1483c8d66041", "0x430b1483c8d66042", "object.metadata.namespace")
    )
    assert selector is not None
    assert selector.matches(uid="x", namespace="example")
    assert not selector.matches(uid="example", namespace="x")


@given(st.text(alphabet="shardRange(),'|&. 0x\\\"", max_size=40))
def test_an_expression_is_read_or_refused(text: str) -> None:
    try:
        found = shards.parse(text)
    except BadRequest:
        return
    assert found is None or shards.parse(str(found)) == found
