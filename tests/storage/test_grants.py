"""What each role may do: the reader reads, the scheduler writes all but the log."""

import asyncpg
import pytest
from tests.storage.scene import Connection

from nodus_api.storage import migrate

READER = "nodus_api"
WRITER = "nodus_scheduler"

READABLE = {
    "access_changes",
    "alembic_version",
    "attempt_objects",
    "attempts_archive",
    "changes",
    "feed",
    "feed_epochs",
    "installation",
    "leader_heartbeat",
    "project_members",
    "projects",
    "tokens",
}
NOT_WRITABLE = {
    "access_changes",
    "alembic_version",
    "attempt_objects",
    "attempts_archive",
    "changes",
    "feed",
    "feed_epochs",
    "installation",
    "runner_key",
}
_GRANTS = """
SELECT c.relname, has_table_privilege($1, c.oid, 'SELECT') AS reads,
  has_table_privilege($1, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER') AS writes
FROM pg_class c
WHERE c.relnamespace = 'nodus'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
"""
_PARTITIONS = """
SELECT i.inhrelid::regclass::text AS name,
  has_table_privilege($1, i.inhrelid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE') AS any
FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent
WHERE p.relnamespace = 'nodus'::regnamespace AND p.relkind = 'p'
"""


async def test_the_reader_reads_what_it_serves_and_writes_nothing(superuser: Connection) -> None:
    rows = await superuser.fetch(_GRANTS, READER)
    assert {row["relname"] for row in rows if row["reads"]} == READABLE
    assert {row["relname"] for row in rows if row["writes"]} == set()


async def test_the_scheduler_writes_all_but_the_log_and_what_identifies(
    superuser: Connection,
) -> None:
    rows = await superuser.fetch(_GRANTS, WRITER)
    assert {row["relname"] for row in rows if not row["writes"]} == NOT_WRITABLE
    assert {row["relname"] for row in rows if not row["reads"]} == set()


@pytest.mark.parametrize("role", [READER, WRITER])
async def test_partitions_new_ones_too_open_to_nobody(scene: Connection, role: str) -> None:
    await scene.execute("SELECT ensure_partitions(1, 3)")
    await scene.execute("SELECT ensure_archive('2031-05-05')")
    rows = await scene.fetch(_PARTITIONS, role)

    assert {"changes_0", "changes_3", "attempts_archive_203105"} <= {row["name"] for row in rows}
    assert [row["name"] for row in rows if row["any"]] == []


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO changes (rev, kind) VALUES (9, 'E')",
        "DELETE FROM changes",
        "DELETE FROM changes_0",
        "INSERT INTO changes_0 (rev, kind) VALUES (9, 'E')",
        "UPDATE attempt_objects SET rev = 1",
        "UPDATE feed SET oldest = 9",
        "DELETE FROM feed_epochs",
        "DELETE FROM attempts_archive",
        "UPDATE access_changes SET rev = 9",
        "UPDATE alembic_version SET version_num = 'x'",
        "UPDATE runner_key SET key = ''",
        "TRUNCATE attempts",
        "ALTER TABLE attempts DISABLE TRIGGER touch",
        "SET session_replication_role = replica",
        "DROP TABLE changes_0",
        "CREATE TABLE nodus.mine ()",
    ],
)
async def test_the_scheduler_may_not(scene: Connection, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await scene.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO projects (name) VALUES ('x')",
        "UPDATE tokens SET revoked = now()",
        "DELETE FROM project_members",
        "UPDATE leader_heartbeat SET at = now()",
        "INSERT INTO token_uses VALUES ('abcdefghij23', now())",
        "SELECT * FROM supplier_offers",
        "SELECT * FROM runner_key",
        "SELECT * FROM attempts",
        "SELECT * FROM changes_0",
        "SELECT publish('{}', '{}', '{}')",
        "SELECT lock_feed()",
        "SELECT start_epoch(true)",
    ],
)
async def test_the_reader_may_not(scene: Connection, statement: str) -> None:
    await scene.execute("SET LOCAL ROLE nodus_api")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await scene.execute(statement)


async def test_the_reader_notes_the_use_of_a_token(scene: Connection) -> None:  # AS-067
    await scene.execute(
        "INSERT INTO tokens (id, secret_sha256, username)"
        " VALUES ('abcdefghij23', decode(repeat('ff', 32), 'hex'), 'ann')"
    )
    await scene.execute("SET LOCAL ROLE nodus_api")
    await scene.execute("SET LOCAL nodus.now = '2026-01-01T00:01:59Z'")
    await scene.execute("SELECT token_used(ARRAY['abcdefghij23', 'nobody'])")
    await scene.execute("SET LOCAL ROLE nodus_scheduler")
    used = await scene.fetch("SELECT id, last_used::text FROM token_uses")
    assert [tuple(row) for row in used] == [("abcdefghij23", "2026-01-01 00:01:00+00")]


async def test_partition_upkeep_becomes_the_owner_by_a_deliberate_act(empty_url: str) -> None:
    await migrate.upgrade(empty_url)
    connection = await asyncpg.connect(empty_url)
    try:
        await connection.execute("SET SESSION AUTHORIZATION nodus_scheduler")
        detach = "ALTER TABLE nodus.changes DETACH PARTITION nodus.changes_2 CONCURRENTLY"
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(detach)
        await connection.execute("SET ROLE nodus_migrate")
        await connection.execute(detach)
        await connection.execute("DROP TABLE nodus.changes_2")
    finally:
        await connection.close()
