"""The study: one seeded week, placed by each profile and by two baselines, side by side.

Every run is the product: its loop, its filters, its bills, on the simulated fleet in virtual time.
What is compared is read from the rows that clients read, and every run is audited.
"""

import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.bench.simulation.audit import audit
from nodus_api.bench.simulation.contenders import CONTENDERS, Contender
from nodus_api.bench.simulation.virtual import Simulation, simulation
from nodus_api.bench.simulation.week import Arrival, span_of, week
from nodus_api.bench.simulation.week_fleet import week_fleet
from nodus_api.kernel.money import ZERO, format_usd
from nodus_api.scheduler import Pace, Retention
from nodus_api.storage import tables as t
from nodus_api.storage.embedded import EmbeddedPostgres
from nodus_api.storage.migrate import upgrade

START = datetime(2026, 1, 5, tzinfo=UTC)
"""A Monday: the virtual time at which every run begins."""
PACE = Pace(
    full_pass=timedelta(minutes=2),
    batch=400,
    placed_at_once=1600,
    supplier_calls=64,
    offers=timedelta(minutes=5),
    accrual=timedelta(hours=1),
    sweep=timedelta(hours=1),
    retention=timedelta(days=1),
)
"""What nobody looks at meanwhile is done seldom; freed capacity is asked for at once as ever."""
TICK = timedelta(seconds=60)
"""What happens within it is looked at together: so late, at most, is what the loop answers."""
KEPT = Retention(finished=timedelta(days=36_500), count=2**31 - 1)
"""All that ended stays in the rows, to be counted and audited."""
_HOUR = timedelta(hours=1)
_SLOWEST = 0.95

Tell = Callable[[Contender, Simulation], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run came to. Hours are of virtual time."""

    contender: Contender
    attempts: int
    """Replacements included."""
    slots: int
    cost_usd: Decimal
    """What customers are charged."""
    covered_usd: Decimal
    """What Nodus pays in their place (SC-520)."""
    results: Mapping[str, timedelta]
    """From the first Attempt's queuedTime to the success, of each slot that succeeded."""
    interruptions: int
    lost_hours: float
    spot_share: float
    """Of the charged time."""
    leaks: tuple[str, ...]

    def hours(self, slots: Iterable[str]) -> list[float]:
        """Return how long these slots took, the shortest first."""
        return sorted(self.results[slot] / _HOUR for slot in slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One contender's line in the table."""

    name: str
    baseline: bool
    cost_usd: Decimal
    covered_usd: Decimal
    mean_hours: float
    slowest_hours: float
    """The 95th percentile."""
    attempts: int
    succeeded: int
    interruptions: int
    lost_hours: float
    spot_share: float
    leaks: int

    def to_json(self) -> dict[str, Any]:
        """Write it for programs: USD as in the API, hours to three decimals."""
        return {
            "name": self.name,
            "baseline": self.baseline,
            "costUSD": format_usd(self.cost_usd),
            "coveredUSD": format_usd(self.covered_usd),
            "timeToResultHours": {
                "mean": round(self.mean_hours, 3),
                "p95": round(self.slowest_hours, 3),
            },
            "attempts": self.attempts,
            "succeeded": self.succeeded,
            "interruptions": self.interruptions,
            "lostHours": round(self.lost_hours, 3),
            "spotShare": round(self.spot_share, 3),
            "leaks": self.leaks,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """All runs of one week.

    Times to result are compared over the slots that succeeded in every run: a run in which many
    failed early would seem fast.
    """

    seed: int
    slots: int
    compared: int
    lines: Sequence[Line]
    leaks: Sequence[str]

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], *, seed: int) -> "Study":
        """Put the outcomes side by side."""
        common = set.intersection(*(set(one.results) for one in outcomes))
        return cls(
            seed=seed,
            slots=outcomes[0].slots,
            compared=len(common),
            lines=[_line(one, common) for one in outcomes],
            leaks=[f"{one.contender.name}: {leak}" for one in outcomes for leak in one.leaks],
        )

    @property
    def claims(self) -> dict[str, bool]:
        """Return what the profiles promise, and whether this study shows it."""
        cost = {one.name: one.cost_usd for one in self.lines}
        time = {one.name: one.mean_hours for one in self.lines}
        worst = (max(cost, key=lambda name: cost[name]), max(time, key=lambda name: time[name]))
        return {
            "Cost is the cheapest": cost["Cost"] == min(cost.values()),
            "Speed is the fastest": time["Speed"] == min(time.values()),
            "Balanced is never the worst": "Balanced" not in worst,
        }

    def to_json(self) -> dict[str, Any]:
        """Write the study for programs."""
        return {
            "seed": self.seed,
            "slots": self.slots,
            "comparedSlots": self.compared,
            "runs": [line.to_json() for line in self.lines],
            "claims": self.claims,
            "leaks": list(self.leaks),
        }


async def run(
    url: str, contender: Contender, *, attempts: int, seed: int, tell: Tell | None = None
) -> Outcome:
    """Let one contender place the whole week on a migrated, empty database of its own.

    `tell` is called after each moment. Raises NeverSettles and storage errors.
    """
    arrivals = list(week(attempts=attempts, seed=seed))
    model = week_fleet(seed=seed, span=span_of(attempts))
    async with simulation(
        url,
        model,
        seed=seed,
        start=START,
        pace=PACE,
        retention=KEPT,
        tick=TICK,
        decide=contender.decide,
    ) as made:
        if tell is not None:
            made.told = _telling(tell, contender)
        await _make_projects(made, arrivals)
        for job in arrivals:
            made.submit_at(
                START + job.after, job.name, contender.asks(job.spec), project=job.project
            )
        await made.run()
        async with made.database.single_reads() as connection:
            return Outcome(
                contender=contender,
                slots=sum(job.slots for job in arrivals),
                results=await _results(connection),
                leaks=await audit(made.database, made.fleet),
                **await _sums(connection),
            )


async def study(
    contenders: Sequence[Contender] = CONTENDERS,
    *,
    attempts: int,
    seed: int,
    tell: Tell | None = None,
) -> Study:
    """Run all contenders, one after the other, each on an embedded Postgres of its own.

    Nothing is left behind. Raises what `run` raises.
    """
    outcomes = []
    for contender in contenders:
        with throwaway_postgres() as url:
            await upgrade(url)
            outcomes.append(await run(url, contender, attempts=attempts, seed=seed, tell=tell))
    return Study.of(outcomes, seed=seed)


@contextmanager
def throwaway_postgres() -> Iterator[str]:
    """Yield the address of a new server, which loses its data at the end in any case."""
    parent = "/var/tmp" if Path("/var/tmp").is_dir() else None  # noqa: S108 -- made by mkdtemp
    folder = Path(tempfile.mkdtemp(prefix="nodus-study-", dir=parent))
    folder.chmod(0o711)  # below it works an account of its own (storage.md section 10)
    try:
        server = EmbeddedPostgres(folder, settings={"fsync": "off", "synchronous_commit": "off"})
        server.start()
        try:
            yield server.url
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _telling(tell: Tell, contender: Contender) -> Callable[[Simulation], Awaitable[None]]:
    async def told(simulation: Simulation) -> None:
        tell(contender, simulation)

    return told


def _line(outcome: Outcome, compared: Iterable[str]) -> Line:
    hours = outcome.hours(compared)
    return Line(
        name=outcome.contender.name,
        baseline=outcome.contender.baseline,
        cost_usd=outcome.cost_usd,
        covered_usd=outcome.covered_usd,
        mean_hours=fmean(hours) if hours else 0.0,
        slowest_hours=hours[int(_SLOWEST * (len(hours) - 1))] if hours else 0.0,
        attempts=outcome.attempts,
        succeeded=len(outcome.results),
        interruptions=outcome.interruptions,
        lost_hours=outcome.lost_hours,
        spot_share=outcome.spot_share,
        leaks=len(outcome.leaks),
    )


async def _make_projects(simulation: Simulation, arrivals: Iterable[Arrival]) -> None:
    names = [{"name": name} for name in sorted({job.project for job in arrivals})]
    async with simulation.database.transaction() as connection:
        await connection.execute(postgresql.insert(t.projects).on_conflict_do_nothing(), names)


async def _results(connection: AsyncConnection) -> dict[str, timedelta]:
    """Return the time to result of every slot that succeeded, by `project/job/slot`."""
    rows = await connection.execute(_RESULTS)
    return {f"{row.project}/{row.job}/{row.slot}": row.finished - row.queued for row in rows}


async def _sums(connection: AsyncConnection) -> dict[str, Any]:
    charged = {True: ZERO, False: ZERO}
    seconds = {"spot": 0.0, "on-demand": 0.0}
    for row in await connection.execute(_CHARGES):
        charged[row.covered] += row.usd
        if not row.covered:
            seconds[row.market] += float(row.seconds)
    interrupted = (await connection.execute(_INTERRUPTIONS)).one()
    return {
        "attempts": int(await connection.scalar(_ATTEMPTS) or 0),
        "cost_usd": charged[False],
        "covered_usd": charged[True],
        "spot_share": seconds["spot"] / max(sum(seconds.values()), 1.0),
        "interruptions": int(interrupted.times),
        "lost_hours": int(interrupted.lost_seconds) / 3600,
    }


_ATTEMPTS = sa.select(sa.func.count()).select_from(t.attempts)
_RESULTS = (
    sa.select(
        t.workloads.c.project,
        t.workloads.c.name.label("job"),
        t.attempts.c.slot,
        sa.func.min(t.attempts.c.queued).label("queued"),
        sa.func.max(t.attempts.c.finished).label("finished"),
    )
    .select_from(t.attempts.join(t.workloads, t.workloads.c.uid == t.attempts.c.workload))
    .group_by(t.workloads.c.project, t.workloads.c.name, t.attempts.c.slot)
    .having(sa.func.bool_or(t.attempts.c.stage == "Succeeded"))
    .order_by(t.workloads.c.project, t.workloads.c.name, t.attempts.c.slot)
)
_CHARGES = (
    sa.select(
        t.cost_segments.c.covered,
        t.machines.c.market,
        sa.func.sum(t.cost_segments.c.usd).label("usd"),
        sa.func.sum(sa.extract("epoch", t.cost_segments.c.to_ts - t.cost_segments.c.from_ts)).label(
            "seconds"
        ),
    )
    .select_from(t.cost_segments.join(t.machines, t.machines.c.no == t.cost_segments.c.machine))
    .group_by(t.cost_segments.c.covered, t.machines.c.market)
)
_INTERRUPTIONS = sa.select(
    sa.func.count().label("times"),
    sa.func.coalesce(sa.func.sum(t.interruptions.c.lost_seconds), 0).label("lost_seconds"),
).select_from(t.interruptions)
