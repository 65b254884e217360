"""A plan that serves any parameter uses the partial indexes all the same (`plan_once`)."""

from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import asyncpg
from tests.storage.scene import Connection

from nodus_api.storage import due
from nodus_api.storage.conditions import workload_named
from nodus_api.storage.feed import read_first_changes
from nodus_api.storage.tables import workloads

_NAMED = sa.select(workloads.c.uid).where(
    workloads.c.project == "default",
    workloads.c.kind == "Job",
    workloads.c.name == "train",
    workload_named(),
)
STATEMENTS = {
    "observable": (due.observable(), "machines_open"),
    "requested": (due.requested(10), "machines_open"),
    "releasing": (due.releasing(10), "machines_open"),
    "next moment": (due.next_moment(), "machines_open"),
    "named": (_NAMED, "workloads_name"),
}


@pytest.fixture
async def planning(superuser: Connection) -> AsyncIterator[Connection]:
    async with superuser.transaction():
        await superuser.execute("SET LOCAL search_path = nodus")
        await superuser.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        await superuser.execute("SET LOCAL enable_seqscan = off")
        yield superuser


@pytest.mark.parametrize("name", STATEMENTS)
async def test_a_plan_for_all_uses_the_index(planning: Connection, name: str) -> None:
    statement, index = STATEMENTS[name]
    compiled = statement.compile(
        dialect=asyncpg.dialect(),  # type: ignore[no-untyped-call]
        compile_kwargs={"render_postcompile": True},
    )
    await planning.execute(f"PREPARE one AS {compiled}")
    count = len(compiled.positiontup or ())
    given = f"({', '.join(['NULL'] * count)})" if count else ""
    try:
        lines = await planning.fetch(f"EXPLAIN EXECUTE one{given}")
    finally:
        await planning.execute("DEALLOCATE one")
    assert any(index in line[0] for line in lines), "\n".join(one[0] for one in lines)


async def test_the_log_of_a_project_is_read_by_its_index(planning: Connection) -> None:
    statement = read_first_changes(1, 1000, "default").compile(
        dialect=asyncpg.dialect(),  # type: ignore[no-untyped-call]
        compile_kwargs={"literal_binds": True},
    )
    lines = [line[0] for line in await planning.fetch(f"EXPLAIN {statement}")]
    assert any("_project_rev_idx" in line for line in lines), "\n".join(lines)
