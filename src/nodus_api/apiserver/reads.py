"""What get, list and watch of any resource share: options, form, pages, streams.

The hot path and the FastAPI routes of the same paths both end here, so that their bytes are equal.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from nodus_api.apiserver.answers import Answer, BodyAnswer
from nodus_api.apiserver.errors import StatusRenderer
from nodus_api.apiserver.metrics import Metrics
from nodus_api.apiserver.options import ServerOptions
from nodus_api.apiserver.render import Rendering, ResourceForm, indented_list
from nodus_api.apiserver.request import Request
from nodus_api.apiserver.streaming import StreamTimes, WatchSource, WatchStream
from nodus_api.apiserver.watches import RunningWatches
from nodus_api.clock import Clock, give_way
from nodus_api.metav1 import continue_token
from nodus_api.metav1.continue_token import Continuation, Seal
from nodus_api.metav1.errors import BadRequest, Expired
from nodus_api.metav1.golang import quote
from nodus_api.metav1.list_options import ListOptions
from nodus_api.metav1.negotiation import Form, negotiate
from nodus_api.metav1.objects import ListMeta, ShardInfo
from nodus_api.metav1.partial import LIST_END, indented
from nodus_api.metav1.query import is_pretty
from nodus_api.metav1.table import IncludeObject

HALF_HOUR = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTools:
    """What every resource's reads need."""

    clock: Clock
    chance: Callable[[], float]
    options: ServerOptions
    statuses: StatusRenderer
    metrics: Metrics
    watches: RunningWatches


def parse_options(request: Request, supported: Collection[str]) -> ListOptions:
    """Return the checked options of a list or watch. Raises BadRequest or Invalid."""
    info = request.info
    return ListOptions.parse(
        request.query,
        watch_allowed=info.verb == "watch",
        watch_forced=info.watch_path,
        name=info.name if info.watch_path and info.name else None,
        supported_fields=supported,
    )


def rendering_of(request: Request, form: ResourceForm, clock: Clock) -> Rendering:
    """Return the form that the request asks for; the answer may still refuse it (LW-053).

    Raises NotAcceptable.
    """
    representation = negotiate(request.header(b"accept"))
    return Rendering(
        form=form, representation=representation, include=IncludeObject.METADATA, now=clock.now()
    )


def including(request: Request, rendering: Rendering) -> Rendering:
    """Return the form with the objects beside a Table's rows that the request asks for.

    Raises BadRequest for an includeObject that a Table does not know; as kube-apiserver does, when
    the answer is made.
    """
    if rendering.representation.form is not Form.TABLE:
        return rendering
    return replace(rendering, include=IncludeObject.parse(request.query))


def object_name(request: Request) -> str:
    """Return the name that a get is for. Raises BadRequest for one that none can have (LW-014)."""
    name = request.info.name
    if name in (".", ".."):
        raise _no_name(name, f"may not be '{name}'")
    if "%" in name:
        raise _no_name(name, "may not contain '%'")
    return name


def _no_name(name: str, why: str) -> BadRequest:
    return BadRequest(
        f"Name parameter invalid: {quote(name)}: {why}",
        fix="Ask for a name of a list, such as `kubectl get attempts -o name` prints.",
    )


def shard_info(options: ListOptions) -> ShardInfo | None:
    """Return what tells a client that its shardSelector was honoured (LW-166)."""
    shards = options.shard_selector
    return None if shards is None else ShardInfo(selector=str(shards))


def expired_token(options: ListOptions, seal: Seal) -> Expired:
    """Return the 410 that hands out a token to go on with, inconsistently (LW-114)."""
    token = continue_token.decode(options.continue_, seal)
    fresh = Continuation(
        rev=continue_token.INCONSISTENT, name=token.name, namespace=token.namespace
    )
    return Expired.continue_token(continue_token.encode(fresh, seal))


def wants_indent(request: Request) -> bool:
    """Return whether the body is to be indented (LW-019)."""
    return is_pretty(request.query, user_agent=request.header(b"user-agent") or "")


def object_answer(request: Request, rendering: Rendering, body: bytes) -> BodyAnswer:
    """Return the answer to a get. Raises NotAcceptable for the form of a list."""
    rendering.representation.for_object(rendering.form.kind)
    found = including(request, rendering).object(body)
    return BodyAnswer.of(indented(found) if wants_indent(request) else found)


async def list_answer(
    request: Request, rendering: Rendering, metadata: ListMeta, bodies: Sequence[bytes]
) -> BodyAnswer:
    """Return the answer to a list.

    Plain JSON is joined as it is sent, since its length is known before; every other form is made
    here, in pieces with yields. Raises NotAcceptable for the form of one object.
    """
    rendering.representation.for_list(rendering.form.list_kind)
    rendering = including(request, rendering)
    head = rendering.list_head(metadata)
    pieces = rendering.list_pieces(bodies)
    if wants_indent(request):
        made = await _made(indented_list(head, pieces))
    elif rendering.representation.form is Form.JSON:
        commas = max(len(bodies) - 1, 0)
        length = len(head) + sum(map(len, bodies)) + commas + len(LIST_END)
        return BodyAnswer(pieces=chain((head,), pieces, (LIST_END,)), length=length)
    else:
        made = [head, *await _made(pieces), LIST_END]
    return BodyAnswer(pieces=made, length=sum(map(len, made)))


async def _made(pieces: Iterable[bytes]) -> list[bytes]:
    found = []
    for piece in pieces:
        found.append(piece)
        await give_way()
    return found


def watch_answer(
    tools: ReadTools,
    options: ListOptions,
    rendering: Rendering,
    begin: Callable[[], Awaitable[WatchSource]],
) -> Answer:
    """Return the stream that answers a watch."""
    drawn = HALF_HOUR + tools.chance() * HALF_HOUR
    return WatchStream(
        begin,
        options=options,
        rendering=replace(rendering, representation=rendering.representation.for_watch()),
        times=StreamTimes(
            lasts=options.watch_seconds(drawn),
            bookmark_interval=tools.options.bookmark_interval.total_seconds(),
            stuck=tools.options.stuck_watch_timeout.total_seconds(),
            stuck_in_the_way=tools.options.stuck_watch_in_the_way_timeout.total_seconds(),
        ),
        clock=tools.clock,
        statuses=tools.statuses,
        metrics=tools.metrics,
        opened=tools.watches.opened,
    )
