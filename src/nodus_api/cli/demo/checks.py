"""What must be true at the end of the demo: the Attempts, as clients see them, beside the diary.

Each check returns sentences of what is wrong; none means that all is well.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodus_api.cli.demo import fit
from nodus_api.cli.demo.recount import problems
from nodus_api.cli.demo.story import DRILLED, FIT, PAIR, RANKS, STEPS, Attempt, starts

Life = tuple[str, str, int, str, str, str]
"""Job, slot, epoch, phase, reason and trigger."""

LIVES: tuple[Life, ...] = (
    (FIT, "0", 1, "Succeeded", "", ""),
    (FIT, fit.BROKEN_SLOT, 1, "Failed", "CustomerExit", ""),
    (FIT, fit.BROKEN_SLOT, 2, "Succeeded", "", ""),
    (FIT, DRILLED, 1, "Failed", "NodeLost", "Drill"),
    (FIT, DRILLED, 2, "Succeeded", "", ""),
    (FIT, fit.ENDLESS_SLOT, 1, "Cancelled", "Stopped", "User"),
    (PAIR, "0", 1, "Cancelled", "Released", "ProviderEvidence"),
    (PAIR, "0", 2, "Succeeded", "", ""),
    (PAIR, "1", 1, "Failed", "NodeLost", "ProviderEvidence"),
    (PAIR, "1", 2, "Succeeded", "", ""),
)


def complaints(attempts: Sequence[Attempt], diary: Path) -> list[str]:
    """Return a sentence for each thing that is not as it must be."""
    return [
        *_lives(attempts),
        *_starts(attempts, diary),
        *_resumed(attempts, diary),
        *_results(diary),
        *_recoveries(attempts),
        *problems(attempts),
    ]


def _lives(attempts: Iterable[Attempt]) -> list[str]:
    """Compare who lived, and how each ended."""
    seen = sorted(_life(one) for one in attempts)
    return [
        *(f"missing: {_words(life)}" for life in LIVES if life not in seen),
        *(f"not expected: {_words(life)}" for life in seen if life not in LIVES),
    ]


def _life(one: Attempt) -> Life:
    status = one["status"]
    return (
        _job(one),
        one["spec"]["slot"],
        one["spec"]["epoch"],
        status["phase"],
        status.get("reason", ""),
        status.get("interruption", {}).get("trigger", ""),
    )


def _words(life: Life) -> str:
    job, slot, epoch, *rest = life
    return f"{job} {slot} epoch {epoch} {' '.join(word for word in rest if word)}"


def _starts(attempts: Iterable[Attempt], diary: Path) -> list[str]:
    """Compare which programs started with what the API says: none twice, none unknown."""
    counted = Counter(started[:3] for started in starts(diary))
    told = {
        (_job(one), one["spec"]["slot"], one["spec"]["epoch"])
        for one in attempts
        if "commandStartedTime" in one["status"]["timings"]
    }
    return [
        *(f"{key} started {n} times" for key, n in sorted(counted.items()) if n != 1),
        *(f"{key} started, but the API does not say so" for key in sorted(counted.keys() - told)),
        *(f"{key} never started, but the API says so" for key in sorted(told - counted.keys())),
    ]


def _resumed(attempts: Sequence[Attempt], diary: Path) -> list[str]:
    """Compare where each later epoch went on with what its predecessor had saved."""
    said = []
    for one in attempts:
        job, slot, epoch = _job(one), one["spec"]["slot"], one["spec"]["epoch"]
        name = one["metadata"]["name"]
        before = next((o for o in attempts if o["status"].get("supersededBy") == name), None)
        if before is None:
            continue
        saved = before["status"].get("checkpoints", {}).get("lastSeq")
        restored = one["spec"].get("restoreFrom", {})
        if restored.get("seq") != saved:
            said.append(f"{name} goes on from {restored}, but its predecessor saved {saved} last")
        begun = restored.get("cursor", {}).get("completed", 0)
        share = 1 if job == FIT else RANKS
        first = begun + (0 if job == FIT else int(slot))
        wanted = list(range(first, STEPS, share))
        if _steps(diary, job, slot, epoch) != wanted:
            said.append(f"{name} went on from {begun}, but did not do the steps that were left")
    return said


def _steps(diary: Path, job: str, slot: str, epoch: int) -> list[int]:
    notes = diary / f"steps-{job}-{slot}"
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [int(step) for number, step in (line.split() for line in lines) if int(number) == epoch]


def _results(diary: Path) -> list[str]:
    """Compare every result with that of the run that nothing disturbed."""
    names = [f"{FIT}-0", f"{FIT}-{fit.BROKEN_SLOT}", f"{FIT}-{DRILLED}", f"{PAIR}-0", f"{PAIR}-1"]
    found = {name: _result(diary / f"result-{name}") for name in names}
    undisturbed = found[f"{FIT}-0"]
    return [
        f"the result of {name} is {result}, that of the undisturbed run {undisturbed}"
        for name, result in found.items()
        if result != undisturbed or result.get("steps") != STEPS
    ]


def _result(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _recoveries(attempts: Sequence[Attempt]) -> list[str]:
    """Count lost and recovered seconds again where a later epoch started (SC-016)."""
    said = []
    for one in attempts:
        interruption = one["status"].get("interruption")
        successor = _named(attempts, one["status"].get("supersededBy"))
        if interruption is None or successor is None:
            continue
        name, timings = one["metadata"]["name"], one["status"]["timings"]
        ran = _seconds(timings["commandStartedTime"], interruption["time"])
        if not 0 <= interruption["lostSeconds"] <= ran:
            said.append(f"{name} ran {ran} s and lost {interruption['lostSeconds']} s of them")
        back = _seconds(interruption["time"], successor["status"]["timings"]["commandStartedTime"])
        if interruption.get("recoverySeconds") != back:
            told = interruption.get("recoverySeconds")
            said.append(f"{name} was back after {back} s, but recoverySeconds says {told}")
    return said


def _named(attempts: Iterable[Attempt], name: str | None) -> Attempt | None:
    return next((one for one in attempts if one["metadata"]["name"] == name), None)


def _job(one: Attempt) -> str:
    return str(one["metadata"]["labels"].get("nodus.dev/job"))


def _seconds(begin: str, end: str) -> int:
    return int((_moment(end) - _moment(begin)).total_seconds())


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
