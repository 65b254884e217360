"""What a work directory says of its machine: running, ended with an exit, or lost (SC-711)."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from nodus_api.runner.files import DELETING, EXIT, INTENT, read_json
from nodus_api.runner.session import age_of
from nodus_api.suppliers.local.processes import Processes
from nodus_api.suppliers.supplier import ExitRecord, MachineCondition, MachineView


def machine_view(directory: Path, now: datetime) -> MachineView | None:
    """Return the machine of a directory as it is now, None if the directory holds none.

    A machine whose runner never came to be, because the loop died between directory and spawn, is
    PENDING. The start of its billing is the start of the
    runner's process (SC-714).
    """
    intent = read_json(directory / INTENT)
    if intent is None:
        return None
    processes = Processes(directory)
    runner = processes.runner()
    # After the look at the process: a runner that is gone has written its last word before.
    ending = exit_record(read_json(directory / EXIT))
    started = processes.identity.started_at if processes.identity else None
    if started is None and runner is not None:
        started = now - timedelta(seconds=age_of(runner))
    condition = _condition(
        begun=started is not None,
        alive=runner is not None,
        ended=ending is not None,
        deleting=(directory / DELETING).exists(),
    )
    return MachineView(
        handle=directory.name,
        key=directory.name,
        condition=condition,
        billing_start=started,
        ended_at=ending.at - timedelta(seconds=ending.exit_age) if ending else None,
        exit=ending,
        installation=UUID(intent["installation"]),
    )


def exit_record(value: dict[str, Any] | None) -> ExitRecord | None:
    """Return the runner's final report, None if there is none."""
    if value is None:
        return None
    return ExitRecord(
        at=datetime.fromisoformat(value["at"]),
        exit_code=value["exitCode"],
        signal=value["signal"],
        oom=value["oom"],
        started_age=_seconds(value.get("startAgeMs")),
        exit_age=_seconds(value["exitAgeMs"]) or 0.0,
        stop_age=_seconds(value.get("stopAgeMs")),
        message=value["message"],
        error=value["error"],
    )


def _condition(*, begun: bool, alive: bool, ended: bool, deleting: bool) -> MachineCondition:
    if deleting:
        return MachineCondition.STOPPING
    if alive:
        return MachineCondition.RUNNING
    if ended:
        return MachineCondition.GONE
    return MachineCondition.FAILED if begun else MachineCondition.PENDING


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
