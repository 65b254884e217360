"""Reads that go on while the schema changes under them, as in a rolling update.

The driver keeps statements prepared. One whose columns a migration gave other types is refused
once; the refusal makes SQLAlchemy drop what every connection has prepared.
"""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from nodus_api.storage.errors import StatementOutdated

P = ParamSpec("P")
T = TypeVar("T")


def again_if_migrated(
    read: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Let a read, which changes nothing, run a second time where its statement was outdated."""

    @functools.wraps(read)
    async def again(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await read(*args, **kwargs)
        except StatementOutdated:
            return await read(*args, **kwargs)

    return again
