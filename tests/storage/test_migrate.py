"""`nodus migrate`: to head once, refused with a sentence, and nothing left behind by a failure."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import asyncpg
import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory
from tests.storage.conftest import OLDEST
from tests.storage.logins import as_login
from tests.storage.scene import SCENE, Connection

from nodus_api.clock import SystemClock
from nodus_api.storage import migrate, tables
from nodus_api.storage import revision as revision_module
from nodus_api.storage.embedded import EmbeddedPostgres
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import (
    MigrationRefused,
    SchemaMismatch,
    StorageFault,
    StorageUnavailable,
)
from nodus_api.storage.feed import Feed
from nodus_api.storage.revision import REVISIONS
from nodus_api.tasks import spawn

TABLES = len(tables.metadata.tables) + 1  # and Alembic's own

# everything the schema consists of, and the rows that tell whether a second run wrote
_STATE = """
SELECT 'table', relname || relkind::text || coalesce(relacl::text, '')
  || coalesce(reloptions::text, '') FROM pg_class
  WHERE relnamespace = to_regnamespace('nodus')
UNION ALL SELECT 'function', proname || md5(prosrc) || coalesce(proacl::text, '') FROM pg_proc
  WHERE pronamespace = to_regnamespace('nodus')
UNION ALL SELECT 'constraint', conname || pg_get_constraintdef(oid) FROM pg_constraint
  WHERE connamespace = to_regnamespace('nodus')
UNION ALL SELECT 'trigger', tgname || tgrelid::regclass::text FROM pg_trigger
  WHERE NOT tgisinternal
UNION ALL SELECT 'column', attrelid::regclass || '.' || attname || atttypid::regtype
  FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
  WHERE c.relnamespace = to_regnamespace('nodus') AND attnum > 0 AND NOT attisdropped
UNION ALL SELECT 'schema', nspname FROM pg_namespace WHERE nspname = 'nodus'
UNION ALL SELECT 'role', rolname || rolinherit::text || rolcanlogin::text FROM pg_roles
UNION ALL SELECT 'member', roleid::regrole::text || member::regrole::text FROM pg_auth_members
ORDER BY 1, 2
"""
TABLES = len(tables.metadata.tables) + 1
"""With Alembic's own."""


async def state(url: str) -> list[tuple[str, str]]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(_STATE)
    await connection.close()
    return [tuple(row) for row in rows]


async def count_tables(url: str) -> int:
    connection = await asyncpg.connect(url)
    count: int = await connection.fetchval(
        "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('nodus')"
        " AND relkind IN ('r', 'p') AND NOT relispartition"
    )
    await connection.close()
    return count


async def test_migrate_makes_every_table_once(empty_url: str) -> None:
    await migrate.upgrade(empty_url)
    first = await state(empty_url)
    await migrate.upgrade(empty_url)

    # an `upgrade head` that was silently rolled back shows here
    assert await count_tables(empty_url) == TABLES
    assert await state(empty_url) == first


async def test_the_revision_of_this_version_is_the_last_one(database_url: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(migrate.script_location()))
    database = Database(database_url, role=Role.API)

    assert ScriptDirectory.from_config(config).get_current_head() == migrate.HEAD
    assert await Feed(database, clock=SystemClock()).schema_revision() == migrate.HEAD
    await migrate.check_schema(database)
    await database.close()


def test_every_revision_is_known_in_order() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrate.script_location()))
    walked = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(walked)) == REVISIONS


async def test_a_database_without_schema_is_told_to_migrate(empty_url: str) -> None:
    database = Database(empty_url, role=Role.API)
    with pytest.raises(SchemaMismatch, match="run `nodus migrate`"):
        await migrate.check_schema(database)
    await database.close()


# a later version's revision, and the way back -----------------------------------------------------

LATER = """
from alembic import op
revision = '{revision}'
down_revision = '{after}'
def upgrade():
    op.execute("ALTER TABLE nodus.changes ADD COLUMN {column} text NOT NULL DEFAULT 'new'")
    op.execute("ALTER TABLE nodus.attempt_objects ADD COLUMN {column} text NOT NULL DEFAULT 'new'")
def downgrade():
    op.execute("ALTER TABLE nodus.attempt_objects DROP COLUMN {column}")
    op.execute("ALTER TABLE nodus.changes DROP COLUMN {column}")
"""


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """The revisions of a version that comes after this one: `next` and `last`."""
    scripts = tmp_path / "later"
    shutil.copytree(migrate.script_location(), scripts)
    for revision, after, column in (("next", migrate.HEAD, "note"), ("last", "next", "mark")):
        text = LATER.format(revision=revision, after=after, column=column)
        (scripts / "versions" / f"later_{revision}.py").write_text(text)
    return scripts


async def revision_of(url: str) -> str:
    database = Database(url, role=Role.API)
    try:
        return await Feed(database, clock=SystemClock()).schema_revision()
    finally:
        await database.close()


async def refused(url: str) -> str:
    """Return what a server of this version says when it starts on that database."""
    database = Database(url, role=Role.API)
    try:
        with pytest.raises(SchemaMismatch) as mismatch:
            await migrate.check_schema(database)
    finally:
        await database.close()
    return str(mismatch.value)


async def test_a_filled_database_goes_up_and_back(own_url: str, later: Path) -> None:
    writer: Connection = await asyncpg.connect(own_url)
    await writer.execute("SET search_path = nodus")
    async with writer.transaction():
        await writer.execute(SCENE)
    log = "SELECT rev, kind, uid, doc FROM changes ORDER BY rev"
    before, rows = await state(own_url), await writer.fetch(log)

    await migrate.upgrade(own_url, scripts=later)
    assert await revision_of(own_url) == "last"
    assert await writer.fetchval("SELECT count(*) FROM changes WHERE mark = 'new'") == len(rows)
    async with writer.transaction():  # the writer of the version before goes on (expand)
        await writer.execute("SELECT pg_temp.publish(ARRAY[101, 102], 'meanwhile')")
    await migrate.downgrade(own_url, "next", scripts=later)
    assert await revision_of(own_url) == "next"
    await migrate.downgrade(own_url, migrate.HEAD, scripts=later)

    assert await state(own_url) == before
    assert (await writer.fetch(log))[: len(rows)] == rows
    assert await writer.fetchval("SELECT count(*) FROM changes") == len(rows) + 2
    await writer.close()


async def test_each_revision_of_this_version_goes_back_and_up_again(own_url: str) -> None:
    writer: Connection = await asyncpg.connect(own_url)
    await writer.execute("SET search_path = nodus")
    async with writer.transaction():
        await writer.execute(SCENE)
    log = "SELECT rev, kind, uid, doc FROM changes ORDER BY rev"
    states, rows = [await state(own_url)], await writer.fetch(log)
    for earlier in reversed(REVISIONS[:-1]):
        await migrate.downgrade(own_url, earlier)
        assert await revision_of(own_url) == earlier
        states.append(await state(own_url))
        async with writer.transaction():  # what the version of then wrote
            await writer.execute("SELECT pg_temp.publish(ARRAY[101, 102], $1)", earlier)
        with pytest.raises(asyncpg.ForeignKeyViolationError) as unpublished:
            await writer.execute("UPDATE attempts SET waiting_for = NULL WHERE no = 102")
        assert unpublished.value.constraint_name == "attempts_published"
    assert all(one != other for one, other in pairwise(states))

    await migrate.upgrade(own_url)

    assert await state(own_url) == states[0]
    assert (await writer.fetch(log))[: len(rows)] == rows
    assert await writer.fetchval("SELECT count(*) FROM changes") == len(rows) + 2 * len(states) - 2
    await writer.close()


_DIES = """
CREATE SEQUENCE public.commands;
CREATE TABLE public.death (at bigint);
CREATE FUNCTION public.die() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
  AS $$BEGIN
  IF nextval('public.commands') = (SELECT at FROM public.death) THEN
    PERFORM pg_terminate_backend(pg_backend_pid()); END IF; END $$;
CREATE EVENT TRIGGER dies ON ddl_command_end EXECUTE FUNCTION public.die();
"""


async def dies_at_each(
    admin: Connection, url: str, act: Callable[[], Awaitable[None]], *, every: int
) -> int:
    """Let the server's session end after each `every`-th command; return how many there are.

    Nothing must be left of what was done by then. The last try, which nothing disturbs, is whole.
    """
    before, at = await state(url), 1
    while True:
        await admin.execute("SELECT setval('public.commands', 1, false)")
        await admin.execute("DELETE FROM public.death")
        await admin.execute("INSERT INTO public.death VALUES ($1)", at)
        try:
            await act()
        except StorageUnavailable:
            assert await state(url) == before
            at += every
        else:
            made: int = await admin.fetchval("SELECT last_value FROM public.commands")
            return made


async def test_a_death_at_any_command_leaves_nothing(empty_url: str) -> None:
    await migrate.upgrade(empty_url)
    whole = await state(empty_url)
    admin: Connection = await asyncpg.connect(empty_url)
    try:
        await admin.execute("DROP SCHEMA nodus CASCADE")
        await admin.execute("CREATE SCHEMA nodus AUTHORIZATION nodus_migrate")  # as roles are made
        await admin.execute(_DIES)

        made = await dies_at_each(admin, empty_url, partial(migrate.upgrade, empty_url), every=25)

        assert made > 100
        assert await state(empty_url) == whole
        for to in reversed(REVISIONS[:-1]):
            back = partial(migrate.downgrade, empty_url, to)
            assert await dies_at_each(admin, empty_url, back, every=1) > 0
        again = partial(migrate.upgrade, empty_url)
        assert await dies_at_each(admin, empty_url, again, every=3) > 5
        assert await state(empty_url) == whole
    finally:
        await admin.close()


async def test_a_server_refuses_what_a_newer_version_made(own_url: str, later: Path) -> None:
    await migrate.upgrade(own_url, scripts=later)
    newer = (
        "The database is at schema last, which this version does not know, it needs"
        f" {migrate.HEAD}: a newer version has migrated it, so run that one."
    )
    assert await refused(own_url) == newer
    for act in (migrate.upgrade(own_url), migrate.downgrade(own_url, migrate.HEAD)):
        with pytest.raises(MigrationRefused, match=r"knows no schema last: .* so run that one"):
            await act
    assert await revision_of(own_url) == "last"


async def test_a_server_refuses_an_older_schema(
    own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revision_module, "REVISIONS", (*REVISIONS, "next"))
    monkeypatch.setattr(revision_module, "HEAD", "next")
    older = f"The database is at schema {migrate.HEAD}, this version needs next"
    assert await refused(own_url) == f"{older}: run `nodus migrate`."


async def test_what_has_no_way_back_says_so(own_url: str, later: Path) -> None:
    before = await state(own_url)
    with pytest.raises(MigrationRefused, match=r"cannot be taken back: .* restore a backup"):
        await migrate.downgrade(own_url, "base")
    for unknown in ("9999", "next"):  # one that nobody knows, and one that this version does not
        with pytest.raises(MigrationRefused, match=f"knows no schema {unknown}"):
            await migrate.downgrade(own_url, unknown)
    with pytest.raises(MigrationRefused, match="cannot be brought there"):
        await migrate.downgrade(own_url, "next", scripts=later)  # it lies ahead
    assert await state(own_url) == before


async def test_who_reads_or_writes_is_let_pass(own_url: str, later: Path) -> None:
    """A reader that keeps a table would hold up everybody behind a migration that waits for it."""
    reader: Connection = await asyncpg.connect(own_url)
    other: Connection = await asyncpg.connect(own_url)
    waiting = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted"
    async with reader.transaction():
        await reader.fetch("SELECT rev FROM nodus.changes")
        migrating = spawn("migrate", migrate.upgrade(own_url, scripts=later))
        async with asyncio.timeout(30):
            while not await other.fetchval(waiting):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            # it waits behind the migration, which gives up first
            await other.fetch("SELECT rev FROM nodus.changes")
        assert not migrating.done()
    await asyncio.wait_for(migrating, 60)
    assert await revision_of(own_url) == "last"
    await reader.close()
    await other.close()


async def test_several_at_once_take_one_step_together(own_url: str, later: Path) -> None:
    """As many servers as start at once, each with a migration before it."""
    program = "import asyncio, pathlib, sys; from nodus_api.storage import migrate; "
    program += "asyncio.run(migrate.upgrade(sys.argv[1], scripts=pathlib.Path(sys.argv[2])))"
    several = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, own_url, str(later)),
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for _ in range(2)
    ]
    assert [await process.wait() for process in several] == [0, 0]
    assert await revision_of(own_url) == "last"


async def test_two_at_once_run_one_after_the_other(empty_url: str) -> None:
    program = "import asyncio, sys; from nodus_api.storage import migrate; "
    program += "asyncio.run(migrate.upgrade(sys.argv[1]))"
    both = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, empty_url, env={"PYTHONPATH": os.pathsep.join(sys.path)}
        )
        for _ in range(2)
    ]
    assert [await process.wait() for process in both] == [0, 0]
    assert await count_tables(empty_url) == TABLES


async def test_a_failing_revision_leaves_nothing(empty_url: str, tmp_path: Path) -> None:
    scripts = tmp_path / "migrations"
    shutil.copytree(migrate.script_location(), scripts)
    (scripts / "versions" / "2026_12_01_broken.py").write_text(
        "from alembic import op\n"
        "revision = 'next'\n"
        f"down_revision = '{migrate.HEAD}'\n"
        "def upgrade():\n"
        "    op.execute('CREATE TABLE nodus.half ()')\n"
        "    op.execute('SELECT 1 / 0')\n"
    )
    await migrate.upgrade(empty_url)
    before = await state(empty_url)

    with pytest.raises(StorageFault, match="division by zero"):
        await migrate.upgrade(empty_url, scripts=scripts)

    assert await state(empty_url) == before


async def test_a_failing_first_revision_leaves_an_empty_schema(
    empty_url: str, tmp_path: Path
) -> None:
    scripts = tmp_path / "migrations"
    shutil.copytree(migrate.script_location(), scripts)
    for script in (scripts / "versions").glob("*.sql"):
        script.write_text(script.read_text() + "\nSELECT 1 / 0;\n")

    with pytest.raises(StorageFault, match="division by zero"):
        await migrate.upgrade(empty_url, scripts=scripts)

    assert await count_tables(empty_url) == 0


# logins ----------------------------------------------------------------------------------------


async def recreate(admin: Connection, login: str, attributes: str, database: str) -> None:
    if await admin.fetchval("SELECT to_regrole($1) IS NOT NULL", login):
        await admin.execute(f"DROP OWNED BY {login}")
        await admin.execute(f"DROP ROLE {login}")
    await admin.execute(f"CREATE ROLE {login} LOGIN {attributes}")
    await admin.execute(f"ALTER DATABASE {database} OWNER TO {login}")


@pytest.fixture
async def admin(empty_url: str) -> AsyncIterator[Connection]:
    """A superuser in the empty database; gives the database back at the end."""
    connection = await asyncpg.connect(empty_url)
    yield connection
    await connection.execute("ALTER DATABASE nodus_empty OWNER TO CURRENT_USER")
    await connection.execute("DROP SCHEMA IF EXISTS nodus CASCADE")
    for login in ("nodus_test_creator", "nodus_test_owner", "nodus_test_stranger"):
        if await connection.fetchval("SELECT to_regrole($1) IS NOT NULL", login):
            await connection.execute(f"DROP OWNED BY {login}")
            await connection.execute(f"DROP ROLE {login}")
    await connection.close()


async def test_a_member_of_the_three_roles_may_migrate_its_database(
    admin: Connection, empty_url: str
) -> None:  # AS-117
    await recreate(admin, "nodus_test_owner", "", "nodus_empty")
    grants = migrate.print_roles("nodus_test_owner", "nodus_empty").splitlines()[1]
    await admin.execute(grants)
    url = as_login(empty_url, "nodus_test_owner")

    await migrate.upgrade(url)
    await migrate.upgrade(url)

    assert await count_tables(empty_url) == TABLES
    owners = await admin.fetch("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname='nodus'")
    assert [row["tableowner"] for row in owners] == ["nodus_migrate"]
    database = Database(url, role=Role.SCHEDULER)
    async with database.transaction() as connection:
        assert await connection.scalar(sa.select(sa.func.nodus.lock_feed())) == 1
    await database.close()


async def test_a_stranger_is_told_which_roles_it_lacks(admin: Connection, empty_url: str) -> None:
    await recreate(admin, "nodus_test_stranger", "", "nodus_empty")
    with pytest.raises(MigrationRefused) as refused:
        await migrate.upgrade(as_login(empty_url, "nodus_test_stranger"))
    assert "nodus_test_stranger is no member of nodus_migrate, nodus_api, nodus_scheduler" in str(
        refused.value
    )
    assert "--print-roles" in str(refused.value)
    assert await count_tables(empty_url) == 0


async def test_a_member_that_may_not_create_is_told_so(admin: Connection, empty_url: str) -> None:
    await recreate(admin, "nodus_test_owner", "", "nodus_empty")
    await admin.execute("ALTER DATABASE nodus_empty OWNER TO CURRENT_USER")
    await admin.execute("GRANT nodus_migrate, nodus_api, nodus_scheduler TO nodus_test_owner")
    with pytest.raises(MigrationRefused, match="may not make schema nodus"):
        await migrate.upgrade(as_login(empty_url, "nodus_test_owner"))


async def test_an_unreachable_server_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="check that it runs"):
        await migrate.upgrade(f"postgresql://bob@/nodus?host={tmp_path}")


def test_the_administrators_sql_quotes_names() -> None:  # AS-117
    assert migrate.print_roles('b"ob', "my db") == (
        "CREATE ROLE nodus_migrate LOGIN; CREATE ROLE nodus_api LOGIN; "
        "CREATE ROLE nodus_scheduler LOGIN NOINHERIT;\n"
        "GRANT nodus_migrate TO nodus_scheduler; "
        'GRANT nodus_migrate, nodus_api, nodus_scheduler TO "b""ob"; '
        'GRANT CREATE ON DATABASE "my db" TO "b""ob";\n'
    )


async def test_an_operator_starts_an_epoch(empty_url: str) -> None:
    await migrate.upgrade(empty_url)
    assert await migrate.new_epoch(empty_url) == 1 << 44
    assert await migrate.new_epoch(empty_url) == 2 << 44


# a server that has never seen our roles ----------------------------------------------------------


@pytest.fixture(params=[None, OLDEST], ids=["newest", "oldest"])
def bare_url(request: pytest.FixtureRequest, open_folder: Path) -> Iterator[str]:
    """The address of a server without roles, made for the test."""
    if request.param is not None and not (request.param / "postgres").exists():
        pytest.skip("PostgreSQL 15 is not installed on this machine")
    folder = open_folder / ("bare" if request.param is None else "bare15")
    server = EmbeddedPostgres(folder, binaries=request.param, settings={"fsync": "off"})
    server.start()
    yield server.url
    server.stop()
    shutil.rmtree(folder)


async def test_roles_that_another_database_makes_meanwhile(bare_url: str) -> None:
    """The lock is one of the database alone, and the roles are the server's."""
    other: Connection = await asyncpg.connect(bare_url)
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    transaction = other.transaction()
    await transaction.start()
    await other.execute("CREATE ROLE nodus_api LOGIN")
    migrating = spawn("migrate", migrate.upgrade(bare_url))
    watcher: Connection = await asyncpg.connect(bare_url)
    async with asyncio.timeout(30):
        while not await watcher.fetchval(waits):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await transaction.commit()
    await asyncio.wait_for(migrating, 60)
    assert await count_tables(bare_url) == TABLES
    await other.close()
    await watcher.close()


async def test_a_login_that_makes_roles_makes_the_three(bare_url: str) -> None:  # AS-117
    admin = await asyncpg.connect(bare_url)
    await admin.execute("CREATE ROLE plain LOGIN; CREATE ROLE maker LOGIN CREATEROLE")
    await admin.execute("ALTER DATABASE nodus OWNER TO maker")

    with pytest.raises(MigrationRefused) as refused:
        await migrate.upgrade(as_login(bare_url, "plain"))
    await migrate.upgrade(as_login(bare_url, "maker"))
    first = await state(bare_url)
    await migrate.upgrade(as_login(bare_url, "maker"))

    assert "nodus_migrate, nodus_api, nodus_scheduler are missing and plain may not" in str(
        refused.value
    )
    assert await count_tables(bare_url) == TABLES
    assert await state(bare_url) == first
    roles = await admin.fetch(
        "SELECT rolname, rolcanlogin, rolinherit, rolsuper,"
        " pg_has_role(rolname, 'nodus_migrate', 'MEMBER') AS owner"
        " FROM pg_roles WHERE rolname ~ '^nodus_' ORDER BY rolname"
    )
    await admin.close()
    assert [tuple(role) for role in roles] == [
        ("nodus_api", True, True, False, False),
        ("nodus_migrate", True, True, False, True),
        ("nodus_scheduler", True, False, False, True),
    ]
    for role in Role:
        database = Database(as_login(bare_url, "maker"), role=role)
        async with database.transaction() as connection:
            current = await connection.scalar(sa.text("SELECT current_user::text"))
        await database.close()
        assert current == role.value
