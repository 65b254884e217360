"""Commands become rows (SC-801, SC-802, SC-806); the later steps act on the rows alone.

What the command line reads back as `outcome`: Applied, Unchanged (it already was so),
AlreadyExists, NotFound, Refused. `message` says more in one sentence.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from functools import partial
from typing import Any
from uuid import uuid5

from nodus_api.kernel.desired import wanted_slots
from nodus_api.kernel.spec import SCALED_KINDS, WorkloadSpec
from nodus_api.kernel.vocabulary import OwnerKind, SlotState, WorkloadState
from nodus_api.scheduler.context import LoopContext
from nodus_api.scheduler.drilling import take_drill
from nodus_api.scheduler.lasting import limits_of
from nodus_api.storage.records import Command, Slot, Workload
from nodus_api.storage.workload_store import WorkloadEdit

log = logging.getLogger(__name__)

MUTABLE = ("parallelism", "limits")
"""What a Job's spec may change by submitting it again (SC-802)."""

MOST_RANKS = 100
"""A gang is locked, moved and published in one transaction, which SC-606 bounds by this."""

Answer = tuple["Applied", str | None]


class Applied(StrEnum):
    """What became of a command."""

    APPLIED = "Applied"
    UNCHANGED = "Unchanged"
    ALREADY_EXISTS = "AlreadyExists"
    NOT_FOUND = "NotFound"
    REFUSED = "Refused"


async def take_commands(loop: LoopContext) -> bool:
    """Apply the commands that wait, in order; each is one transaction."""
    if not await loop.agenda.any("intake"):
        return False
    commands = await loop.workloads.open_commands(loop.pace.batch)
    held_up: set[tuple[str, str | None, str]] = set()
    for command in commands:
        target = (command.project, command.kind, command.target)
        if target not in held_up and not await loop.item(
            "intake", command.no, partial(_take, loop, command)
        ):
            held_up.add(target)  # commands of one workload keep their order
    return bool(commands)


async def _take(loop: LoopContext, command: Command) -> bool:
    take = take_drill if command.verb == "drill" else _take_workload
    outcome = await take(loop, command)
    log.info(
        "command applied",
        extra={"verb": command.verb, "target": command.target, "outcome": outcome},
    )
    return True


async def _take_workload(loop: LoopContext, command: Command) -> str:
    kind = OwnerKind(command.kind or OwnerKind.JOB)
    organization = await loop.workloads.organization(command.project) or "default"
    async with loop.workloads.edit_named(
        loop.reign.token, project=command.project, kind=kind, name=command.target
    ) as edit:
        outcome, message = await _apply(loop, edit, command, kind, organization)
        await edit.answer(command, outcome, message)
    if edit.workload is not None and edit.workload.state is WorkloadState.DELETED:
        loop.deleted.add(edit.workload.uid)
    return outcome


async def _apply(
    loop: LoopContext, edit: WorkloadEdit, command: Command, kind: OwnerKind, organization: str
) -> Answer:
    if command.verb == "submit":
        return await _submit(loop, edit, command, kind, organization)
    if edit.workload is None:
        return Applied.NOT_FOUND, f"there is no {kind.lower()}/{command.target}"
    match command.verb:
        case "stop":
            return await _move(edit, edit.workload, WorkloadState.STOPPED)
        case "suspend":
            return await _move(edit, edit.workload, WorkloadState.SUSPENDED)
        case "delete":
            return await _delete(edit, edit.workload)
        case "resume":
            return await _resume(edit, edit.workload)
        case "scale":
            return await _scale(edit, edit.workload, int(command.body["count"]))
        case _:
            return Applied.REFUSED, f"{command.verb} is not known to this scheduler"


async def _submit(
    loop: LoopContext, edit: WorkloadEdit, command: Command, kind: OwnerKind, organization: str
) -> Answer:
    spec: Mapping[str, Any] = command.body["spec"]
    if edit.workload is not None:
        return await _resubmit(edit, edit.workload, spec)
    wanted = WorkloadSpec.from_json(kind, spec)
    if wanted.gang is not None and wanted.completions > MOST_RANKS:
        return Applied.REFUSED, f"a gang has at most {MOST_RANKS} ranks, which are moved as one"
    workload = Workload(
        uid=uuid5(loop.reign.installation, f"command/{command.key}"),
        project=command.project,
        organization=organization,
        kind=kind,
        name=command.target,
        spec=spec,
        created=edit.now,
    )
    await edit.put(workload)
    slots = [Slot(workload=workload.uid, slot=name) for name in wanted_slots(wanted)]
    await edit.put_slots(slots)
    return Applied.APPLIED, None


async def _resubmit(edit: WorkloadEdit, workload: Workload, spec: Mapping[str, Any]) -> Answer:
    if workload.spec == spec:
        return Applied.UNCHANGED, _at_rest(workload)
    fixed = {name: value for name, value in spec.items() if name not in MUTABLE}
    standing = {name: value for name, value in workload.spec.items() if name not in MUTABLE}
    active = workload.state in (WorkloadState.ACTIVE, WorkloadState.SUSPENDED)
    if fixed != standing or not active or not _limits_only_rise(workload.spec, spec):
        also = "" if active else f", and {_is(workload)}"
        return (
            Applied.ALREADY_EXISTS,
            f"it exists with another spec{also}: submit this one under another name, or delete"
            " it first",
        )
    await edit.put(replace(workload, spec=spec))
    await _give_more_time(edit, workload, spec)
    return Applied.APPLIED, None


async def _give_more_time(edit: WorkloadEdit, workload: Workload, spec: Mapping[str, Any]) -> None:
    """Let limits of time that rose hold for what lives already (SC-802, SC-004 T8 and T14)."""
    before = WorkloadSpec.from_json(workload.kind, workload.spec).limits
    after = WorkloadSpec.from_json(workload.kind, spec).limits
    limits = limits_of(replace(workload, spec=spec))
    to_start = timedelta(seconds=after.start_deadline_seconds - before.start_deadline_seconds)
    old, new = before.max_duration_seconds, after.max_duration_seconds
    to_run = None if new is None else timedelta(seconds=new - (old or new))
    if to_start or old != new:
        await edit.give_more_time(
            workload.uid,
            to_start=to_start,
            to_run=to_run,
            session=limits if limits.idle is not None else None,
        )


def _at_rest(workload: Workload) -> str | None:
    """Say why a workload that is there does not run, and what to do; None if it may run."""
    if workload.state is WorkloadState.ACTIVE:
        return None
    if workload.state is WorkloadState.SUSPENDED:
        return f"{_is(workload)}: resume it to let it go on"
    return f"{_is(workload)}: to run it again, submit it under another name, or delete it first"


def _limits_only_rise(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether no limit is lower than before; an absent one is the highest (SC-802)."""
    before, after = old.get("limits", {}), new.get("limits", {})
    return all(
        name in before and Decimal(str(value)) >= Decimal(str(before[name]))
        for name, value in after.items()
    )


async def _move(edit: WorkloadEdit, workload: Workload, state: WorkloadState) -> Answer:
    """Stop or suspend: the state is what counts, its Attempts drain in the next steps."""
    if workload.state is state:
        return Applied.UNCHANGED, None
    over = state is WorkloadState.STOPPED
    stoppable = (WorkloadState.ACTIVE, WorkloadState.SUSPENDED) if over else (WorkloadState.ACTIVE,)
    if workload.state not in stoppable:
        return Applied.REFUSED, f"{_is(workload)} already"
    await edit.put(replace(workload, state=state, ended=edit.now if over else None))
    await _close_slots(edit, SlotState.STOPPED if over else SlotState.SUSPENDED)
    return Applied.APPLIED, None


async def _delete(edit: WorkloadEdit, workload: Workload) -> Answer:
    await edit.put(replace(workload, state=WorkloadState.DELETED, ended=workload.ended or edit.now))
    await _close_slots(edit, SlotState.STOPPED)
    return Applied.APPLIED, None


async def _close_slots(edit: WorkloadEdit, state: SlotState) -> None:
    """Decide the slots in which nothing lives; the others are decided as their Attempts end.

    A stop is final, so it takes what waits for a resume or for funds too (SC-806).
    """
    undecided = (SlotState.OPEN, SlotState.SUSPENDED, SlotState.UNFUNDED)
    closes = undecided if state is SlotState.STOPPED else (SlotState.OPEN,)
    await edit.put_slots(
        [
            replace(one.slot, state=state)
            for one in edit.slots.values()
            if not one.live and one.slot.state in closes
        ]
    )


async def _resume(edit: WorkloadEdit, workload: Workload) -> Answer:
    if workload.state is WorkloadState.ACTIVE:
        return Applied.UNCHANGED, None
    if workload.state is not WorkloadState.SUSPENDED:
        return (
            Applied.REFUSED,
            f"{_is(workload)}, which is final: submit it under another name, or delete it first",
        )
    await edit.put(replace(workload, state=WorkloadState.ACTIVE, outcome=None))
    await edit.put_slots(
        [
            replace(one.slot, state=SlotState.OPEN, not_before=None)
            for one in edit.slots.values()
            if one.slot.state is SlotState.SUSPENDED
        ]
    )
    return Applied.APPLIED, None


def _is(workload: Workload) -> str:
    """Say in what state a workload is."""
    state = workload.state
    passive = state in (WorkloadState.SUSPENDED, WorkloadState.STOPPED)
    return f"it {'is' if passive else 'has'} {state.lower()}"


async def _scale(edit: WorkloadEdit, workload: Workload, count: int) -> Answer:
    """Change how many Attempts may live: a Job's parallelism, a Function's or Agent's workers."""
    field = "workers" if workload.kind in SCALED_KINDS else "parallelism"
    if field not in workload.spec:
        return Applied.REFUSED, f"a {workload.kind} has one slot and cannot be scaled"
    if workload.spec[field] == count:
        return Applied.UNCHANGED, None
    if WorkloadSpec.from_json(workload.kind, workload.spec).gang is not None:
        return Applied.REFUSED, "a gang runs whole and cannot be scaled: submit another one"
    if workload.state not in (WorkloadState.ACTIVE, WorkloadState.SUSPENDED):
        return Applied.REFUSED, f"{_is(workload)} already"
    if workload.kind is OwnerKind.JOB and count < 1:
        return Applied.REFUSED, "a Job's parallelism is at least 1: suspend it instead"
    scaled = replace(workload, spec={**workload.spec, field: count})
    await edit.put(scaled)
    wanted = set(wanted_slots(WorkloadSpec.from_json(workload.kind, scaled.spec)))
    new = [Slot(workload=workload.uid, slot=name) for name in sorted(wanted - edit.slots.keys())]
    moved = [
        replace(one.slot, wanted=name in wanted)
        for name, one in edit.slots.items()
        if one.slot.wanted is not (name in wanted)
    ]
    await edit.put_slots([*new, *moved])
    return Applied.APPLIED, None
