"""What a simulated program does: as its environment says, else as its fleet's profile draws it.

`SIMULATED_SECONDS` (a number, or `forever`) is how long it runs, whatever the class;
`SIMULATED_WORK_SECONDS` the same at speed 1. `SIMULATED_EXIT_CODE`, `SIMULATED_SIGNAL` and
`SIMULATED_OUT_OF_MEMORY=1` are how it ends. `SIMULATED_START_ERROR` (a reason such as
ImagePullFailed) keeps it from starting, and `SIMULATED_START_MESSAGE` says why.
`SIMULATED_ON_STOP` is its exit code after a stop signal, or `ignore`; `SIMULATED_STOP_SECONDS`
how long that takes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from nodus_api.suppliers.simulated.chance import Chance
from nodus_api.suppliers.simulated.model import FleetModel
from nodus_api.suppliers.supplier import MachineIntent

PREFIX = "SIMULATED_"
_KILLED, _TERMINATED = 9, 15
_SIGNALLED = 128
_HIGHEST = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramModel:
    """One program's run, drawn before it begins. Lengths are of the fleet's clock."""

    length: timedelta | None
    """Of the whole work on this machine, without what was saved before; None never ends."""
    exit_code: int = 0
    signal: int | None = None
    oom: bool = False
    ends_at: float = 1.0
    """The share of the remaining work after which it ends; below 1 where it fails on the way."""
    error: str | None = None
    """Why it cannot start."""
    message: str = ""
    on_stop: int | None = _SIGNALLED + _TERMINATED
    """Its exit code after a stop signal; None ignores it."""
    stopping: timedelta = timedelta(0)


def name_of(intent: MachineIntent) -> str:
    """Return `project/owner/slot/epoch`, by which scripts and chance know an Attempt.

    Unlike the key it is the same in every database.
    """
    own = intent.incarnation
    owner = next((text for tag, text in sorted(intent.tags.items()) if tag != "project"), "-")
    return f"{own.project}/{owner}/{own.slot}/{intent.epoch}"


def program_of(
    intent: MachineIntent, model: FleetModel, speed: float, chance: Chance
) -> ProgramModel:
    """Draw the run of an intent's program on a class of `speed`; `chance` is the fleet's.

    The work is the slot's, whichever epoch does it; how a run ends is its epoch's.
    """
    said = {
        name.removeprefix(PREFIX): text
        for name, text in intent.program.environment.items()
        if name.startswith(PREFIX)
    }
    try:
        return _said(said, model) or _drawn(intent, said, model, speed, chance)
    except ValueError as error:
        return ProgramModel(length=None, error="StartFailed", message=str(error))


def _said(said: Mapping[str, str], model: FleetModel) -> ProgramModel | None:
    """Return the program of which everything is said; None if its length is to be drawn."""
    if "START_ERROR" in said:
        message = said.get("START_MESSAGE", f"as {PREFIX}START_ERROR says")
        return ProgramModel(length=None, error=said["START_ERROR"], message=message)
    if "SECONDS" not in said:
        return None
    forever = said["SECONDS"] == "forever"
    length = None if forever else _seconds(said, "SECONDS") / model.speed
    return _ending_as(said, _stopping_as(said, ProgramModel(length=length), model))


def _drawn(
    intent: MachineIntent, said: Mapping[str, str], model: FleetModel, speed: float, chance: Chance
) -> ProgramModel:
    slot, run = name_of(intent).rpartition("/")[0], chance.of(name_of(intent))
    profile = model.programs
    work = chance.of(slot).length("work", profile.work)
    if "WORK_SECONDS" in said:
        work = _seconds(said, "WORK_SECONDS") / model.speed
    program = _stopping_as(said, ProgramModel(length=work / speed), model)
    if said.keys() & {"EXIT_CODE", "SIGNAL", "OUT_OF_MEMORY"}:
        return _ending_as(said, program)
    point = run.uniform("ending")
    if point < profile.unstartable:
        return replace(program, error="StartFailed", message="the program cannot start")
    point -= profile.unstartable
    if point >= profile.out_of_memory + profile.failing:
        return program
    failing = replace(program, ends_at=run.uniform("end on the way"), exit_code=1)
    return _out_of_memory(failing) if point < profile.out_of_memory else failing


def _ending_as(said: Mapping[str, str], program: ProgramModel) -> ProgramModel:
    if said.get("OUT_OF_MEMORY") == "1":
        return _out_of_memory(program)
    if "SIGNAL" in said:
        number = _whole(said, "SIGNAL", most=64)
        return replace(program, exit_code=_SIGNALLED + number, signal=number)
    return replace(program, exit_code=_whole(said, "EXIT_CODE") if "EXIT_CODE" in said else 0)


def _out_of_memory(program: ProgramModel) -> ProgramModel:
    return replace(program, exit_code=_SIGNALLED + _KILLED, signal=_KILLED, oom=True)


def _stopping_as(said: Mapping[str, str], program: ProgramModel, model: FleetModel) -> ProgramModel:
    takes = model.programs.stopping
    if "STOP_SECONDS" in said:
        takes = _seconds(said, "STOP_SECONDS") / model.speed
    if said.get("ON_STOP") == "ignore":
        return replace(program, on_stop=None, stopping=takes)
    code = _whole(said, "ON_STOP") if "ON_STOP" in said else program.on_stop
    return replace(program, on_stop=code, stopping=takes)


def _seconds(said: Mapping[str, str], name: str) -> timedelta:
    try:
        seconds = timedelta(seconds=float(said[name]))
    except (ValueError, OverflowError):
        raise ValueError(f"{PREFIX}{name} is a number of seconds, not {said[name]!r}") from None
    if seconds < timedelta(0):
        raise ValueError(f"{PREFIX}{name} is a number of seconds, not {said[name]!r}")
    return seconds


def _whole(said: Mapping[str, str], name: str, *, most: int = _HIGHEST) -> int:
    text = said[name]
    if not text.isdecimal() or int(text) > most:
        raise ValueError(f"{PREFIX}{name} is a whole number up to {most}, not {text!r}")
    return int(text)
