"""`nodus estimate`: the profiles side by side, each as the scheduler would decide it (SC-803)."""

import asyncio
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from tests.cli.conftest import Nodus
from tests.cli.live import job
from tests.kernel.catalogs import NOW, golden_request, golden_snapshot
from tests.scheduler.fake_supplier import FakeSupplier, an_offer
from tests.scheduler.world import World

from nodus_api.cli.profiles import profiles_as_json, profiles_text, side_by_side
from nodus_api.clock import ManualClock
from nodus_api.kernel.calibration import Calibration
from nodus_api.kernel.placement import place
from nodus_api.kernel.vocabulary import OwnerKind, Profile
from nodus_api.storage.calibration_store import Calibrations, Lineage, write_calibrations
from nodus_api.storage.engine import Database
from nodus_api.suppliers.supplier import SupplierOffer

NAMES = ["Balanced", "Cost", "Speed"]


@pytest.mark.parametrize("asked", Profile)
def test_each_profile_decides_as_if_it_were_asked_for(asked: Profile) -> None:  # SC-323, SC-326
    decisions = side_by_side(golden_request(asked), golden_snapshot(), NOW)

    alone = [place(golden_request(one), golden_snapshot(), NOW) for one in Profile]
    assert [one.result_hash for one in decisions] == [one.result_hash for one in alone]
    shown = profiles_as_json(decisions, asked)
    assert [one["profile"] for one in shown] == NAMES
    assert [one["profile"] for one in shown if one["asked"]] == [asked.value]
    for one in shown:
        assert one["explain"]["profile"] == one["profile"]  # SC-325
        assert set(one["predicted"]) == {"hours", "costUSD", "interruptionRate"}
    head, *lines = profiles_text(decisions, asked).splitlines()
    assert head.split() == [
        *("PROFILE", "OFFERING", "MARKET", "USD/H", "HOURS", "USD", "INTERRUPTIONS/H"),
    ]
    assert [line.split()[0] for line in lines if line.startswith("* ")] == ["*"]
    for line, one in zip(lines, shown, strict=True):
        told = line.removeprefix("*").split()
        predicted = one["predicted"]
        assert told == [
            *(one["profile"], one["offering"], "spot" if one["interruptible"] else "on-demand"),
            *(one["rateUSDPerHour"], predicted["hours"], predicted["costUSD"]),
            predicted["interruptionRate"],
        ]


# over a real database ---------------------------------------------------------------------------


def offer(name: str, *, rate: str, speed: str) -> SupplierOffer:
    made = an_offer(name, rate=rate)
    return replace(made, offered_class=replace(made.offered_class, speed=Decimal(speed)))


@pytest.fixture
async def where(
    scheduler_database: Database, clean_database: str, clock: ManualClock
) -> tuple[str, str]:
    """A database whose catalog has a slow and cheap class, and a fast and dear one."""
    offered = [
        offer("cpu-1c-4g-eu", rate="0.06", speed="1"),
        offer("cpu-1c-4g-us", rate="0.24", speed="3"),
    ]
    supplier = FakeSupplier(clock, name="local", offered=offered)
    await World(scheduler_database, clock, supplier).settle()
    return ("--database-url", clean_database)


async def estimated(nodus: Nodus, *arguments: str, stdin: str) -> str:
    result = await asyncio.to_thread(nodus, "estimate", "-f", "-", *arguments, stdin=stdin)
    assert (result.exit_code, result.stderr) == (0, "")
    return str(result.stdout)


def manifest(profile: str | None = None, **spec: Any) -> str:
    placement = {} if profile is None else {"placement": {"profile": profile}}
    return job("train", "true", estimate={"hours": "8"}, **placement, **spec)


@pytest.mark.parametrize("asked", [None, *NAMES])
async def test_the_profiles_stand_side_by_side(
    nodus: Nodus, where: tuple[str, str], asked: str | None
) -> None:
    told = json.loads(await estimated(nodus, *where, "-o", "json", stdin=manifest(asked)))
    said = await estimated(nodus, *where, stdin=manifest(asked))

    compared = told.pop("profiles")
    mine = asked or "Balanced"
    assert [(one["profile"], one.pop("asked")) for one in compared] == [
        (name, name == mine) for name in NAMES
    ]
    by_name = {one["profile"]: one for one in compared}
    assert told == by_name[mine]
    assert by_name["Cost"]["offering"] == "cpu-1c-4g-eu"
    assert by_name["Speed"]["offering"] == "cpu-1c-4g-us"
    hours = {name: Decimal(one["predicted"]["hours"]) for name, one in by_name.items()}
    usd = {name: Decimal(one["predicted"]["costUSD"]) for name, one in by_name.items()}
    assert hours["Speed"] < hours["Cost"]
    assert usd["Speed"] > usd["Cost"]
    lines = said.split("By profile, * is what the manifest asks for:\n")[1].splitlines()[1:4]
    assert [line[2:].split()[:2] for line in lines] == [
        [name, one["offering"]] for name, one in by_name.items()
    ]
    assert [line[2:].split()[0] for line in lines if line[0] == "*"] == [mine]


async def test_a_profile_compared_is_what_asking_for_it_gives(
    nodus: Nodus, where: tuple[str, str]
) -> None:
    several = "---\n".join(manifest(name).replace("train", name.lower()) for name in NAMES)
    told = json.loads(await estimated(nodus, *where, "-o", "json", stdin=several))

    own = [{key: value for key, value in one.items() if key != "profiles"} for one in told]
    for one in told:
        for compared in one["profiles"]:
            del compared["asked"]
        assert one["profiles"] == own


async def test_where_nothing_fits_there_is_nothing_to_compare(
    nodus: Nodus, where: tuple[str, str]
) -> None:
    large = manifest(resources={"accelerators": ["h100"], "count": 8})
    said = await estimated(nodus, *where, stdin=large)
    told = json.loads(await estimated(nodus, *where, "-o", "json", stdin=large))

    assert said.startswith("job/train could never run: ")
    assert "By profile" not in said
    assert [one["profile"] for one in told["profiles"]] == NAMES
    for one in told["profiles"]:
        assert "predicted" not in one
        assert one["explain"]["rejected"] == told["explain"]["rejected"]


async def test_earlier_runs_of_the_name_are_counted_in(
    nodus: Nodus, where: tuple[str, str], scheduler_database: Database
) -> None:  # SC-352, SC-301
    lineage = Lineage(project="default", kind=OwnerKind.JOB, name="train")
    known: Calibrations = {lineage: {(None, 0): Calibration(ratio=1.5, hours=(2.0, 3.0, 4.0))}}
    silent = job("train", "true", placement={"profile": "Cost"})

    async def hours(given: str) -> Decimal:
        told = json.loads(await estimated(nodus, *where, "-o", "json", stdin=given))
        return Decimal(told["predicted"]["hours"])

    before = [await hours(given) for given in (manifest("Cost"), silent)]
    async with scheduler_database.transaction() as connection:
        await write_calibrations(connection, known, NOW)
    after = [await hours(given) for given in (manifest("Cost"), silent)]

    assert after[0] - before[0] == pytest.approx(Decimal(4), abs=Decimal("0.05"))
    assert after[1] - before[1] == pytest.approx(Decimal(2), abs=Decimal("0.05"))
