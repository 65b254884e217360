"""The human views as commands: what they print of real rows, and how they refuse bad input."""

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import AsyncIterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa
from click.testing import Result
from tests.cli.conftest import Nodus
from tests.cli.live import NODUS, Up, environment, eventually, job
from tests.cli.told_lives import facts_of, lose_and_finish, timeline
from tests.history import rows
from tests.history.checking import assert_sound
from tests.scheduler.fake_supplier import FakeSupplier, an_offer
from tests.scheduler.world import World

from nodus_api.cli.get import attempts_table
from nodus_api.cli.spans import timeline_json
from nodus_api.clock import ManualClock
from nodus_api.kernel.money import format_usd
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database
from nodus_api.suppliers.supplier import NoCapacity

VIEWS = {
    "get": ["get"],
    "explain": ["explain", "train-0-e1-abcde"],
    "timeline": ["timeline", "train"],
    "cost": ["cost"],
}


@pytest.fixture
async def world(scheduler_database: Database, clock: ManualClock) -> AsyncIterator[World]:
    supplier = FakeSupplier(clock)
    yield World(scheduler_database, clock, supplier)
    assert_sound(rows.history_of(await rows.read(scheduler_database), supplier.machines))


@pytest.fixture
def past(scheduler_database: Database, clock: ManualClock) -> World:
    """A world whose rows the test itself takes away, so that they are not checked at the end."""
    return World(scheduler_database, clock, FakeSupplier(clock))


class Shell:
    """Commands on a test's database, run beside its event loop."""

    def __init__(self, nodus: Nodus, url: str) -> None:
        self._nodus = nodus
        self._url = url

    async def run(self, *arguments: str) -> Result:
        return await asyncio.to_thread(self._nodus, *arguments, "--database-url", self._url)

    async def shown(self, *arguments: str) -> str:
        result = await self.run(*arguments)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self.shown(*arguments, "-o", "json"))

    async def refusal(self, *arguments: str) -> str:
        result = await self.run(*arguments)
        assert result.exit_code == 2, result.output
        (line,) = result.stderr.strip().splitlines()
        assert line.startswith("Error: ")
        return line.removeprefix("Error: ")


@pytest.fixture
def shell(nodus: Nodus, clean_database: str) -> Shell:
    return Shell(nodus, clean_database)


async def name_of(world: World, which: str = "0/1") -> str:
    return str((await world.documents())[which]["metadata"]["name"])


async def test_the_commands_print_what_their_facts_say(world: World, shell: Shell) -> None:
    await lose_and_finish(world)
    name = await name_of(world)

    assert await shell.json("explain", name) == await facts_of(world)
    assert await shell.json("timeline", "train") == timeline_json(await timeline(world))
    drawn = await shell.shown("timeline", "job/train")
    assert max(map(len, drawn.splitlines())) <= 80
    assert "\x1b" not in drawn
    said = await shell.shown("explain", name, "--why-not", "cpu-1c-4g-full")
    assert said.endswith("so it was ruled out (InsufficientCapacity).\n")
    assert len(said.splitlines()) == 1
    asked = await shell.json("explain", name, "--why-not", "cpu-1c-4g-eu")
    assert asked["standing"] == "LostOnPoints"
    assert [one["score"] for one in asked["scores"]] == [
        *("fit", "timeToResult", "costToComplete", "recoveryValue", "health"),
    ]


async def test_names_that_are_not_there_are_refused_with_those_meant(
    world: World, shell: Shell
) -> None:
    await lose_and_finish(world)
    name = await name_of(world)
    async with world.database.transaction() as connection:
        await connection.execute(sa.insert(t.projects).values(name="team-a"))
    near = "train-0-e1-zzzzz"

    said = await shell.refusal("explain", near)
    assert said.startswith(f"There is no Attempt {near!r} in project default: `nodus get -n defa")
    assert f"Did you mean {name} or " in said
    assert await shell.refusal("explain", name, "-n", "team-a") == (
        f"There is no Attempt {name!r} in project team-a, but in default: add -n default."
    )
    assert await shell.refusal("explain", "train") == (
        "train names a workload, not an Attempt: `nodus timeline train -n default` shows its"
        " Attempts by name."
    )
    assert await shell.refusal("explain", name, "-n", "team-b") == (
        "There is no project 'team-b': `nodus project list` shows those there are."
        " Did you mean team-a?"
    )
    assert (await shell.refusal("explain", name, "--why-not", "cpu-1c-4g-uk")).startswith(
        "There is no offering class 'cpu-1c-4g-uk' in the catalog, and the decision about"
    )
    said = await shell.refusal("timeline", "trian")
    assert said.startswith("There is no job/trian in project default: ")
    assert said.endswith("Did you mean train?")
    assert "names no owner: write KIND/NAME" in await shell.refusal("timeline", "cron/x")
    assert "Did you mean team-a?" in await shell.refusal("timeline", "train", "-n", "team-b")
    assert "no sandbox/train in project" in await shell.refusal("timeline", "sandbox/train")
    assert "Did you mean team-a?" in await shell.refusal("cost", "-n", "team-b")
    assert "Did you mean train?" in await shell.refusal("get", "--owner", "trian")
    assert "names no owner" in await shell.refusal("get", "--owner", "cron/x")
    assert name in await shell.refusal("get", name.replace("e1", "e9"))
    assert "in any project" in await shell.refusal("get", "nope", "-A")
    assert "leave out --owner, --phase" in await shell.refusal("get", name, "--phase", "Queued")


async def test_an_owner_is_taken_as_the_bill_prints_it(world: World, shell: Shell) -> None:
    await lose_and_finish(world)
    (row,) = (await shell.json("cost", "--by", "owner"))["items"]
    owner = row["owner"]

    assert owner == "default/job/train"
    same = await shell.json("timeline", "train")
    assert await shell.json("timeline", owner) == same
    assert await shell.json("timeline", owner, "-n", "default") == same
    assert len((await shell.json("get", "--owner", owner))["items"]) == 2
    assert len((await shell.json("get", "--owner", owner, "-A"))["items"]) == 2
    for command in (["timeline"], ["stop"], ["suspend"], ["get", "--owner"]):
        assert await shell.refusal(*command, owner, "-n", "team-a") == (
            "'default/job/train' is of project 'default', and -n says 'team-a': leave one out."
        )
    elsewhere = await shell.refusal("timeline", "team-b/job/train")
    assert elsewhere.startswith("There is no project 'team-b': ")
    assert "names no owner: write KIND/NAME" in await shell.refusal("stop", "default/job/a/b")


async def test_an_attempt_is_no_workload_and_a_workload_no_attempt(
    world: World, shell: Shell
) -> None:
    await lose_and_finish(world)
    name = await name_of(world)

    meant = f"{name} is an Attempt of job/train: name that workload, as job/train."
    for command in (["stop"], ["suspend"], ["delete"], ["timeline"], ["get", "--owner"]):
        assert await shell.refusal(*command, name) == meant
    assert await shell.refusal("scale", name, "2") == meant
    assert await shell.refusal("drill", "train", "--trigger", "node-loss") == (
        "train names a workload, not an Attempt: `nodus timeline train -n default` shows its"
        " Attempts by name."
    )


@pytest.mark.parametrize("view", VIEWS)
def test_without_a_database_each_view_says_what_to_do(
    nodus: Nodus, view: str, tmp_path: Path
) -> None:
    result = nodus(*VIEWS[view], "--data-dir", tmp_path)

    assert result.exit_code == 2
    assert result.stderr.startswith("Error: No database is named and no `nodus up` runs on")
    unreachable = "postgresql://ann:secret@127.0.0.1:1/nodus"
    result = nodus(*VIEWS[view], "--database-url", unreachable, "--data-dir", tmp_path)
    assert result.exit_code == 2
    assert "cannot be reached" in result.stderr
    assert "secret" not in result.stderr


async def test_get_chooses_by_owner_and_phase_and_says_what_is_waited_for(
    world: World, shell: Shell
) -> None:  # SC-009a, SC-009b
    world.fake.slots = 1
    await world.submit("first")
    await world.settle()
    await world.submit("second")
    await world.settle()

    table = await shell.shown("get")
    assert table.splitlines()[0].endswith("  WAITS FOR")
    assert table.splitlines()[2].endswith(
        "1 class tried: cpu-1c-4g-other has no capacity (asked for 1, 0 free)"
    )
    names = {one["metadata"]["name"][:5] for one in (await shell.json("get"))["items"]}
    assert names == {"first", "secon"}
    for chosen in (("--owner", "job/second"), ("--owner", "second"), ("--phase", "queued")):
        (one,) = (await shell.json("get", *chosen))["items"]
        assert one["metadata"]["name"].startswith("second-0-e1-")
    by_labels = {  # LW-095: the grammar of labelSelector
        "nodus.dev/job=second": {"secon"},
        "nodus.dev/job in (first, second)": {"first", "secon"},
        "nodus.dev/job,nodus.dev/job!=second": {"first"},
        "!nodus.dev/job": set(),
    }
    for selector, expected in by_labels.items():
        items = (await shell.json("get", "-l", selector))["items"]
        assert {one["metadata"]["name"][:5] for one in items} == expected, selector
    wrong = await shell.refusal("get", "--selector", "nodus.dev/job in first")
    assert wrong.startswith("--selector: ")
    assert wrong.endswith("joined by commas.")
    both = await shell.json("get", "--phase", "Queued", "--phase", "Provisioning", "-A")
    assert len(both["items"]) == 2
    wide = await shell.shown("get", "-o", "wide", "-A")
    assert wide.startswith("PROJECT  NAME")
    assert "SUPERSEDED-BY" in wide
    running = await shell.shown("get", "--phase", "Running")
    assert running == "No Attempts.\n"
    queued = (await shell.json("get", "--phase", "Provisioning"))["items"]
    assert "WAITS FOR" not in attempts_table(
        queued, world.clock.now(), with_project=False, wide=False
    )


@pytest.mark.parametrize("by", ["owner", "project", "offering", "segment"])
async def test_costs_add_up_with_what_nodus_paid_aside(
    world: World, shell: Shell, by: str
) -> None:  # SC-505, SC-520, SC-521, P-11
    await lose_and_finish(world)
    costs = await shell.json("cost", "--by", by)
    ledger = await world.rows(t.cost_segments)

    def total(*, covered: bool) -> str:
        return format_usd(
            sum((row["usd"] for row in ledger if row["covered"] is covered), Decimal(0))
        )

    def summed(field: str) -> str:
        return format_usd(sum((Decimal(one[field]) for one in costs["items"]), Decimal(0)))

    assert costs["addsUp"] is True
    assert costs["totalUSD"] == costs["attemptsTotalUSD"] == total(covered=False) == "0.002500"
    assert costs["total"]["coveredUSD"] == total(covered=True) == "0.000250"
    assert costs["total"]["coveredByNodus"] == {"Teardown": "0.000250"}
    for field in (
        *("bootUSD", "runningUSD", "restoreUSD", "teardownUSD"),
        *("totalUSD", "coveredUSD"),
    ):
        assert summed(field) == costs["total"][field]
    groups = {
        "owner": ["default/job/train"],
        "project": ["default"],
        "offering": ["cpu-1c-4g-eu", "cpu-1c-4g-us"],
        "segment": ["Boot", "Running", "Restore", "Teardown"],
    }
    assert [one[by] for one in costs["items"]] == groups[by]
    said = await shell.shown("cost", "--by", by)
    assert said.splitlines()[-2:] == [
        "Nodus paid 0.000250 USD of its own: Teardown 0.000250.",
        "0.000033 + 0.002389 + 0.000039 + 0.000039 = 0.002500 USD, as the Attempts themselves say.",
    ]


async def test_archived_attempts_are_told_from_what_is_left_of_them(
    past: World, shell: Shell, clean_database: str
) -> None:
    await lose_and_finish(past)
    name = await name_of(past)
    before = await facts_of(past)
    await archive(clean_database, name)

    facts = await shell.json("explain", name)
    assert facts["archived"] is True
    for same in ("timings", "cost", "end", "supersededBy"):
        assert facts[same] == before[same]
    assert facts["placement"]["rejected"] == [
        {
            "offering": "cpu-1c-4g-full",
            "reason": "InsufficientCapacity",
            "message": "cpu-1c-4g-full: It has no capacity left at the moment.",
        }
    ]
    assert ", archived\n" in await shell.shown("explain", name)
    seen = await shell.json("timeline", "train")
    assert [one["epoch"] for one in seen["epochs"]] == [1, 2]
    assert [one["kind"] for one in seen["epochs"][0]["spans"]] == ["Boot", "Running", "Teardown"]
    (one,) = (await shell.json("get", "--archived", "--owner", "train", "--phase", "Failed"))[
        "items"
    ]
    assert one["metadata"]["name"] == name
    assert (await shell.json("get", "--archived", "--owner", "other"))["items"] == []


async def archive(url: str, name: str) -> None:
    """Move an Attempt to the archive as a retired one is: document and ledger alone."""
    connection: Any = await asyncpg.connect(url)
    await connection.execute("SET session_replication_role = replica; SET search_path = nodus")
    await connection.execute("SELECT ensure_archive('2026-01-01')")
    moved = await connection.execute(
        "INSERT INTO attempts_archive (finished, uid, project, name, workload, workload_kind,"
        " workload_name, slot, epoch, phase, reason, rev, usd, ledger, doc)"
        " SELECT a.finished, a.uid, a.project, a.name, a.workload, w.kind, w.name, a.slot, a.epoch,"
        " a.phase, a.reason, o.rev, 0,"
        " (SELECT jsonb_agg(to_jsonb(s)) FROM cost_segments s WHERE s.attempt = a.no), o.doc"
        " FROM attempts a JOIN workloads w ON w.uid = a.workload"
        " JOIN attempt_objects o ON o.attempt = a.no WHERE a.name = $1",
        name,
    )
    assert moved == "INSERT 0 1"
    await connection.execute("DELETE FROM attempt_objects WHERE name = $1", name)
    await connection.close()


# what a queued Attempt waits for: every kind that the loop can say (SC-009a, SC-009b)


async def waits(world: World, which: str = "0/1") -> tuple[str, str]:
    metadata = (await world.documents())[which]["metadata"]
    notes = metadata["annotations"]
    explained = (await facts_of(world, which))["waiting"]
    found = notes["nodus.dev/waiting-for"], notes["nodus.dev/waiting-message"]
    assert (explained["for"], explained["message"]) == found
    return found


async def test_waiting_for_the_loop(world: World) -> None:
    await world.submit()
    passes = await world.lead()
    for step in ("intake", "fill"):
        await passes.step(step)

    assert await waits(world) == ("Loop", "waiting for the scheduler's next pass")


async def test_waiting_for_capacity_says_how_many_classes_and_machines(world: World) -> None:
    world.fake.offered = [an_offer("cpu-a", available=0), an_offer("cpu-b", available=0)]
    await world.submit()
    await world.settle()

    assert await waits(world) == (
        "Capacity",
        "2 classes tried: cpu-a has no capacity (asked for 1, 0 free)",
    )
    waiting = (await facts_of(world))["waiting"]
    assert waiting["nextTryTime"] == "2026-01-01T00:00:10Z"
    before = (await world.documents())["0/1"]["metadata"]["resourceVersion"]
    await world.settle(25)
    assert (await world.documents())["0/1"]["metadata"]["resourceVersion"] == before
    assert (await facts_of(world))["waiting"]["queuedSeconds"] == 25


async def test_waiting_for_a_refusal_to_pass_names_the_moment_of_the_next_try(
    world: World,
) -> None:  # SC-332, SC-360
    world.fake.before = NoCapacity("none")
    await world.submit()
    await world.settle()

    kind, message = await waits(world)
    next_try = message.rpartition(" ")[2]
    assert kind == "Capacity"
    assert message == (
        "1 class tried: cpu-1c-4g-other has no capacity (asked for 1, 0 free),"
        f" next try at {next_try}"
    )
    assert 24 <= (datetime.fromisoformat(next_try) - world.clock.now()).total_seconds() <= 36
    await world.submit("other")
    await world.settle()
    notes = [one["metadata"]["annotations"] for one in await world.all_documents()]
    (other,) = [one for one in notes if one["nodus.dev/waiting-for"] == "Backoff"]
    assert other["nodus.dev/waiting-message"] == (
        f"1 class tried: cpu-1c-4g-other failed to deliver and backs off, next try at {next_try}"
    )


async def test_waiting_for_a_backoff_names_its_end(world: World) -> None:  # SC-121
    await world.submit(restart={"maxRetries": 2})
    await world.settle()
    runner = await world.start()
    await runner.report("exited", exitCode=1, signal=None, oom=False)
    await world.settle(1)

    kind, message = await waits(world, "0/2")
    next_try = message.rpartition(" ")[2]
    assert (kind, message) == ("Backoff", f"try 2 waits for its backoff, next try at {next_try}")
    assert 5 <= (datetime.fromisoformat(next_try) - world.clock.now()).total_seconds() <= 12
    assert (await facts_of(world, "0/2"))["waiting"]["nextTryTime"] == next_try


async def test_waiting_for_an_operator_names_the_class(world: World) -> None:  # SC-310 row 15
    await world.submit()
    passes = await world.lead()
    for _ in range(2):
        await passes.step("offers")
        await passes.loop.calls.settled()
    async with world.database.transaction() as connection:
        await connection.execute(sa.update(t.offering_classes).values(enabled=False))
    await world.settle()

    assert await waits(world) == (
        "Capacity",
        "1 class tried: cpu-1c-4g-other is closed by an operator",
    )


def on_a_terminal(*arguments: str, columns: int) -> str:
    """Return what a command prints on a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    settings = {"TERM": "xterm-256color", "PYTHONUTF8": "1"}
    kept = {n: v for n, v in environment().items() if n not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(  # noqa: S603 -- ours
        [*NODUS, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=kept | settings
    )
    os.close(theirs)
    printed = b""
    with contextlib.suppress(OSError):  # how Linux says that the other side is closed
        while piece := os.read(ours, 65536):
            printed += piece
    os.close(ours)
    assert process.wait(60) == 0, printed
    return printed.decode()


def test_the_views_of_a_live_server(up: Up, tmp_path: Path) -> None:
    manifest = tmp_path / "views.yaml"
    manifest.write_text(job("views", "exit 3", restart={"maxRetries": 0}))
    up.nodus("submit", "-f", str(manifest))

    def gone() -> bool:
        found = up.attempts("views")
        return bool(found) and "deletionProvenTime" in found[0]["status"]["timings"]

    eventually(gone, 60)
    name = up.attempts("views")[0]["metadata"]["name"]
    said = up.nodus("explain", name).stdout
    assert "CustomerExit: the program exited with 3." in said
    assert "The fault is the workload's own." in said
    facts = json.loads(up.nodus("explain", name, "-o", "json").stdout)
    assert facts["placement"]["chosen"]["total"]
    drawn = up.nodus("timeline", "views").stdout
    assert drawn.startswith("job/views in project default: Failed, 1 epoch in 1 lane, from")
    assert "Failed CustomerExit exit 3, " in drawn
    offering = facts["placement"]["chosen"]["offering"]
    why = up.nodus("explain", name, "--why-not", offering).stdout
    assert why == f"{offering} (on-demand) is the class that was chosen.\n"
    assert "job/views" in up.nodus("cost", "--by", "owner").stdout
    seen = on_a_terminal("timeline", "views", "--data-dir", str(up.root), columns=100)
    assert "\x1b[33m░" in seen  # Boot, coloured
    bar = next(line for line in seen.splitlines() if "  e1  " in line)
    assert len(re.sub(r"\x1b\[[0-9;]*m", "", bar)) == 100
    assert "a character is" in seen
    assert name in up.nodus("get", "--owner", "views", "--phase", "Failed").stdout
