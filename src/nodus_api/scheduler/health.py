"""`/livez`, `/readyz` and `/metrics` of a scheduler process, without secrets (SC-645)."""

import asyncio
import socket
from collections.abc import Sequence
from http import HTTPStatus
from uuid import UUID

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from nodus_api.metav1.errors import NotFound
from nodus_api.metav1.healthz import HEADERS, CheckResult, HealthText, health
from nodus_api.scheduler.listening import Receive, Reply, Scope, Send, serve
from nodus_api.scheduler.metrics import LoopMetrics
from nodus_api.storage.errors import StorageError
from nodus_api.storage.leader_store import LeaderStore

_NO_REQUEST = UUID(int=0)


class HealthServer:
    """The ASGI application for health; leader and standby are both ready."""

    def __init__(self, leader: LeaderStore, metrics: LoopMetrics) -> None:
        self._leader = leader
        self._metrics = metrics

    async def serve(self, sockets: Sequence[socket.socket], stop: asyncio.Event) -> None:
        """Serve on bound sockets until `stop` is set."""
        await serve(self, sockets=sockets, stop=stop)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Answer one request."""
        reply = await self._answer(scope["path"], verbose=b"verbose" in scope["query_string"])
        await reply.send(send)

    async def _answer(self, path: str, *, verbose: bool) -> Reply:
        match path:
            case "/livez":
                return _text(health("livez", [CheckResult(name="ping")], verbose=verbose))
            case "/readyz":
                checks = [CheckResult(name="ping"), await self._database()]
                return _text(health("readyz", checks, verbose=verbose))
            case "/metrics":
                body = generate_latest(self._metrics.registry)
                return Reply(status=HTTPStatus.OK, body=body, content_type=CONTENT_TYPE_LATEST)
            case _:
                status = NotFound.path().to_status(request_id=str(_NO_REQUEST))
                return Reply(status=HTTPStatus.NOT_FOUND, body=status.encode())

    async def _database(self) -> CheckResult:
        try:
            await self._leader.reachable()
        except StorageError as error:
            return CheckResult(name="database", failure=str(error))
        return CheckResult(name="database")


def _text(answer: HealthText) -> Reply:
    return Reply(status=answer.status, body=answer.body, content_type=HEADERS["Content-Type"])
