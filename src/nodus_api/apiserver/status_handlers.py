"""FastAPI's own failures as Status, so that no client ever meets `{"detail": …}` (LW-201)."""

from fastapi import FastAPI
from fastapi import Request as FastAPIRequest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from nodus_api.apiserver.dependencies import AnswerResponse, chain_request
from nodus_api.apiserver.errors import StatusRenderer
from nodus_api.apiserver.reads import wants_indent
from nodus_api.metav1.errors import APIError, InternalError, NotFound


def add_status_handlers(app: FastAPI, statuses: StatusRenderer) -> None:
    """Let the one renderer answer for every exception that a route can end with."""

    def respond(request: FastAPIRequest, error: APIError) -> Response:
        ours = chain_request(request)
        answer = statuses.answer(error, ours.request_id, pretty=wants_indent(ours))
        return AnswerResponse(answer, ours)

    async def api_error(request: FastAPIRequest, error: Exception) -> Response:
        if not isinstance(error, APIError):
            raise error
        return respond(request, error)

    async def no_route(request: FastAPIRequest, _: Exception) -> Response:
        return respond(request, NotFound.path())

    async def crash(request: FastAPIRequest, _: Exception) -> Response:
        # the chain logs and counts it: the exception goes on to it after this answer
        return respond(request, InternalError(chain_request(request).request_id))

    app.add_exception_handler(APIError, api_error)
    app.add_exception_handler(HTTPException, no_route)
    app.add_exception_handler(RequestValidationError, no_route)
    app.add_exception_handler(Exception, crash)
