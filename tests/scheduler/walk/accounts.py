"""Who pays what of an ended Attempt, and what is counted against its slot (SC-520, SC-120, SC-630).

Written out again from the tables of the specification, not taken from the kernel.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise

from tests.scheduler.walk.together import Line, Tables

_SUPPLIERS = {
    "Preempted", "NodeLost", "ReadinessFailed", "StartupTimeout", "NoCapacity", "Unplaceable",
}  # fmt: skip
"""Reasons that the customer pays nothing of, if the program did not start."""
_NODUS = {"InternalError", "CheckpointUnavailable"}
_CUSTOMER = {
    "CustomerExit", "OutOfMemory", "DeadlineExceeded", "ImagePullFailed", "StartFailed",
    "RestoreFailed", "Unplaceable",
}  # fmt: skip
_DRILLED_INTO = {
    "preemption": "Preempted",
    "node-loss": "NodeLost",
    "heartbeat": "NodeLost",
    "readiness": "ReadinessFailed",
}
_DRILLABLE = {
    "preemption": {"Starting", "Running"},
    "node-loss": {"Starting", "Running"},
    "heartbeat": {"Running"},
    "readiness": {"Starting"},
}
_VOID_AFTER = 120


def findings(tables: Tables) -> Iterator[str]:
    """Give what bills and counters break at any moment."""
    epochs: dict[tuple[str, int], list[Line]] = defaultdict(list)
    for one in tables["attempts"]:
        if one["gang"] is not None:
            epochs[one["workload"], one["epoch"]].append(one)
    triggers = {one["attempt"]: one["trigger"] for one in tables["interruptions"]}
    yield from _drilled(tables, triggers, epochs)
    yield from _counted(tables, triggers)
    yield from _covered(tables, triggers, epochs)


def tenants(tables: Tables) -> Iterator[str]:
    """SC-344: a machine's Attempts and its idle time follow each other without gap or overlap.

    Of machines all of whose Attempts are here: others have left with part of the clock.
    """
    fences: dict[int, set[int]] = defaultdict(set)
    for one in tables["leases"]:
        fences[one["machine"]].add(one["fence"])
    periods: dict[int, list[tuple[datetime, datetime]]] = defaultdict(list)
    for name in ("cost_segments", "idle_time"):
        for one in tables[name]:
            period = _moment(one["from_ts"]), _moment(one["to_ts"])
            periods[one["machine"]].append(period)
    for number, several in periods.items():
        if fences[number] == set(range(1, len(fences[number]) + 1)):
            several.sort()
            for (_, end), (start, _) in pairwise(several):
                if end != start:
                    yield f"SC-344: machine {number} is billed to {end} and again from {start}"


def not_put_down(before: Tables, tables: Tables, now: datetime) -> Iterator[str]:
    """SC-630: a loss while a drill is in force is the drill's. `before`: as of the last step."""
    ended = {one["no"]: one for one in tables["attempts"] if one["stage"] == "Lost"}
    triggers = {one["attempt"]: one["trigger"] for one in tables["interruptions"]}
    stages = {one["no"]: one["stage"] for one in before.get("attempts", ())}
    for work in before.get("attempt_work", ()):
        one = ended.get(work["attempt"])
        if one is None or work["drill"] is None or work["drain_cause"] is not None:
            continue
        loss, notice, _ = work["drill"].split("/")
        void = (now - _moment(work["drill_at"])).total_seconds() >= _VOID_AFTER + int(notice or 0)
        at_start = loss == "readiness" and one["command_started"] is not None
        in_force = stages[one["no"]] in _DRILLABLE[loss] and not void and not at_start
        if in_force and triggers.get(one["no"]) != "Drill":
            yield f"SC-630: {one['name']} was drilled, and is lost by {triggers.get(one['no'])}"


def _drilled(
    tables: Tables, triggers: Mapping[int, str], epochs: Mapping[tuple[str, int], list[Line]]
) -> Iterator[str]:
    """SC-630, SC-012: who is lost by a drill was drilled, and shows the loss simulated."""
    simulated: dict[str, set[str]] = defaultdict(set)
    for one in tables["commands"]:
        if one["verb"] == "drill" and one["outcome"] == "Applied":
            simulated[one["target"]].add(_DRILLED_INTO[one["body"]["trigger"]])
    for one in tables["attempts"]:
        if triggers.get(one["no"]) != "Drill":
            continue
        peers = {peer["name"] for peer in epochs[one["workload"], one["epoch"]]}
        if one["reason"] == "Released":
            if not peers & set(simulated):
                yield f"SC-630: {one['name']} is Released by a drill of nobody"
        elif one["reason"] not in (wanted := simulated[one["name"]]):
            yield f"SC-630: {one['name']} is {one['reason']} by a drill for {wanted}"


def _counted(tables: Tables, triggers: Mapping[int, str]) -> Iterator[str]:
    """SC-120: losses count as replacements, a customer's failures as retries; drills nowhere.

    Once a gang epoch, in the slot of rank 0. Not while the workload wants no more: a bound then.
    """
    gangs = {one["workload"] for one in tables["attempts"] if one["gang"] is not None}
    owners = {one["uid"]: one for one in tables["workloads"]}
    waived = {one["target"] for one in tables["commands"] if one["verb"] == "suspend"}
    ends: dict[tuple[str, str], dict[int, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for one in tables["attempts"]:
        if one["stage"] in ("Lost", "Failed"):
            slot = "0" if one["workload"] in gangs else one["slot"]
            ends[one["workload"], slot][one["epoch"]].append(one)
    for slot in tables["slots"]:
        owner = owners[slot["workload"]]
        if owner["state"] == "Deleted":
            continue
        where = f"slot {slot['slot']} of {owner['name']}"
        exact = owner["name"] not in waived
        epochs = list(ends[slot["workload"], slot["slot"]].values())
        lost = [[_is_loss(one, triggers) for one in ends_] for ends_ in epochs]
        failed = [[one["reason"] in _CUSTOMER for one in ends_] for ends_ in epochs]
        again = [ends_[0]["superseded_by"] is not None for ends_ in epochs]
        for name, kinds in (("replacements", lost), ("retries_used", failed)):
            most = sum(any(kind) for kind in kinds)
            least = sum(all(kind) and more for kind, more in zip(kinds, again, strict=True))
            if not (least if exact else 0) <= slot[name] <= most:
                yield f"SC-120: {where} has {name} {slot[name]}, not {least} to {most}"
        own = [one for one in tables["attempts"] if _in_slot(one, slot)]
        hedged = {one["attempt"] for one in tables["leases"] if one["role"] == "hedge"}
        most = sum((1 + (one["no"] in hedged)) * _is_loss(one, triggers) for one in own)
        if len(slot["lost_candidates"]) > most:
            yield f"SC-630: {where} remembers losses that were drills"


def _is_loss(attempt: Line, triggers: Mapping[int, str]) -> bool:
    return attempt["stage"] == "Lost" and triggers.get(attempt["no"]) != "Drill"


def _in_slot(attempt: Line, slot: Line) -> bool:
    return (attempt["workload"], attempt["slot"]) == (slot["workload"], slot["slot"])


def _covered(
    tables: Tables, triggers: Mapping[int, str], epochs: Mapping[tuple[str, int], list[Line]]
) -> Iterator[str]:
    """SC-520: what Nodus pays of each segment, and more only above a limit (SC-522)."""
    controlled = any(one["balance"] is not None for one in tables["funds"])
    limited = {
        one["uid"]
        for one in tables["workloads"]
        if controlled or "maxCostUSD" in one["spec"]["limits"]
    }
    paid: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    payers = billed_machines(tables)
    beaten = {one["machine"] for one in tables["leases"] if one["lost"] is not None}
    for one in tables["cost_segments"]:
        if one["machine"] != payers[one["attempt"]]:
            if not one["covered"]:
                yield f"P-25: machine {one['machine']} is not the billed one, and costs {one}"
            continue
        part = "Head" if one["segment"] in ("Boot", "Restore") else one["segment"]
        seconds = (_moment(one["to_ts"]) - _moment(one["from_ts"])).total_seconds()
        paid[one["attempt"]][part][one["covered"]] += int(seconds)
    for one in tables["attempts"]:
        due = _due(one, triggers.get(one["no"]), epochs[one["workload"], one["epoch"]], tables)
        if due is None:
            continue
        if payers.get(one["no"]) in beaten:  # it died or was beaten before the program started
            due["Teardown"] = _ALL
        for part, covered in due.items():
            charged_now, covered_now = paid[one["no"]][part]
            wanted = min(covered, charged_now + covered_now)
            if covered_now < wanted or (covered_now > wanted and one["workload"] not in limited):
                yield (
                    f"SC-520: {one['name']} ({one['stage']} {one['reason']}) has {covered_now} s "
                    f"of {part} covered, not {wanted}"
                )


_ALL = 1 << 62


def billed_machines(tables: Tables) -> dict[int, int]:
    """SC-342: by Attempt the winner once its program runs, until then the first granted."""
    machines = {one["no"]: one for one in tables["machines"]}
    started = {one["no"] for one in tables["attempts"] if one["command_started"] is not None}
    found: dict[int, list[tuple[bool, datetime, int]]] = defaultdict(list)
    for lease in tables["leases"]:
        machine = machines[lease["machine"]]
        if machine["billing_start"] is not None:
            won = lease["won"] and lease["attempt"] in started
            found[lease["attempt"]].append((not won, _moment(machine["granted"]), machine["no"]))
    return {attempt: min(several)[2] for attempt, several in found.items()}


def _due(
    attempt: Line, trigger: str | None, peers: list[Line], tables: Tables
) -> dict[str, int] | None:
    """Return the covered seconds of each segment; None where its cause cannot be told."""
    reason, started = attempt["reason"], attempt["command_started"] is not None
    charged = {"Head": 0, "Running": 0, "Teardown": 0}
    if reason is None:
        return charged
    if reason in _NODUS or trigger == "Drill":
        return {"Head": _ALL, "Running": _lost_seconds(attempt, tables), "Teardown": _ALL}
    if reason == "Released":
        return _due_of_released(attempt, peers, charged)
    if reason in _SUPPLIERS:
        return {"Head": 0 if started else _ALL, "Running": 0, "Teardown": _ALL}
    return charged


def _due_of_released(
    attempt: Line, peers: list[Line], charged: dict[str, int]
) -> dict[str, int] | None:
    if attempt["gang"] is None:
        return charged
    if len(peers) < attempt["gang_size"] or attempt["deletion_proven"] is None:
        return None  # counted anew then
    if all(one["command_started"] is None for one in peers):
        return {"Head": _ALL, "Running": 0, "Teardown": _ALL}
    faults = {one["reason"] in _CUSTOMER for one in peers if one["stage"] in ("Lost", "Failed")}
    if len(faults) > 1:
        return None  # the first one counts, and that was told when it was not yet known of others
    return charged | {"Teardown": _ALL} if faults == {False} else charged


def _lost_seconds(attempt: Line, tables: Tables) -> int:
    """SC-016, recounted: since the last checkpoint of this Attempt, or the program's start."""
    if attempt["command_started"] is None:
        return 0
    known = [_moment(attempt["command_started"])]
    known += [
        _moment(one["committed"])
        for one in tables["checkpoints"]
        if one["attempt"] == attempt["no"]
    ]
    return int((_moment(attempt["finished"]) - max(known)).total_seconds())


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
