"""Which state a request asks for: the matrix of list (LW-101), get (LW-105) and watch (LW-120)."""

from dataclasses import dataclass
from enum import Enum


class Mode(Enum):
    """How the state that answers is chosen."""

    LATEST = "latest"  # not older than the request's arrival
    CACHED = "cached"  # as the cache stands
    NOT_OLDER_THAN = "not older than"
    EXACT = "exact"


@dataclass(frozen=True, slots=True)
class ReadAt:
    """A state: its mode, and the revision where the mode needs one."""

    mode: Mode
    rev: int = 0


LATEST = ReadAt(Mode.LATEST)
CACHED = ReadAt(Mode.CACHED)


def at_least(resource_version: int | None) -> ReadAt:
    """Return what a get, or initial events, ask for: unset, 0 or N (LW-105)."""
    if resource_version is None:
        return LATEST
    return CACHED if resource_version == 0 else ReadAt(Mode.NOT_OLDER_THAN, resource_version)


def of_list(resource_version: int | None, match: str, limit: int) -> ReadAt:
    """Return what a list without `continue` asks for; the options are validated already.

    `match` is resourceVersionMatch, empty when unset; `limit` 0 means none.
    """
    if resource_version and (match == "Exact" or (not match and limit)):
        return ReadAt(Mode.EXACT, resource_version)
    return at_least(resource_version)


@dataclass(frozen=True, slots=True)
class WatchFrom:
    """Where a watch begins: the state that `at` names, as ADDED events where `initial`.

    Without `initial` only changes after that state are sent; EXACT is then the revision given.
    """

    at: ReadAt
    initial: bool


def of_watch(resource_version: int | None, send_initial_events: bool | None) -> WatchFrom:
    """Return where a watch begins, defaults of LW-083 applied before."""
    if send_initial_events:
        return WatchFrom(at_least(resource_version), initial=True)
    if resource_version:
        return WatchFrom(ReadAt(Mode.EXACT, resource_version), initial=False)
    return WatchFrom(at_least(resource_version), initial=False)
