"""How a FastAPI route reaches the request of the chain, and sends an answer of ours."""

from typing import Annotated, Any

from fastapi import Depends
from fastapi import Request as FastAPIRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nodus_api.apiserver.answers import Answer
from nodus_api.apiserver.request import Request

SCOPE_KEY = "nodus.request"


class AnswerResponse(Response):
    """Sends an answer as it is: nothing is buffered, no header is added."""

    def __init__(self, answer: Answer, request: Request) -> None:
        super().__init__()
        self._answer = answer
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the answer; the chain's request stands for the scope."""
        await self._answer.send(self._request, receive, send)


def chain_request(request: FastAPIRequest) -> Request:
    """Return the request as the chain has read it."""
    found: Any = request.scope[SCOPE_KEY]
    if not isinstance(found, Request):
        raise TypeError("the request did not come through the chain")
    return found


def last_segment(request: FastAPIRequest) -> str:
    """Return what the route's last parameter stands for in the path.

    A dependency, because for a parameter that a route declares itself FastAPI makes a field, and
    loads all of pydantic's version 1 to find that it is none of its: a tenth of the server's start.
    """
    *_, last = request.path_params.values()
    return str(last)


ChainRequest = Annotated[Request, Depends(chain_request)]
LastSegment = Annotated[str, Depends(last_segment)]
