"""What the outcomes of one offer in one market have taught, fading with time (SC-205).

Counts fade by half-lives, so that what a supplier was does not outweigh what it has become: health
in 6 hours (SC-361), interruptions and their exposure in 7 days (SC-352). Waits fade as exposure
does: the specification names no half-life for them, and a histogram that keeps everything never
sees that a region has become slow.

All counts are as of `at`; a sum of experiences, or a new outcome, first lets both fade to one
moment. What has no history has the priors of `CandidateStats`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

from nodus_api.kernel.candidate import CandidateStats
from nodus_api.kernel.prediction import interruption_rate
from nodus_api.kernel.vocabulary import Market

HEALTH_HALF_LIFE = timedelta(hours=6)
EXPOSURE_HALF_LIFE = timedelta(days=7)

EDGES = (1, 2, 5, 10, 20, 30, 45, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1200, 1800, 2700, 3600)
"""Upper edges of the buckets of waits, in seconds; the last takes all that is longer."""

PRIOR_WEIGHT = 4.0
"""How many observations the prior of a wait counts for."""

_LONGER = "longer"
"""The name of the bucket after the last edge."""

_FORGOTTEN = 1e-6
"""A count that is less has no effect on any figure, and is dropped."""

Waits = tuple[float, ...]
"""Decayed counts by bucket of EDGES; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """Faded counts of outcomes; `exposure_hours` is time on machines, lost or not."""

    at: datetime
    grant: Waits = ()
    boot: Waits = ()
    teardown: Waits = ()
    successes: float = 0.0
    failures: float = 0.0
    interruptions: float = 0.0
    exposure_hours: float = 0.0

    def faded(self, now: datetime) -> "Experience":
        """Return what is left of it at a later moment; an earlier one changes nothing."""
        if now <= self.at:
            return self
        age = now - self.at
        health = 0.5 ** (age / HEALTH_HALF_LIFE)
        long = 0.5 ** (age / EXPOSURE_HALF_LIFE)
        return Experience(
            at=now,
            grant=_scaled(self.grant, long),
            boot=_scaled(self.boot, long),
            teardown=_scaled(self.teardown, long),
            successes=_kept(self.successes * health),
            failures=_kept(self.failures * health),
            interruptions=_kept(self.interruptions * long),
            exposure_hours=_kept(self.exposure_hours * long),
        )

    def after(self, outcome: "Outcome", now: datetime) -> "Experience":
        """Return it with what one outcome teaches, counted in full at `now`."""
        known = self.faded(now)
        return replace(
            known,
            grant=_with(known.grant, outcome.grant_seconds),
            boot=_with(known.boot, outcome.boot_seconds),
            teardown=_with(known.teardown, outcome.teardown_seconds),
            successes=known.successes + outcome.successes,
            failures=known.failures + outcome.failures,
            interruptions=known.interruptions + outcome.interruptions,
            exposure_hours=known.exposure_hours + max(0.0, outcome.exposure_hours),
        )

    def to_json(self) -> dict[str, Any]:
        """Write it as it is kept with an offer's statistics; counts of zero are left out."""
        counts = {
            "grantSeconds": _by_edge(self.grant),
            "bootSeconds": _by_edge(self.boot),
            "teardownSeconds": _by_edge(self.teardown),
            "successes": self.successes,
            "failures": self.failures,
            "interruptions": self.interruptions,
            "exposureHours": self.exposure_hours,
        }
        return {"at": self.at.isoformat()} | {key: value for key, value in counts.items() if value}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Experience":
        """Read what `to_json` wrote; what it does not name is zero."""
        return cls(
            at=datetime.fromisoformat(kept["at"]),
            grant=_from_edges(kept.get("grantSeconds", {})),
            boot=_from_edges(kept.get("bootSeconds", {})),
            teardown=_from_edges(kept.get("teardownSeconds", {})),
            successes=kept.get("successes", 0.0),
            failures=kept.get("failures", 0.0),
            interruptions=kept.get("interruptions", 0.0),
            exposure_hours=kept.get("exposureHours", 0.0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one fact teaches: waits in seconds, None for none, and what is counted."""

    grant_seconds: float | None = None
    boot_seconds: float | None = None
    teardown_seconds: float | None = None
    successes: int = 0
    failures: int = 0
    interruptions: int = 0
    exposure_hours: float = 0.0


def together(known: Iterable[Experience], now: datetime) -> Experience:
    """Return the sum of experiences, as of `now`."""
    faded = [one.faded(now) for one in known]
    return Experience(
        at=now,
        grant=_sum([one.grant for one in faded]),
        boot=_sum([one.boot for one in faded]),
        teardown=_sum([one.teardown for one in faded]),
        successes=_total(one.successes for one in faded),
        failures=_total(one.failures for one in faded),
        interruptions=_total(one.interruptions for one in faded),
        exposure_hours=_total(one.exposure_hours for one in faded),
    )


def statistics(known: Experience, market: Market) -> CandidateStats:
    """Return what a candidate is known for: medians, tails, λ and health; no capacity."""
    prior = CandidateStats()
    grant = _quantiles(known.grant, prior.grant_p50, prior.grant_p95)
    boot = _quantiles(known.boot, prior.boot_p50, prior.boot_p95)
    teardown = _quantiles(known.teardown, prior.teardown_p50, prior.teardown_p95)
    return CandidateStats(
        grant_p50=grant[0],
        grant_p95=grant[1],
        boot_p50=boot[0],
        boot_p95=boot[1],
        teardown_p50=teardown[0],
        teardown_p95=teardown[1],
        interruptions_per_hour=interruption_rate(
            market, interruptions=known.interruptions, exposure_hours=known.exposure_hours
        ),
        successes=known.successes,
        failures=known.failures,
    )


def _quantiles(waits: Waits, p50: float, p95: float) -> tuple[float, float]:
    """Return median and 95th percentile, drawn towards the prior's by a few observations of it."""
    if not waits:
        return p50, p95
    half, most = EDGES.index(int(p50)), EDGES.index(int(p95))
    counts = list(waits)
    for place, share in ((half, 0.5), (most, 0.45), (most + 1, 0.05)):
        counts[place] += PRIOR_WEIGHT * share
    return _quantile(counts, 0.5), _quantile(counts, 0.95)


def _quantile(counts: Sequence[float], share: float) -> float:
    """Return where this share of the counts lies, even within a bucket."""
    passed = list(accumulate(counts))
    wanted = passed[-1] * share
    place = bisect_left(passed, wanted)
    edges = (0, *EDGES, EDGES[-1])
    below, edge = edges[place], edges[place + 1]
    return edge - (edge - below) * (passed[place] - wanted) / counts[place]


def _with(waits: Waits, seconds: float | None) -> Waits:
    if seconds is None:
        return waits
    counts = list(waits) or [0.0] * (len(EDGES) + 1)
    counts[bisect_left(EDGES, seconds)] += 1.0
    return tuple(counts)


def _by_edge(waits: Waits) -> dict[str, float]:
    """Write the counts by their upper edge, so that the kept ones survive a change of EDGES."""
    return {
        str(edge): count for edge, count in zip((*EDGES, _LONGER), waits, strict=False) if count
    }


def _from_edges(kept: Mapping[str, float]) -> Waits:
    counts = [0.0] * (len(EDGES) + 1)
    for edge, count in kept.items():
        counts[len(EDGES) if edge == _LONGER else bisect_left(EDGES, int(edge))] += count
    return tuple(counts) if kept else ()


def _scaled(waits: Waits, factor: float) -> Waits:
    scaled = tuple(_kept(count * factor) for count in waits)
    return scaled if any(scaled) else ()


def _sum(several: Sequence[Waits]) -> Waits:
    filled = [one for one in several if one]
    return tuple(_total(counts) for counts in zip(*filled, strict=True))


def _kept(count: float) -> float:
    return count if count >= _FORGOTTEN else 0.0


def _total(counts: Iterable[float]) -> float:
    total = 0.0
    for count in counts:  # not sum(): since 3.12 it adds in another way
        total += count
    return total
