"""Faults that a local machine is given on purpose, each by what a real one does (SC-630).

Everything is in the machine's directory, so a restarted loop goes on with it, and a repeat
changes nothing. Nobody watches the clock for a reclaim: whoever looks at the machine after its
deadline takes it away, which the loop does each 5 s.
"""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from nodus_api.runner.files import RECLAIM, UNFIT, read_json, write_json
from nodus_api.runner.identity import read_identity
from nodus_api.suppliers.local.processes import Processes
from nodus_api.suppliers.supplier import FaultInjection, Invalid

KINDS = ("preemption", "node-loss", "heartbeat", "readiness")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim:
    """A machine that was or will be taken away: `done` is when, None while it is not."""

    deadline: datetime
    done: datetime | None = None


def make_fault(directory: Path, fault: FaultInjection, now: datetime) -> None:
    """Make a fault of a machine, once; raises Invalid if the machine cannot have it."""
    processes = Processes(directory)
    match fault.kind:
        case "preemption":
            if reclaim_of(directory) is None:  # the first deadline stands
                deadline = now + (fault.notice or timedelta(0))
                write_json(directory / RECLAIM, {"deadline": deadline.isoformat()})
            take_if_due(directory, now)
        case "node-loss":
            processes.kill()
        case "heartbeat":
            _signal_runner(processes, signal.SIGSTOP)
        case "readiness":
            write_json(directory / UNFIT, {"failed": ["the host found this machine unfit (drill)"]})
            if read_identity(directory) is not None:  # else it has yet to look
                _signal_runner(processes, signal.SIGUSR1)
        case _:
            raise Invalid(f"no fault is called {fault.kind!r}: use one of {', '.join(KINDS)}")


def reclaim_of(directory: Path) -> Reclaim | None:
    """Return the reclaim of a machine; None if none was announced."""
    record = read_json(directory / RECLAIM) or {}
    deadline = _moment(record, "deadline")
    return None if deadline is None else Reclaim(deadline=deadline, done=_moment(record, "done"))


def take_if_due(directory: Path, now: datetime) -> Reclaim | None:
    """Kill a machine whose deadline has passed, its runner first, and return its reclaim.

    Noted before it is done: a reclaim that was cut short is repeated by the next look.
    """
    reclaim = reclaim_of(directory)
    if reclaim is None or now < reclaim.deadline:
        return reclaim
    processes = Processes(directory)
    if processes.empty():
        return reclaim
    done = reclaim.done or now
    record = {"deadline": reclaim.deadline.isoformat(), "done": done.isoformat()}
    write_json(directory / RECLAIM, record)
    processes.kill()
    return Reclaim(deadline=reclaim.deadline, done=done)


def _signal_runner(processes: Processes, number: int) -> None:
    runner = processes.runner()
    if runner is None:
        raise Invalid("the machine's runner does not run")
    with suppress(ProcessLookupError):
        os.kill(runner.pid, number)


def _moment(record: dict[str, Any], name: str) -> datetime | None:
    """Return a moment of a record that the program could have written too."""
    try:
        moment = datetime.fromisoformat(record[name])
    except (KeyError, TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None
