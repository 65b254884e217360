"""One of each error that this server can send, by a name of its own."""

from http import HTTPStatus

from nodus_api.metav1 import errors
from nodus_api.metav1.errors import APIError, FieldError, GroupResource

ATTEMPTS = GroupResource(group="nodus.dev", resource="attempts")

EACH: dict[str, APIError] = {
    "bad-request": errors.BadRequest('strconv.ParseInt: parsing "abc": invalid syntax'),
    "unauthorized": errors.Unauthorized(),
    "unauthorized-sent": errors.Unauthorized(sent=True),
    "forbidden-namespaced": errors.Forbidden.resource(
        ATTEMPTS, user="alice", verb="list", namespace="p"
    ),
    "forbidden-named": errors.Forbidden.resource(
        ATTEMPTS, user="alice", verb="get", namespace="p", name="a"
    ),
    "forbidden-cluster": errors.Forbidden.resource(ATTEMPTS, user="alice", verb="list"),
    "forbidden-path": errors.Forbidden.path("/metrics", user="alice"),
    "not-found-object": errors.NotFound.object(ATTEMPTS, "nope", namespace="example"),
    "not-found-path": errors.NotFound.path(),
    "method-not-allowed": errors.MethodNotAllowed("create", ATTEMPTS),
    "not-acceptable": errors.NotAcceptable(),
    "conflict": errors.Conflict("checkpoint 7 does not follow 4"),
    "stale-epoch": errors.StaleEpoch(1, current=2),
    "expired-watch": errors.Expired.watch(1, 5),
    "expired-list": errors.Expired.exact_list(),
    "expired-continue": errors.Expired.continue_token("dG9rZW4"),
    "too-large-body": errors.RequestEntityTooLarge(65536),
    "too-large-url": errors.RequestEntityTooLarge(32768, status=HTTPStatus.REQUEST_URI_TOO_LONG),
    "too-large-headers": errors.RequestEntityTooLarge(
        262144, status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    ),
    "unsupported-media-type": errors.UnsupportedMediaType(),
    "invalid": errors.Invalid(
        [
            FieldError(
                field="sendInitialEvents",
                reason="FieldValueForbidden",
                body="Forbidden: sendInitialEvents is forbidden for list",
            )
        ]
    ),
    "too-many-requests": errors.TooManyRequests(),
    "warming": errors.TooManyRequests.warming(),
    "shutting-down": errors.TooManyRequests.shutting_down(),
    "internal-error": errors.InternalError("0c8f"),
    "server-timeout": errors.ServerTimeout("list", ATTEMPTS),
    "service-unavailable": errors.ServiceUnavailable.database(),
    "service-unavailable-uncached": errors.ServiceUnavailable.database(cached=False),
    "timeout": errors.Timeout.deadline(longest=60),
    "timeout-longest": errors.Timeout.deadline(longest=None),
    "too-large-version": errors.Timeout.too_large(1000, 42),
}
