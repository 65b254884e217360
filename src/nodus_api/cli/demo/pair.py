"""The program of the demo's gang: ranks that share the fits among them, and meet after each round.

Run as `python -m nodus_api.cli.demo.pair FOLDER JOB STEPS SECONDS`. In a round each rank does one
step; rank 0 listens at the rendezvous, collects the others' fits and hands all of them back, so
that every rank holds all fits in the order of their steps. A rank that loses the others waits to
be stopped: it is the scheduler that starts the gang again.
"""

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

from nodus_api.cli.demo import decay, work

SAVES = 6
_RETRY_SECONDS = 0.05


@contextmanager
def met(rank: int, size: int, rendezvous: str) -> Iterator[list[TextIO]]:
    """Yield the streams to the other ranks, in their order; of rank 0's alone for the others."""
    host, _, port = rendezvous.rpartition(":")
    with ExitStack() as stack:
        if rank > 0:
            yield [stack.enter_context(_connected(host, int(port)).makefile("rw"))]
            return
        listener = stack.enter_context(socket.create_server((host, int(port)), reuse_port=False))
        streams: dict[int, TextIO] = {}
        while len(streams) < size - 1:
            stream = stack.enter_context(listener.accept()[0].makefile("rw"))
            streams[receive(stream)] = stream
        yield [streams[other] for other in sorted(streams)]


def _connected(host: str, port: int) -> socket.socket:
    """Return a connection to rank 0, which may not listen yet."""
    while True:
        try:
            return socket.create_connection((host, port))
        except ConnectionRefusedError:
            select.select([], [], [], _RETRY_SECONDS)


def send(stream: TextIO, value: object) -> None:
    """Send one value as a line."""
    stream.write(json.dumps(value) + "\n")
    stream.flush()


def receive(stream: TextIO) -> Any:
    """Return the next value; raises EOFError when the other end is gone."""
    line = stream.readline()
    if not line:
        raise EOFError
    return json.loads(line)


def exchange(rank: int, streams: list[TextIO], own: decay.Vector) -> list[decay.Vector]:
    """Give this rank's fit and return those of all, in the order of the ranks."""
    if rank > 0:
        send(streams[0], own)
        return [(a, k, c) for a, k, c in receive(streams[0])]
    others = [receive(one) for one in streams]
    fits = [own, *((a, k, c) for a, k, c in others)]
    for one in streams:
        send(one, fits)
    return fits


def main(folder: Path, job: str, steps: int, seconds: float) -> int:
    """Do this rank's share of what is left, and return the exit code."""
    rank, size = int(os.environ["NODUS_RANK"]), int(os.environ["NODUS_SIZE"])
    diary, pace = work.Diary(folder, job), work.Pace(seconds * size / steps)
    fits = work.restored()
    with met(rank, size, os.environ["NODUS_RENDEZVOUS"]) as streams:
        if rank > 0:
            send(streams[0], rank)
        try:
            while len(fits) < steps:
                fits += exchange(rank, streams, decay.step(len(fits) + rank))
                diary.step(len(fits) - size + rank)
                pace.keep()
                if len(fits) % max(steps // SAVES, 1) == 0 and len(fits) < steps:
                    work.save(fits, steps)
        except (OSError, EOFError):
            sys.stderr.write("another rank is gone\n")
            while True:
                signal.pause()
    return 0 if diary.result(fits) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
