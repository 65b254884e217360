"""What a work directory says of its machine: running, ended with an exit, or lost (SC-711)."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from nodus_api.runner.files import DELETING, EXIT, INTENT, read_json
from nodus_api.runner.session import age_of
from nodus_api.suppliers.local.processes import Processes
from nodus_api.suppliers.supplier import ExitRecord, MachineCondition, MachineView

_LONGEST_AGE_MS = 10 * 365 * 86_400_000
_Age = Annotated[int, Field(ge=0, le=_LONGEST_AGE_MS)]


def machine_view(directory: Path, now: datetime) -> MachineView | None:
    """Return the machine of a directory as it is now, None if the directory holds none.

    A machine whose runner never came to be, because the loop died between directory and spawn, is
    PENDING. The start of its billing is the start of the
    runner's process (SC-714).
    """
    installation = _installation(read_json(directory / INTENT) or {})
    if installation is None:
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
        installation=installation,
    )


def _written(value: object) -> datetime:
    if not isinstance(value, str):
        raise ValueError("a moment is written as text")
    return datetime.fromisoformat(value)


def exit_record(value: dict[str, Any] | None) -> ExitRecord | None:
    """Return the runner's final report; None if there is none, or what is there is no such thing.

    A program can write to its work directory: what it leaves there may cost its own machine, but
    never the view of the others.
    """
    if value is None:
        return None
    try:
        return _ExitFile.model_validate(value).record()
    except (ValidationError, OverflowError):
        return None


class _ExitFile(BaseModel):
    """`exit.json` as the runner writes it."""

    model_config = ConfigDict(strict=True)

    at: Annotated[AwareDatetime, BeforeValidator(_written)]
    exit_code: Annotated[int, Field(ge=0, le=255)] | None = Field(alias="exitCode")
    signal: Annotated[int, Field(ge=1, le=64)] | None
    oom: bool
    started_age: _Age | None = Field(None, alias="startAgeMs")
    exit_age: _Age = Field(alias="exitAgeMs")
    stop_age: _Age | None = Field(None, alias="stopAgeMs")
    message: str
    error: str | None

    def record(self) -> ExitRecord:
        return ExitRecord(
            at=self.at,
            exit_code=self.exit_code,
            signal=self.signal,
            oom=self.oom,
            started_age=_seconds(self.started_age),
            exit_age=_seconds(self.exit_age) or 0.0,
            stop_age=_seconds(self.stop_age),
            message=self.message,
            error=self.error,
        )


def _installation(intent: dict[str, Any]) -> UUID | None:
    try:
        return UUID(intent["installation"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


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
