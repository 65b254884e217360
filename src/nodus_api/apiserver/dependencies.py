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


ChainRequest = Annotated[Request, Depends(chain_request)]
