"""The machine's cgroup as the runner sees it: one leaf for itself, one for the program (SC-713)."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

RUNNER = "runner"
PROGRAM = "program"


def enter(cgroup: Path, leaf: str) -> None:
    """Move this process into a leaf of the machine's cgroup; raises OSError."""
    (cgroup / leaf / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


@contextmanager
def program_leaf(cgroup: Path | None) -> Iterator[None]:
    """Start children in the program's leaf while the block runs.

    The runner goes there and back itself: so no child can fork before it is moved. If the group
    has been taken away, that is not the program's fault: it starts in the runner's.
    """
    with suppress(OSError):
        if cgroup is not None:
            enter(cgroup, PROGRAM)
    try:
        yield
    finally:
        with suppress(OSError):
            if cgroup is not None:
                enter(cgroup, RUNNER)


def kill_program(cgroup: Path) -> None:
    """Kill what is left of the program, also what has left the session."""
    with suppress(
        OSError
    ):  # before Linux 5.14 there is no cgroup.kill: the session is killed alone
        (cgroup / PROGRAM / "cgroup.kill").write_text("1", encoding="ascii")


def out_of_memory(cgroup: Path) -> bool:
    """Whether the memory limit killed a process of the program."""
    try:
        events = (cgroup / PROGRAM / "memory.events").read_text(encoding="ascii")
    except OSError:
        return False
    return any(int(line.split()[1]) > 0 for line in events.splitlines() if "oom_kill " in line)
