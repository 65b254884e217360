"""Which machines of the local supplier truly run, seen in /proc and not asked of the supplier."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tests.history.facts import Machine


def running(folder: Path, machines: Iterable[Machine]) -> set[str]:
    """Return the keys of those of `machines` of which any process is.

    A runner names its machine's directory in its arguments, a program its Attempt in its
    environment.
    """
    arguments, environments = set(), set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            arguments.update(Path("/proc", pid, "cmdline").read_bytes().split(b"\0"))
        with suppress(OSError):
            environments.update(Path("/proc", pid, "environ").read_bytes().split(b"\0"))
    return {
        one.key
        for one in machines
        if os.fsencode(folder / one.key) in arguments
        or f"NODUS_ATTEMPT={one.attempt}".encode() in environments
    }
