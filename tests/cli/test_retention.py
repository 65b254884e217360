"""`nodus schedule` keeps finished Attempts as long, and as many, as it is told."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.cli.conftest import Nodus
from tests.cli.live import NODUS, begun, job
from tests.cli.test_bad_input import refusal

from nodus_api.clock import SystemClock
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database


@contextmanager
def scheduling(url: str, root: Path, *arguments: str) -> Iterator[None]:
    """Run `nodus schedule` as a child, and end it as SIGTERM does."""
    command = [*NODUS, "schedule", "--database-url", url, "--data-dir", str(root)]
    ports = ["--runner-port", "0", "--health-port", "0"]
    with (
        root.with_suffix(".log").open("ab") as log,
        begun([*command, *ports, *arguments], stdout=log, stderr=log) as child,
    ):
        try:
            yield
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(40)


async def until(database: Database, query: sa.Select[Any]) -> None:
    """Wait until something is counted."""
    async with asyncio.timeout(90):
        while True:
            async with database.single_reads() as connection:
                if (await connection.execute(query)).scalar_one():
                    return
            await SystemClock().sleep(0.1)


@pytest.mark.slow
async def test_what_is_kept_is_a_flag(
    nodus: Nodus, clean_database: str, scheduler_database: Database, tmp_path: Path
) -> None:  # SC-806
    root, file = tmp_path / "data", tmp_path / "job.yaml"
    file.write_text(job("short", "true"))
    where = ("--database-url", clean_database)
    count = sa.select(sa.func.count())
    proven = count.where(t.attempts.c.deletion_proven.is_not(None))
    with scheduling(clean_database, root):
        await asyncio.to_thread(nodus, "submit", "-f", file, *where)
        await until(scheduler_database, proven)
    with scheduling(clean_database, root, "--retain-finished-count", "0"):
        await until(scheduler_database, count.select_from(t.attempts_archive))

    shown = await asyncio.to_thread(nodus, "get", *where)
    assert shown.stdout == "No Attempts.\n"
    assert "short-0-e1" in (await asyncio.to_thread(nodus, "get", "--archived", *where)).stdout
    again = await asyncio.to_thread(nodus, "submit", "-f", file, "--no-wait", *where)
    assert again.exit_code == 0


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--retain-finished", "24", "NODUS_RETAIN_FINISHED: '24' is not a duration"),
        ("--retain-finished", "soon", "is not a duration"),
    ],
)
def test_a_bad_age_is_refused(nodus: Nodus, flag: str, value: str, said: str) -> None:
    assert said in refusal(nodus("schedule", flag, value, "--database-url", "postgresql:///x"))
