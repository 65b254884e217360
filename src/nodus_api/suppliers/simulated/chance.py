"""Seeded chance: every draw has a name, so that no draw shifts another (SC-730)."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import NormalDist
from typing import TypeVar

T = TypeVar("T")

_NORMAL = NormalDist()
_PARTS = 1 << 53


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A log-normal length of time: half are below `median`; `sigma` 0 is always the median."""

    median: timedelta
    sigma: float = 0.0

    def shortened(self, factor: float) -> "Spread":
        """Return the same spread, so many times as short."""
        return replace(self, median=self.median / factor)


@dataclass(frozen=True, slots=True)
class Chance:
    """A tree of draws below one seed; a draw depends on its path and on nothing else."""

    seed: int
    path: tuple[str, ...] = ()

    def of(self, *path: str) -> "Chance":
        """Return the chance of something below: of one machine, of one program."""
        return replace(self, path=(*self.path, *path))

    def uniform(self, what: str) -> float:
        """Return a number in [0, 1)."""
        text = "\0".join((str(self.seed), *self.path, what))
        digest = hashlib.sha256(text.encode()).digest()
        return (int.from_bytes(digest[:8]) >> 11) / _PARTS

    def happens(self, what: str, probability: float) -> bool:
        """Return whether something of this probability happens."""
        return probability > 0 and self.uniform(what) < probability

    def one_of(self, what: str, choices: Sequence[T]) -> T:
        """Return one of several, each as likely."""
        return choices[int(self.uniform(what) * len(choices))]

    def between(self, what: str, least: timedelta, most: timedelta) -> timedelta:
        """Return a length of time, each between the two as likely."""
        return least + (most - least) * self.uniform(what)

    def until_event(self, what: str, per_hour: float) -> timedelta | None:
        """Return how long it takes until an event of a Poisson process; None if it never comes."""
        if per_hour <= 0:
            return None
        return timedelta(hours=-math.log1p(-self.uniform(what)) / per_hour)

    def length(self, what: str, spread: Spread) -> timedelta:
        """Draw from a spread."""
        if not spread.sigma:
            return spread.median
        point = max(self.uniform(what), 1 / _PARTS)
        return spread.median * math.exp(spread.sigma * _NORMAL.inv_cdf(point))
