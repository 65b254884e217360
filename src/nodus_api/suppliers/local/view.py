"""What a work directory says of its machine: running, ended with an exit, or lost (SC-711)."""

import logging
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from nodus_api.runner.files import DELETING, EXIT, INTENT, read_json
from nodus_api.runner.session import age_of
from nodus_api.suppliers.local.faults import reclaim_of
from nodus_api.suppliers.local.processes import Processes
from nodus_api.suppliers.supplier import ExitRecord, MachineCondition, MachineView

logger = logging.getLogger(__name__)

_LONGEST_AGE_MS = 10 * 365 * 86_400_000
_MOST_BYTES = 2**63 - 1


def machine_view(directory: Path, now: datetime) -> MachineView | None:
    """Return the machine of a directory as it is now, None if the directory holds none.

    A machine whose runner never came to be, because the loop died between directory and spawn, is
    PENDING. The start of its billing is the start of the
    runner's process (SC-714).
    """
    installation = _installation(read_json(directory / INTENT))
    if installation is None:
        return None
    processes = Processes(directory)
    runner = processes.runner()
    # After the look at the process: a runner that is gone has written its last word before.
    ending = exit_record(read_json(directory / EXIT))
    started = processes.identity.started_at if processes.identity else None
    if started is None and runner is not None:
        started = now - timedelta(seconds=age_of(runner))
    reclaim = reclaim_of(directory)
    taken = reclaim.done if reclaim is not None and ending is None else None
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
        ended_at=ending.at - timedelta(seconds=ending.exit_age) if ending else taken,
        reclaimed=taken is not None and condition is MachineCondition.FAILED,
        exit=ending,
        installation=installation,
    )


def _installation(intent: dict[str, Any] | None) -> UUID | None:
    """Return whose machine an intent describes; None if it describes none."""
    try:
        return UUID(intent["installation"]) if intent else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def exit_record(value: dict[str, Any] | None) -> ExitRecord | None:
    """Return the runner's final report, None if there is none.

    The program could write the file too: one that cannot be a report is none, and no other
    machine's look suffers from it.
    """
    if value is None:
        return None
    try:
        at, exit_age = _aware(value["at"]), _seconds(value["exitAgeMs"]) or 0.0
        return ExitRecord(
            at=at,
            exit_code=_whole(value["exitCode"], 0, 255),
            signal=_whole(value["signal"], 1, 64),
            oom=value["oom"] is True,
            started_age=_seconds(value.get("startAgeMs")),
            exit_age=exit_age,
            stop_age=_seconds(value.get("stopAgeMs")),
            restored_bytes=_whole(value.get("restoreBytes"), 0, _MOST_BYTES),
            message=str(value["message"]),
            error=None if value["error"] is None else str(value["error"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        logger.warning("a final report cannot be read", extra={"cause": str(error)})
        return None


def _condition(*, begun: bool, alive: bool, ended: bool, deleting: bool) -> MachineCondition:
    if deleting:
        return MachineCondition.STOPPING
    if alive:
        return MachineCondition.RUNNING
    if ended:
        return MachineCondition.GONE
    return MachineCondition.FAILED if begun else MachineCondition.PENDING


def _aware(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("a moment without a zone")
    _ = at - timedelta(milliseconds=_LONGEST_AGE_MS)  # OverflowError: an age leads out of time
    return at


def _whole(value: object, least: int, most: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{value!r} is no number from {least} to {most}")
    return value


def _seconds(milliseconds: object) -> float | None:
    if milliseconds is None:
        return None
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        raise ValueError(f"{milliseconds!r} is no age")
    if not 0 <= milliseconds <= _LONGEST_AGE_MS:
        raise ValueError(f"{milliseconds!r} ms is no age")
    return milliseconds / 1000
