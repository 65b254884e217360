"""How tests are dealt to workers (pytest -n): what stays together, what comes first."""

import gc
import os

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling

DEALT_ONE_BY_ONE = ("tests/scheduler/", "tests/goldens_live/")
ONE_UP = "tests of one `nodus up`"
DEALT_TOGETHER = {  # the servers of each group serve all of it
    "tests/clients/": "tests/clients/",
    "tests/conformance/": "tests/conformance/",
    "tests/differential/": "tests/differential/",
    "tests/cli/test_drill.py": ONE_UP,
    "tests/cli/test_gangs.py": ONE_UP,
    "tests/cli/test_owners.py": ONE_UP,
    "tests/cli/test_up.py": ONE_UP,
    "tests/cli/test_views.py": ONE_UP,
    "tests/cli/test_without_container.py": ONE_UP,
}
MOST_WORKERS = 4


class Dealer(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """Deals the tests of a file to one worker, so that they share the servers they start.

    Some folders' tests share no more than the worker's Postgres, and take long: they are dealt
    one by one. All are dealt in the order they were collected in.
    """

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """Return the name of the tests that one worker runs in one go, of which this is one."""
    for beginning, group in DEALT_TOGETHER.items():
        if nodeid.startswith(beginning):
            return group
    alone = nodeid.startswith(DEALT_ONE_BY_ONE)
    return nodeid if alone else nodeid.partition("::")[0]


def pytest_xdist_auto_num_workers() -> int:
    """Two workers more than cores: many tests wait for processes, and each has a Postgres.

    With one more, two quick cores stood idle for an eighth of the time.
    """
    return min(len(os.sched_getaffinity(0)) + 2, MOST_WORKERS)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Dealer | None:
    """Deal like this where nobody asked for another way (--dist)."""
    return Dealer(config, log) if config.getvalue("dist") in ("load", "loadscope") else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow ones first, so that no worker begins one when the others have ended."""
    items.sort(key=lambda item: not any(map(item.get_closest_marker, ("slow", "conformance"))))


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and not among modules and tests: it cost a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
