"""`nodus cost --accuracy`: predictions beside what came of them, counted again by hand."""

import asyncio
import csv
import io
import json
from decimal import Decimal
from typing import Any

import pytest
from click.testing import Result
from tests.cli.conftest import Nodus
from tests.cli.told_lives import lose_and_finish
from tests.scheduler.fake_supplier import FakeSupplier
from tests.scheduler.world import World

from nodus_api.cli.accuracy import Outcome, accuracy_of
from nodus_api.cli.accuracy_text import accuracy_as_json, accuracy_as_sheet, accuracy_text
from nodus_api.clock import ManualClock
from nodus_api.storage.engine import Database


def an_outcome(**changes: Any) -> Outcome:
    facts: dict[str, Any] = {
        "project": "default",
        "owner": "default/job/train",
        "profile": "Balanced",
        "family": "h100 x1",
        "offering": "h100-sxm-80g-x1-eu",
        "predicted_hours": Decimal(2),
        "predicted_usd": Decimal(6),
        "interruption_rate": Decimal("0.05"),
        "actual_hours": Decimal(3),
        "actual_usd": Decimal(9),
        "exposure_hours": Decimal(3),
        "interrupted": False,
        "comparable": True,
    }
    return Outcome(**(facts | changes))


THREE = [
    an_outcome(),
    an_outcome(actual_hours=Decimal(2), actual_usd=Decimal(6), interrupted=True),
    an_outcome(family="cpu", profile="Cost", comparable=False, exposure_hours=Decimal(20)),
]


def test_ratios_are_of_sums_and_errors_are_medians() -> None:
    fast, slow = accuracy_of(THREE, by="profile").lines

    assert (fast.group, slow.group) == (("Balanced", "h100 x1"), ("Cost", "cpu"))
    assert (fast.hours_ratio, fast.cost_ratio) == (Decimal("1.25"), Decimal("1.25"))
    assert fast.hours_error == Decimal("0.25")  # between 0.5 and 0
    assert (fast.expected_interruptions, fast.interruptions) == (Decimal("0.30"), 1)
    assert (slow.hours_ratio, slow.hours_error) == (None, None)  # it was stopped
    assert slow.expected_interruptions == 1


def test_the_table_has_a_total_and_says_what_it_compares() -> None:
    text = accuracy_text(accuracy_of(THREE, by="profile"))

    header, fast, slow, total, *notes = text.splitlines()
    assert header.split()[:3] == ["PROFILE", "FAMILY", "ATTEMPTS"]
    assert fast.split()[3:9] == ["2", "4.000000", "5.000000", "1.2500", "25.0", "%"]
    assert fast.split()[9:] == ["12.000000", "15.000000", "1.2500", "25.0", "%", "0.30", "1"]
    assert slow.split()[-2:] == ["1.00", "0"]
    assert total.split()[:2] == ["total", "3"]
    assert notes[0].startswith("RATIO is actual over predicted")
    assert "nothing to compare" in accuracy_text(accuracy_of([], by="owner"))


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("owner", ["default/job/train"]),
        ("project", ["default"]),
        ("offering", ["h100-sxm-80g-x1-eu"]),
    ],
)
def test_other_lines_are_told_by_their_name(by: str, groups: list[str]) -> None:
    found = accuracy_as_json(accuracy_of(THREE, by=by), by)

    assert [one[by] for one in found["items"]] == groups
    assert found["items"][0]["attempts"] == 3
    assert found["items"][0]["compared"] == 2


def test_the_sheet_has_the_json_s_headings_and_no_total() -> None:
    found = accuracy_of(THREE, by="profile")
    headings, rows = accuracy_as_sheet(found)

    assert headings == list(accuracy_as_json(found, "profile")["items"][0])
    assert len(rows) == 2
    assert rows[1][headings.index("hoursRatio")] == ""


@pytest.fixture
async def world(scheduler_database: Database, clock: ManualClock) -> World:
    world = World(scheduler_database, clock, FakeSupplier(clock))
    await lose_and_finish(world)
    await world.settle(30)
    return world


@pytest.mark.usefixtures("world")
async def test_what_documents_say_is_what_is_compared(
    world: World, nodus: Nodus, clean_database: str
) -> None:  # SC-350
    async def ask(*arguments: str) -> Result:
        where = ("--database-url", clean_database)
        return await asyncio.to_thread(nodus, "cost", "--accuracy", *arguments, *where)

    lost, done = (await world.status("0/1")), (await world.status("0/2"))
    found = json.loads((await ask("-o", "json")).stdout)
    (line,) = found["items"]

    def summed(group: str, name: str) -> str:
        return str(Decimal(lost[group][name]) + Decimal(done[group][name]))

    assert (line["profile"], line["family"]) == ("Balanced", "cpu")
    assert (line["attempts"], line["compared"], line["interruptions"]) == (2, 2, 1)
    assert line["predictedHours"] == summed("predicted", "hours")
    assert line["actualHours"] == summed("actual", "hours")
    assert line["predictedUSD"] == summed("predicted", "costUSD")
    assert line["actualUSD"] == summed("actual", "costUSD")
    sheet = list(csv.reader(io.StringIO((await ask("-o", "csv")).stdout)))
    assert sheet[0][:3] == ["profile", "family", "attempts"]
    assert sheet[1][:3] == ["Balanced", "cpu", "2"]
    assert "PROFILE" in (await ask()).stdout
    owners = json.loads((await ask("--by", "owner", "-o", "json")).stdout)
    assert [one["owner"] for one in owners["items"]] == ["default/job/train"]
    refused = await ask("--by", "segment")
    assert refused.exit_code == 2
    assert "give --by profile, owner, project or offering" in refused.stderr
