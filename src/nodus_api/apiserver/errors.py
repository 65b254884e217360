"""How failures become answers: one Status renderer for all of them (LW-180, LW-201)."""

from collections.abc import Callable

from nodus_api.apiserver.answers import BodyAnswer
from nodus_api.attempts.resource import ATTEMPTS
from nodus_api.metav1.errors import (
    APIError,
    Expired,
    ServerTimeout,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
)
from nodus_api.metav1.partial import indented
from nodus_api.metav1.status import Status
from nodus_api.watchcache.errors import (
    CacheWarming,
    FeedUnavailable,
    HeldTooMuch,
    LeaderSilent,
    ReadTimedOut,
    StateNotReached,
    StateTooOld,
)

CACHE_ERRORS = (
    CacheWarming,
    FeedUnavailable,
    HeldTooMuch,
    LeaderSilent,
    ReadTimedOut,
    StateNotReached,
    StateTooOld,
)


class StatusRenderer:
    """Renders errors; `public_url` begins their `docs` links (LW-202)."""

    def __init__(self, public_url: str) -> None:
        self._public_url = public_url

    def status(self, error: APIError, request_id: str) -> Status:
        """Return the Status of an error, for an ERROR event or a body."""
        return error.to_status(request_id=request_id, public_url=self._public_url)

    def answer(self, error: APIError, request_id: str, *, pretty: bool = False) -> BodyAnswer:
        """Return the HTTP answer of an error, always JSON (LW-055)."""
        body = self.status(error, request_id).encode()
        return BodyAnswer.of(
            indented(body) if pretty else body,
            status=int(error.http_status),
            headers=error.headers,
        )


def of_cache(error: Exception, *, too_old: Callable[[StateTooOld], APIError]) -> APIError:
    """Return the error that the cache's failure means (LW-103, LW-196, LW-198, LW-199)."""
    match error:
        case CacheWarming():
            return TooManyRequests.warming()
        case HeldTooMuch():
            return TooManyRequests(
                "Lists that are being sent hold too much of earlier states, please try again "
                "later.",
                fix="Ask for the list in pages, by a limit, or wait 1 s and send it again.",
            )
        case FeedUnavailable():
            return ServiceUnavailable.database(cached=error.cached)
        case LeaderSilent():
            return ServiceUnavailable(
                "the database may have been replaced: no scheduler has given a sign of life in it"
                " for more than 15 s, so the most recent state is not known",
                fix="Repeat the request, or add resourceVersion=0 to be answered from the cache.",
            )
        case ReadTimedOut():
            return ServerTimeout(error.verb, ATTEMPTS)
        case StateNotReached():
            return Timeout.too_large(error.requested, error.current)
        case StateTooOld():
            return too_old(error)
        case _:
            raise error


def expired_watch(error: StateTooOld) -> APIError:
    """Return the end of a watch from before the history (LW-123)."""
    return Expired.watch(error.requested, error.oldest)


def expired_list(_: StateTooOld) -> APIError:
    """Return the answer to an exact list from before the history (LW-104)."""
    return Expired.exact_list()
