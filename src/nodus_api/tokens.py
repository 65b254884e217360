"""The form of an API token: `nodus_<id>_<secret>_<check>` (AS-067).

The id is 12 characters of base32 (public), the secret 43 of base64url (256 bits),
the check the CRC-32 of what stands before it, 6 characters of base64url. The check
refuses typos before any look-up. Random bytes are given, never made here.
"""

import hashlib
import re
from base64 import b32encode, urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from zlib import crc32

ID_BYTES = 8
SECRET_BYTES = 32
_FORM = re.compile(r"nodus_([a-z2-7]{12})_([A-Za-z0-9_-]{43})_([A-Za-z0-9_-]{6})")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenText:
    """A token that was just made; `text` is shown once and never stored."""

    id: str
    text: str = field(repr=False)
    secret_sha256: bytes = field(repr=False)


def make_token(id_bytes: bytes, secret: bytes) -> TokenText:
    """Return the token of 8 random bytes (the id takes 60 bits) and 32 random bytes.

    Raises ValueError for any other length.
    """
    if len(id_bytes) != ID_BYTES or len(secret) != SECRET_BYTES:
        raise ValueError(f"a token needs {ID_BYTES} and {SECRET_BYTES} random bytes")
    token_id = b32encode(id_bytes).decode()[:12].lower()
    body = f"nodus_{token_id}_{_base64url(secret)}"
    return TokenText(id=token_id, text=f"{body}_{_check(body)}", secret_sha256=hash_secret(secret))


def parse_token(text: str) -> tuple[str, bytes] | None:
    """Return the id and the secret of a token, or None if it is not one (or has a typo)."""
    parts = _FORM.fullmatch(text)
    if parts is None:
        return None
    token_id, encoded, check = parts.groups()
    if check != _check(f"nodus_{token_id}_{encoded}"):
        return None
    secret = urlsafe_b64decode(encoded + "=")
    # 43 characters hold two bits more than 32 bytes: one text for one secret
    return (token_id, secret) if _base64url(secret) == encoded else None


def hash_secret(secret: bytes) -> bytes:
    """Return what is stored of a secret: its SHA-256, since it has 256 bits of chance."""
    return hashlib.sha256(secret).digest()


def _base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _check(body: str) -> str:
    return _base64url(crc32(body.encode()).to_bytes(4, "big"))
