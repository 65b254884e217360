"""H-23 along time: the documents of an object tell one life (P-01 to P-04, P-12, P-13).

The rules are written out again here from the reference, not taken from the kernel. Stages passed
inside one commit may be missing from the log, so a step is any path of SC-004.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import groupby, pairwise
from typing import Any

from tests.history.facts import EPOCH, Finding, History
from tests.history.truth import Truth, Version

PHASES = {
    "Pending": "Queued",
    "Placing": "Queued",
    "Acquiring": "Provisioning",
    "Starting": "Provisioning",
    "Running": "Running",
    "Succeeded": "Succeeded",
    "Failed": "Failed",
    "Lost": "Failed",
    "Stopped": "Cancelled",
}
ENDED = ("Succeeded", "Failed", "Lost", "Stopped")
_BEFORE_GRANT = ("Pending", "Placing", "Acquiring")
_REACHES = {
    **dict.fromkeys(_BEFORE_GRANT, tuple(PHASES)),
    "Starting": ("Starting", "Running", *ENDED),
    "Running": ("Running", *ENDED),
    **{stage: (stage,) for stage in ENDED},
}
_CANCELLED = ("Stopped", "Suspended", "Unfunded", "MaxCostReached", "Released")
_MILESTONES = (
    "queuedTime",
    "acquiredTime",
    "billingStartTime",
    "registeredTime",
    "commandStartedTime",
    "finishedTime",
    "deletionProvenTime",
)
_SEGMENTS = ("bootUSD", "restoreUSD", "runningUSD", "teardownUSD")
_MICRO = Decimal("0.000001")

Doc = Mapping[str, Any]


def alone(history: History, truth: Truth) -> Iterator[Finding]:
    """P-02, P-03, P-12: what each document must say by itself."""
    for versions in truth.lives().values():
        for version in versions:
            for rule, said, but in (*_phase(version.obj), *_order(version.obj), *_sum(version.obj)):
                yield _finding(rule, str(version), said, but)


def steps(history: History, truth: Truth) -> Iterator[Finding]:
    """P-01, P-03, P-13: how each document may differ from the one before."""
    for versions in truth.lives().values():
        for before, after in pairwise(versions):
            where = f"{before} -> {after.rev}"
            for rule, said, but in (
                *_stage(before.obj, after.obj),
                *_kept(before.obj, after.obj),
                *_cost(before.obj, after.obj),
            ):
                yield _finding(rule, where, said, but)


def slots(history: History, truth: Truth) -> Iterator[Finding]:
    """P-04, after every commit: one live Attempt a slot; epochs 1, 2, 3 …, each naming the next."""
    names: dict[tuple[str, str], dict[int, str]] = {}
    there: dict[tuple[str, str], dict[int, Version]] = {}
    for _, rows in groupby(truth.steps(), key=lambda step: step[0].tx):
        touched: dict[tuple[str, str], int] = {}
        for row, before, after in rows:
            version = after or before
            if row.kind == EPOCH or version is None:
                continue
            slot, epoch = _slot(version), version.obj["spec"]["epoch"]
            touched[slot] = row.rev
            there.setdefault(slot, {}).pop(epoch, None)
            if after is not None:
                there[slot][epoch] = after
                names.setdefault(slot, {})[epoch] = row.name
        for slot, rev in touched.items():
            yield from _one_slot(rev, there[slot], names[slot])


def _finding(rule: str, where: str, said: str, but: str) -> Finding:
    return Finding(rule=f"H-23 {rule}", where=where, said=said, but=but)


_Breach = tuple[str, str, str]


def _phase(doc: Doc) -> Iterator[_Breach]:
    status, stage = doc["status"], doc["status"]["progress"]["stage"]
    if PHASES.get(stage) != status["phase"]:
        yield "P-02", f"stage {stage}", f"phase {status['phase']}"
    reason = status.get("reason")
    if (reason is not None) != (status["phase"] in ("Failed", "Cancelled")):
        yield "P-02", f"phase {status['phase']}", f"reason {reason}"
    if status["phase"] == "Cancelled" and reason not in _CANCELLED:
        yield "P-02", "phase Cancelled", f"reason {reason}"


def _order(doc: Doc) -> Iterator[_Breach]:
    timings = doc["status"]["timings"]
    known = [(name, timings[name]) for name in _MILESTONES if name in timings]
    for (one, earlier), (two, later) in pairwise(known):
        if earlier > later:
            yield "P-03", f"{one} is {earlier}", f"{two} is {later}"
    for name, moment in known:
        if len(moment) != len("2026-01-01T00:00:00Z"):
            yield "P-03", "milestones are whole seconds", f"{name} is {moment}"
    ended = doc["status"]["progress"]["stage"] in ENDED
    if ended != ("finishedTime" in timings):
        yield "P-03", f"stage {doc['status']['progress']['stage']}", f"timings {sorted(timings)}"


def _sum(doc: Doc) -> Iterator[_Breach]:
    actual = doc["status"].get("actual")
    if actual is None:
        return
    total, parts = Decimal(actual["costUSD"]), [_usd(doc, name) for name in _SEGMENTS]
    if min(parts) < 0 or sum(parts) != total:
        yield "P-12", f"the segments are {', '.join(map(str, parts))}", f"costUSD is {total}"
    placement = doc["status"].get("placement", {})
    rate = Decimal(placement.get("rateUSDPerHour", 0))
    by_time = Decimal(actual["hours"]) * rate
    tolerance = _MICRO * (len(_SEGMENTS) + rate)
    if not placement.get("hedged") and abs(by_time - total) > tolerance:
        yield "P-12", f"{actual['hours']} h at {rate} USD/h are charged", f"costUSD is {total}"


def _usd(doc: Doc, name: str) -> Decimal:
    return Decimal(doc["status"]["actual"]["segments"][name])


def _stage(before: Doc, after: Doc) -> Iterator[_Breach]:
    one, two = (doc["status"]["progress"]["stage"] for doc in (before, after))
    if two not in _REACHES[one]:
        yield "P-01", f"{one} leads to {', '.join(_REACHES[one])}", f"the next stage is {two}"


def _kept(before: Doc, after: Doc) -> Iterator[_Breach]:
    one, two = (doc["status"]["timings"] for doc in (before, after))
    free = set() if "billingStartTime" in one else {"acquiredTime"}
    hedged = after["status"].get("placement", {}).get("hedged")
    if hedged and "commandStartedTime" not in one:
        free |= {"billingStartTime", "registeredTime"}
    for name in _MILESTONES:
        if name in one and name not in free and one[name] != two.get(name):
            yield "P-03", f"{name} is {one[name]}", f"then {two.get(name, 'absent')}"
    if before["spec"] != after["spec"]:
        yield "P-03", f"the spec is {before['spec']}", f"then {after['spec']}"


def _cost(before: Doc, after: Doc) -> Iterator[_Breach]:
    one, two = (
        Decimal(doc["status"].get("actual", {}).get("costUSD", 0)) for doc in (before, after)
    )
    if "deletionProvenTime" in before["status"]["timings"] and one != two:
        yield "P-13", f"the machine is proven gone at costUSD {one}", f"then it is {two}"
    ends = after["status"]["progress"]["stage"] in ENDED
    ending = ends and before["status"]["progress"]["stage"] not in ENDED
    hedged = after["status"].get("placement", {}).get("hedged", False)
    if two < one and not ending and not hedged:
        yield "P-13", f"costUSD is {one}", f"then {two}"


def _slot(version: Version) -> tuple[str, str]:
    metadata = version.obj["metadata"]
    return metadata["ownerReferences"][0]["uid"], version.obj["spec"]["slot"]


def _one_slot(
    rev: int, there: Mapping[int, Version], names: Mapping[int, str]
) -> Iterator[Finding]:
    live = _live(there)
    if len(live) > 1:
        yield _finding("P-04", f"at {rev}", f"{live[0]} is live", f"so is {live[1]}")
    if sorted(names) != list(range(1, len(names) + 1)):
        yield _finding("P-04", f"at {rev}", "epochs count from 1", f"there were {sorted(names)}")
    for epoch, version in there.items():
        due, told = names.get(epoch + 1), version.obj["status"].get("supersededBy")
        if due != told:
            yield _finding(
                "P-04",
                f"at {rev}",
                f"{version.row.name} is followed by {due or 'none'}",
                f"supersededBy is {told or 'absent'}",
            )


def _live(there: Mapping[int, Version]) -> Sequence[Version]:
    return [one for one in there.values() if one.obj["status"]["progress"]["stage"] not in ENDED]
