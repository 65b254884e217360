"""Who sent a request: static bearer tokens, checked in memory (AS-042, AS-055, AS-067)."""

import hashlib
import hmac
import logging
from collections import OrderedDict

from nodus_api.apiserver import paths
from nodus_api.apiserver.access_cache import AccessCache
from nodus_api.apiserver.identity import ANONYMOUS, UNCHECKED, User
from nodus_api.apiserver.metrics import Metrics
from nodus_api.apiserver.peer import peer_of
from nodus_api.apiserver.request import Request
from nodus_api.clock import Clock
from nodus_api.metav1.errors import ServiceUnavailable, TooManyRequests, Unauthorized
from nodus_api.tokens import hash_secret, parse_token

MAX_TOKEN_BYTES = 16 * 1024
BLOCK_SECONDS = 60.0
ADDRESSES = 10_000

_NO_SECRET = hashlib.sha256(b"").digest()

log = logging.getLogger(__name__)


class FailedLogins:
    """Counts rejected credentials by source address (AS-075)."""

    def __init__(self, most: int, clock: Clock) -> None:
        """`most` are allowed within a minute."""
        self._most = most
        self._clock = clock
        self._by_address: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def failed(self, address: str) -> None:
        """Count a rejected credential."""
        since, count = self._current(address)
        if count == self._most:
            since = self._clock.monotonic()  # blocked from now on, for a whole minute
        self._by_address[address] = (since, count + 1)
        self._by_address.move_to_end(address)
        if len(self._by_address) > ADDRESSES:
            self._by_address.popitem(last=False)

    def blocked(self, address: str) -> bool:
        """Return whether an address has failed too often within its minute."""
        return self._current(address)[1] > self._most

    def _current(self, address: str) -> tuple[float, int]:
        now = self._clock.monotonic()
        since, count = self._by_address.get(address, (now, 0))
        return (since, count) if now - since < BLOCK_SECONDS else (now, 0)


class Authenticator:
    """Finds the user of a request."""

    def __init__(
        self, access: AccessCache, *, clock: Clock, metrics: Metrics, failed_logins: FailedLogins
    ) -> None:
        self._access = access
        self._clock = clock
        self._metrics = metrics
        self._failed = failed_logins

    def authenticate(self, request: Request) -> User:
        """Return the user, the anonymous one where that is enough (AS-047).

        Before the access tables were read once, whoever shows a credential is given the static
        documents: the aggregator's probe is among them (LW-034, AS-096).

        Raises Unauthorized, TooManyRequests for an address that guesses, and before the access
        tables were read once; ServiceUnavailable where they cannot be read.
        """
        token = bearer_token(request.header(b"authorization"))
        is_open = paths.open_to_everybody(request.info.path)
        if is_open and (token is None or self._access.view is None):
            return ANONYMOUS  # health is told while no credential can be checked, too
        if token is None:
            self._metrics.authentication("failure")
            raise Unauthorized
        address = peer_of(request.scope).address
        if self._failed.blocked(address):
            raise TooManyRequests(retry_after=60)
        if self._access.view is None and paths.static(request.info.path):
            return UNCHECKED
        user = self._user_of(token)
        if user is None:
            self._failed.failed(address)
            self._metrics.authentication("failure")
            raise Unauthorized(sent=True)
        self._metrics.authentication("success")
        return user

    def still_valid(self, user: User) -> bool:
        """Return whether a running watch's credential still stands (AS-054)."""
        if user.token_id is None or self._access.view is None:
            return True
        return self._access.view.user_of(user.token_id, self._clock.now()) == user

    def _user_of(self, token: str) -> User | None:
        view = self._access.view
        if view is None:
            self._metrics.authentication("error")
            if not self._access.refused:
                raise TooManyRequests.warming()  # the server starts (AS-096)
            raise ServiceUnavailable(
                "credentials cannot be checked: the database cannot be reached",
                fix="Repeat the request in 1 s; if it goes on, see /readyz?verbose.",
            )
        parsed = parse_token(token) if len(token) <= MAX_TOKEN_BYTES else None
        if parsed is None:
            return None
        token_id, secret = parsed
        record = view.token(token_id)
        # an unknown id costs the same time as a wrong secret
        stored = record.secret_sha256 if record is not None else _NO_SECRET
        matches = hmac.compare_digest(hash_secret(secret), stored)
        user = view.user_of(token_id, self._clock.now()) if matches else None
        if user is None:
            log.warning("token rejected", extra={"token_id": token_id})
        else:
            self._access.used(token_id)
        return user


def bearer_token(authorization: str | None) -> str | None:
    """Return the token of an Authorization header; None where it offers none (AS-042)."""
    parts = (authorization or "").strip().split(" ")
    if len(parts) < 2 or parts[0].lower() != "bearer" or not parts[1]:
        return None
    return parts[1]
