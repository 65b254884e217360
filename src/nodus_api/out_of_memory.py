"""A part that has no memory left ends, to be started again: half of it would be worse (F30).

MemoryError comes wherever something was to be made, and is caught by whoever goes on after any
error. They all log it, so the log is where it is met.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EXIT_CODE = 1
_RESERVE_BYTES = 4 * 1024 * 1024
_DEEPEST = 16

log = logging.getLogger(__name__)


@contextmanager
def ends_the_process(leave: Callable[[int], object] = os._exit) -> Iterator[None]:
    """End this process, with one line of the log, as soon as a MemoryError is logged in the block.

    Nothing is drained: that would need memory, too. Clients resume on another replica.
    """
    watching = _Watching(leave)
    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(watching)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(watching)


class _Watching(logging.Filter):
    def __init__(self, leave: Callable[[int], object]) -> None:
        super().__init__()
        self._leave = leave
        self._reserve: bytes | None = bytes(_RESERVE_BYTES)  # for the line itself

    def filter(self, record: logging.LogRecord) -> bool:
        """Let pass what is about anything else."""
        error = record.exc_info[1] if record.exc_info else None
        if not _is_memory(error):
            return True
        if self._reserve is not None:
            self._reserve = None
            log.critical("out of memory: this process ends, to be started again")
            self._leave(EXIT_CODE)
        return False


def _is_memory(error: BaseException | None) -> bool:
    """Whether an error is a lack of memory, or comes of one."""
    for _ in range(_DEEPEST):
        if isinstance(error, BaseExceptionGroup):
            return any(map(_is_memory, error.exceptions))
        if error is None or isinstance(error, MemoryError):
            break
        error = error.__cause__ or error.__context__
    return isinstance(error, MemoryError)
