"""The POSTs that are served: what a caller asks about itself (LW-023)."""

from fastapi import APIRouter
from fastapi import Request as FastAPIRequest
from starlette.requests import ClientDisconnect

from nodus_api.apiserver import paths
from nodus_api.apiserver.access_review import (
    Review,
    read_review,
    read_rules_review,
    read_user_review,
    review_answer,
)
from nodus_api.apiserver.answers import BodyAnswer
from nodus_api.apiserver.authorization import Authorizer
from nodus_api.apiserver.dependencies import AnswerResponse, ChainRequest
from nodus_api.apiserver.identity import ANONYMOUS, AUTHENTICATED, User
from nodus_api.apiserver.reads import wants_indent
from nodus_api.apiserver.request import Request
from nodus_api.apiserver.self_reviews import REVIEWS, rules_answer, user_answer
from nodus_api.attempts.resource import ATTEMPTS
from nodus_api.metav1.errors import BadRequest, GroupResource, RequestEntityTooLarge
from nodus_api.metav1.namespaces import NAMESPACES
from nodus_api.metav1.negotiation import negotiate_plain
from nodus_api.metav1.partial import indented

SERVED = (ATTEMPTS, NAMESPACES)


def access_review_routes(authorizer: Authorizer, max_body_bytes: int) -> APIRouter:
    """Return the routes of the reviews."""
    router = APIRouter()

    @router.post(paths.REVIEW, name="createSelfSubjectAccessReview")
    async def create(request: ChainRequest, raw: FastAPIRequest) -> AnswerResponse:
        negotiate_plain(request.header(b"accept"))
        body = await _body(raw, max_body_bytes)
        review = read_review(request.header(b"content-type"), body)
        allowed = _allowed(authorizer, request.user or ANONYMOUS, review)
        answer = review_answer(review, allowed=allowed, reason="")
        return _reviewed(request, answer)

    @router.post(paths.RULES_REVIEW, name="createSelfSubjectRulesReview")
    async def rules(request: ChainRequest, raw: FastAPIRequest) -> AnswerResponse:
        negotiate_plain(request.header(b"accept"))
        body = await _body(raw, max_body_bytes)
        namespace = read_rules_review(request.header(b"content-type"), body)
        answer = rules_answer(authorizer, request.user or ANONYMOUS, namespace)
        return _reviewed(request, answer)

    @router.post(paths.WHO_AM_I, name="createSelfSubjectReview")
    async def who_am_i(request: ChainRequest, raw: FastAPIRequest) -> AnswerResponse:
        negotiate_plain(request.header(b"accept"))
        read_user_review(request.header(b"content-type"), await _body(raw, max_body_bytes))
        answer = user_answer(request.user or ANONYMOUS)
        return _reviewed(request, answer)

    return router


def _reviewed(request: Request, answer: bytes) -> AnswerResponse:
    shown = indented(answer) if wants_indent(request) else answer  # LW-019
    return AnswerResponse(BodyAnswer.of(shown, status=201), request)


async def _body(request: FastAPIRequest, most_bytes: int) -> bytes:
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most_bytes:
                raise RequestEntityTooLarge(most_bytes)
    except ClientDisconnect:  # nobody is there to read this, but it is no fault of ours
        raise BadRequest("the request's body ended too soon", fix="Send the whole body.") from None
    return body


def _allowed(authorizer: Authorizer, user: User, review: Review) -> bool:
    if review.path is not None:
        verb, path = review.path.get("verb", ""), review.path.get("path", "")
        return verb == "get" and authorizer.allows_path(user, path)
    asked = review.resource or {}
    resource = GroupResource(group=asked.get("group", ""), resource=asked.get("resource", ""))
    if resource in REVIEWS:
        return asked.get("verb") == "create" and AUTHENTICATED in user.groups
    if resource not in SERVED or asked.get("subresource"):
        return False
    namespace = asked.get("namespace", "")
    if resource == NAMESPACES:
        namespace = asked.get("name", "")  # a namespace stands in itself
    return authorizer.allows_resource(user, asked.get("verb", ""), resource, namespace)
