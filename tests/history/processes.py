"""Which machines of the local supplier truly run, seen in /proc and not asked of the supplier."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tests.history.facts import Machine


def machines_of(folder: Path, kept: Iterable[tuple[str, str, str]]) -> tuple[Machine, ...]:
    """Return the machines of `kept` (key, state, Attempt), alive if any process of theirs is.

    A runner names its machine's directory in its arguments, a program its Attempt in its
    environment.
    """
    arguments, environments = set(), set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            arguments.update(Path("/proc", pid, "cmdline").read_bytes().split(b"\0"))
        with suppress(OSError):
            environments.update(Path("/proc", pid, "environ").read_bytes().split(b"\0"))
    return tuple(
        Machine(
            key=key,
            state=state,
            attempt=attempt,
            alive=os.fsencode(folder / key) in arguments
            or f"NODUS_ATTEMPT={attempt}".encode() in environments,
        )
        for key, state, attempt in kept
    )
