"""The scheduler goes on while the schema changes under it (expand, migrate, contract)."""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from tests.scheduler.fake_supplier import FakeSupplier
from tests.scheduler.world import World
from tests.storage.conftest import fresh_database

from nodus_api.clock import SystemClock
from nodus_api.scheduler import Pace, Scheduler
from nodus_api.storage import migrate
from nodus_api.storage.engine import Database, Role
from nodus_api.tasks import spawn

pytestmark = pytest.mark.slow  # lives in real time, one beside each change

CLOCK = SystemClock()
QUICK = Pace(full_pass=timedelta(seconds=0.2))
LATER = f'''
from alembic import op
revision = "9999"
down_revision = "{migrate.HEAD}"
TABLES = ("attempts", "attempt_work", "machines", "leases", "slots", "changes", "attempt_objects")
def upgrade():
    for table in TABLES:
        op.execute(f"ALTER TABLE nodus.{{table}} ADD COLUMN note text NOT NULL DEFAULT ''")
def downgrade():
    for table in TABLES:
        op.execute(f"ALTER TABLE nodus.{{table}} DROP COLUMN note")
'''
WIDER = """
from alembic import op
revision = "99999"
down_revision = "9999"
COLUMNS = ("attempts.name", "attempts.slot", "machines.key", "machines.handle",
           "attempt_objects.name")
def upgrade():
    for table, column in (one.split(".") for one in COLUMNS):
        op.execute(f"ALTER TABLE nodus.{table} ALTER COLUMN {column} TYPE varchar")
def downgrade():
    pass
"""


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(60):
            while not await condition():
                await CLOCK.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None


@asynccontextmanager
async def scheduling(url: str) -> AsyncIterator[tuple[World, Scheduler]]:
    """A scheduler that runs, and the hands of its users and of its machines' runners."""
    supplier = FakeSupplier(CLOCK, slots=8)
    loop, hands = Database(url, role=Role.SCHEDULER), Database(url, role=Role.SCHEDULER)
    scheduler = Scheduler(loop, supplier, CLOCK, pace=QUICK)
    stop = asyncio.Event()
    running = spawn("scheduler", scheduler.run(stop))
    try:
        yield World(hands, CLOCK, supplier), scheduler  # type: ignore[arg-type] # nobody moves it
    finally:
        stop.set()
        await running
        await loop.close()
        await hands.close()


async def phase(world: World, name: str) -> str:
    for one in await world.all_documents():
        if one["metadata"]["ownerReferences"][0]["name"] == name:
            return str(one["status"]["phase"])
    return ""


async def live(world: World, name: str) -> None:
    """One Job's whole life, from its submission to the proof that its machine is gone."""
    await world.submit(name)

    async def requested() -> bool:
        try:
            await world.runner_of(name)
        except (LookupError, IndexError):
            return False
        return True

    await until(requested, f"{name} has a machine")
    runner = await world.runner_of(name)
    await runner.report("registered", checks={}, pullMs=0)

    async def won() -> bool:
        standing = await runner.report("canStart")
        return standing is not None and standing.won

    await until(won, f"{name} may start")
    await runner.report("started")

    async def runs() -> bool:
        return await phase(world, name) == "Running"

    await until(runs, f"{name} runs")
    await runner.report("exited", exitCode=0, signal=None, oom=False)

    async def gone() -> bool:
        ended = await phase(world, name) == "Succeeded"
        return ended and runner.intent.key not in world.fake.machines

    await until(gone, f"{name} is over")


async def test_lives_go_on_while_the_schema_goes_up_and_back(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # reliability.md G14
    caplog.set_level(logging.WARNING)
    later, wider = tmp_path / "later", tmp_path / "wider"
    for scripts, texts in ((later, [LATER]), (wider, [LATER, WIDER])):
        await asyncio.to_thread(shutil.copytree, migrate.script_location(), scripts)
        for n, text in enumerate(texts):
            (scripts / "versions" / f"later_{n}.py").write_text(text)

    async with fresh_database(database_url, "nodus_migrating") as url:
        await migrate.upgrade(url)
        async with scheduling(url) as (world, scheduler):
            await live(world, "before")
            for name, change in (
                ("up", migrate.upgrade(url, scripts=later)),
                ("wider", migrate.upgrade(url, scripts=wider)),
                ("back", migrate.downgrade(url, migrate.HEAD, scripts=wider)),
            ):
                changing = spawn(name, change)
                await live(world, name)
                await changing
                await live(world, f"after-{name}")
            assert len(world.fake.creates) == 7  # each got one machine
            read = scheduler.metrics.registry.get_sample_value
            leads = read("nodus_scheduler_leader")
            assert read("nodus_scheduler_log_partitions_ahead") == 2  # the upkeep runs beside
        lines = [record.message for record in caplog.records if "lead" in record.message]
    assert leads == 1
    assert lines == []  # it never lost the lead
