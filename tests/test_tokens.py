"""The form of API tokens."""

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodus_api.tokens import TokenText, hash_secret, make_token, parse_token

ids = st.binary(min_size=8, max_size=8)
secrets = st.binary(min_size=32, max_size=32)


def test_a_token_has_the_written_form() -> None:  # AS-067
    token = make_token(bytes(8), bytes(range(32)))

    assert re.fullmatch(r"nodus_[a-z2-7]{12}_[A-Za-z0-9_-]{43}_[A-Za-z0-9_-]{6}", token.text)
    assert token.id == "aaaaaaaaaaaa"
    assert token.text.startswith("nodus_aaaaaaaaaaaa_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8_")
    assert token.secret_sha256 == hashlib.sha256(bytes(range(32))).digest()


@given(id_bytes=ids, secret=secrets)
def test_what_was_made_is_parsed(id_bytes: bytes, secret: bytes) -> None:  # AS-067
    token = make_token(id_bytes, secret)

    assert parse_token(token.text) == (token.id, secret)
    assert hash_secret(secret) == token.secret_sha256


@given(id_bytes=ids, secret=secrets, at=st.integers(6, 68), other=st.sampled_from("abcXYZ234_-"))
def test_one_wrong_character_is_refused(
    id_bytes: bytes, secret: bytes, at: int, other: str
) -> None:  # AS-067: the check refuses typos before the database
    text = make_token(id_bytes, secret).text
    wrong = text[:at] + other + text[at + 1 :]

    assert (parse_token(wrong) is None) == (wrong != text)


@pytest.mark.parametrize(
    "text",
    ["", "nodus_", "nodus_aaaaaaaaaaaa", "Bearer x", "nodus_AAAAAAAAAAAA_" + "a" * 43 + "_abcdef"],
)
def test_other_text_is_no_token(text: str) -> None:
    assert parse_token(text) is None


def test_one_secret_has_one_text() -> None:
    # the last character of the secret carries two bits that mean nothing
    from base64 import urlsafe_b64encode  # noqa: PLC0415 -- beside its one use
    from zlib import crc32  # noqa: PLC0415 -- as above

    body = "nodus_aaaaaaaaaaaa_" + "A" * 42 + "B"
    check = urlsafe_b64encode(crc32(body.encode()).to_bytes(4, "big")).decode().rstrip("=")
    assert parse_token(f"{body}_{check}") is None


def test_the_secret_is_not_shown() -> None:
    token = make_token(bytes(8), bytes(32))

    assert repr(token) == "TokenText(id='aaaaaaaaaaaa')"
    assert isinstance(token, TokenText)


@pytest.mark.parametrize(("id_bytes", "secret"), [(bytes(7), bytes(32)), (bytes(8), bytes(31))])
def test_a_wrong_number_of_bytes_is_refused(id_bytes: bytes, secret: bytes) -> None:
    with pytest.raises(ValueError, match="random bytes"):
        make_token(id_bytes, secret)
