"""What a supplier offers is written when it differs from what was written last (SC-203)."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from tests.storage.test_attempt_store import SMALL

from nodus_api.kernel.vocabulary import Market
from nodus_api.storage import tables as t
from nodus_api.storage.catalog_store import CatalogStore, Offer
from nodus_api.storage.engine import Database
from nodus_api.storage.errors import FencedOff
from nodus_api.storage.leader_store import LeaderStore

ASKED = datetime(2026, 1, 1, tzinfo=UTC)
LATER = ASKED + timedelta(seconds=10)
OFFER = Offer(
    offering=SMALL.name,
    instance_type="small",
    region="here",
    zone="a",
    cost_on_demand=Decimal("0.1"),
    cost_spot=None,
    increment=timedelta(seconds=1),
    minimum=timedelta(0),
    available=1,
)


@pytest.fixture
async def token(scheduler_database: Database) -> int:
    return (await LeaderStore(scheduler_database).take_over("test")).token


@pytest.fixture
def written(scheduler_database: Database) -> Iterator[list[str]]:
    """The tables that statements write, in order."""
    names: list[str] = []

    def note(_: Any, __: Any, statement: str, *rest: Any) -> None:
        words = statement.split()
        if words[0] in ("INSERT", "UPDATE"):
            names.append(words[2] if words[0] == "INSERT" else words[1])

    engine = scheduler_database._engine.sync_engine
    sa.event.listen(engine, "before_cursor_execute", note)
    yield names
    sa.event.remove(engine, "before_cursor_execute", note)


async def test_what_is_as_it_was_written_is_not_written_again(
    scheduler_database: Database, token: int, written: list[str]
) -> None:
    store = CatalogStore(scheduler_database, "fake")
    assert await store.sync(token, [SMALL], [OFFER], asked=ASKED)
    first = list(written)
    written.clear()
    assert not await store.sync(token, [SMALL], [OFFER], asked=LATER)
    assert written == ["nodus.offering_stats"]
    (_, (offer,)) = await store.load()
    assert offer.stats[Market.ON_DEMAND].updated == LATER  # when it was looked (SC-205)
    assert await store.sync(token, [SMALL], [replace(OFFER, available=3)], asked=LATER)
    assert written == ["nodus.offering_stats"] * 2
    await CatalogStore(scheduler_database, "fake").sync(token, [SMALL], [OFFER], asked=LATER)
    assert written[2:] == first  # another reign may have written something else meanwhile


async def test_what_changes_or_goes_is_written(scheduler_database: Database, token: int) -> None:
    store = CatalogStore(scheduler_database, "fake")
    await store.sync(token, [SMALL], [OFFER], asked=ASKED)
    dearer = replace(OFFER, cost_on_demand=Decimal("0.2"))
    await store.sync(token, [SMALL], [dearer], asked=LATER)
    (_, (offer,)) = await store.load()
    assert offer.cost_on_demand == Decimal("0.2")
    await store.sync(token, [SMALL], [], asked=LATER)
    assert (await store.load())[1] == []
    await store.sync(token, [SMALL], [dearer], asked=LATER)
    assert [one.no for one in (await store.load())[1]] == [offer.no]


async def test_what_was_refused_is_not_taken_for_written(
    scheduler_database: Database, token: int
) -> None:
    store = CatalogStore(scheduler_database, "fake")
    with pytest.raises(FencedOff):
        await store.sync(token + 1, [SMALL], [OFFER], asked=ASKED)
    assert await store.sync(token, [SMALL], [OFFER], asked=ASKED)
    async with scheduler_database.single_reads() as connection:
        query = sa.select(t.supplier_offers.c.instance_type)
        assert list((await connection.execute(query)).scalars()) == ["small"]
