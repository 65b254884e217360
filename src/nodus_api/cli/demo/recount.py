"""Counts an Attempt's bill and its moments again, from nothing but the object as clients see it.

What holds of any Attempt at any moment: the seven moments are in order, the segments add up to
the total, and an ended Attempt whose machine is gone costs what its whole seconds and its locked
rate give (SC-501, SC-505, SC-506, SC-520). It shares no line with the code that made the bill.
Also a program: `python -m nodus_api.cli.demo.recount` reads an AttemptList from standard input and
prints what is wrong with it.
"""

import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

MOMENTS = (
    "queuedTime",
    "acquiredTime",
    "billingStartTime",
    "registeredTime",
    "commandStartedTime",
    "finishedTime",
    "deletionProvenTime",
)
SEGMENTS = ("bootUSD", "runningUSD", "restoreUSD", "teardownUSD")
ENDED = frozenset({"Succeeded", "Failed", "Cancelled"})
_MICRO = Decimal("0.000001")


def problems(attempts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each thing that is wrong; empty if all is well."""
    found = list(attempts)
    said = [f"{one['metadata']['name']}: {what}" for one in found for what in _of_one(one)]
    return said + _of_slots(found)


def unfinished(attempts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the Attempts that live, or whose machine is not proven gone."""
    return [
        one["metadata"]["name"]
        for one in attempts
        if one["status"]["phase"] not in ENDED
        or ("billingStartTime" in _timings(one) and "deletionProvenTime" not in _timings(one))
    ]


def _of_one(one: Mapping[str, Any]) -> list[str]:
    timings = _timings(one)
    times = [_moment(timings[name]) for name in MOMENTS if name in timings]
    said = []
    if times != sorted(times):
        said.append(f"its moments are out of order: {timings}")
    if ("finishedTime" in timings) != (one["status"]["phase"] in ENDED):
        said.append(f"phase {one['status']['phase']} and finishedTime disagree")
    actual = one["status"].get("actual")
    if actual is None:
        return said
    shown = actual["segments"]
    total = sum((Decimal(shown[name]) for name in SEGMENTS), Decimal(0))
    if total != Decimal(actual["costUSD"]):
        said.append(f"segments give {total}, costUSD says {actual['costUSD']}")
    said += _bill(one, timings, shown, actual["hours"])
    return said


def _bill(
    one: Mapping[str, Any], timings: Mapping[str, Any], shown: Mapping[str, Any], hours: str
) -> list[str]:
    """Compare the bill of a machine that is gone with one counted from the moments."""
    if "billingStartTime" not in timings or "deletionProvenTime" not in timings:
        return []
    rate = Decimal(one["status"]["placement"]["rateUSDPerHour"])
    start = _moment(timings["billingStartTime"])
    ended = _offset(start, timings["finishedTime"])
    started = _offset(start, timings.get("commandStartedTime", timings["finishedTime"]))
    gone = _offset(start, timings["deletionProvenTime"])
    resumes = "restoreFrom" in one["spec"] or "restoreSeconds" in timings
    head = "restoreUSD" if resumes else "bootUSD"
    covered = set(shown.get("coveredByNodus", ()))
    kept = ended
    if "Running" in covered:
        lost = one["status"].get("interruption", {}).get("lostSeconds")
        if lost is None:  # how much of it is known to the ledger alone
            return []
        kept = ended - lost
    counted = {name: Decimal(0) for name in SEGMENTS}
    seconds = 0
    for name, begin, end in (
        (head, 0, started),
        ("runningUSD", started, kept),
        ("teardownUSD", ended, gone),
    ):
        if _segment(name) in covered - {"Running"}:
            continue
        counted[name] = _cumulative(rate, end) - _cumulative(rate, begin)
        seconds += end - begin
    wrong = [
        f"{name} is {shown[name]}, its moments give {counted[name]}"
        for name in SEGMENTS
        if Decimal(shown[name]) != counted[name]
    ]
    if Decimal(hours) != (Decimal(seconds) / 3600).quantize(_MICRO, ROUND_HALF_UP):
        wrong.append(f"hours is {hours}, its moments give {seconds} s")
    return wrong


def _of_slots(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """Check that epochs follow one another, one alive at a time (P-04)."""
    slots: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for one in found:
        owner = one["metadata"]["ownerReferences"][0]["uid"]
        slots[owner, one["spec"]["slot"]].append(one)
    said = []
    for (_, slot), attempts in slots.items():
        attempts.sort(key=lambda one: one["spec"]["epoch"])
        for earlier, later in itertools.pairwise(attempts):
            names = earlier["metadata"]["name"], later["metadata"]["name"]
            if later["spec"]["epoch"] != earlier["spec"]["epoch"] + 1:
                said.append(f"slot {slot}: an epoch is missing between {names}")
            if earlier["status"].get("supersededBy") != names[1]:
                said.append(f"slot {slot}: {names[0]} is not superseded by {names[1]}")
            if earlier["status"]["phase"] not in ENDED:
                said.append(f"slot {slot}: {names[0]} lives beside {names[1]}")
    return said


def _timings(one: Mapping[str, Any]) -> Mapping[str, Any]:
    timings: Mapping[str, Any] = one["status"].get("timings", {})
    return timings


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def _offset(start: datetime, text: str) -> int:
    return int((_moment(text) - start).total_seconds())


def _segment(name: str) -> str:
    return name.removesuffix("USD").capitalize()


def _cumulative(rate: Decimal, seconds: int) -> Decimal:
    return (rate * seconds / 3600).quantize(_MICRO, ROUND_HALF_UP)


if __name__ == "__main__":
    wrong = problems(json.load(sys.stdin)["items"])
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    sys.exit(1 if wrong else 0)
