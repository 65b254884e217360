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

from nodus_api.bench.placement_cases import CLASSES, a_catalog, requests
from nodus_api.bench.plain_placement import PlainDecision, place_plainly, plain
from nodus_api.bench.report import NotMeasured, Row, rows_of
from nodus_api.clock import Clock
from nodus_api.kernel.offering import CatalogSnapshot
from nodus_api.kernel.placement import place
from nodus_api.kernel.request import PlacementRequest

AREA = "placement"
_PLAIN, _INDEXED = "a pass over all", "by the index"
_BATCH = "and taken from it"
_TARGETS = {_INDEXED: "1000/s", _BATCH: "1000/s"}
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
    """Measure decisions a second: plain, indexed, and indexed with each choice taken (SC-371).

    Raises NotMeasured if index and plain pass disagree about any request.
    """
    now = clock.now().replace(microsecond=0)
    snapshot = a_catalog(effort.classes, seeded(_SEED), now)
    drawn = requests(seeded(_SEED))
    for request in islice(drawn, effort.compared):
        if place_indexed(request, snapshot, now) != place_plainly(request, snapshot, now):
            raise NotMeasured(f"the index answers otherwise than a pass over all: {request}")
    rounds = []
    for _ in range(effort.rounds):
        asked = list(islice(drawn, effort.indexed))
        rounds.append(
            {
                _PLAIN: [_rate(_all_plainly, asked[: effort.plainly], snapshot, now)],
                _INDEXED: [_rate(_each, asked, snapshot, now)],
                _BATCH: [_rate(_one_after_another, asked, snapshot, now)],
            }
        )
    return rows_of(AREA, "/s CPU", rounds, yardstick=_PLAIN, targets=_TARGETS)


def place_indexed(
    request: PlacementRequest, snapshot: CatalogSnapshot, now: datetime
) -> PlainDecision:
    """Return what `place` says, in the form of the plain pass."""
    decision = place(request, snapshot, now)
    order = tuple((*one.candidate.key, one.total) for one in decision.top)
    return plain(decision.placement, order, dict(decision.counters), relaxed=decision.relaxed)


Decide = Callable[[Sequence[PlacementRequest], CatalogSnapshot, datetime], None]


def _rate(
    decide: Decide,
    asked: Sequence[PlacementRequest],
    snapshot: CatalogSnapshot,
    now: datetime,
) -> float:
    began = _cpu_seconds()
    decide(asked, snapshot, now)
    return len(asked) / (_cpu_seconds() - began)


def _cpu_seconds() -> float:
    """Return the CPU that this process has used: other load on the machine does not bend it."""
    used = getrusage(RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _all_plainly(
    asked: Sequence[PlacementRequest], snapshot: CatalogSnapshot, now: datetime
) -> None:
    for request in asked:
        place_plainly(request, snapshot, now)


def _each(asked: Sequence[PlacementRequest], snapshot: CatalogSnapshot, now: datetime) -> None:
    for request in asked:
        place(request, snapshot, now)


def _one_after_another(
    asked: Sequence[PlacementRequest], snapshot: CatalogSnapshot, now: datetime
) -> None:
    """Place as the loop does in one step: what is placed is gone for the next."""
    for request in asked:
        chosen = place(request, snapshot, now).chosen
        if chosen is not None:
            snapshot = snapshot.after_taking(chosen.candidate.key, request.gang_size)
