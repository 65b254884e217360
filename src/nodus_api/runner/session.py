"""Which processes of a session are alive, read from /proc (SC-710, SC-712)."""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_ROUNDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """The fields of /proc/PID/stat that tell processes apart."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    threads: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        """Whether anything of it still runs.

        A zombie is dead, even if its parent never reaps it. A leader that ended before its other
        threads is shown as a zombie too, but has threads left.
        """
        return self.state not in "ZXx" or self.threads > 1


def process_stat(pid: int) -> ProcessStat | None:
    """Return what the kernel says of a process, None if there is none."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command may hold spaces and brackets: the fields begin after its last bracket.
    fields = text[text.rindex(")") + 2 :].split()
    return ProcessStat(
        pid=pid,
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
    )


def pids() -> list[int]:
    """Return the number of every process that can be seen."""
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]


def members(session: int) -> list[ProcessStat]:
    """Return the live processes of a session."""
    stats = (process_stat(pid) for pid in pids())
    return [stat for stat in stats if stat and stat.session == session and stat.alive]


def kill_members(session: int, *, spare: int | None = None) -> None:
    """Send SIGKILL to every process of a session but `spare`, until no new one appears."""
    seen: set[tuple[int, int]] = set()
    for _ in range(_ROUNDS):
        found = [stat for stat in members(session) if stat.pid != spare]
        new = [stat for stat in found if (stat.pid, stat.start_ticks) not in seen]
        if not new:
            return
        for stat in new:
            seen.add((stat.pid, stat.start_ticks))
            with suppress(ProcessLookupError, PermissionError):
                os.kill(stat.pid, signal.SIGKILL)


def boot_id() -> str:
    """Return the identity of this run of the kernel; process numbers mean nothing beyond it."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def uptime() -> float:
    """Return the seconds since boot, of the clock that start ticks count from."""
    return float((_PROC / "uptime").read_text(encoding="ascii").split()[0])


def age_of(stat: ProcessStat) -> float:
    """Return the seconds since a process started, to a hundredth, at least 0."""
    return max(0.0, uptime() - stat.start_ticks / os.sysconf("SC_CLK_TCK"))
