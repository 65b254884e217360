"""Whether a page of another origin may read this API in a browser: off unless configured (LW-063).

No credential that a browser adds by itself is accepted, so none is ever allowed; a page sends its
bearer token in a header.
"""

from collections.abc import Collection

from nodus_api.apiserver.answers import BodyAnswer
from nodus_api.apiserver.request import Request

ANY = "*"
PREFLIGHT_SECONDS = 600
METHODS = ("GET", "HEAD")

_REQUEST_HEADERS = "Authorization, Accept, If-None-Match, Audit-ID"
_EXPOSED = "Audit-Id, ETag, Retry-After, Warning"


class Cors:
    """The origins that are allowed: `https://host[:port]` each, or `*` for all."""

    def __init__(self, origins: Collection[str]) -> None:
        self._origins = frozenset(origins)

    def headers(self, request: Request) -> dict[str, str]:
        """Return what lets a page read the answer; nothing where its origin is not allowed."""
        allowed = self._allowed(request.header(b"origin"))
        if allowed is None:
            return {}
        return {
            "Access-Control-Allow-Origin": allowed,
            "Access-Control-Expose-Headers": _EXPOSED,
        }

    def preflight(self, request: Request) -> BodyAnswer | None:
        """Return the answer to a browser that asks before a read, None to all else."""
        wanted = request.header(b"access-control-request-method")
        if request.scope["method"] != "OPTIONS" or wanted not in METHODS:
            return None
        if self._allowed(request.header(b"origin")) is None:
            return None
        headers = {
            "Access-Control-Allow-Methods": ", ".join(METHODS),
            "Access-Control-Allow-Headers": _REQUEST_HEADERS,
            "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
        }
        return BodyAnswer(status=204, headers=headers)

    def varies(self) -> bool:
        """Return whether answers depend on the origin, so that caches must know (LW-059)."""
        return bool(self._origins - {ANY}) and ANY not in self._origins

    def _allowed(self, origin: str | None) -> str | None:
        if not origin:
            return None
        if ANY in self._origins:
            return ANY
        return origin if origin in self._origins else None
