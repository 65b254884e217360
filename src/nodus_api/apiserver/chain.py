"""The one chain in front of every handler, as plain calls in the order of AS-083."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from uuid import UUID

from nodus_api.apiserver import paths
from nodus_api.apiserver.answers import Receive, Send
from nodus_api.apiserver.authentication import Authenticator
from nodus_api.apiserver.authorization import Authorizer
from nodus_api.apiserver.cors import Cors
from nodus_api.apiserver.drain import Drain
from nodus_api.apiserver.errors import StatusRenderer
from nodus_api.apiserver.impersonation import refuse_impersonation
from nodus_api.apiserver.in_flight import InFlight
from nodus_api.apiserver.metrics import Metrics
from nodus_api.apiserver.options import ServerOptions
from nodus_api.apiserver.peer import peer_of
from nodus_api.apiserver.reads import wants_indent
from nodus_api.apiserver.request import (
    MOST_ID,
    Request,
    Scope,
    Target,
    ids_of,
    joined,
    read_request_info,
)
from nodus_api.attempts import resource
from nodus_api.clock import Clock
from nodus_api.metav1.errors import (
    APIError,
    GroupResource,
    InternalError,
    NotFound,
    RequestEntityTooLarge,
    Timeout,
)
from nodus_api.metav1.namespaces import NAMESPACES, read_only
from nodus_api.metav1.query import parse_query, request_timeout
from nodus_api.metav1.status import StatusDetails

Handler = Callable[[Request, Receive, Send], Awaitable[None]]

LONG_REQUEST_SECONDS = 1.0

_REFUSED: Mapping[GroupResource, Callable[[str, str], APIError]] = {
    resource.ATTEMPTS: resource.read_only,
    NAMESPACES: lambda verb, _: read_only(verb),
}
"""How a write on a resource is answered: each with what does it instead (LW-010, LW-202)."""

log = logging.getLogger(__name__)


class PathMethodNotAllowed(APIError):
    """A path that is no resource has no such method: HTTP 405 (LW-010)."""

    code = HTTPStatus.METHOD_NOT_ALLOWED
    reason = "MethodNotAllowed"

    def __init__(self, allowed: tuple[str, ...]) -> None:
        super().__init__(
            "the server does not allow this method on the requested resource",
            fix=f"Use {' or '.join(allowed)} on this path.",
            details=StatusDetails(),
            headers={"Allow": ", ".join(allowed)},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """The parts that the chain asks, one a step."""

    authenticator: Authenticator
    authorizer: Authorizer
    in_flight: InFlight
    drain: Drain
    cors: Cors
    statuses: StatusRenderer
    metrics: Metrics


class Chain:
    """Runs each request through the steps, then hands it to the handler."""

    def __init__(
        self,
        handler: Handler,
        guards: Guards,
        *,
        options: ServerOptions,
        clock: Clock,
        new_id: Callable[[], UUID],
    ) -> None:
        self._handler = handler
        self._guards = guards
        self._options = options
        self._clock = clock
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request; whatever happens, the client gets a whole answer or an abort."""
        audit_id, request_id = ids_of(scope["headers"], self._new_id)
        out = _Response(scope, send, audit_id)
        request = self._request(scope, audit_id, request_id)
        out.varies = self._guards.cors.varies()
        out.cross_origin = self._guards.cors.headers(request)
        try:
            await self._isolated(request, receive, out)
        finally:
            self._finish(request, out)

    # -- request info --------------------------------------------------------------------------

    def _request(self, scope: Scope, audit_id: str, request_id: str) -> Request:
        raw_path = scope.get("raw_path") or scope["path"].encode()
        return Request(
            scope=scope,
            info=read_request_info(scope["method"], raw_path, {}),
            query={},
            audit_id=audit_id,
            request_id=request_id,
            received=self._clock.monotonic(),
            headers=joined(scope["headers"]),
        )

    # -- exception isolation (AS-094) ------------------------------------------------------------

    async def _isolated(self, request: Request, receive: Receive, out: "_Response") -> None:
        try:
            await self._timed(request, receive, out)
        except APIError as error:
            await self._fail(request, receive, out, error)
        except Exception:
            log.exception("a request failed", extra=_log_fields(request))
            self._guards.metrics.aborts += 1
            await self._fail(request, receive, out, InternalError(request.request_id))

    async def _fail(
        self, request: Request, receive: Receive, out: "_Response", error: APIError
    ) -> None:
        """Answer with a Status, or cut the connection where an answer has begun."""
        if out.started:
            if not out.finished:
                peer_of(request.scope).abort()
            return
        answer = self._guards.statuses.answer(
            error, request.request_id, pretty=wants_indent(request)
        )
        await answer.send(request, receive, out.send)

    # -- deadline (AS-092) -----------------------------------------------------------------------

    async def _timed(self, request: Request, receive: Receive, out: "_Response") -> None:
        self._check_size(request)
        request.query = parse_query(request.scope["query_string"])
        request.info = read_request_info(
            request.scope["method"],
            request.scope.get("raw_path") or request.scope["path"].encode(),
            request.query,
        )
        if request.info.verb == "watch" and request.info.target is Target.COLLECTION:
            await self._guarded(request, receive, out)
            return
        out.closes = self._guards.drain.draining
        limit = request_timeout(request.query, maximum=self._options.request_timeout)
        try:
            async with asyncio.timeout(limit.total_seconds()):
                await self._guarded(request, receive, out)
        except TimeoutError:
            self._guards.metrics.termination(HTTPStatus.GATEWAY_TIMEOUT)
            most = self._options.request_timeout
            longest = int(most.total_seconds()) if limit < most else None
            raise Timeout.deadline(longest=longest) from None

    def _check_size(self, request: Request) -> None:
        target = len(request.scope.get("raw_path") or b"") + len(request.scope["query_string"])
        if target > self._options.max_url_bytes:
            raise RequestEntityTooLarge(
                self._options.max_url_bytes, status=HTTPStatus.REQUEST_URI_TOO_LONG
            )
        length = request.headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:18]) > self._options.max_body_bytes:
            raise RequestEntityTooLarge(self._options.max_body_bytes)

    # -- drain, CORS, authentication, impersonation, route, limits, authorisation -----------------

    async def _guarded(self, request: Request, receive: Receive, out: "_Response") -> None:
        guards = self._guards
        guards.drain.admit(request.info.path)
        if (preflight := guards.cors.preflight(request)) is not None:
            await preflight.send(request, receive, out.send)
            return
        request.user = guards.authenticator.authenticate(request)
        refuse_impersonation(request.user, request.headers)
        self._check_route(request)
        with ExitStack() as held:
            try:
                held.enter_context(guards.in_flight.slot(request.user, request.info))
            except APIError as error:
                guards.metrics.termination(int(error.http_status))
                raise
            guards.authorizer.authorize(request.user, request.info)
            await self._handler(request, receive, out.send)

    def _check_route(self, request: Request) -> None:
        """Refuse what this server does not have, before asking who may (LW-021)."""
        info, method = request.info, request.scope["method"]
        if info.target is Target.NOTHING:
            if info.subresource:
                raise resource.no_subresource(info.name, info.subresource, info.namespace)
            raise NotFound.path()
        if info.resource is not None:
            if info.resource.group == "" and not self._options.standalone:
                raise NotFound.path()
            if not info.reads:
                raise _REFUSED[info.resource](info.verb, info.namespace)
        elif not paths.exists(info.path, standalone=self._options.standalone):
            raise NotFound.path()
        elif method not in paths.methods(info.path):
            raise PathMethodNotAllowed(paths.methods(info.path))

    # -- log and metrics -----------------------------------------------------------------------

    def _finish(self, request: Request, out: "_Response") -> None:
        seconds = self._clock.monotonic() - request.received
        self._guards.metrics.request(request.info, out.status, seconds, out.size)
        watch = request.info.verb == "watch"
        if out.status >= 400 or watch or seconds >= LONG_REQUEST_SECONDS:
            log.info(
                "request",
                extra=_log_fields(request)
                | {"code": out.status, "ms": round(seconds * 1000, 1), "bytes": out.size},
            )


class _Response:
    """Adds the headers that every response has, and notes what was sent."""

    def __init__(self, scope: Scope, send: Send, audit_id: str) -> None:
        self._head = scope["method"] == "HEAD"
        self._send = send
        self._audit_id = audit_id
        self.started = False
        self.finished = False
        self.closes = False
        self.varies = False
        self.cross_origin: Mapping[str, str] = {}
        self.status = 0
        self.size = 0

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send an ASGI message on; a HEAD's body is left out (LW-007)."""
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            message["headers"] = self._headers(list(message.get("headers", ())))
        elif self._head:
            message["body"] = b""
        await self._send(message)
        if message["type"] == "http.response.body":
            self.size += len(message.get("body", b""))
            self.finished = not message.get("more_body")

    def _headers(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        headers += [(k.lower().encode(), v.encode("latin-1")) for k, v in self.cross_origin.items()]
        names = {name for name, _ in headers}
        added = [
            (b"audit-id", self._audit_id.encode("latin-1")),
            (b"cache-control", b"no-cache, private"),
            (b"vary", b"Accept, Accept-Encoding"),
            (b"x-content-type-options", b"nosniff"),
        ]
        if self.closes:
            added.append((b"connection", b"close"))
        headers += [(name, value) for name, value in added if name not in names]
        if self.varies:
            return [(k, v + b", Origin" if k == b"vary" else v) for k, v in headers]
        return headers


def _log_fields(request: Request) -> dict[str, object]:
    """Return the fields of a log line; never a token, a query or a client's identity headers.

    The client's own Audit-ID stands beside a request id that could not be made of it (AS-100).
    """
    info = request.info
    given = request.audit_id[:MOST_ID]
    return {
        "request_id": request.request_id,
        **({} if given == request.request_id else {"audit_id": given}),
        "verb": info.verb,
        "resource": str(info.resource or ""),
        "project": info.namespace,
        "user": request.user.name if request.user else "",
        "user_agent": request.header(b"user-agent") or "",
    }
