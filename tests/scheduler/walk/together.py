"""What the ranks of a gang must have in common, read from the rows alone (SC-130 to SC-135)."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

Line = Mapping[str, Any]
Tables = Mapping[str, list[Line]]

_QUEUED = {"Pending", "Placing"}
_END_WINDOW = timedelta(seconds=60)


def findings(tables: Tables) -> Iterator[str]:
    """Give what the gangs of these rows break; those of deleted workloads leave rank by rank."""
    kept = {one["uid"]: one for one in tables["workloads"] if one["state"] != "Deleted"}
    gangs: dict[str, dict[int, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for one in tables["attempts"]:
        if one["gang"] is not None and one["workload"] in kept:
            gangs[one["workload"]][one["gang_epoch"]].append(one)
    for workload, epochs in gangs.items():
        newest = max(epochs)
        for epoch, ranks in epochs.items():
            yield from _placed(tables, ranks)
            yield from _released(tables, ranks)
            if epoch < newest:
                yield from _over(ranks, epochs[epoch + 1])
        if kept[workload]["state"] == "Active":
            yield from _restarting(tables, epochs[newest])
        if kept[workload]["state"] == "Succeeded":
            yield from _succeeded(epochs[newest])
        yield from _slots([one for one in tables["slots"] if one["workload"] == workload])


def late(tables: Tables, now: datetime) -> Iterator[str]:
    """SC-135, once all passes are made: 60 s after rank 0 exited 0, whoever runs is stopped."""
    causes = {one["attempt"]: one["drain_cause"] for one in tables["attempt_work"]}
    ends = {
        (one["workload"], one["epoch"]): datetime.fromisoformat(one["finished"])
        for one in tables["attempts"]
        if one["gang_rank"] == 0 and one["stage"] == "Succeeded"
    }
    for one in tables["attempts"]:
        end = ends.get((one["workload"], one["epoch"]))
        live = one["gang"] is not None and one["finished"] is None
        if end and live and now - end >= _END_WINDOW and causes.get(one["no"]) is None:
            yield f"SC-135: {one['name']} runs on, and rank 0 exited 0 at {end}"


def _placed(tables: Tables, ranks: list[Line]) -> Iterator[str]:
    """SC-130, SC-131: T2 and T3 move all or none, to one candidate, by a machine for each."""
    live = {one["stage"] for one in ranks if one["finished"] is None}
    if live & _QUEUED and len(live) > 1:
        yield f"SC-130: {_name(ranks)} is {sorted(live)} at once"
    numbers = {one["no"] for one in ranks}
    choices = {
        (one["offering"], one["market"], one["rate"])
        for one in tables["placements"]
        if one["attempt"] in numbers and one["offering"] is not None
    }
    if len(choices) > 1:
        yield f"SC-131: {_name(ranks)} is placed on {choices}"
    asked = Counter(one["attempt"] for one in tables["leases"] if one["attempt"] in numbers)
    if len({asked[no] for no in numbers}) > 1:
        yield f"SC-130: the ranks of {_name(ranks)} asked for machines {sorted(asked.values())}"


def _over(ranks: list[Line], after: list[Line]) -> Iterator[str]:
    """SC-132, SC-134: a gang epoch begins when all ranks of the last one have ended."""
    began = min(one["queued"] for one in after)
    for one in ranks:
        if one["finished"] is None or one["finished"] > began:
            yield f"SC-134: {one['name']} is {one['stage']} beside the next gang epoch"


def _restarting(tables: Tables, ranks: list[Line]) -> Iterator[str]:
    """SC-134: as soon as a rank is Lost or Failed, all others are stopped, and stay so."""
    if not any(one["stage"] in ("Lost", "Failed") for one in ranks):
        return
    causes = {one["attempt"]: one["drain_cause"] for one in tables["attempt_work"]}
    for one in ranks:
        if one["finished"] is None and causes.get(one["no"]) is None:
            yield f"SC-134: {one['name']} goes on, and a rank of its gang was lost or failed"


def _released(tables: Tables, ranks: list[Line]) -> Iterator[str]:
    """SC-134, SC-003: who is Released shows the trigger of the rank that was lost, or none."""
    triggers = {one["attempt"]: one["trigger"] for one in tables["interruptions"]}
    lost = {triggers.get(one["no"]) for one in ranks if one["stage"] == "Lost"}
    for one in ranks:
        shown = triggers.get(one["no"])
        if one["reason"] == "Released" and shown is not None and shown not in lost:
            yield f"SC-134: {one['name']} is Released by {shown}, the gang lost by {lost}"
    failed = [one for one in ranks if one["stage"] in ("Lost", "Failed")]
    restarted = ranks[0]["superseded_by"] is not None
    late = any(one["stage"] == "Succeeded" and one["gang_rank"] == 0 for one in ranks)
    if restarted and len(failed) == 1 and failed[0]["stage"] == "Lost" and not late:
        for one in ranks:
            if one["reason"] == "Released" and triggers.get(one["no"]) not in lost:
                yield f"SC-134: {one['name']} is Released and does not say by {lost}"


def _succeeded(ranks: list[Line]) -> Iterator[str]:
    """SC-135: rank 0 exits 0, the others too, or are Released late."""
    for one in ranks:
        fine = one["stage"] == "Succeeded" or (one["gang_rank"] and one["reason"] == "Released")
        if not fine:
            yield f"SC-135: {_name(ranks)} has succeeded, and {one['name']} is {one['stage']}"


def _slots(slots: list[Line]) -> Iterator[str]:
    """SC-120, SC-142: rank 0's slot alone counts; all slots stand at one epoch and one seq."""
    for name in ("current_epoch", "last_seq"):
        if len({one[name] for one in slots}) > 1:
            yield f"SC-142: the ranks of a gang differ in {name}: {[one[name] for one in slots]}"
    for one in slots:
        counted = one["retries_used"], one["replacements"], one["nodus_failures"]
        if one["slot"] != "0" and any(counted):
            yield f"SC-120: rank {one['slot']} of a gang counts {counted}"


def _name(ranks: list[Line]) -> str:
    return f"{ranks[0]['gang']} at {ranks[0]['gang_epoch']}"
