"""Errors that know their code, their registered reason and what to do next (section 7).

One handler turns any of them into a `Status`. A `fix` is made for the request at hand
and never empty; what a kubectl user must read stands in the message, since kubectl
shows nothing else (LW-181).
"""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from http import HTTPStatus

from nodus_api.metav1.api_error import APIError as APIError
from nodus_api.metav1.api_error import GroupResource as GroupResource
from nodus_api.metav1.api_error import docs_url as docs_url
from nodus_api.metav1.golang import quote
from nodus_api.metav1.objects import ListMeta
from nodus_api.metav1.status import StatusCause, StatusDetails

_WATCH_HISTORY = "5 minutes back (the default of NODUS_WATCHCACHE_WINDOW)"
_LIST_HISTORY = "1 hour (the default of NODUS_FEED_RETENTION)"


class BadRequest(APIError):
    """The request cannot be read: HTTP 400 (LW-185)."""

    code = HTTPStatus.BAD_REQUEST
    reason = "BadRequest"


class Unauthorized(APIError):
    """No credential, or none that is accepted: HTTP 401; the cause is never told (AS-055).

    `sent` says that there was a token: the client knows that, but not what was wrong with it.
    """

    code = HTTPStatus.UNAUTHORIZED
    reason = "Unauthorized"

    def __init__(self, *, challenge: bool = True, sent: bool = False) -> None:
        make = "make a token with `nodus token create --user NAME`"
        super().__init__(
            "Unauthorized",
            fix=f"The token that was sent is not, or no longer, valid: {make}."
            if sent
            else f"Send the header `Authorization: Bearer TOKEN`; {make}.",
            headers={"WWW-Authenticate": 'Bearer realm="nodus"'} if challenge else None,
        )


class Forbidden(APIError):
    """The user may not do this: HTTP 403, to the letter of AS-056."""

    code = HTTPStatus.FORBIDDEN
    reason = "Forbidden"

    def __init__(self, message: str, *, fix: str, details: StatusDetails) -> None:
        super().__init__(
            message, fix=fix, details=details, headers={"X-Content-Type-Options": "nosniff"}
        )

    @classmethod
    def resource(
        cls,
        resource: GroupResource,
        *,
        user: str,
        verb: str,
        namespace: str = "",
        name: str = "",
        why: str = "",
    ) -> "Forbidden":
        """Return the refusal of a verb on a resource; without a namespace at the cluster scope."""
        fix = (
            "Ask an administrator for `nodus project add-member "
            f"{shlex.quote(namespace)} --user {shlex.quote(user)}`."
            if namespace
            else "Ask for one project with `-n PROJECT`, or for membership in the group "
            "nodus:admins."
        )
        message = _forbidden(
            resource, user=user, verb=verb, namespace=namespace, name=name, why=why
        )
        return cls(message, fix=fix, details=resource.details(name=name))

    @classmethod
    def impersonation(
        cls, resource: GroupResource, *, user: str, name: str, namespace: str, fix: str
    ) -> "Forbidden":
        """Return the refusal to serve a request as somebody else (AS-025)."""
        message = _forbidden(
            resource, user=user, verb="impersonate", namespace=namespace, name=name
        )
        return cls(message, fix=fix, details=resource.details(name=name))

    @classmethod
    def path(cls, path: str, *, user: str, verb: str = "get", why: str = "") -> "Forbidden":
        """Return the refusal of a path that is no resource."""
        return cls(
            _with_reason(f"forbidden: User {quote(user)} cannot {verb} path {quote(path)}", why),
            fix="Use a token of a user in the group nodus:admins: "
            "`nodus token create --user NAME --group nodus:admins`.",
            details=StatusDetails(),
        )


class NotFound(APIError):
    """No such object or no such path: HTTP 404."""

    code = HTTPStatus.NOT_FOUND
    reason = "NotFound"

    @classmethod
    def object(
        cls, resource: GroupResource, name: str, *, namespace: str = "", fix: str = ""
    ) -> "NotFound":
        """Return the answer for a name that is not there (LW-003)."""
        scope = f" -n {shlex.quote(namespace)}" if namespace else ""
        return cls(
            f"{resource} {quote(name)} not found",
            fix=fix or f"See which names exist: `kubectl get {resource.resource}{scope}`.",
            details=resource.details(name=name),
        )

    @classmethod
    def path(cls, *, fix: str = "") -> "NotFound":
        """Return the answer for a path that this server does not have (LW-012)."""
        return cls(
            "the server could not find the requested resource",
            fix=fix or "See which resources exist: `kubectl api-resources`, or GET /apis.",
            details=StatusDetails(),
        )


class MethodNotAllowed(APIError):
    """A write on a resource that is only read: HTTP 405 (LW-010)."""

    code = HTTPStatus.METHOD_NOT_ALLOWED
    reason = "MethodNotAllowed"

    def __init__(self, verb: str, resource: GroupResource, *, fix: str = "") -> None:
        super().__init__(
            f'{verb} is not supported on resources of kind "{resource}"',
            fix=fix,
            details=resource.details(),
            headers={"Allow": "GET, HEAD"},
        )


class NotAcceptable(APIError):
    """The Accept header fits no form of the answer: HTTP 406 (LW-053, LW-055).

    `form` is the one to ask for in its place.
    """

    code = HTTPStatus.NOT_ACCEPTABLE
    reason = "NotAcceptable"

    def __init__(
        self,
        message: str = "only the following media types are accepted: application/json",
        *,
        form: str = "application/json",
    ) -> None:
        super().__init__(message, fix=f"Send `Accept: {form}`.")


class Conflict(APIError):
    """A runner's report does not fit what is stored: HTTP 409; never on attempts (LW-191)."""

    code = HTTPStatus.CONFLICT
    reason = "Conflict"


class StaleEpoch(APIError):
    """A runner reported for an epoch that was replaced: HTTP 409 (SC-125)."""

    code = HTTPStatus.CONFLICT
    reason = "StaleEpoch"

    def __init__(self, epoch: int, *, current: int) -> None:
        super().__init__(f"the report is for epoch {epoch}, the slot is at epoch {current}")


class Expired(APIError):
    """The version asked for has left the history: HTTP 410, reason never `Gone` (LW-192)."""

    code = HTTPStatus.GONE
    reason = "Expired"

    @classmethod
    def watch(cls, requested: int, oldest: int) -> "Expired":
        """Return the end of a watch that starts before `oldest`, the first kept change (LW-123)."""
        return cls(
            f"too old resource version: {requested} ({oldest - 1})",
            fix="List again without resourceVersion and watch from the version it returns: a "
            f"watch of Attempts may start at most {_WATCH_HISTORY}.",
        )

    @classmethod
    def exact_list(cls) -> "Expired":
        """Return the answer to an exact list from before the history (LW-104)."""
        return cls(
            "The resourceVersion for the provided list is too old.",
            fix="List again without resourceVersion and resourceVersionMatch: the history of exact "
            f"lists of Attempts is {_LIST_HISTORY}.",
        )

    @classmethod
    def continue_token(cls, fresh: str) -> "Expired":
        """Return the answer to an old token, with one that goes on inconsistently (LW-114)."""
        error = cls(
            "The provided continue parameter is too old to display a consistent list result. You "
            "can start a new list without the continue parameter, or use the continue token in "
            "this response to retrieve the remainder of the results. Continuing with the provided "
            "token results in an inconsistent list - objects that were created, modified, or "
            "deleted between the time the first chunk was returned and now may show up in the "
            "list.",
            fix="Start the list again without continue, or go on from metadata.continue of this "
            f"answer: the pages of a list of Attempts may be read for {_LIST_HISTORY}.",
        )
        error.list_meta = ListMeta(continue_=fresh)
        return error


class RequestEntityTooLarge(APIError):
    """Body, URL or headers over their limit: HTTP 413, 414 or 431 (LW-193)."""

    code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    reason = "RequestEntityTooLarge"

    def __init__(self, limit: int, *, status: HTTPStatus = HTTPStatus.REQUEST_ENTITY_TOO_LARGE):
        part = {413: "body", 414: "URL", 431: "header block"}[status]
        super().__init__(
            f"Request entity too large: limit is {limit}",
            fix=f"Send a {part} of at most {limit} bytes.",
            headers={"Connection": "close"},
        )
        self.http_status = status


class UnsupportedMediaType(APIError):
    """The body's form is not read here: HTTP 415 (LW-194)."""

    code = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    reason = "UnsupportedMediaType"

    def __init__(self, *, accepted: Iterable[str] = ("application/json",)) -> None:
        types = ", ".join(accepted)
        super().__init__(
            "the body of the request was in an unknown format - accepted media types include: "
            f"{types}",
            fix="Send the body as application/json and say so in Content-Type.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One parameter that is wrong: its name, the reason of the cause, the text (section 4.2).

    `fix` says what to add where the parameter itself is not what has to change.
    """

    field: str
    reason: str
    body: str
    fix: str = ""


class Invalid(APIError):
    """Parameters that do not go together: HTTP 422 (section 4.2)."""

    code = HTTPStatus.UNPROCESSABLE_ENTITY
    reason = "Invalid"

    def __init__(
        self, errors: Iterable[FieldError], *, group: str = "meta.k8s.io", kind: str = "ListOptions"
    ) -> None:
        wrong = tuple(errors)
        texts = tuple(dict.fromkeys(f"{error.field}: {error.body}" for error in wrong))
        text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        causes = tuple(
            StatusCause(reason=error.reason, message=error.body, field=error.field)
            for error in wrong
        )
        names = " and ".join(dict.fromkeys(error.field for error in wrong if not error.fix))
        fixes = [*dict.fromkeys(error.fix for error in wrong if error.fix)]
        if names:
            fixes.append(f"Change or leave out the query parameter {names}.")
        super().__init__(
            f'{kind}.{group} "" is invalid: {text}',
            fix=" ".join(fixes),
            details=StatusDetails(group=group, kind=kind, causes=causes),
        )


class TooManyRequests(APIError):
    """A limit is reached or the server is not ready for this: HTTP 429 (LW-196)."""

    code = HTTPStatus.TOO_MANY_REQUESTS
    reason = "TooManyRequests"

    def __init__(
        self,
        message: str = "Too many requests, please try again later.",
        *,
        retry_after: int = 1,
        fix: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            message,
            fix=fix or f"Wait {retry_after} s and send the same request again.",
            retry_after=retry_after,
            headers=headers,
        )

    @classmethod
    def warming(cls, *, retry_after: int = 1) -> "TooManyRequests":
        """Return the answer while the cache is being filled (LW-122, AS-096)."""
        return cls("storage is (re)initializing", retry_after=retry_after)

    @classmethod
    def shutting_down(cls) -> "TooManyRequests":
        """Return the answer of a server that stops (LW-147)."""
        return cls(
            "The apiserver is shutting down, please try again later.",
            retry_after=5,
            headers={"Connection": "close"},
        )


class InternalError(APIError):
    """A fault of the server: HTTP 500, without its cause and without Retry-After (LW-197)."""

    code = HTTPStatus.INTERNAL_SERVER_ERROR
    reason = "InternalError"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"Internal error occurred: {what}",
            fix="Report this with the requestId; the server's log tells the cause under it.",
            details=StatusDetails(causes=(StatusCause(message=what),)),
        )


class ServerTimeout(APIError):
    """A read of the database met its time limit: HTTP 500, to be repeated (LW-198)."""

    code = HTTPStatus.INTERNAL_SERVER_ERROR
    reason = "ServerTimeout"

    def __init__(self, verb: str, resource: GroupResource) -> None:
        super().__init__(
            f"The {verb} operation against {resource} could not be completed at this time, "
            "please try again.",
            fix="Send it again in 2 s; ask for less with limit, a selector or a newer "
            "resourceVersion.",
            details=resource.details(name=verb),
            retry_after=2,
        )


class ServiceUnavailable(APIError):
    """Something that the answer needs cannot be reached: HTTP 503 (LW-199)."""

    code = HTTPStatus.SERVICE_UNAVAILABLE
    reason = "ServiceUnavailable"

    def __init__(self, message: str, *, fix: str = "", retry_after: int = 1) -> None:
        super().__init__(message, fix=fix, retry_after=retry_after)

    @classmethod
    def database(cls, *, cached: bool = True, retry_after: int = 1) -> "ServiceUnavailable":
        """Return the answer to what needs the database while it is away.

        `cached` says whether the cache could answer in its place, if it were asked to.
        """
        message = "the database cannot be reached"
        fix = "Repeat the request in 1 s; if it goes on, see /readyz?verbose."
        if cached:
            message += ", so the most recent state is not known"
            fix = "Repeat the request, or add resourceVersion=0 to be answered from the cache."
        return cls(message, fix=fix, retry_after=retry_after)


class Timeout(APIError):
    """The answer was not ready in time: HTTP 504; every text starts with `Timeout: ` (LW-200)."""

    code = HTTPStatus.GATEWAY_TIMEOUT
    reason = "Timeout"

    @classmethod
    def deadline(cls, *, longest: int | None) -> "Timeout":
        """Return the answer to a request that outlasts its time (LW-020, AS-092).

        `longest` is how many seconds it may ask for, None where it had them.
        """
        less = "with limit or a selector."
        return cls(
            "Timeout: request did not complete within the allotted timeout",
            fix=f"Ask for less {less}"
            if longest is None
            else f"Give it more time with timeout={longest}s, or ask for less {less}",
        )

    @classmethod
    def too_large(cls, requested: int, current: int) -> "Timeout":
        """Return the answer to a version that is not reached here, repeated after 1 s (LW-103)."""
        cause = StatusCause(reason="ResourceVersionTooLarge", message="Too large resource version")
        return cls(
            f"Timeout: Too large resource version: {requested}, current: {current}",
            fix="Repeat the request in 1 s, or leave resourceVersion out.",
            details=StatusDetails(causes=(cause,)),
            retry_after=1,
        )


def _forbidden(
    resource: GroupResource, *, user: str, verb: str, namespace: str, name: str, why: str = ""
) -> str:
    what = f"{resource} {quote(name)}" if name else str(resource)
    where = f"in the namespace {quote(namespace)}" if namespace else "at the cluster scope"
    refused = (
        f"User {quote(user)} cannot {verb} resource "
        f"{quote(resource.resource)} in API group {quote(resource.group)} {where}"
    )
    return f"{what} is forbidden: {_with_reason(refused, why)}"


def _with_reason(message: str, why: str) -> str:
    """Escape a refusal and append the authoriser's own words, which are not escaped (AS-056)."""
    escaped = escape(message, quote=False)
    return f"{escaped}: {why}" if why else escaped
