"""Where runners report: `POST /runner/v1/report` (SC-640, SC-641, SC-645).

Any scheduler process takes reports in, leader or standby; only the leader applies them. The
answer is made from the lease, so a start is granted by a later answer than the one that asked.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
from pydantic import ValidationError

from nodus_api.metav1.errors import (
    APIError,
    BadRequest,
    Conflict,
    GroupResource,
    InternalError,
    MethodNotAllowed,
    NotFound,
    ServiceUnavailable,
    StaleEpoch,
    Unauthorized,
)
from nodus_api.metav1.status import StatusCause, StatusDetails
from nodus_api.outages import Outage
from nodus_api.scheduler.intents import token_hash
from nodus_api.scheduler.listening import Receive, Reply, Scope, Send, read_body, serve
from nodus_api.scheduler.metrics import LoopMetrics
from nodus_api.scheduler.report_bodies import own_fields, parse
from nodus_api.storage.checkpoint_store import Verdict
from nodus_api.storage.errors import StorageError
from nodus_api.storage.report_store import GivenReport, ReportStore, Standing

log = logging.getLogger(__name__)

PATH = "/runner/v1/report"
BODY_LIMIT = 64 * 1024
RETRY_MS = 200
"""When a runner whose start is not granted yet asks again."""

_RESOURCE = GroupResource(group="", resource="reports")


class ReportServer:
    """The ASGI application for reports; `wake` tells the leader that one waits.

    A heartbeat wakes nobody: the next full pass is soon enough. Where waking fails, too.
    """

    def __init__(
        self,
        store: ReportStore,
        *,
        wake: Callable[[], Awaitable[None]],
        metrics: LoopMetrics,
        new_id: Callable[[], UUID],
    ) -> None:
        self._store = store
        self._wake = wake
        self._metrics = metrics
        self._new_id = new_id
        self._outage = Outage(log, begins="reports cannot be kept", over="reports are kept again")

    async def serve(
        self,
        sockets: Sequence[socket.socket],
        stop: asyncio.Event,
        *,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Serve on bound sockets until `stop` is set; without `ssl_context` for Unix sockets."""
        await serve(self, sockets=sockets, stop=stop, ssl_context=ssl_context)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = self._new_id()
        kind = "none"
        try:
            reply, kind = await self._answer(scope, receive)
        except APIError as error:
            reply = _refusal(error, request)
        except StorageError as error:
            self._outage.failed(error)
            away = ServiceUnavailable("the database cannot be reached", retry_after=1)
            reply = _refusal(away, request)
        except Exception:
            log.exception("a report could not be answered", extra={"request": str(request)})
            reply = _refusal(InternalError("the report could not be answered"), request)
        self._metrics.reports.labels(kind=kind, code=str(reply.status)).inc()
        await reply.send(send)

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[Reply, str]:
        if scope["path"] != PATH:
            raise NotFound.path()
        if scope["method"] != "POST":
            raise MethodNotAllowed(scope["method"], _RESOURCE, fix=f"Send a POST to {PATH}.")
        token = _bearer(scope)
        body = await read_body(receive, BODY_LIMIT)
        report = _read(body)
        standing = await self._store.accept(token_hash(token), report)
        self._outage.passed()
        if standing is None:
            raise Unauthorized
        if not standing.current:
            raise StaleEpoch(report.epoch, current=standing.slot_epoch)
        if report.kind != "heartbeat":
            with contextlib.suppress(StorageError):
                await self._wake()
        if standing.verdict is Verdict.REFUSED:
            raise _out_of_sequence(report, standing)
        return Reply(status=200, body=orjson.dumps(_orders(report, standing))), report.kind


def _bearer(scope: Scope) -> str:
    """Return the bearer token; raises Unauthorized if there is none."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer" and token.strip():
                return str(token.strip())
    raise Unauthorized


def _read(body: bytes) -> GivenReport:
    """Check a report's form; raises BadRequest that names the field."""
    try:
        report = parse(orjson.loads(body))
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the report is not JSON: {error}") from error
    except ValidationError as error:
        raise BadRequest(_first_wrong(error)) from error
    return GivenReport(
        attempt=report.attempt,
        epoch=report.epoch,
        n=report.n,
        kind=report.kind,
        age=timedelta(milliseconds=report.age_ms),
        body=own_fields(report),
    )


def _first_wrong(error: ValidationError) -> str:
    """Say what is wrong with a report, by the names that its sender knows."""
    first = error.errors()[0]
    path = first["loc"][1:]  # the first part is the kind
    if first["type"].startswith("union_tag"):
        path = ("kind",)
    field = ".".join(str(part) for part in path) or "body"
    return f"the report's {field} is wrong: {first['msg']}"


def _orders(report: GivenReport, standing: Standing) -> dict[str, Any]:
    answer: dict[str, Any] = {"orders": list(standing.orders)}
    if report.kind == "canStart":
        # A runner asks before its program starts: one that asks after that is a second one, on a
        # machine that has lost the first's claim.
        granted = standing.won and not standing.begun
        answer |= {"granted": granted, "lastSeq": standing.last_seq}
        if standing.begun:
            answer["orders"].append({"kind": "die"})
        elif not granted:
            answer["retryMs"] = RETRY_MS
    if report.kind == "checkpoint":
        committed = standing.verdict is Verdict.COMMITTED
        answer |= {"committed": report.body["seq"]} if committed else {"retryMs": RETRY_MS}
    return answer


def _out_of_sequence(report: GivenReport, standing: Standing) -> Conflict:
    """Return the refusal of a checkpoint; its causes say where the slot stands (SC-142)."""
    last = StatusCause(reason="OutOfSequence", field="lastSeq", message=str(standing.last_seq))
    return Conflict(
        f"checkpoint {report.body['seq']} does not follow the slot's last, {standing.last_seq}",
        details=StatusDetails(causes=(last,)),
    )


def _refusal(error: APIError, request: UUID) -> Reply:
    status = error.to_status(request_id=str(request))
    return Reply(status=int(error.http_status), body=status.encode(), headers=error.headers)
