"""Told to end: what a command does at Ctrl-C, SIGTERM and SIGHUP.

Ctrl-C is exit code 130. A command that starts processes in sessions of their own must end them
itself, since neither a terminal nor who sends it a signal reaches them.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

INTERRUPTED = 130
_ENDS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the block as Ctrl-C does, and then end this process."""
    asked: list[int] = []

    def unwind(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        interrupt = signal.getsignal(signal.SIGINT)  # asyncio's own, while it runs
        if callable(interrupt):
            interrupt(signal.SIGINT, frame)
        else:  # a shell ignores SIGINT for what it runs in the background
            raise KeyboardInterrupt

    before = {one: signal.signal(one, unwind) for one in _ENDS if not _ignored(one)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if asked:
            _die_by(asked[0])


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold back signals that would end the block; the first takes effect after it."""
    held: list[int] = []
    before = {
        one: signal.signal(one, lambda number, _frame: held.append(number))
        for one in (signal.SIGINT, *_ENDS)
        if not _ignored(one)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


def _ignored(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN


def _die_by(number: int) -> None:
    """End by the signal itself, so that a parent sees why; as process 1 by its exit code."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    os._exit(128 + number)
