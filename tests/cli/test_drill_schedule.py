"""`nodus drill schedule`: what it refuses and writes, and the drills that follow (SC-630)."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import Result
from tests.cli.conftest import Nodus
from tests.cli.test_bad_input import refusal
from tests.history import rows
from tests.history.checking import assert_sound
from tests.scheduler.fake_supplier import FakeSupplier
from tests.scheduler.world import World

from nodus_api.clock import ManualClock
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database
from nodus_api.suppliers.supplier import SupplierCaps

SET = ("set", "--trigger", "node-loss", "--per-hour")


class Schedules:
    """`nodus drill schedule` on a test's database, run beside its event loop."""

    def __init__(self, nodus: Nodus, url: str) -> None:
        self._nodus = nodus
        self._url = url

    async def run(self, *arguments: str) -> Result:
        where = ("--database-url", self._url)
        return await asyncio.to_thread(self._nodus, "drill", "schedule", *arguments, *where)

    async def shown(self, *arguments: str) -> str:
        result = await self.run(*arguments)
        assert (result.exit_code, result.stderr) == (0, "")
        return str(result.stdout)

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self.shown(*arguments, "-o", "json"))


@pytest.fixture
def schedules(nodus: Nodus, clean_database: str) -> Schedules:
    return Schedules(nodus, clean_database)


@pytest.fixture
async def world(scheduler_database: Database, clock: ManualClock) -> AsyncIterator[World]:
    caps = SupplierCaps(sync_delete=True, inject=True, notices=True)
    supplier = FakeSupplier(clock, caps=caps)
    yield World(scheduler_database, clock, supplier)
    assert_sound(rows.history_of(await rows.read(scheduler_database), supplier.machines))


async def another_project(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(sa.insert(t.projects).values(name="team-a"))


# refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["set", "--trigger", "flood", "--per-hour", "1"], "give --trigger as one of preemption, "),
        ([*SET, "often"], "--per-hour: 'often' is not a decimal number"),
        ([*SET, ""], "--per-hour: '' is not a decimal number"),
        ([*SET, "-1"], "--per-hour: '-1' is not a decimal number"),
        ([*SET, "nan"], "--per-hour: 'nan' is not a decimal number"),
        ([*SET, "0"], "--per-hour: 0 is not from 0.0001 to 3600"),
        ([*SET, "0.00001"], "with at most 4 decimals"),
        ([*SET, "1.23456"], "with at most 4 decimals"),
        ([*SET, "3600.0001"], "is not from 0.0001 to 3600"),
        ([*SET, "9" * 400], "is not from 0.0001 to 3600"),
        ([*SET, "1", "--seed", "-1"], "--seed is '-1': give a whole number from 0 to 2147483647."),
        ([*SET, "1", "--seed", "2147483648"], "--seed is '2147483648'"),
        ([*SET, "1", "--seed", "x"], "--seed is 'x'"),
        ([*SET, "1", "--seed", "\u0663"], "give a whole number"),
        (["list"], "No database is named"),
    ],
)
def test_wrong_arguments_are_refused(
    nodus: Nodus, arguments: list[str], said: str, tmp_path: Path
) -> None:
    result = nodus("drill", "schedule", *arguments, "--data-dir", tmp_path)

    assert said in refusal(result)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [(*SET, "1"), ("list",), ("remove",)])
async def test_a_project_that_is_not_there_is_refused(
    schedules: Schedules, scheduler_database: Database, arguments: tuple[str, ...]
) -> None:
    result = await schedules.run(*arguments, "-n", "defaulte")

    assert refusal(result) == (
        "There is no project 'defaulte': `nodus project list` shows those there are."
        " Did you mean default?"
    )
    async with scheduler_database.transaction(read_only=True) as connection:
        assert (await connection.execute(sa.select(t.drill_schedules))).all() == []


def test_each_has_help_with_an_example(nodus: Nodus) -> None:
    for arguments in ([], ["set"], ["list"], ["remove"]):
        result = nodus("drill", "schedule", *arguments, "--help")
        assert result.exit_code == 0
        assert result.output.startswith("Usage: ")
        assert " ".join(["drill schedule", *arguments]) in result.output.splitlines()[0]
        assert "  Example:\n    nodus drill schedule" in result.output
    assert "nodus drill schedule" in nodus("drill", "--help").output
    unknown = nodus("drill", "schedule", "fly")
    assert unknown.exit_code == 2
    assert "No such command 'fly'" in unknown.stderr


# what is written --------------------------------------------------------------------------------


async def test_a_schedule_is_set_listed_and_removed(
    schedules: Schedules, scheduler_database: Database
) -> None:
    await another_project(scheduler_database)
    assert await schedules.shown("list") == "None.\n"
    assert await schedules.json("list") == []

    said = await schedules.shown(*SET, "2.50", "--seed", "7")
    other = await schedules.json(*SET, "0.0001", "--seed", "2147483647", "-n", "team-a")

    assert (
        said == "Project default is drilled by node-loss 2.5 times an hour on average (seed 7).\n"
    )
    mine = {
        **{"project": "default", "trigger": "node-loss", "perHour": "2.5"},
        **{"seed": 7, "nextTime": None},
    }
    assert other == mine | {"project": "team-a", "perHour": "0.0001", "seed": 2147483647}
    assert await schedules.json("list") == [mine, other]
    assert await schedules.json("list", "-n", "team-a") == [other]
    head, first, second = (await schedules.shown("list")).splitlines()
    assert head.split() == ["PROJECT", "TRIGGER", "PER-HOUR", "SEED", "NEXT-TIME"]
    assert first.split() == ["default", "node-loss", "2.5", "7"]
    assert second.split() == ["team-a", "node-loss", "0.0001", "2147483647"]

    assert await schedules.shown("remove") == (
        "Project default is drilled by no schedule any more.\n"
    )
    assert await schedules.json("list") == [other]
    assert refusal(await schedules.run("remove")) == (
        "Project default has no schedule of drills: `nodus drill schedule list` shows those"
        " there are."
    )


async def test_what_is_set_again_goes_on_and_what_changes_begins_anew(
    schedules: Schedules, world: World
) -> None:
    first = await schedules.json(*SET, "1")
    await world.settle()
    (drawn,) = await schedules.json("list")
    assert drawn["nextTime"] is not None
    assert drawn | {"nextTime": None} == first

    again = await schedules.shown(*SET, "1.0")
    assert again.endswith(f"(seed {first['seed']}) already: nothing changed.\n")
    assert await schedules.json("list") == [drawn]
    assert await schedules.json(*SET, "1", "--seed", str(first["seed"])) == drawn

    often = await schedules.json(*SET, "30")
    assert often == first | {"perHour": "30"}  # its seed is kept, its turn is drawn anew
    seed = (first["seed"] + 1) % 2**31
    assert await schedules.json(*SET, "30", "--seed", str(seed)) == often | {"seed": seed}
    other = ("set", "--trigger", "preemption", "--per-hour", "30")
    changed = often | {"seed": seed, "trigger": "preemption"}
    assert await schedules.json(*other) == changed


# what follows -----------------------------------------------------------------------------------


async def test_a_schedule_that_was_set_leads_to_a_drill(
    schedules: Schedules, world: World
) -> None:  # SC-630
    await world.run()
    name = (await world.documents())["0/1"]["metadata"]["name"]
    await schedules.shown(*SET, "60", "--seed", "7")
    await world.settle()
    (row,) = await world.rows(t.drill_schedules)
    assert world.fake.injections == []

    await world.settle((row["next_at"] - world.clock.now()).total_seconds())

    (turn,) = [one for one in await world.rows(t.commands) if one["verb"] == "drill"]
    assert (turn["target"], turn["outcome"], turn["asked_by"]) == (name, "Applied", "schedule")
    ((_, fault),) = world.fake.injections
    assert fault.kind == "node-loss"
    (shown,) = await schedules.json("list")
    assert shown["nextTime"] > f"{row['next_at']:%Y-%m-%dT%H:%M:%SZ}"


async def test_a_schedule_that_was_removed_drills_nothing(
    schedules: Schedules, world: World
) -> None:
    await world.run()
    await schedules.shown(*SET, "60", "--seed", "7")
    await world.settle()
    (row,) = await world.rows(t.drill_schedules)
    await schedules.shown("remove")

    await world.settle((row["next_at"] - world.clock.now()).total_seconds())

    assert world.fake.injections == []
    assert [one["verb"] for one in await world.rows(t.commands)] == ["submit"]
