"""What is known of one offer in one market, and why it rests (SC-205, SC-360)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.kernel.experience import Experience
from nodus_api.kernel.vocabulary import Market
from nodus_api.storage import tables as t
from nodus_api.storage.bulk import as_json, upsert_rows
from nodus_api.storage.statements import bigints

STATS_COLUMNS = ("stats", "available", "failures_in_row", "backoff_until", "updated")

FAILURE = "failure"
"""The key in the JSON of statistics of why the offer rests."""

_EXPERIENCE = "experience"
"""The key of what its outcomes have taught."""


class Failure(StrEnum):
    """Why an offer did not deliver (SC-360, SC-617)."""

    NO_CAPACITY = "NoCapacity"
    QUOTA = "Quota"
    AUTH = "Auth"
    """The credentials were refused: the offer is closed until an answer of offers opens it."""
    NEVER_READY = "NeverReady"
    """Its machine failed to start up, or its checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferStats:
    """What is known of one offer in one market (SC-205, SC-360).

    `available` counts the machines that could be started at `updated`: 0 is none, None
    unknown. `stats` holds what needs no column, as JSON.
    """

    market: Market
    stats: Mapping[str, Any] = field(default_factory=dict)
    available: int | None = None
    failures_in_row: int = 0
    backoff_until: datetime | None = None
    updated: datetime

    @property
    def failure(self) -> Failure | None:
        """Why it rests until `backoff_until`; None if nobody noted it."""
        noted = self.stats.get(FAILURE)
        return None if noted is None else Failure(noted)

    @property
    def experience(self) -> Experience:
        """What its outcomes have taught; nothing, for one without a history (SC-205)."""
        kept = self.stats.get(_EXPERIENCE)
        return Experience(at=self.updated) if kept is None else Experience.from_json(kept)

    def with_experience(self, experience: Experience) -> "OfferStats":
        """Return them with what an outcome has taught now."""
        return replace(self, stats={**self.stats, _EXPERIENCE: experience.to_json()})

    def failing(self, failure: Failure | None) -> "OfferStats":
        """Return them with this note of a failure, or with none."""
        others = {key: value for key, value in self.stats.items() if key != FAILURE}
        noted = {} if failure is None else {FAILURE: failure.value}
        return replace(self, stats=others | noted)


async def read_stats(
    connection: AsyncConnection, offers: Sequence[int]
) -> dict[tuple[int, Market], OfferStats]:
    """Return the statistics of offers. Primary key."""
    if not offers:
        return {}
    found = (await connection.execute(_stats_by_offer(), {"nos": list(offers)})).mappings().all()
    return {(row["offer"], Market(row["market"])): stats_of(row) for row in found}


async def write_stats(
    connection: AsyncConnection, stats: Mapping[int, Sequence[OfferStats]]
) -> None:
    """Write statistics by offer, in the transaction of the outcome that changed them."""
    rows = [
        {
            "offer": offer,
            "market": one.market,
            "stats": one.stats,
            "available": one.available,
            "failures_in_row": one.failures_in_row,
            "backoff_until": one.backoff_until,
            "updated": one.updated,
        }
        for offer, several in sorted(stats.items())
        for one in several
    ]
    if rows:
        await connection.execute(_upsert_stats(), as_json(rows))


@cache
def _stats_by_offer() -> sa.Select[Any]:
    return sa.select(t.offering_stats).where(t.offering_stats.c.offer == sa.any_(bigints("nos")))


@cache
def _upsert_stats() -> postgresql.Insert:
    return upsert_rows(t.offering_stats, ["offer", "market"], STATS_COLUMNS)


def stats_of(row: Any) -> OfferStats:
    """Return the statistics of a row."""
    return OfferStats(
        market=Market(row["market"]),
        stats=row["stats"],
        available=row["available"],
        failures_in_row=row["failures_in_row"],
        backoff_until=row["backoff_until"],
        updated=row["updated"],
    )
