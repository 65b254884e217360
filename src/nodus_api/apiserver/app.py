"""Joins the parts of one replica's HTTP side into one ASGI application."""

from collections.abc import Callable
from uuid import UUID

from nodus_api.apiserver.access import AccessSource
from nodus_api.apiserver.options import ServerOptions
from nodus_api.clock import Clock
from nodus_api.watchcache import AttemptCache


class ApiServer:
    """The ASGI application of one replica."""


def create_app(
    *,
    cache: AttemptCache,
    access: AccessSource,
    clock: Clock,
    new_id: Callable[[], UUID],
    chance: Callable[[], float],
    version: str,
    options: ServerOptions | None = None,
) -> ApiServer:
    """Return the application; `chance` gives uniform numbers in [0, 1), `new_id` request ids."""
    raise NotImplementedError
