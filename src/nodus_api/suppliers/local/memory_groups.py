"""A cgroup v1 memory group a machine, where cgroup v2 has no memory controller (SC-713).

It limits memory and nothing else: which processes a machine has is told by its session and, where
there is one, its cgroup v2. A group is named in the machine's intent before it is made and removed
before the machine's directory is, so that whoever finds the directory finds the group. One whose
directory somebody else removed is found by its name.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid5

from nodus_api.runner.session import ProcessStat, process_stat

_NAME = re.compile(r"nodus-([0-9a-f]{32})-(.+)")
_LIMIT = "memory.limit_in_bytes"
_LIMIT_WITH_SWAP = "memory.memsw.limit_in_bytes"


def base() -> Path | None:
    """Return this process' own memory group if groups can be made in it, else None."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    own = next((path for _, names, path in map(_fields, groups) if "memory" in names), None)
    folder = folder_of(mounts, own) if own is not None else None
    usable = folder is not None and (folder / _LIMIT).exists() and os.access(folder, os.W_OK)
    return folder if usable else None


def folder_of(mounts: list[str], own: str) -> Path | None:
    """Return the folder of a group: a mount may show a part of the tree alone, its root."""
    for line in mounts:
        mount, _, kind = line.partition(" - ")
        if not kind.startswith("cgroup ") or "memory" not in kind.split()[2].split(","):
            continue
        root, point = mount.split()[3:5]
        below = os.path.relpath(own, root)
        return Path(point) / below if not below.startswith("..") else Path(point)
    return None


def owner_of(installation: UUID, root: Path) -> str:
    """Return what the names of one installation's groups have in common, for one root of it."""
    return uuid5(installation, str(root)).hex


def place(base: Path, owner: str, key: str) -> Path:
    """Return where a machine's group belongs."""
    return base / f"nodus-{owner}-{key}"


def key_of(group: Path, owner: str | None = None) -> str | None:
    """Return the key of the machine whose group this is, None if it is none of this owner."""
    match = _NAME.fullmatch(group.name)
    if match is None or (owner is not None and match[1] != owner):
        return None
    return match[2]


def found(base: Path, owner: str | None = None) -> dict[str, Path]:
    """Return the groups in a folder by their machines' keys."""
    try:
        groups = [base / name for name in sorted(os.listdir(base))]
    except OSError:
        return {}
    keys = [key_of(group, owner) for group in groups]
    return {key: group for key, group in zip(keys, groups, strict=True) if key is not None}


def make(group: Path, memory_bytes: int) -> bool:
    """Make a group with its limit, or find it so; False if the kernel refuses."""
    with suppress(OSError):
        group.mkdir(exist_ok=True)
        (group / _LIMIT).write_text(str(memory_bytes), encoding="ascii")
        with suppress(FileNotFoundError):  # no accounting of swap: then the limit is RAM's alone
            (group / _LIMIT_WITH_SWAP).write_text(str(memory_bytes), encoding="ascii")
    return _limited(group, memory_bytes)


def members(group: Path) -> list[ProcessStat]:
    """Return the live processes of a group."""
    try:
        text = (group / "cgroup.procs").read_text(encoding="ascii")
    except OSError:
        return []
    stats = (process_stat(int(line)) for line in text.split())
    return [stat for stat in stats if stat and stat.alive]


def remove(group: Path) -> bool:
    """Remove a group without processes; False if it is still there."""
    with suppress(OSError):
        group.rmdir()
    return not group.exists()


def _limited(group: Path, memory_bytes: int) -> bool:
    """Whether a group has the limit; the kernel counts whole pages."""
    with suppress(OSError, ValueError):
        return int((group / _LIMIT).read_text(encoding="ascii")) <= memory_bytes
    return False


def _fields(line: str) -> tuple[str, list[str], str]:
    """Split a line of /proc/self/cgroup: `4:memory:/path`."""
    number, names, path = line.split(":", 2)
    return number, names.split(","), path
