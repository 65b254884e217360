"""Recorders beside several servers at once, whose histories are one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tests.history.checking import LIVES, WIRE, Checker, assert_sound
from tests.history.facts import History
from tests.history.recording import Recorder, Server


@contextmanager
def together(
    servers: Sequence[Server], *, checkers: tuple[Checker, ...] = (*WIRE, *LIVES)
) -> Iterator[list[Recorder]]:
    """Record replicas from now on; leaving it without an error checks what was seen of all."""
    recorders = [Recorder(one, checkers=checkers) for one in servers]
    for one in recorders:
        one.by_the_clock_of(recorders[0])
    try:
        for one in recorders:
            one.start()
        yield recorders
        assert_sound(merged([one.history() for one in recorders]), checkers)
    finally:
        for one in recorders:
            one.stop()


def merged(histories: Sequence[History]) -> History:
    """Return the history of one server out of those of its replicas.

    Streams of equal names are of different clients; answers are those of one client, who goes
    from one replica to the other.
    """
    newest = max(histories, key=lambda one: len(one.log))
    return replace(
        newest,
        streams=tuple(
            replace(stream, client=f"{n}-{stream.client}")
            for n, one in enumerate(histories, 1)
            for stream in one.streams
        ),
        answers=tuple(answer for one in histories for answer in one.answers),
        heads=tuple(head for one in histories for head in one.heads),
        kills=tuple(kill for one in histories for kill in one.kills or ()),
    )
