"""Projects as core namespaces (LW-016)."""

from fastapi import APIRouter

from nodus_api.apiserver.dependencies import AnswerResponse, ChainRequest
from nodus_api.apiserver.namespace_reads import NamespaceReads


def namespace_routes(reads: NamespaceReads) -> APIRouter:
    """Return the routes of get, list and watch."""
    router = APIRouter()

    @router.get("/api/v1/namespaces", name="listNamespaces")
    @router.get("/api/v1/namespaces/{name}", name="readNamespace")
    @router.get("/api/v1/watch/namespaces", name="watchNamespaces")
    @router.get("/api/v1/watch/namespaces/{name}", name="watchNamespace")
    async def read(request: ChainRequest) -> AnswerResponse:
        return AnswerResponse(await reads.answer(request), request)

    return router
