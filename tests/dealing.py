"""How tests are dealt to workers (pytest -n): what stays together, what comes first."""

import gc
import os

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling

DEALT_ONE_BY_ONE = ("tests/scheduler/", "tests/goldens_live/")
DEALT_TOGETHER = ("tests/clients/", "tests/differential/")  # the servers of each serve all of it
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
        together = next((one for one in DEALT_TOGETHER if nodeid.startswith(one)), None)
        if together is not None:
            return together
        alone = nodeid.startswith(DEALT_ONE_BY_ONE)
        return nodeid if alone else nodeid.partition("::")[0]


def pytest_xdist_auto_num_workers() -> int:
    """One worker more than cores: many tests wait for processes, and each has a Postgres."""
    return min(len(os.sched_getaffinity(0)) + 1, MOST_WORKERS)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Dealer | None:
    """Deal like this where nobody asked for another way (--dist)."""
    return Dealer(config, log) if config.getvalue("dist") in ("load", "loadscope") else None


@pytest.hookimpl(trylast=True)  # pytest itself puts those together that share a fixture's value
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow ones first, so that no worker begins one when the others have ended."""
    items.sort(key=lambda item: not any(map(item.get_closest_marker, ("slow", "conformance"))))


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and not among modules and tests: it cost a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
