"""From Attempts as they were served to what of them is the same in every run.

What cannot be the same becomes a word: identities, the hash in names, resourceVersions, the class
of this host, and numbers that statistics or this host's size move. What relates stays to be read:

* a moment is its distance from the first one, as the test's clock stood: a report is some real
  milliseconds old when it arrives, and counts for the moment at which it arrived;
* a length is checked against the moments it lies between, and told by them;
* money is computed anew from the document's own moments, rate and reason, must be equal to the
  micro-dollar, and is told by the seconds that it pays.
"""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.goldens_live.bills import AFTER_A_START, ALL_CHARGED, actual_of, parts_of

LONGEST_AGE = timedelta(seconds=45)
_HASH = re.compile(r"(-e\d+)-[a-z2-7]{5}\b")
_CLASS = re.compile(r"\bcpu-1c-\d+g-other\b")
_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_SCORE = re.compile(r"[01]\.\d{4}")
_MONEY = re.compile(r"\d+\.\d{6}")
_RATE = re.compile(r"\d+\.\d{2,6}")
SCORES = ["fit", "timeToResult", "costToComplete", "recoveryValue", "health"]

Document = dict[str, Any]


class Normal:
    """Makes the documents of one workload, all its Attempts, comparable."""

    def __init__(self, attempts: Sequence[Document], stands: Sequence[datetime]) -> None:
        self._attempts = [
            one | {"resumes": _resumes(one, attempts), "release": _release(one, attempts)}
            for one in attempts
        ]
        self._stands = [stand.replace(microsecond=0) for stand in stands]
        self._first = min(self._stand(_queued(one)) for one in attempts)
        owners = {one["metadata"]["ownerReferences"][0]["uid"] for one in attempts}
        self._uids = {one["metadata"]["uid"]: f"UID-{n}" for n, one in enumerate(attempts, 1)}
        self._uids |= {uid: f"OWNER-{n}" for n, uid in enumerate(sorted(owners), 1)}
        assert len(self._uids) == len(attempts) + len(owners)

    def documents(self) -> list[Document]:
        """Return the comparable documents, in the order given; each was checked on the way."""
        return [self._document(one) for one in self._attempts]

    def _document(self, attempt: Document) -> Document:
        made: Document = deepcopy(attempt)
        del made["resumes"], made["release"]
        metadata, status = made["metadata"], made["status"]
        assert int(metadata["resourceVersion"]) > 0
        assert metadata["creationTimestamp"] == status["timings"]["queuedTime"]  # LW-212
        metadata["resourceVersion"] = "REV"
        metadata["uid"] = self._uids[metadata["uid"]]
        _gang(made["spec"], metadata["ownerReferences"][0]["uid"])
        for reference in metadata["ownerReferences"]:
            reference["uid"] = self._uids[reference["uid"]]
        self._lengths(attempt, status)
        if "actual" in status:
            status["actual"] = self._actual(attempt)
        if "placement" in status:
            _placement(status["placement"])
        if "predicted" in status:
            _predicted(status, status["predicted"])
        words: Document = self._words(made)
        return words

    def _words(self, value: Any) -> Any:
        """Replace identities and moments in every text."""
        if isinstance(value, dict):
            return {name: self._words(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._words(inner) for inner in value]
        if not isinstance(value, str):
            return value
        text = _CLASS.sub("CLASS", _HASH.sub(r"\1-HASH", value))
        return _MOMENT.sub(lambda found: self._offset(found[0]), text)

    def _stand(self, moment: str) -> datetime:
        """Return where the clock stood when something was told that happened at `moment`."""
        at = datetime.fromisoformat(moment)
        later = [stand for stand in self._stands if stand >= at]
        if not later:  # a moment that lies ahead: a next try
            return at
        assert later[0] - at <= LONGEST_AGE, f"{moment} is at no stand of the clock"
        return later[0]

    def _offset(self, moment: str) -> str:
        return f"+{self._between(self._first, self._stand(moment))} s"

    def _between(self, start: datetime, end: datetime) -> int:
        return round((end - start).total_seconds())

    def _length(self, start: str, end: str) -> int:
        return self._between(self._stand(start), self._stand(end))

    def _lengths(self, attempt: Document, status: Document) -> None:
        """Check every length against its moments (SC-007, SC-016), and tell it by their stands."""
        timings = attempt["status"]["timings"]
        ends = {
            "bootSeconds": ("acquiredTime", "commandStartedTime"),
            "restoreSeconds": ("acquiredTime", "commandStartedTime"),
            "teardownSeconds": ("finishedTime", "deletionProvenTime"),
        }
        for name, (start, end) in ends.items():
            due = start in timings and end in timings
            due = due and (name != "restoreSeconds" or attempt["resumes"])
            assert (name in timings) == due, (name, timings)
            if due:
                assert timings[name] == _seconds(timings[start], timings[end]), name
                status["timings"][name] = self._length(timings[start], timings[end])
        told = attempt["status"].get("interruption")
        if told is None:
            return
        assert told["time"] == timings["finishedTime"]  # SC-015
        lost = datetime.fromisoformat(told["time"]) - timedelta(seconds=told["lostSeconds"])
        kept = self._stand(lost.isoformat())
        status["interruption"]["lostSeconds"] = self._between(kept, self._stand(told["time"]))
        recovered = self._recovered(attempt)
        assert ("recoverySeconds" in told) == (recovered is not None)  # P-22
        if recovered is not None:
            lasted = _seconds(told["time"], recovered)
            assert told["recoverySeconds"] == lasted, (told, lasted, self._attempts)
            status["interruption"]["recoverySeconds"] = self._length(told["time"], recovered)

    def _recovered(self, attempt: Document) -> str | None:
        """Return when the first later epoch of the slot started its program."""
        spec = attempt["spec"]
        later = [
            one["status"]["timings"].get("commandStartedTime")
            for one in self._attempts
            if one["spec"]["slot"] == spec["slot"] and one["spec"]["epoch"] > spec["epoch"]
        ]
        return next((started for started in later if started is not None), None)

    def _actual(self, attempt: Document) -> Document:
        """Check the bill, and tell it by the seconds it pays."""
        charged, due = attempt["status"]["actual"], actual_of(attempt)
        assert charged == due, f"charged {charged}, due is {due}"
        standing = deepcopy(attempt)
        timings = standing["status"]["timings"]
        for name in [name for name in timings if name.endswith("Time")]:
            timings[name] = self._stand(timings[name]).isoformat()
        interruption = standing["status"].get("interruption")
        if interruption is not None:
            lost = datetime.fromisoformat(interruption["time"])
            base = lost - timedelta(seconds=interruption["lostSeconds"])
            end = self._stand(interruption["time"])
            kept = self._stand(base.isoformat())
            interruption["lostSeconds"] = self._between(kept, end)
        paid = {part.name: part.seconds - part.covered for part in parts_of(standing)}
        told: Document = {
            "costUSD": f"{sum(paid.values())} s of the rate",
            "hours": f"{sum(paid.values())} s",
            "segments": {
                f"{name.lower()}USD": f"{paid.get(name, 0)} s of the rate"
                for name in ("Boot", "Restore", "Running", "Teardown")
            },
        }
        segments = attempt["status"]["actual"]["segments"]
        if "coveredByNodus" in segments:
            told["segments"]["coveredByNodus"] = segments["coveredByNodus"]
        return told


def _gang(spec: Document, owner: str) -> None:
    """Check a gang's id, and leave what of it is the same in every run (SC-130)."""
    if "gang" in spec:
        assert spec["gang"]["id"] == f"{owner[:8]}-workers"
        spec["gang"]["id"] = "OWNER-workers"


def _placement(placement: Document) -> None:
    """Check what this host and its past decide, and leave its form."""
    explain = placement["explain"]
    if "scores" in explain:
        assert list(explain["scores"]) == SCORES
        for name, score in explain["scores"].items():
            assert _SCORE.fullmatch(score), (name, score)
            assert 0 <= Decimal(score) <= 1
            explain["scores"][name] = "0 to 1"
    assert explain["profile"] == placement["profile"]  # SC-325


def _predicted(status: Document, predicted: Document) -> None:
    """Check that cost is hours at the rate (SC-350), and leave the form."""
    rate = Decimal(status["placement"]["rateUSDPerHour"])
    for name, form in (("costUSD", _MONEY), ("hours", _MONEY), ("interruptionRate", _RATE)):
        assert form.fullmatch(predicted[name]), (name, predicted[name])
    apart = abs(rate * Decimal(predicted["hours"]) - Decimal(predicted["costUSD"]))
    assert apart <= rate * Decimal("0.000001")
    predicted.update(costUSD="hours at the rate", hours="N", interruptionRate="N")


def _resumes(attempt: Document, attempts: Sequence[Document]) -> bool:
    """Whether an Attempt resumes: it restores, or its predecessor was Lost (SC-140)."""
    spec = attempt["spec"]
    before = [
        one["status"]["progress"]["stage"]
        for one in attempts
        if one["spec"]["slot"] == spec["slot"] and one["spec"]["epoch"] == spec["epoch"] - 1
    ]
    return "restoreFrom" in spec or "Lost" in before


def _release(attempt: Document, attempts: Sequence[Document]) -> str | None:
    """Return why a rank was Released, by what its gang epoch shows (SC-520)."""
    gang = attempt["spec"].get("gang")
    if gang is None or attempt["status"].get("reason") != "Released":
        return None
    ranks = [one["status"] for one in attempts if _same_gang(one["spec"].get("gang"), gang)]
    if not any("commandStartedTime" in one["timings"] for one in ranks):
        return "gang never started"
    failed = [one for one in ranks if one["phase"] == "Failed"]
    if not failed:
        return None
    first = min(failed, key=lambda one: str(one["timings"]["finishedTime"]))
    if first["reason"] in ALL_CHARGED:
        return "a peer's fault was the customer's"
    assert first["reason"] in (*AFTER_A_START, "InternalError", "CheckpointUnavailable")
    return "a peer's fault was not the customer's"


def _same_gang(one: Document | None, other: Document) -> bool:
    return one is not None and (one["id"], one["epoch"]) == (other["id"], other["epoch"])


def _queued(attempt: Mapping[str, Any]) -> str:
    queued: str = attempt["status"]["timings"]["queuedTime"]
    return queued


def _seconds(start: str, end: str) -> int:
    apart = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    return round(apart.total_seconds())
