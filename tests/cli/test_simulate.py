"""`nodus simulate`: what it prints, and whom it does not fight. Its lives: tests/bench."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.cli.conftest import Nodus
from tests.cli.test_bad_input import refusal

from nodus_api.storage.engine import Database, Role
from nodus_api.storage.leader_store import LeaderStore


@pytest.mark.parametrize("way", [(), ("--direct",)])
def test_what_was_simulated_is_summed_up(
    nodus: Nodus, clean_database: str, tmp_path: Path, way: tuple[str, ...]
) -> None:
    words = ("simulate", "--attempts", "3", "--projects", "2", *way, "-o", "json")
    where = ("--database-url", clean_database, "--data-dir", tmp_path)

    done = nodus(*words, *where)

    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["attempts"] >= 3
    assert int(told["resourceVersion"]) == 1 + told["changes"]
    shown = json.loads(nodus("get", "-n", "simulated-1", "-o", "json", *where).stdout)
    assert {one["metadata"]["labels"]["nodus.dev/job"] for one in shown["items"]} == {"sim-1-1"}
    assert "Seed 1 has filled this database already" in refusal(nodus(*words, *where))


def test_where_a_scheduler_leads_it_says_what_to_do(
    nodus: Nodus, clean_database: str, tmp_path: Path
) -> None:
    words = ("simulate", "--attempts", "1", "--database-url", clean_database)
    with asyncio.Runner() as other:
        leading = AsyncExitStack()
        other.run(lead(leading, clean_database))
        said = nodus(*words, "--data-dir", tmp_path)
        other.run(leading.aclose())

    assert refusal(said).startswith("A scheduler leads this database (host/1)")
    assert "--take-lead" in said.stderr


async def lead(stack: AsyncExitStack, url: str) -> None:
    database = Database(url, role=Role.SCHEDULER, pool_size=1)
    stack.push_async_callback(database.close)
    line = await stack.enter_async_context(LeaderStore(database).line())
    assert await line.try_lock()
    await LeaderStore(database).take_over("host/1")
