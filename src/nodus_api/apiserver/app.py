"""Joins the parts of one replica's HTTP side into one ASGI application."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from uuid import UUID

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from nodus_api.apiserver.access import AccessSource
from nodus_api.apiserver.access_behind import AccessBehind
from nodus_api.apiserver.access_cache import AccessCache
from nodus_api.apiserver.answers import Receive, Send
from nodus_api.apiserver.authentication import Authenticator, FailedLogins
from nodus_api.apiserver.authorization import Authorizer
from nodus_api.apiserver.background import Background
from nodus_api.apiserver.chain import Chain, Guards
from nodus_api.apiserver.cors import Cors
from nodus_api.apiserver.dependencies import SCOPE_KEY
from nodus_api.apiserver.drain import Drain
from nodus_api.apiserver.errors import StatusRenderer
from nodus_api.apiserver.health import Check, HealthChecks, LoopLag
from nodus_api.apiserver.hot_path import AttemptReads
from nodus_api.apiserver.identity import User
from nodus_api.apiserver.in_flight import InFlight
from nodus_api.apiserver.metrics import (
    Metrics,
    MetricsCollector,
    cache_facts,
    heartbeat_facts,
)
from nodus_api.apiserver.namespace_reads import NamespaceReads
from nodus_api.apiserver.namespace_watch import ProjectWatchers
from nodus_api.apiserver.options import ServerOptions
from nodus_api.apiserver.reads import ReadTools
from nodus_api.apiserver.request import Request, RequestInfo, Scope
from nodus_api.apiserver.routes.access_review import access_review_routes
from nodus_api.apiserver.routes.attempts import attempt_routes
from nodus_api.apiserver.routes.discovery import discovery_routes
from nodus_api.apiserver.routes.error_docs import error_doc_routes
from nodus_api.apiserver.routes.health import health_routes
from nodus_api.apiserver.routes.namespaces import namespace_routes
from nodus_api.apiserver.routes.openapi import openapi_routes
from nodus_api.apiserver.status_handlers import add_status_handlers
from nodus_api.apiserver.watches import RunningWatches
from nodus_api.attempts.resource import ATTEMPTS
from nodus_api.clock import Clock
from nodus_api.watchcache import AttemptCache
from nodus_api.watchcache.digest_check import ConsistencyCheck
from nodus_api.watchcache.heartbeat import Heartbeat

RIGHTS_SECONDS = 60.0


class ApiServer:
    """The ASGI application of one replica, and what `serve` needs to end it."""

    def __init__(
        self,
        *,
        chain: Chain,
        background: Background,
        access: AccessCache,
        drain: Drain,
        watches: RunningWatches,
        in_flight: InFlight,
        options: ServerOptions,
        clock: Clock,
        statuses: StatusRenderer,
        new_id: Callable[[], UUID],
        lag: LoopLag,
        metrics: Metrics,
    ) -> None:
        self._chain = chain
        self.background = background
        self.access = access
        self.gate = drain
        self.watches = watches
        self.in_flight = in_flight
        self.options = options
        self.clock = clock
        self.statuses = statuses
        self.new_id = new_id
        self.lag = lag
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or run the background tasks for the server's life."""
        match scope["type"]:
            case "lifespan":
                await self.background.lifespan(receive, send)
            case "http":
                await self._chain(scope, receive, send)
            case _:
                raise ValueError("only HTTP is served")  # the server offers nothing else

    async def drain(self) -> None:
        """Go through the steps of AS-095 up to the end of the watches; returns when they are over.

        Requests that run are left to the server, which waits for them.
        """
        self.gate.draining = True
        await self.clock.sleep(self.options.shutdown_delay.total_seconds())
        self.gate.refusing = True
        await self.watches.drain(self.options.shutdown_watch_grace.total_seconds())


def create_app(
    *,
    cache: AttemptCache,
    access: AccessSource,
    clock: Clock,
    new_id: Callable[[], UUID],
    chance: Callable[[], float],
    version: str,
    consistency: ConsistencyCheck | None = None,
    heartbeat: Heartbeat | None = None,
    options: ServerOptions | None = None,
    checks: Mapping[str, Check] | None = None,
    live_checks: Mapping[str, Check] | None = None,
    hot_path: bool = True,
) -> ApiServer:
    """Return the application.

    `chance` gives uniform numbers in [0, 1), `new_id` request ids. `heartbeat` is followed for the
    metrics, and by whom it was given to; `consistency` runs beside the cache. `checks` are further
    checks of
    readyz by name (`schema`, `tls-cert`), `live_checks` of livez too (`cert-reloader`), each
    returning None or what is wrong. Without `hot_path` FastAPI answers every path: the tests
    compare the two.
    """
    options = options or ServerOptions()
    metrics = Metrics()
    drain, watches, in_flight = Drain(), RunningWatches(clock), InFlight(options)
    view = AccessCache(access, clock=clock)
    statuses = StatusRenderer(options.public_url)
    authenticator = Authenticator(
        view,
        clock=clock,
        metrics=metrics,
        failed_logins=FailedLogins(options.max_failed_logins, clock),
    )
    authorizer = Authorizer(view, metrics)
    project_watchers = ProjectWatchers(cache.watchers)
    _follow_access(view, watches, project_watchers, authenticator, authorizer)
    tools = ReadTools(
        clock=clock,
        chance=chance,
        options=options,
        statuses=statuses,
        metrics=metrics,
        watches=watches,
    )
    attempts = AttemptReads(
        cache,
        tools,
        is_project=lambda name: not options.standalone or _is_project(view, name),
    )
    lag = LoopLag(clock)
    background = Background(
        {
            "watch-cache": cache.run,
            "access": view.run,
            "loop-lag": lag.run,
            "rights": lambda: _judge_again(view, clock),
            **({"consistency": consistency.run} if consistency is not None else {}),
            **({"leader-heartbeat": heartbeat.run} if heartbeat is not None else {}),
        },
        clock=clock,
    )
    health = HealthChecks(
        cache=cache,
        access=view,
        drain=drain,
        lag=lag,
        clock=clock,
        live={**(live_checks or {}), "background-tasks": background.problem},
        ready=checks or {},
    )
    metrics.in_flight_now = lambda: in_flight.requests
    if consistency is not None:
        metrics.consistency_checks = consistency.results
    inner = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    add_status_handlers(inner, statuses)
    for router in (
        attempt_routes(attempts),
        namespace_routes(
            NamespaceReads(view, AccessBehind(access), project_watchers, cache, tools)
        ),
        discovery_routes(version, standalone=options.standalone),
        openapi_routes(clock, standalone=options.standalone),
        health_routes(health, _registry(metrics, cache, heartbeat)),
        error_doc_routes(standalone=options.standalone),
        access_review_routes(authorizer, options.max_body_bytes),
    ):
        inner.include_router(router)
    return ApiServer(
        chain=Chain(
            _handler(attempts if hot_path else None, inner),
            Guards(
                authenticator=authenticator,
                authorizer=authorizer,
                in_flight=in_flight,
                drain=drain,
                cors=Cors(options.cors_allowed_origins),
                statuses=statuses,
                metrics=metrics,
            ),
            options=options,
            clock=clock,
            new_id=new_id,
        ),
        background=background,
        access=view,
        drain=drain,
        watches=watches,
        in_flight=in_flight,
        options=options,
        clock=clock,
        statuses=statuses,
        new_id=new_id,
        lag=lag,
        metrics=metrics,
    )


def _handler(
    attempts: AttemptReads | None, inner: FastAPI
) -> Callable[[Request, Receive, Send], Coroutine[Any, Any, None]]:
    async def handle(request: Request, receive: Receive, send: Send) -> None:
        if attempts is not None and request.info.resource is ATTEMPTS:
            answer = await attempts.answer(request)
            await answer.send(request, receive, send)
            return
        scope = dict(request.scope)
        scope[SCOPE_KEY] = request
        scope["path"] = request.info.path  # slashes at its ends are gone (LW-013)
        scope["raw_path"] = request.info.path.encode()
        if scope["method"] == "HEAD":
            scope["method"] = "GET"  # the body is left out by whoever sends it (LW-007)
        await inner(scope, receive, send)

    return handle


def _follow_access(
    view: AccessCache,
    watches: RunningWatches,
    project_watchers: ProjectWatchers,
    authenticator: Authenticator,
    authorizer: Authorizer,
) -> None:
    """Let each change of access judge the running watches again (AS-054)."""

    def still_allowed(user: User, info: RequestInfo) -> bool:
        return authenticator.still_valid(user) and authorizer.allows(user, info)

    def changed() -> None:
        watches.judge()
        project_watchers.wake()

    watches.allowed = still_allowed
    view.changed = changed


def _is_project(access: AccessCache, name: str) -> bool:
    return access.view is not None and access.view.project(name) is not None


async def _judge_again(view: AccessCache, clock: Clock) -> None:
    """Judge the running watches once a minute too: a token may expire without a change."""
    while True:
        await clock.sleep(RIGHTS_SECONDS)
        view.changed()


def _registry(
    metrics: Metrics, cache: AttemptCache, heartbeat: Heartbeat | None
) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(
        MetricsCollector(metrics, lambda: {**cache_facts(cache), **heartbeat_facts(heartbeat)})
    )
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry
