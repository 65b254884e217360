"""The paths of Attempts, answered by the hot path's own handlers (LW-001 to LW-007)."""

from fastapi import APIRouter

from nodus_api.apiserver.dependencies import AnswerResponse, ChainRequest
from nodus_api.apiserver.hot_path import AttemptReads

BASE = "/apis/nodus.dev/v1"


def attempt_routes(reads: AttemptReads) -> APIRouter:
    """Return the routes of get, list and watch."""
    router = APIRouter()

    @router.get(BASE + "/attempts", name="listAttemptsOfAllProjects")
    @router.get(BASE + "/namespaces/{project}/attempts", name="listAttempts")
    @router.get(BASE + "/namespaces/{project}/attempts/{name}", name="readAttempt")
    @router.get(BASE + "/watch/attempts", name="watchAttemptsOfAllProjects")
    @router.get(BASE + "/watch/namespaces/{project}/attempts", name="watchAttempts")
    @router.get(BASE + "/watch/namespaces/{project}/attempts/{name}", name="watchAttempt")
    async def read(request: ChainRequest) -> AnswerResponse:
        return AnswerResponse(await reads.answer(request), request)

    return router
