"""What costs much to start, and to keep: kept from test to test of a group, and ended with it.

A fixture of the session would live on under the tests that come later, where a `nodus up` with its
watches takes a tenth of a core for nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest
from tests.dealing import group_of

T = TypeVar("T")


class Shared(Generic[T]):
    """One thing, made when it is first asked for."""

    def __init__(self, make: Callable[[Path], AbstractContextManager[T]]) -> None:
        self._make = make
        self._held = ExitStack()
        self._made: T | None = None
        _ALL.append(self)

    def get(self, folder: Path) -> T:
        """Return it, made in a folder if it is not there."""
        if self._made is None:
            self._made = self._held.enter_context(self._make(folder))
        return self._made

    def end(self) -> None:
        """End it, if it is there; raises what its own checks find."""
        self._made = None
        self._held.close()


_ALL: list[Shared[Any]] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End what is there after the last test of a group, before the folders that it lies in."""
    failure: Exception | None = None
    if nextitem is None or group_of(nextitem.nodeid) != group_of(item.nodeid):
        try:
            _end_all()
        except Exception as error:  # noqa: BLE001 -- raised below: fixtures end all the same
            failure = error
    yield
    if failure is not None:
        raise failure


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """A session that is cut short ends them too."""
    _end_all()


def _end_all() -> None:
    with ExitStack() as ending:
        for one in _ALL:
            ending.callback(one.end)
