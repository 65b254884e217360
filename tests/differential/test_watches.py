"""The same watches of the real kube-apiserver and ours: the same events of the same writes.

What is meant to differ stands in allowed.py, each entry with its rule.
"""

from dataclasses import dataclass

import pytest
from tests.differential import watch_requests
from tests.differential.allowed import WATCHES
from tests.differential.pair import Pair
from tests.differential.verdict import Verdict
from tests.differential.watching import Watch, watch_all

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

TABLES = {
    "starts": watch_requests.starts,
    "spellings": watch_requests.spellings,
    "selectors": watch_requests.selectors,
    "forms": watch_requests.forms,
}
APART = {"forms of lists": watch_requests.lists, "brief": watch_requests.brief}


@dataclass
class Seen:
    """What came of a table."""

    watches: list[Watch]
    verdict: Verdict


@pytest.fixture(scope="session")
async def seen(pair: Pair) -> dict[str, Seen]:
    """What came of each table: of most at once, of the same writes."""
    asked = [(name, one) for name, table in TABLES.items() for one in table()]
    watches = await watch_all(pair, [one for _, one in asked], watch_requests.write)
    found = {name: Seen([], Verdict(WATCHES)) for name in (*TABLES, *APART)}
    for (name, _), watch in zip(asked, watches, strict=True):
        found[name].watches.append(watch)
    # kube-apiserver ends these at their first event, so that they are never even
    lists = list(watch_requests.lists())
    found["forms of lists"].watches = await watch_all(
        pair, lists, watch_requests.write, until=lambda watch: watch.kube.over
    )
    found["brief"].watches = await watch_all(
        pair, list(watch_requests.brief()), None, until=lambda watch: watch.over
    )
    for one in found.values():
        for watch in one.watches:
            one.verdict.judge(watch.ask, *watch.seen())
    return found


@pytest.mark.parametrize("name", [*TABLES, *APART])
async def test_the_same_events(seen: dict[str, Seen], name: str) -> None:
    unexplained = seen[name].verdict.unexplained
    assert not unexplained, "\n".join([f"{len(unexplained)} differences", *unexplained[:50]])


async def test_the_first_event_of_a_table_has_the_columns(seen: dict[str, Seen]) -> None:  # LW-141
    told = [watch.ours.columns for one in seen.values() for watch in one.watches]
    tables = [columns for columns in told if any(columns)]

    assert tables
    for first, *later in tables:
        assert first
        assert not any(later)


async def test_no_meant_difference_is_gone(
    seen: dict[str, Seen], capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Verdict(WATCHES)
    for one in seen.values():
        whole.compared += one.verdict.compared
        whole.counts += one.verdict.counts
    with capsys.disabled():
        print(f"\n{whole.summary()}")  # noqa: T201 -- what the list of meant differences stands for
    assert whole.unused() == []
