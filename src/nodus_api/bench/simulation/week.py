"""The work of a study: a seeded week of Jobs of many kinds, the same for whoever places them.

How long a slot truly works is a draw of its Job, and so is what its owner believes; where it runs
changes neither. A smaller study is a shorter week under the same load.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from nodus_api.suppliers.simulated.chance import Chance, Spread

ATTEMPTS = 5000
"""Slots in a whole week; replacements come on top."""
_WEEK = timedelta(days=7)
_HOUR = timedelta(hours=1)
_QUARTERS = 4
_PATIENCE = 24 * 3600
_BUSY, _QUIET, _WEEKEND = 1.0, 0.35, 0.3
"""Arrivals by day, by night and at weekends, against the busiest hours."""
_MISJUDGED = 0.3
_UNESTIMATED = 0.2
"""The share of Jobs whose owner does not say how long they take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One Job, `after` the start of the study. The spec names no profile yet."""

    after: timedelta
    name: str
    project: str
    spec: Mapping[str, Any]

    @property
    def slots(self) -> int:
        """How many Attempts it begins with."""
        return int(self.spec["completions"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A kind of Job. `share` is of all slots; `work` is a slot's, at speed 1."""

    name: str
    share: float
    slots: tuple[int, int]
    work: Spread
    resources: Mapping[str, Any]
    restartable: bool = False
    gang: bool = False
    interruptible: str | None = None
    retries: int = 1
    limits: Mapping[str, int] = field(default_factory=dict)

    def spec(self, chance: Chance, slots: int) -> dict[str, Any]:
        """Return the spec of one Job."""
        work = chance.length("work", self.work)
        placement = {} if self.interruptible is None else {"interruptible": self.interruptible}
        believed = chance.length("estimate", Spread(median=work, sigma=_MISJUDGED))
        hours = max(round(believed / _HOUR * _QUARTERS), 1) / _QUARTERS
        estimate = {} if chance.happens("silent", _UNESTIMATED) else {"hours": str(hours)}
        seconds = str(int(work.total_seconds()))
        return {
            "template": {
                "command": ["simulated"],
                "env": {"SIMULATED_WORK_SECONDS": seconds},
            },
            "resources": self.resources,
            "completions": slots,
            "parallelism": slots,
            "gang": self.gang,
            "checkpoint": {"restartable": self.restartable},
            "placement": placement,
            "restart": {"maxRetries": self.retries},
            "limits": {"startDeadlineSeconds": _PATIENCE, **self.limits},
            "estimate": estimate,
        }


def _spread(minutes: int, sigma: float = 0.6) -> Spread:
    return Spread(median=timedelta(minutes=minutes), sigma=sigma)


def _accelerated(*names: str, count: int = 1) -> dict[str, Any]:
    return {"accelerators": list(names), "count": count}


_ONE = ("h100", "h200", "gh200")
_EIGHT = ("h100", "a100", "b200")
_KINDS: Sequence[_Kind] = (
    _Kind(
        name="index",
        share=0.36,
        slots=(8, 30),
        work=_spread(25),
        resources={"vcpus": "4", "memoryGiB": "16"},
        retries=2,
    ),
    _Kind(
        name="sweep",
        share=0.26,
        slots=(4, 12),
        work=_spread(90),
        resources=_accelerated(*_ONE),
        restartable=True,
    ),
    _Kind(
        name="tune",
        share=0.12,
        slots=(1, 4),
        work=_spread(40),
        resources=_accelerated(*_ONE, "a6000"),
    ),
    _Kind(  # what fits into the time between two reclaims may take the risk
        name="probe",
        share=0.10,
        slots=(2, 8),
        work=_spread(20, 0.5),
        resources=_accelerated(*_ONE, "a6000"),
        interruptible="Allow",
        retries=2,
    ),
    _Kind(
        name="batch",
        share=0.08,
        slots=(1, 4),
        work=_spread(75),
        resources=_accelerated(*_EIGHT, count=8),
        restartable=True,
    ),
    _Kind(
        name="train",
        share=0.05,
        slots=(2, 4),
        work=_spread(180),
        resources=_accelerated(*_EIGHT, count=8),
        restartable=True,
        gang=True,
    ),
    _Kind(  # wanted by a deadline, or not at all
        name="replay",
        share=0.03,
        slots=(1, 3),
        work=_spread(15, 0.5),
        resources=_accelerated("v100", count=4),
        restartable=True,
        limits={"startDeadlineSeconds": 3600, "maxDurationSeconds": 24 * 3600},
    ),
)


def span_of(attempts: int) -> timedelta:
    """Return within what time so many slots arrive."""
    return _WEEK * attempts / ATTEMPTS


def week(*, attempts: int, seed: int) -> Iterator[Arrival]:
    """Yield Jobs with `attempts` slots in all, of each kind its share, as they arrive."""
    chance, span = Chance(seed).of("week"), span_of(attempts)
    jobs = [job for kind, slots in _shares(attempts) for job in _jobs(kind, slots, chance, span)]
    yield from sorted(jobs, key=lambda job: (job.after, job.name))


def _shares(attempts: int) -> Iterator[tuple[_Kind, int]]:
    """Yield each kind with its slots; what is left by rounding is the first one's."""
    slots = {kind.name: int(kind.share * attempts) for kind in _KINDS}
    slots[_KINDS[0].name] += attempts - sum(slots.values())
    for kind in _KINDS:
        yield kind, slots[kind.name]


def _jobs(kind: _Kind, slots: int, chance: Chance, span: timedelta) -> Iterator[Arrival]:
    number = 0
    least, most = kind.slots
    while slots:
        number += 1
        name = f"{kind.name}-{number}"
        own = chance.of(name)
        size = min(least + int(own.uniform("slots") * (most - least + 1)), slots)
        slots -= size
        yield Arrival(
            after=_arrival(own, span),
            name=name,
            project=f"team-{1 + int(own.uniform('team') * 4)}",
            spec=kind.spec(own, size),
        )


def _arrival(chance: Chance, span: timedelta) -> timedelta:
    """Draw when a Job arrives: rather by day than by night or at a weekend."""
    number, after = 0, span
    while after == span:
        drawn = span * chance.uniform(f"arrival {number}")
        if chance.happens(f"taken {number}", _busy(drawn)):
            after = timedelta(seconds=drawn // timedelta(seconds=1))
        number += 1
    return after


def _busy(after: timedelta) -> float:
    days, rest = divmod(after, timedelta(days=1))
    if days % 7 >= 5:
        return _WEEKEND
    return _BUSY if 8 <= rest / _HOUR < 20 else _QUIET
