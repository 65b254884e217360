"""Continue tokens: LW-108 to LW-116."""

import base64
import string
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodus_api.metav1.continue_token import INCONSISTENT, Continuation, Seal, decode, encode
from nodus_api.metav1.errors import BadRequest

PATH = "/apis/nodus.dev/v1/namespaces/example/attempts"
SEAL = Seal(key=b"k" * 32, path=PATH, selectors=("a=b", "", ""))
HERE = Continuation(rev=42, name="train-0-e1-k7f3q")


def unpacked(token: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    return found


def packed(content: object) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(content)).rstrip(b"=").decode()


def refusal(token: str, seal: Seal = SEAL) -> str:
    with pytest.raises(BadRequest) as error:
        decode(token, seal)
    prefix = "invalid continue token: continue key is not valid: "
    assert error.value.message.startswith(prefix)
    assert error.value.fix
    return error.value.message.removeprefix(prefix)


def test_a_token_has_kubernetes_form_and_a_seal() -> None:  # LW-109
    content = unpacked(encode(HERE, SEAL))
    assert content.pop("m") == SEAL.of(42, "train-0-e1-k7f3q\0")
    assert content == {"v": "meta.k8s.io/v1", "rv": 42, "start": "train-0-e1-k7f3q\0"}
    assert len(SEAL.of(42, "x")) == 22  # 16 bytes, without padding
    assert "=" not in encode(HERE, SEAL)


names = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True).filter(
    lambda name: name not in (".", "..")
)


@given(
    rev=st.integers(1, 2**63 - 1) | st.just(INCONSISTENT), name=names, namespace=names | st.just("")
)
def test_a_token_comes_back_as_it_was(
    rev: int, name: str, namespace: str
) -> None:  # LW-110, LW-115
    place = Continuation(rev=rev, name=name, namespace=namespace)
    assert decode(encode(place, SEAL), SEAL) == place


@pytest.mark.parametrize(
    "other",
    [
        Seal(key=b"x" * 32, path=PATH, selectors=SEAL.selectors),
        Seal(key=SEAL.key, path="/apis/nodus.dev/v1/attempts", selectors=SEAL.selectors),
        Seal(key=SEAL.key, path=PATH, selectors=("", "", "")),
        Seal(key=SEAL.key, path=PATH, selectors=("", "a=b", "")),
    ],
)
def test_a_token_is_good_for_its_own_request_only(other: Seal) -> None:  # LW-109, LW-116
    assert refusal(encode(HERE, SEAL), other) == "checksum"


@pytest.mark.parametrize("length", [15, 16, 17])
def test_a_token_with_one_byte_changed_is_refused(length: int) -> None:  # LW-109, LW C-55
    """Wherever, and whatever it becomes: the bits that base64 ignores are looked at, too."""
    token = encode(Continuation(rev=42, name="n" * length), SEAL)
    for at, byte in enumerate(token):
        for char in f"{string.ascii_letters}{string.digits}-_+/= ":
            if char != byte:
                with pytest.raises(BadRequest):
                    decode(token[:at] + char + token[at + 1 :], SEAL)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"rv": 0}, "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
        ({"rv": -2}, "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
        ({"rv": True}, "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
        ({"rv": 2**63}, "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
        ({"start": ""}, "encoded start key empty (version meta.k8s.io/v1)"),
        ({"start": 7}, "encoded start key empty (version meta.k8s.io/v1)"),
        ({"v": "v2"}, "server does not recognize this encoded version v2"),
        ({"start": "../secrets\0"}, "../secrets\0"),
        ({"start": "a/./b"}, "a/./b"),
        ({"start": "./a\0"}, "./a\0"),
        ({"start": "a/.."}, "a/.."),
        ({"start": "/a"}, "/a"),
        ({"start": "a//b"}, "a//b"),
        ({"start": "a/b/c"}, "a/b/c"),
        ({"m": None}, "checksum"),
        ({"m": "é"}, "checksum"),
    ],
)
def test_what_is_wrong_is_said(content: dict[str, object], why: str) -> None:  # LW-113
    assert refusal(packed(unpacked(encode(HERE, SEAL)) | content)) == why


@pytest.mark.parametrize("token", ["xx", "a", "é", "!!!!", packed([1, 2]), packed("text")])
def test_what_cannot_be_read_is_refused(token: str) -> None:  # LW-113, LW C-54
    assert refusal(token) == "not the text that this server made"


def test_a_token_has_a_length() -> None:  # LW-109
    assert len(encode(Continuation(rev=2**63 - 1, name="n" * 253, namespace="p" * 63), SEAL)) < 2048
    assert refusal("x" * 2049) == "longer than 2048 bytes"
