"""The same requests to the real kube-apiserver and ours: the same answers, but for what is meant.

What is meant stands in allowed.py and allowed_requests.py, each entry with its rule.
"""

from collections.abc import Iterable

import pytest
from tests.differential import document_requests, fleet, part_requests, requests, server_requests
from tests.differential.allowed_requests import REQUESTS
from tests.differential.asking import Ask, ask_all
from tests.differential.pair import Pair
from tests.differential.verdict import Verdict

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

TABLES = {
    "paths and verbs": requests.paths,
    "users": requests.users,
    "Accept": requests.accepts,
    "queries": requests.queries,
    "ListOptions": requests.options,
    "versions of the future": requests.future,
    "selectors": part_requests.selectors,
    "shards": part_requests.shards,
    "continue tokens": part_requests.tokens,
    "discovery": requests.discovery,
    "layouts": server_requests.layouts,
    "headers": server_requests.headers,
    "the server itself": server_requests.server,
    "projects": server_requests.projects,
    "reviews": server_requests.reviews,
    "documents": document_requests.documents,
}
LARGE = {"compression": document_requests.compressed}
"""What is asked while there are large objects."""


@pytest.fixture(scope="session")
async def verdicts(pair: Pair) -> dict[str, Verdict]:
    """What came of each table."""
    found = {name: await judged(pair, table()) for name, table in TABLES.items()}
    await fleet.enlarge(pair)
    found |= {name: await judged(pair, table()) for name, table in LARGE.items()}
    await fleet.reduce(pair)
    return found


async def judged(pair: Pair, asked: Iterable[Ask]) -> Verdict:
    """Ask both servers, and compare."""
    asks, verdict = list(asked), Verdict(REQUESTS)
    for one, (kube, ours) in zip(asks, await ask_all(pair, asks), strict=True):
        verdict.judge(one, kube, ours)
    return verdict


@pytest.mark.parametrize("name", [*TABLES, *LARGE])
async def test_the_same_answers(verdicts: dict[str, Verdict], name: str) -> None:
    unexplained = verdicts[name].unexplained
    assert not unexplained, "\n".join([f"{len(unexplained)} differences", *unexplained[:50]])


async def test_no_meant_difference_is_gone(
    verdicts: dict[str, Verdict], capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Verdict(REQUESTS)
    for verdict in verdicts.values():
        whole.compared += verdict.compared
        whole.counts += verdict.counts
    with capsys.disabled():
        print(f"\n{whole.summary()}")  # noqa: T201 -- what the list of meant differences stands for
    assert whole.unused() == []
