"""The pages that `docs` of a Status leads to; the only ones that are ever HTML (LW-202).

The codes inside an Attempt have theirs, too: whoever reads one finds its meaning there (SC-011).
"""

from fastapi import APIRouter

from nodus_api.apiserver.answers import BodyAnswer
from nodus_api.apiserver.dependencies import AnswerResponse, ChainRequest, LastSegment
from nodus_api.attempts.reasons import PAGES
from nodus_api.metav1 import error_docs
from nodus_api.metav1.errors import NotFound
from nodus_api.metav1.negotiation import prefers_html


def error_doc_routes(*, standalone: bool) -> APIRouter:
    """Return the routes of the error pages; what they advise depends on who checks rights."""
    router = APIRouter()

    # no redirect: the aggregation layer would make a 502 of it (AS-010)
    @router.get("/docs", name="docs")
    @router.get("/docs/errors", name="errorIndex")
    async def index(request: ChainRequest) -> AnswerResponse:
        page = error_docs.index(html=prefers_html(request.header(b"accept")), registries=PAGES)
        return AnswerResponse(_answer(page), request)

    @router.get("/docs/errors/{code}", name="errorPage")
    async def page(request: ChainRequest, code: LastSegment) -> AnswerResponse:
        found = error_docs.page(
            # the column REASON shows what a queued Attempt waits for in brackets
            code.removeprefix("(").removesuffix(")"),
            html=prefers_html(request.header(b"accept")),
            registries=PAGES,
            standalone=standalone,
        )
        if found is None:
            raise NotFound.path(fix="See which codes there are: GET /docs/errors.")
        return AnswerResponse(_answer(found), request)

    return router


def _answer(page: error_docs.Page) -> BodyAnswer:
    return BodyAnswer.of(
        page.body, headers={"Content-Type": page.content_type} | error_docs.HEADERS
    )
