"""Health and metrics (AS-097, AS-104)."""

from fastapi import APIRouter
from prometheus_client import CollectorRegistry

from nodus_api.apiserver.answers import BodyAnswer
from nodus_api.apiserver.dependencies import AnswerResponse, ChainRequest, LastSegment
from nodus_api.apiserver.health import HealthChecks
from nodus_api.apiserver.metrics import exposition
from nodus_api.metav1 import healthz
from nodus_api.metav1.errors import NotFound
from nodus_api.metav1.query import all_values


def health_routes(checks: HealthChecks, registry: CollectorRegistry) -> APIRouter:
    """Return the routes of `/livez`, `/readyz`, `/healthz`, their checks, and `/metrics`."""
    router = APIRouter()

    @router.get("/livez", name="livez")
    @router.get("/readyz", name="readyz")
    @router.get("/healthz", name="healthz")
    async def all_checks(request: ChainRequest) -> AnswerResponse:
        endpoint = request.info.path[1:]
        text = healthz.health(
            endpoint,
            checks.results(endpoint),
            verbose="verbose" in request.query,
            excluded=all_values(request.scope["query_string"], "exclude"),
        )
        answer = BodyAnswer.of(text.body, status=text.status, headers=healthz.HEADERS)
        return AnswerResponse(answer, request)

    @router.get("/livez/{check}", name="livezCheck")
    @router.get("/readyz/{check}", name="readyzCheck")
    @router.get("/healthz/{check}", name="healthzCheck")
    async def one_check(request: ChainRequest, check: LastSegment) -> AnswerResponse:
        endpoint = request.info.path[1:].partition("/")[0]
        result = checks.result(endpoint, check)
        if result is None:
            names = ", ".join(one.name for one in checks.results(endpoint))
            raise NotFound.path(fix=f"Ask for one of the checks of /{endpoint}: {names}.")
        text = healthz.single_check(result)
        answer = BodyAnswer.of(text.body, status=text.status, headers=healthz.HEADERS)
        return AnswerResponse(answer, request)

    @router.get("/metrics", name="metrics")
    async def metrics(request: ChainRequest) -> AnswerResponse:
        body, content_type = exposition(registry, request.header(b"accept"))
        return AnswerResponse(BodyAnswer.of(body, headers={"Content-Type": content_type}), request)

    return router
