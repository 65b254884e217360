"""A cgroup a machine, where cgroup v2 is writable: whom it holds, its limit, its end (SC-712)."""

import os
from contextlib import suppress
from pathlib import Path

from nodus_api.runner.cgroup import PROGRAM, RUNNER

_PREFIX = "nodus-"


def base() -> Path | None:
    """Return this process' own cgroup v2 folder if groups can be made in it, else None."""
    mounted = _mount_point()
    own = _own_path()
    if mounted is None or own is None:
        return None
    folder = mounted / own.lstrip("/")
    return folder if os.access(folder, os.W_OK) else None


def memory_base() -> Path | None:
    """Return `base` if its memory controller was delegated to us, so that a group can limit it."""
    folder = base()
    try:
        switched_on = folder and (folder / "cgroup.subtree_control").read_text(encoding="ascii")
    except OSError:
        return None
    return folder if switched_on and "memory" in switched_on.split() else None


def group_of(folder: Path, key: str) -> Path:
    """Return where a machine's cgroup is, whether or not it is there."""
    return folder / f"{_PREFIX}{key}"


def make(folder: Path, key: str, memory_bytes: int | None) -> Path | None:
    """Make a machine's cgroup with its two leaves; None if the kernel refuses.

    The memory limit is set on the program's leaf where the memory controller was delegated to us;
    we never switch controllers on in a folder that is not ours.
    """
    group = group_of(folder, key)
    try:
        for leaf in (group, group / RUNNER, group / PROGRAM):
            leaf.mkdir(exist_ok=True)
        if memory_bytes is not None and (group / "memory.max").exists():
            _write(group / "cgroup.subtree_control", "+memory")
            _write(group / PROGRAM / "memory.max", str(memory_bytes))
    except OSError:
        remove(group)
        return None
    return group


def populated(group: Path) -> bool:
    """Whether a live process is in the group or below it; zombies do not count."""
    try:
        events = (group / "cgroup.events").read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    return "populated 1" in events


def pids(group: Path) -> list[int]:
    """Return the processes of a machine's group."""
    found: list[int] = []
    for leaf in (RUNNER, PROGRAM):
        with suppress(OSError):
            text = (group / leaf / "cgroup.procs").read_text(encoding="ascii")
            found.extend(int(line) for line in text.split())
    return found


def kill(group: Path) -> None:
    """Send SIGKILL to every process of the group at once; nothing where the kernel cannot."""
    with suppress(OSError):
        _write(group / "cgroup.kill", "1")


def remove(group: Path) -> None:
    """Remove a group without live processes; one that has some stays."""
    for leaf in (group / RUNNER, group / PROGRAM, group):
        with suppress(OSError):
            leaf.rmdir()


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")


def _mount_point() -> Path | None:
    """Return where cgroup v2 is mounted: the fields after the lone dash name the type."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        mount, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            return Path(mount.split()[4])
    return None


def _own_path() -> str | None:
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line[3:] for line in lines if line.startswith("0::")), None)
