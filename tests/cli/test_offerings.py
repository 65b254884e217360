"""`nodus offerings`: files become rows, once, and what cannot be believed becomes a sentence."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import Result
from tests.cli.conftest import Nodus
from tests.scheduler.fake_supplier import FakeSupplier, an_offer
from tests.scheduler.world import World

from nodus_api.cli.import_plan import ImportPlan, plan_import
from nodus_api.clock import ManualClock
from nodus_api.scheduler.catalog import Catalog
from nodus_api.storage import tables as t
from nodus_api.storage.catalog_store import CatalogStore
from nodus_api.storage.engine import Database
from nodus_api.storage.import_store import ImportStore, Stock
from nodus_api.suppliers.imported import read_forms, read_skypilot
from nodus_api.suppliers.imported.samples import SAMPLE_CLOUDS, sample_forms, sample_prices

FLEET = """offers:
- {instanceType: slot, region: hall, regionClass: other, vcpus: 1, memoryGiB: 4, diskGiB: 10,
   arch: amd64, costOnDemand: %s}
"""


class Desk:
    """Imports of files with given text into a test's database, beside its event loop."""

    def __init__(self, nodus: Nodus, url: str, folder: Path) -> None:
        self._nodus, self._url, self._folder = nodus, url, folder
        (folder / "forms.yaml").write_text(sample_forms())

    async def run(self, text: str, *more: str, cloud: str = "aws", native: bool = False) -> Result:
        file = self._folder / "offers"
        file.write_text(text)
        form = ["native"] if native else ["skypilot", "--map", str(self._folder / "forms.yaml")]
        given = ["--format", *form, "--cloud", cloud, file, "--database-url", self._url]
        return await asyncio.to_thread(self._nodus, "offerings", "import", *given, *more)

    async def json(self, text: str, *more: str, cloud: str = "aws") -> dict[str, Any]:
        result = await self.run(text, *more, "-o", "json", cloud=cloud)
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found


@pytest.fixture
def desk(nodus: Nodus, clean_database: str, tmp_path: Path) -> Desk:
    return Desk(nodus, clean_database, tmp_path)


async def rows(database: Database) -> list[tuple[Any, ...]]:
    """Return all offers and classes, with the transaction that wrote each row last."""
    found: list[tuple[Any, ...]] = []
    async with database.single_reads() as connection:
        for table in (t.supplier_offers, t.offering_classes):
            version: sa.ColumnClause[str] = sa.literal_column("xmin::text")
            answer = await connection.execute(sa.select(table, version).select_from(table))
            found += sorted(tuple(row) for row in answer)
    return found


async def test_the_sample_is_imported_once(scheduler_database: Database, desk: Desk) -> None:
    # SC-207, SC-208: rates are the least of all clouds with the markup, the second time nothing
    for cloud in SAMPLE_CLOUDS:
        found = await desk.json(sample_prices(cloud), "--markup", "1.10", cloud=cloud)
        assert (found["rejected"], found["skipped"], found["offers"]["changed"]) == ([], [], [])
    query = sa.select(t.offering_classes).order_by(t.offering_classes.c.name)
    async with scheduler_database.single_reads() as connection:
        classes = {row.name: row for row in await connection.execute(query)}
    assert len(classes) == 12  # of 13 offers two are behind cpu-8c-32g-us
    cpu, p4d = classes["cpu-8c-32g-us"], classes["a100-sxm-40g-x8-us"]
    assert (cpu.rate_on_demand, cpu.rate_spot) == (Decimal("0.218240"), Decimal("0.239800"))
    assert p4d.rate_on_demand == Decimal("24.153406")  # 24.1534062
    assert classes["h100-sxm-80g-x8-eu"].reference_rate == Decimal("26.312000")  # the middle of 3
    before = await rows(scheduler_database)
    for cloud in SAMPLE_CLOUDS:
        found = await desk.json(sample_prices(cloud), "--markup", "1.10", cloud=cloud)
        nothing: dict[str, list[str]] = {"added": [], "changed": [], "retired": []}
        assert found["classes"] == nothing
        assert found["offers"] == nothing | {
            "unchanged": len(sample_prices(cloud).splitlines()) - 1
        }
    assert await rows(scheduler_database) == before


async def test_imports_at_once_come_one_after_the_other(
    scheduler_database: Database,
) -> None:  # each plans on what the one before has written
    def plan(cloud: str) -> Callable[[Stock], ImportPlan]:
        forms = read_forms(sample_forms(), cloud)
        listing = read_skypilot(sample_prices(cloud), forms, markup=Decimal(1))
        return lambda stock: plan_import(stock, cloud, listing, Decimal(1))

    store = ImportStore(scheduler_database)
    await asyncio.gather(*(store.change(plan(cloud)) for cloud in SAMPLE_CLOUDS))
    stock = await store.stock()
    assert stock.classes["cpu-8c-32g-us"].rate_on_demand == Decimal("0.1984")
    eights = [one for one in stock.classes.values() if one.family == ("h100", 8)]
    assert {one.reference_rate for one in eights} == {Decimal("23.92")}  # of 23.60, 23.92, 68.80
    assert len(eights) == 3


async def test_a_first_import_needs_no_file(
    scheduler_database: Database, desk: Desk, nodus: Nodus, clean_database: str
) -> None:  # SC-207, SC-208
    asked = ["offerings", "import", "--database-url", clean_database, "--cloud"]

    async def run(*more: str) -> Result:
        return await asyncio.to_thread(nodus, *asked, *more)

    said = {
        ("gcp", "--sample"): "no sample of gcp",
        ("aws", "--sample", "vms.csv"): "give no FILE",
        ("aws",): "No FILE is given",
    }
    for more, sentence in said.items():
        result = await run(*more)
        assert (result.exit_code, sentence in result.stderr) == (2, True)
    assert await rows(scheduler_database) == []
    result = await run("nebius", "--sample")
    assert "Offers: 5 added," in result.stdout
    assert (await desk.json(sample_prices("nebius"), cloud="nebius"))["offers"]["unchanged"] == 5


async def test_changes_are_told_and_a_bad_row_changes_nothing(
    scheduler_database: Database, desk: Desk
) -> None:  # SC-208
    text = sample_prices("aws")
    await desk.json(text)
    lines = text.replace("12.24", "13.00").replace("21.957642", "cheap").splitlines()
    changed = "\n".join(line for line in lines if not line.startswith("m8i"))
    before = await rows(scheduler_database)
    dry = await desk.json(changed, "--dry-run")
    assert await rows(scheduler_database) == before
    result = await desk.run(changed)
    assert result.stdout.splitlines() == [
        "changed class v100-sxm-16g-x4-us",
        "retired class cpu-8c-32g-us",
        "changed offer p3.8xlarge us-east-1 us-east-1a",
        "retired offer m8i.2xlarge us-east-1 us-east-1a",
        "rejected line 2: Price 'cheap' is not a plain decimal number",
        "Offers: 0 added, 1 changed, 1 retired, 2 unchanged, 1 rejected, 0 skipped.",
    ]
    assert dry["rejected"][0]["line"] == 2
    assert dry["offers"]["retired"] == ["m8i.2xlarge us-east-1 us-east-1a"]
    async with scheduler_database.single_reads() as connection:
        offers = t.supplier_offers.c
        query = sa.select(offers.cost_on_demand, offers.enabled)
        p4d = (await connection.execute(query.where(offers.instance_type == "p4d.24xlarge"))).one()
    assert tuple(p4d) == (Decimal("21.957642"), True)


async def test_what_can_be_rented_is_listed(
    scheduler_database: Database, desk: Desk, nodus: Nodus, clean_database: str
) -> None:  # SC-201, SC-202
    await desk.json(sample_prices("aws"))
    await desk.run(sample_prices("lambda"), cloud="lambda")
    await desk.json("\n".join(sample_prices("lambda").splitlines()[:3]), cloud="lambda")

    async def shown(*more: str) -> str:
        asked = ["offerings", "list", "--database-url", clean_database, *more]
        result = await asyncio.to_thread(nodus, *asked)
        assert result.exit_code == 0, result.output
        return result.stdout

    lines = (await shown()).splitlines()
    assert len(lines) == 8
    assert lines[2].split() == [
        "a100-sxm-80g-x8-us", "amd64", "96", "1152", "100", "27.44705", "9.7262", "24.702346",
        "on", "offer",
    ]  # fmt: skip
    assert "aws" not in (await shown()) + (await shown("-o", "json"))  # SC-203
    items = json.loads(await shown("--all", "-o", "json"))["items"]
    (retired,) = [one for one in items if one["state"] == "retired"]
    assert (retired["name"], retired["acceleratorMemoryGiB"]) == ("a6000-48g-x1-us", "48")
    offers = json.loads(await shown("--offers", "-o", "json"))["items"]
    assert [one["supplier"] for one in offers] == ["aws"] * 5 + ["lambda"] * 2
    assert offers[-1]["costOnDemand"] == "23.92"
    assert "a6000" in await shown("--offers", "--all")


REFUSED = {
    "no row": ("InstanceType", ["--markup", "1"], "columns are missing"),
    "no price": (sample_prices("aws").splitlines()[0], [], "lists nothing"),
    "all bad": (
        sample_prices("aws").replace(",us-", ",mars-").replace(",ap-", ",x-"),
        [],
        "line 2",
    ),
    "markup": (sample_prices("aws"), ["--markup", "-1"], "--markup '-1' must be"),
    "local": (sample_prices("aws"), ["--cloud", "local"], "--cloud 'local' cannot"),
    "unmapped": (sample_prices("aws"), ["--cloud", "gcp"], "no entry for gcp"),
    "bad name": (sample_prices("aws"), ["--cloud", "A B"], "--cloud 'A B' cannot"),
    "no map": (sample_prices("aws"), ["--map", "/nowhere/forms"], "/nowhere/forms cannot be read"),
    "native with a map": (sample_prices("aws"), ["--format", "native"], "--map is for"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_imported_is_refused_and_changes_nothing(
    scheduler_database: Database, desk: Desk, case: str
) -> None:
    text, more, said = REFUSED[case]
    result = await desk.run(text, *more)
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("Error: ")
    assert said in line
    assert await rows(scheduler_database) == []


async def test_a_running_attempt_keeps_its_rate_and_no_import_is_a_candidate(
    scheduler_database: Database, clock: ManualClock, desk: Desk
) -> None:  # SC-208
    supplier = FakeSupplier(clock)
    offer = an_offer()
    supplier.offered = [replace(offer, offered_class=replace(offer.offered_class, arch="amd64"))]
    world = World(scheduler_database, clock, supplier)
    await world.run()
    before = await world.status()
    # its class too, at another cost: no import knows that the supplier of this test runs
    result = await desk.run(FLEET % 9, cloud="hall", native=True)
    assert result.exit_code == 0, result.output
    await desk.json(sample_prices("aws"))
    await world.settle(60)
    after = await world.status()
    assert after["placement"]["rateUSDPerHour"] == before["placement"]["rateUSDPerHour"] == "0.06"
    async with scheduler_database.single_reads() as connection:
        rates = (await connection.execute(sa.select(t.leases.c.rate))).scalars().all()
    assert rates == [Decimal("0.060000")]
    classes, offers = await CatalogStore(scheduler_database, world.supplier.name).load()
    assert len(classes) > len(offers)
    snapshot = Catalog.of(classes, offers, clock.now()).snapshot
    assert [one.offering.name for one in snapshot] == ["cpu-1c-4g-other"]
