"""The facts of `nodus timeline`: the lanes, epochs and spans of one owner (pure).

A span is what an Attempt did between two of its milestones: Queued, Acquiring, then the segments
of SC-501. One that goes on ends at `now`. The ledger says what of it Nodus covers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from nodus_api.kernel.money import ZERO, format_usd
from nodus_api.metav1.times import format_time, parse_time
from nodus_api.storage.lives import Life

KINDS = ("Queued", "Acquiring", "Boot", "Restore", "Running", "Teardown")
"""In the order of an Attempt's life; Boot or Restore, never both (SC-502)."""

SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An interval of one kind; `ends` is False while it goes on."""

    kind: str
    start: datetime
    end: datetime
    ends: bool = True

    @property
    def seconds(self) -> int:
        """The length in whole seconds."""
        return (self.end - self.start) // SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One Attempt: its bar, and what its line beneath says."""

    name: str
    slot: str
    epoch: int
    rank: int | None
    gang_epoch: int | None
    outcome: str
    """The stage, after the end with its reason and trigger."""
    live: bool
    queued: datetime
    spans: tuple[Span, ...]
    covered: tuple[tuple[datetime, datetime], ...]
    saved: tuple[datetime, ...]
    lost_seconds: int | None
    recovery_seconds: int | None
    charged: Decimal
    covered_usd: Decimal
    offering: str | None = None
    successor: str | None = None

    def seconds(self, kind: str) -> int | None:
        """Return how long it was in a span of this kind; None if never."""
        found = [span.seconds for span in self.spans if span.kind == kind]
        return sum(found) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All epochs of one owner, by slot and epoch, between `start` and `end`."""

    owner: str
    project: str
    state: str
    start: datetime
    end: datetime
    epochs: tuple[Epoch, ...] = field(default=())

    @property
    def live(self) -> bool:
        """Whether anything still goes on."""
        return any(not span.ends for epoch in self.epochs for span in epoch.spans)


def timeline_of(
    owner: str, project: str, state: str, lives: Sequence[Life], now: datetime
) -> Timeline:
    """Return the timeline of an owner's Attempts; it ends at `now` if anything goes on."""
    epochs = tuple(sorted((epoch_of(life, now) for life in lives), key=_in_lanes))
    ends = [span.end for epoch in epochs for span in epoch.spans]
    start = min((epoch.queued for epoch in epochs), default=now)
    return Timeline(
        owner=owner,
        project=project,
        state=state,
        start=start,
        end=max([*ends, start + SECOND]),
        epochs=epochs,
    )


def epoch_of(life: Life, now: datetime) -> Epoch:
    """Return one Attempt's bar."""
    spec, status = life.document["spec"], life.document["status"]
    gang, interruption = spec.get("gang", {}), status.get("interruption", {})
    return Epoch(
        name=life.document["metadata"]["name"],
        slot=spec["slot"],
        epoch=spec["epoch"],
        rank=gang.get("rank"),
        gang_epoch=gang.get("epoch"),
        outcome=_outcome(status),
        live="finishedTime" not in status["timings"],
        queued=parse_time(status["timings"]["queuedTime"]),
        spans=tuple(_spans(_starting(life), _reached(status), now)),
        covered=tuple((row.start, row.end) for row in life.ledger if row.covered),
        saved=tuple(point.committed for point in life.checkpoints),
        lost_seconds=interruption.get("lostSeconds"),
        recovery_seconds=interruption.get("recoverySeconds"),
        charged=sum((row.usd for row in life.ledger if not row.covered), ZERO),
        covered_usd=sum((row.usd for row in life.ledger if row.covered), ZERO),
        offering=status.get("placement", {}).get("offering"),
        successor=status.get("supersededBy"),
    )


def timeline_json(timeline: Timeline) -> dict[str, Any]:
    """Return the facts as JSON values: times RFC 3339, money decimal strings."""
    return {
        "owner": timeline.owner,
        "project": timeline.project,
        "state": timeline.state,
        "startTime": format_time(timeline.start),
        "endTime": format_time(timeline.end),
        "live": timeline.live,
        "epochs": [_epoch_json(epoch) for epoch in timeline.epochs],
    }


def _epoch_json(epoch: Epoch) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "attempt": epoch.name,
        "slot": epoch.slot,
        "epoch": epoch.epoch,
        "rank": epoch.rank,
        "gangEpoch": epoch.gang_epoch,
        "outcome": epoch.outcome,
        "live": epoch.live,
        "offering": epoch.offering,
        "spans": [_span_json(span) for span in epoch.spans],
        "covered": [
            {"startTime": format_time(start), "endTime": format_time(end)}
            for start, end in epoch.covered
        ],
        "checkpoints": [format_time(moment) for moment in epoch.saved],
        "lostSeconds": epoch.lost_seconds,
        "recoverySeconds": epoch.recovery_seconds,
        "costUSD": format_usd(epoch.charged),
        "coveredUSD": format_usd(epoch.covered_usd),
        "supersededBy": epoch.successor,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _span_json(span: Span) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": span.kind, "startTime": format_time(span.start)}
    if span.ends:
        facts["endTime"] = format_time(span.end)
    return facts | {"seconds": span.seconds}


def _in_lanes(epoch: Epoch) -> tuple[int, int, str, int]:
    """Order lanes by number where slots are numbers, and a lane's epochs by time."""
    number = int(epoch.slot) if epoch.slot.isdecimal() else -1
    return (epoch.rank if epoch.rank is not None else number, number, epoch.slot, epoch.epoch)


def _outcome(status: Mapping[str, Any]) -> str:
    words = [status["progress"]["stage"]]
    if status.get("reason") not in (None, words[0]):
        words.append(status["reason"])
    trigger = status.get("interruption", {}).get("trigger")
    if trigger is not None and trigger != status.get("reason"):
        words.append(f"({trigger})")
    if status.get("exitCode"):
        died = f"signal {status['signal']}" if "signal" in status else f"exit {status['exitCode']}"
        words.append(died)
    return " ".join(words)


def _reached(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the milestones that stand: a queued Attempt keeps the time of a failed try (T6)."""
    timings = status["timings"]
    queued: Mapping[str, Any] = {"queuedTime": timings["queuedTime"]}
    return queued if status["phase"] == "Queued" else timings


def _starting(life: Life) -> str:
    """Return what its start is billed as: Restore where it resumes (SC-140, SC-502)."""
    resumes = "restoreFrom" in life.document["spec"] or any(
        row.segment == "Restore" for row in life.ledger
    )
    return "Restore" if resumes else "Boot"


def _spans(starting: str, timings: Mapping[str, Any], now: datetime) -> Iterator[Span]:
    """Yield the spans between milestones that are there; what was skipped gives none."""
    begins = (
        ("Queued", "queuedTime"),
        ("Acquiring", "acquiredTime"),
        (starting, "billingStartTime"),
        ("Running", "commandStartedTime"),
        ("Teardown", "finishedTime"),
        (None, "deletionProvenTime"),
    )
    known = [(kind, parse_time(timings[name])) for kind, name in begins if name in timings]
    machine = "billingStartTime" in timings
    for (kind, start), after in zip(known, [*known[1:], None], strict=True):
        if kind is None or (kind == "Teardown" and not machine):
            continue
        end = now if after is None else after[1]
        if end > start or after is None:
            yield Span(kind=kind, start=start, end=max(start, end), ends=after is not None)
