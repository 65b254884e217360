"""The machine's cgroup as the runner sees it: one leaf for itself, one for the program (SC-713).

Beside it there may be a memory group of cgroup v1, for the program alone.
"""

import os
import threading
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


def enter_memory_group(group: Path) -> None:
    """Move the calling thread, and so what it starts, into a memory group; raises OSError.

    The thread alone, because memory is charged where the process' first thread is: so the runner
    never comes under the program's limit.
    """
    (group / "tasks").write_text(str(threading.get_native_id()), encoding="ascii")


def kill_program(cgroup: Path) -> None:
    """Kill what is left of the program, also what has left the session."""
    with suppress(
        OSError
    ):  # before Linux 5.14 there is no cgroup.kill: the session is killed alone
        (cgroup / PROGRAM / "cgroup.kill").write_text("1", encoding="ascii")


def killed_for_memory(cgroup: Path | None, memory_group: Path | None) -> int:
    """Return how many of the program's processes were killed because memory ran out."""
    kills = 0
    if cgroup is not None:
        kills += _count(cgroup / PROGRAM / "memory.events")
    if memory_group is not None:
        kills += _count(memory_group / "memory.oom_control")
    return kills


def _count(path: Path) -> int:
    """Return the value of the line `oom_kill N`, 0 if there is none."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
