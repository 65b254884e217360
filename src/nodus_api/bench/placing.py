"""Area `placement`: decisions a second of CPU against 5,000 classes (SC-370).

The yardstick is a plain pass over all candidates, for requests of the same mix in the same round.
Before anything is measured both answer the same requests, and the answers are compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from random import Random
from resource import RUSAGE_SELF, getrusage

from nodus_api.bench.placement_cases import CLASSES, draw, requests
from nodus_api.bench.plain_placement import PlainDecision, place_plainly, plain
from nodus_api.bench.report import NotMeasured, Row, figure, rows_of
from nodus_api.clock import Clock
from nodus_api.kernel.explaining import told_of
from nodus_api.kernel.offering import CatalogSnapshot
from nodus_api.kernel.placement import place
from nodus_api.kernel.request import PlacementRequest
from nodus_api.scheduler.catalog import SNAPSHOT_AGE, Catalog

AREA = "placement"
_PLAIN, _INDEXED = "a pass over all", "by the index"
_TAKEN = "as the loop does"
_CATALOG = "catalog"
_TOGETHER, _NEWS = "put together", "after news of all"
_TARGETS = {_INDEXED: "1000/s", _TAKEN: "1000/s"}
_SEED = 370


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured."""

    rounds: int
    compared: int
    """Requests whose answers are compared before."""
    plainly: int
    """Requests a round that are answered by a pass over all candidates."""
    indexed: int
    """Requests a round that are answered by the index."""
    classes: int = CLASSES


QUICK = Effort(rounds=5, compared=60, plainly=20, indexed=600)
FULL = Effort(rounds=15, compared=600, plainly=60, indexed=3000)


def placements(*, clock: Clock, effort: Effort, seeded: Callable[[int], Random]) -> list[Row]:
    """Measure decisions a second: plain, by the index, and whole, with each choice taken (SC-371).

    And what it costs to put the catalog together, which the loop does once a change of it, and to
    bring it up to date, which it does every 10 s. Raises NotMeasured if index and plain pass
    disagree about any request.
    """
    now = clock.now().replace(microsecond=0)
    drawn = draw(effort.classes, seeded(_SEED), now)
    catalog, asked = drawn.catalog(now), requests(seeded(_SEED))
    snapshot = catalog.snapshot
    for request in islice(asked, effort.compared):
        if place_indexed(request, snapshot, now) != place_plainly(request, snapshot, now):
            raise NotMeasured(f"the index answers otherwise than a pass over all: {request}")
    rounds, together, news = [], [], []
    for _ in range(effort.rounds):
        some = list(islice(asked, effort.indexed))
        rounds.append(
            {
                _PLAIN: [_rate(_all_plainly, some[: effort.plainly], catalog, now)],
                _INDEXED: [_rate(_each, some, catalog, now)],
                _TAKEN: [_rate(_one_after_another, some, catalog, now)],
            }
        )
        together.append(_cost(lambda: drawn.catalog(now)))
        news.append(_cost(lambda: catalog.after(drawn.news(), now + SNAPSHOT_AGE)))
    return [
        *rows_of(AREA, "/s CPU", rounds, yardstick=_PLAIN, targets=_TARGETS),
        figure(_CATALOG, _TOGETHER, "ms CPU", together, None),
        figure(_CATALOG, _NEWS, "ms CPU", news, None),
    ]


def place_indexed(
    request: PlacementRequest, snapshot: CatalogSnapshot, now: datetime
) -> PlainDecision:
    """Return what `place` says, in the form of the plain pass."""
    decision = place(request, snapshot, now)
    order = tuple((*one.candidate.key, one.total) for one in decision.top)
    return plain(decision.placement, order, dict(decision.counters), relaxed=decision.relaxed)


Decide = Callable[[Sequence[PlacementRequest], Catalog, datetime], None]


def _rate(
    decide: Decide, asked: Sequence[PlacementRequest], catalog: Catalog, now: datetime
) -> float:
    began = _cpu_seconds()
    decide(asked, catalog, now)
    return len(asked) / (_cpu_seconds() - began)


def _cost(work: Callable[[], object]) -> float:
    """Return the milliseconds of CPU that something takes."""
    began = _cpu_seconds()
    work()
    return (_cpu_seconds() - began) * 1000


def _cpu_seconds() -> float:
    """Return the CPU that this process has used: other load on the machine does not bend it."""
    used = getrusage(RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _all_plainly(asked: Sequence[PlacementRequest], catalog: Catalog, now: datetime) -> None:
    for request in asked:
        place_plainly(request, catalog.snapshot, now)


def _each(asked: Sequence[PlacementRequest], catalog: Catalog, now: datetime) -> None:
    for request in asked:
        place(request, catalog.snapshot, now)


def _one_after_another(asked: Sequence[PlacementRequest], catalog: Catalog, now: datetime) -> None:
    """Decide as the loop does: say why, choose an offer, and take it from what is left."""
    for request in asked:
        decision = place(request, catalog.snapshot, now)
        told_of(request, catalog.snapshot, decision, now)
        if decision.chosen is None:
            continue
        key, machines = decision.chosen.candidate.key, max(1, request.gang_size)
        offer = catalog.choose(key, now, machines=machines)
        if offer is None:
            raise NotMeasured(f"no offer of {key[0]} has the room that its class shows")
        catalog = catalog.after_taking(key, offer, machines=machines)
