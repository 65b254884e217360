"""The area `placement`: its answers are compared before it measures; no figure is judged here."""

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from random import Random

import pytest

from nodus_api.bench import placing
from nodus_api.bench.placement_cases import draw, requests
from nodus_api.bench.report import NotMeasured
from nodus_api.clock import SystemClock

SEEDED: Callable[[int], Random] = Random
EFFORT = placing.Effort(rounds=2, compared=5, plainly=2, indexed=5, classes=200)


def test_each_case_is_compared_with_a_plain_pass() -> None:
    plain, indexed, taken, together, news = placing.placements(
        clock=SystemClock(), effort=EFFORT, seeded=SEEDED
    )

    assert (plain.samples, plain.ratio) == (2, None)
    assert indexed.ratio is not None
    assert taken.ratio is not None
    assert indexed.target == "1000/s"
    assert min(together.median, news.median) > 0


def test_answers_that_differ_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "place_indexed", lambda *_: None)
    with pytest.raises(NotMeasured, match="the index answers otherwise"):
        placing.placements(clock=SystemClock(), effort=EFFORT, seeded=SEEDED)


def test_the_requests_are_all_different_and_drawn_again_by_their_seed() -> None:
    first = list(islice(requests(SEEDED(1)), 50))

    assert first == list(islice(requests(SEEDED(1)), 50))
    assert len({str(one) for one in first}) == 50
    now = datetime(2026, 3, 1, tzinfo=UTC)
    one, other = (draw(100, SEEDED(1), now).catalog(now).snapshot for _ in range(2))
    assert one.id == other.id
