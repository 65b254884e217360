"""The live processes of a machine, found and signalled with no mistake about whose they are."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodus_api.runner.files import INTENT, read_json
from nodus_api.runner.identity import Identity, read_identity, read_spawned
from nodus_api.runner.session import ProcessStat, kill_members, members, pids, process_stat
from nodus_api.suppliers.local import cgroups, memory_groups


class Processes:
    """What runs for one work directory, as read at construction; make a new one for a new look.

    A runner whose spawner died before it could be recorded is found by its arguments until it
    has recorded itself.
    """

    def __init__(self, directory: Path) -> None:
        intent = read_json(directory / INTENT) or {}
        group = intent.get("cgroup")
        self.cgroup = Path(group) if group and isinstance(group, str) else None
        self.memory_group = _memory_group(intent, directory.name)
        self.identity: Identity | None = read_identity(directory) or read_spawned(directory)
        self._unclaimed = [] if self.identity else _runners_of(directory)

    def runner(self) -> ProcessStat | None:
        """Return the runner if it is alive, and reap it if it is a dead child of ours."""
        if self.identity is None:
            return self._unclaimed[0] if self._unclaimed else None
        stat = self.identity.process()
        if stat is not None and not stat.alive:
            _reap(stat)
            return None
        return stat

    def alive(self) -> list[ProcessStat]:
        """Return every live process of the session and of the cgroups."""
        found = {stat.pid: stat for stat in self._unclaimed if _same(stat)}
        session = self._session()
        if session is not None:
            found.update((stat.pid, stat) for stat in members(session))
        if self.cgroup is not None and cgroups.populated(self.cgroup):
            stats = (process_stat(pid) for pid in cgroups.pids(self.cgroup))
            found.update((stat.pid, stat) for stat in stats if stat and stat.alive)
        if self.memory_group is not None:
            found.update((stat.pid, stat) for stat in memory_groups.members(self.memory_group))
        return sorted(found.values(), key=lambda stat: stat.pid)

    def empty(self) -> bool:
        """Whether nothing of the machine is alive; a cgroup that says so needs no search."""
        if self.cgroup is not None and cgroups.populated(self.cgroup):
            return False
        return not self.alive()

    def signal_groups(self, number: int) -> None:
        """Signal every process group of the machine."""
        for group in sorted({stat.group for stat in self.alive()}):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)

    def kill(self) -> None:
        """Send SIGKILL to everything, the runner first, so that it reports nothing of this."""
        runner = self.runner()
        if runner is not None:
            with suppress(ProcessLookupError):
                os.kill(runner.pid, signal.SIGKILL)
        if self.cgroup is not None:
            cgroups.kill(self.cgroup)
        session = self._session()
        if session is not None:
            kill_members(session)
        for stat in self.alive():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(stat.pid, signal.SIGKILL)

    def _session(self) -> int | None:
        """Return the session's number; without a record, that of the runner found by name."""
        if self.identity is not None:
            return self.identity.session()
        return self._unclaimed[0].session if self._unclaimed else None


def _memory_group(intent: dict[str, Any], key: str) -> Path | None:
    """Return a machine's memory group: as its intent names it; without one, as its name tells.

    The program could have written the intent anew: a group of another name is none of its own.
    """
    named = intent.get("memory_group")
    if intent and named is None:
        return None
    if isinstance(named, str) and memory_groups.key_of(Path(named)) == key:
        return Path(named)
    base = memory_groups.base()
    return memory_groups.found(base).get(key) if base is not None else None


def _runners_of(directory: Path) -> list[ProcessStat]:
    """Return the runners that were spawned for a directory, whether or not they claimed it."""
    wanted = os.fsencode(directory)
    found: list[ProcessStat] = []
    for pid in pids():
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if b"nodus_api.runner" in arguments and wanted in arguments:
            stat = process_stat(pid)
            if stat is not None and stat.alive:
                found.append(stat)
    return found


def _same(stat: ProcessStat) -> bool:
    now = process_stat(stat.pid)
    return now is not None and now.start_ticks == stat.start_ticks and now.alive


def _reap(stat: ProcessStat) -> None:
    """Take a zombie from the process table if this process is its parent; nobody else would."""
    if stat.parent == os.getpid():
        with suppress(ChildProcessError):
            os.waitpid(stat.pid, os.WNOHANG)
