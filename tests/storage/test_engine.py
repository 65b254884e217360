"""Sessions: role, isolation, the pinned clock, and errors with what to do next."""

import asyncio
import logging
import threading
from datetime import timedelta

import asyncpg
import pytest
import sqlalchemy as sa
from tests.storage.logins import as_login

from nodus_api.clock import ManualClock
from nodus_api.storage import tables
from nodus_api.storage.driver import Deadline, ShortRead, require_supported
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import (
    StorageConflict,
    StorageContention,
    StorageFault,
    StorageUnavailable,
    TooOldServer,
    mask_password,
)

_OF_TRANSACTION = ("transaction_isolation", "transaction_read_only")
SESSION = sa.text(
    "SELECT current_user::text, current_setting('transaction_isolation'),"
    " current_setting('transaction_read_only')"
)
WHOSE = ShortRead.of(
    sa.select(
        *(sa.cast(sa.func.current_setting(name), sa.Text) for name in ("role", *_OF_TRANSACTION))
    )
)
TWICE = ShortRead.of(
    sa.select(
        sa.func.pg_backend_pid(),
        sa.bindparam("given", type_=sa.Integer),
        sa.literal(7),
        sa.func.now(),
    )
)


@pytest.mark.parametrize("role", Role)
async def test_each_part_works_in_its_own_role(database_url: str, role: Role) -> None:  # AS-117
    database = Database(database_url, role=role)
    async with database.transaction() as connection:
        written = (await connection.execute(SESSION)).one()
    async with database.transaction(read_only=True) as connection:
        read = (await connection.execute(SESSION)).one()
    async with database.snapshot() as connection:
        snapshot = (await connection.execute(SESSION)).one()
    async with database.single_reads() as connection:
        single = (await connection.execute(SESSION)).one()
    short = (await database.read(WHOSE))[0]
    async with database.dedicated() as raw:
        alone = await raw.fetchval("SELECT current_user::text")
    await database.close()

    assert tuple(short) == (role.value, "read committed", "off")
    assert tuple(written) == (role.value, "read committed", "off")
    assert tuple(read) == (role.value, "read committed", "on")
    assert tuple(snapshot) == (role.value, "repeatable read", "on")
    assert tuple(single) == (role.value, "read committed", "off")
    assert alone == role.value


async def test_reset_all_does_not_undo_the_role(database_url: str) -> None:  # AS-117
    database = Database(database_url, role=Role.API)
    async with database.dedicated() as raw:
        await raw.execute("RESET ALL")
        assert await raw.fetchval("SELECT current_user::text") == "nodus_api"
    await database.close()


async def test_a_login_that_is_no_member_keeps_its_rights_with_one_warning(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:  # AS-117
    admin = await asyncpg.connect(database_url)
    await admin.execute("DROP ROLE IF EXISTS nodus_test_stranger")
    await admin.execute("CREATE ROLE nodus_test_stranger LOGIN")
    await admin.close()
    database = Database(as_login(database_url, "nodus_test_stranger"), role=Role.API)

    with caplog.at_level(logging.WARNING, logger="nodus_api.storage.engine"):
        for _ in range(2):
            async with database.dedicated() as raw:
                assert await raw.fetchval("SELECT current_user::text") == "nodus_test_stranger"
    await database.close()

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.records[0].__dict__["role"] == "nodus_api"


async def test_before_the_roles_are_made_nothing_is_said_of_membership(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:  # AS-117
    admin = await asyncpg.connect(database_url)
    await admin.execute("ALTER ROLE nodus_api RENAME TO nodus_test_later")
    database = Database(database_url, role=Role.API)
    try:
        with caplog.at_level(logging.WARNING, logger="nodus_api.storage.engine"):
            async with database.dedicated() as raw:
                assert await raw.fetchval("SELECT current_user = session_user")
    finally:
        await admin.execute("ALTER ROLE nodus_test_later RENAME TO nodus_api")
        await admin.close()
        await database.close()

    assert caplog.records == []


async def test_the_database_clock_is_pinned_in_every_transaction(
    scheduler_database: Database, clock: ManualClock
) -> None:
    now = sa.select(sa.func.nodus.now())
    async with scheduler_database.transaction() as connection:
        before = await connection.scalar(now)
    await clock.advance(90)
    async with scheduler_database.snapshot() as connection:
        after = await connection.scalar(now)

    assert before == clock.now() - timedelta(seconds=90)
    assert after == clock.now()


async def test_an_unpinned_database_clock_moves_within_a_transaction(database_url: str) -> None:
    database = Database(database_url, role=Role.API)
    now = sa.select(sa.func.nodus.now())
    async with database.transaction() as connection:
        first, second = [(await connection.scalars(now)).one() for _ in range(2)]
    await database.close()
    assert first < second


async def test_a_failing_body_leaves_nothing(scheduler_database: Database) -> None:
    async def fail() -> None:
        async with scheduler_database.transaction() as connection:
            await connection.execute(sa.insert(tables.organizations).values(name="gone"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with scheduler_database.transaction() as connection:
        names = list(await connection.scalars(sa.select(tables.organizations.c.name)))
    assert names == ["default"]


@pytest.mark.parametrize(
    ("name", "constraint"),
    [("default", "organizations_pkey"), ("Bad Name", "label63_form"), (None, "name")],
)
async def test_a_broken_rule_is_named(
    scheduler_database: Database, name: str | None, constraint: str
) -> None:
    with pytest.raises(StorageConflict) as refused:
        async with scheduler_database.transaction() as connection:
            await connection.execute(sa.insert(tables.organizations).values(name=name))
    assert refused.value.constraint == constraint


async def test_what_a_role_may_not_do_is_a_fault_with_its_code(api_database: Database) -> None:
    with pytest.raises(StorageFault) as refused:
        async with api_database.transaction() as connection:
            await connection.execute(sa.select(tables.supplier_offers))
    assert refused.value.sqlstate == "42501"


async def test_a_deadlock_asks_for_another_try(scheduler_database: Database) -> None:
    async def lock(first: str, second: str, met: asyncio.Barrier) -> None:
        async with scheduler_database.transaction() as connection:
            for name in (first, second):
                await connection.execute(
                    sa.select(tables.organizations)
                    .where(tables.organizations.c.name == name)
                    .with_for_update()
                )
                if name == first:
                    await met.wait()

    async with scheduler_database.transaction() as connection:
        await connection.execute(sa.insert(tables.organizations).values(name="other"))
    met = asyncio.Barrier(2)
    ends = await asyncio.gather(
        lock("default", "other", met), lock("other", "default", met), return_exceptions=True
    )
    assert sorted(map(type, ends), key=str) == sorted([type(None), StorageContention], key=str)


async def test_an_unreachable_server_is_named_without_its_password() -> None:
    database = Database("postgresql://bob:secret@127.0.0.1:1/nodus", role=Role.API)
    with pytest.raises(StorageUnavailable) as refused:
        async with database.transaction():
            pass
    await database.close()
    said = str(refused.value)
    assert "postgresql://bob:***@127.0.0.1:1/nodus" in said
    assert "check that it runs" in said
    assert "secret" not in said


async def test_a_lost_connection_fails_once_and_the_next_transaction_works(
    scheduler_database: Database, database_url: str
) -> None:
    async with scheduler_database.transaction() as connection:
        pid = await connection.scalar(sa.text("SELECT pg_backend_pid()"))
    admin = await asyncpg.connect(database_url)
    await admin.execute("SELECT pg_terminate_backend($1, 5000)", pid)
    await admin.close()

    with pytest.raises(StorageUnavailable):
        async with scheduler_database.transaction() as connection:
            await connection.execute(SESSION)
    async with scheduler_database.transaction() as connection:
        row = (await connection.execute(SESSION)).one()
    assert row[0] == "nodus_scheduler"


async def test_a_short_read_takes_its_parameters_and_keeps_its_connection(
    scheduler_database: Database,
) -> None:
    first, second = [(await scheduler_database.read(TWICE, given=n))[0] for n in (1, 2)]

    assert [first[0], *first[1:3]] == [second[0], 1, 7]
    assert second[1] == 2
    assert first[3] < second[3]  # each a transaction of its own


async def _end_session(url: str, pid: int) -> None:
    admin = await asyncpg.connect(url)
    await admin.execute("SELECT pg_terminate_backend($1, 5000)", pid)
    await admin.close()


async def test_a_lost_connection_fails_one_short_read_and_is_replaced(
    scheduler_database: Database, database_url: str
) -> None:
    before = (await scheduler_database.read(TWICE, given=1))[0][0]
    killer = threading.Thread(target=lambda: asyncio.run(_end_session(database_url, before)))
    killer.start()
    killer.join()  # without a turn of this loop, in which the driver would see the end

    with pytest.raises(StorageUnavailable):
        await scheduler_database.read(TWICE, given=1)
    after = (await scheduler_database.read(TWICE, given=1))[0][0]
    assert after != before


async def test_a_cancelled_short_read_leaves_no_answer_to_the_next(
    scheduler_database: Database,
) -> None:
    slow = ShortRead.of(sa.select(sa.func.pg_sleep(30)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await scheduler_database.read(slow)

    assert [row[1] for row in await scheduler_database.read(TWICE, given=3)] == [3]


async def test_a_short_read_waits_for_a_silent_server_until_its_deadline(
    scheduler_database: Database,
) -> None:
    slow = ShortRead.of(sa.select(sa.func.pg_sleep(30)))
    with pytest.raises(StorageUnavailable, match=r"no answer within 0\.05 s"):
        await scheduler_database.read(slow, deadline=Deadline(0.05))


async def test_a_short_read_fails_as_what_the_server_says(api_database: Database) -> None:
    forbidden = ShortRead.of(sa.select(tables.supplier_offers.c.no))
    with pytest.raises(StorageFault) as caught:
        await api_database.read(forbidden)
    assert caught.value.sqlstate == "42501"
    assert (await api_database.read(TWICE, given=1))[0][1] == 1


def test_what_the_driver_gives_otherwise_than_sqlalchemy_is_no_short_read() -> None:
    with pytest.raises(TypeError, match=r"changes\.kind"):
        ShortRead.of(sa.select(tables.changes.c.kind))


async def test_nobody_is_left_when_a_database_is_closed(database_url: str) -> None:
    database, other = (Database(database_url, role=Role.API) for _ in range(2))
    pids = [row[0][0] for row in await asyncio.gather(*(database.read(TWICE) for _ in range(9)))]
    assert 1 <= len(set(pids)) <= 4
    await database.close()

    there = sa.text("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (:pids)")
    left = 1
    while left:  # a server process takes a moment to end
        async with other.single_reads() as connection:
            left = (await connection.execute(there, {"pids": pids})).scalar_one()
    await other.close()


def test_a_server_too_old_is_refused_with_what_to_do() -> None:
    require_supported(15, 0)
    with pytest.raises(TooOldServer) as refused:
        require_supported(14, 22)
    assert "PostgreSQL 14.22, but Nodus API needs 15 or newer" in str(refused.value)
    assert "upgrade the server" in str(refused.value)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://u:p@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u@h/db?password=p&x=1", "postgresql://u@h/db?password=***&x=1"),
        ("postgresql://u@/db?host=/run", "postgresql://u@/db?host=/run"),
    ],
)
def test_passwords_are_masked(url: str, masked: str) -> None:  # AS-117
    assert mask_password(url) == masked
