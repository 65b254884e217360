"""The OpenAPI documents, made once and tagged by their content (LW-230 to LW-233)."""

from fastapi import APIRouter

from nodus_api.apiserver.answers import BodyAnswer
from nodus_api.apiserver.dependencies import AnswerResponse, ChainRequest
from nodus_api.apiserver.routes.discovery import document_answer
from nodus_api.attempts.openapi import openapi_index, openapi_v2, openapi_v3
from nodus_api.attempts.resource import GROUP_VERSION
from nodus_api.clock import Clock
from nodus_api.metav1.core_openapi import core_openapi_v3
from nodus_api.metav1.discovery import Document
from nodus_api.metav1.negotiation import negotiate_plain
from nodus_api.metav1.openapi import cache_headers


def openapi_routes(clock: Clock, *, standalone: bool) -> APIRouter:
    """Return the routes of the documents; `clock` dates their expiry."""
    router = APIRouter()
    documents = {
        f"/openapi/v3/apis/{GROUP_VERSION}": openapi_v3,
        "/openapi/v3/api/v1": core_openapi_v3,
    }

    @router.get("/openapi/v2", name="openapiV2")
    async def v2(request: ChainRequest) -> AnswerResponse:
        negotiate_plain(request.header(b"accept"))
        return AnswerResponse(
            document_answer(request, openapi_v2().to_document(), indents=False), request
        )

    @router.get("/openapi/v3", name="openapiV3")
    async def index(request: ChainRequest) -> AnswerResponse:
        negotiate_plain(request.header(b"accept"))
        found = openapi_index(standalone=standalone)
        return AnswerResponse(document_answer(request, found, indents=False), request)

    @router.get(f"/openapi/v3/apis/{GROUP_VERSION}", name="openapiV3Document")
    @router.get("/openapi/v3/api/v1", name="openapiV3CoreDocument")
    async def document(request: ChainRequest) -> AnswerResponse:
        negotiate_plain(request.header(b"accept"))
        found = documents[request.info.path]()
        headers = cache_headers(found, asked=request.query.get("hash"), now=clock.now())
        tagged = Document(body=found.body, etag=headers["ETag"])
        if tagged.unchanged(request.header(b"if-none-match")):
            del headers["Content-Type"]  # nothing is sent that it would say something of
            return AnswerResponse(BodyAnswer(status=304, headers=headers), request)
        return AnswerResponse(BodyAnswer.of(found.body, headers=headers), request)

    return router
