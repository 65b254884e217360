"""Continue tokens: where a paged list goes on, sealed for one request (LW-108 to LW-116).

A token is opaque to clients and good on any replica, since all share the key. The seal
binds it to the path and the selectors it was made for.
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from nodus_api.metav1.errors import BadRequest
from nodus_api.metav1.golang import INT64_MAX

MAX_BYTES = 2048
INCONSISTENT = -1
"""The revision of a token that goes on from its place at the latest state (LW-115)."""

_VERSION = "meta.k8s.io/v1"
_SEAL_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """Where to go on: after this name, at this revision, or at the latest for INCONSISTENT.

    `namespace` is empty on a list of one namespace.
    """

    rev: int
    name: str
    namespace: str = ""

    @property
    def key(self) -> str:
        """The last object's key, relative to the listed collection."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """What a token is bound to: the installation's key, the list's path, its selectors."""

    key: bytes
    path: str
    selectors: tuple[str, str, str] = ("", "", "")

    def of(self, rev: int, start: str) -> str:
        """Return the text that only the holder of the key can make (LW-109)."""
        content = orjson.dumps([self.path, *self.selectors, _VERSION, rev, start])
        digest = hmac.new(self.key, content, hashlib.sha256).digest()
        return _base64(digest[:_SEAL_BYTES])


def encode(continuation: Continuation, seal: Seal) -> str:
    """Return the token for the next page."""
    start = f"{continuation.key}\0"
    return _base64(
        orjson.dumps(
            {
                "v": _VERSION,
                "rv": continuation.rev,
                "start": start,
                "m": seal.of(continuation.rev, start),
            }
        )
    )


def decode(token: str, seal: Seal) -> Continuation:
    """Return where a token goes on.

    Raises BadRequest for one that cannot be read (LW-113), or that was made for another
    path, other selectors or by someone else (LW-109, LW-116).
    """
    content = _content(token)
    version, rev, start = content.get("v", ""), content.get("rv"), content.get("start")
    if version != _VERSION:
        _refuse(f"server does not recognize this encoded version {version}")
    if type(rev) is not int or rev == 0 or not INCONSISTENT <= rev <= INT64_MAX:
        _refuse(f"incorrect encoded start resourceVersion (version {_VERSION})")
    if not isinstance(start, str) or not start:
        _refuse(f"encoded start key empty (version {_VERSION})")
    parts = start.removesuffix("\0").split("/")
    if len(parts) > 2 or not {"", ".", ".."}.isdisjoint(parts):
        _refuse(start)
    if not hmac.compare_digest(str(content.get("m")).encode(), seal.of(rev, start).encode()):
        _refuse("checksum")
    return Continuation(rev=rev, name=parts[-1], namespace=parts[0] if len(parts) == 2 else "")


def _content(token: str) -> dict[str, Any]:
    if len(token) > MAX_BYTES:
        _refuse(f"longer than {MAX_BYTES} bytes")
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        content = orjson.loads(data)
    except (binascii.Error, UnicodeEncodeError, ValueError):
        _refuse("not the text that this server made")
    if not isinstance(content, dict) or _base64(data) != token:
        # the second: bits that base64 ignores would make one of a changed token (LW-109)
        _refuse("not the text that this server made")
    return content


def _refuse(why: str) -> NoReturn:
    raise BadRequest(
        f"invalid continue token: continue key is not valid: {why}",
        fix="Send metadata.continue of the last page unchanged, with the same path and selectors; "
        "or list again without continue.",
    )


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
