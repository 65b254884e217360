"""Each illegal state meets a rule with a name (storage.md section 5)."""

import asyncpg
import pytest
from tests.storage.refusals import CHECKS, CHECKS_OF_THE_OWNER, STATES, WORDS
from tests.storage.scene import Connection, play


@pytest.mark.parametrize("name", CHECKS)
async def test_a_check_refuses(scene: Connection, name: str) -> None:
    with pytest.raises(asyncpg.IntegrityConstraintViolationError) as refused:
        await scene.execute(CHECKS[name])
    assert refused.value.constraint_name == name


@pytest.mark.parametrize("name", CHECKS_OF_THE_OWNER)
async def test_a_check_refuses_even_the_owner(scene: Connection, name: str) -> None:
    await scene.execute("SET LOCAL ROLE nodus_migrate")
    with pytest.raises(asyncpg.IntegrityConstraintViolationError) as refused:
        await scene.execute(CHECKS_OF_THE_OWNER[name])
    assert refused.value.constraint_name == name


@pytest.mark.parametrize(("what", "name", "statements"), STATES, ids=[s[0] for s in STATES])
async def test_an_illegal_state_is_refused(
    scene: Connection, what: str, name: str, statements: tuple[str, ...]
) -> None:
    with pytest.raises(asyncpg.IntegrityConstraintViolationError) as refused:
        await play(scene, *statements)
    assert refused.value.constraint_name == name


@pytest.mark.parametrize(("what", "words", "statements"), WORDS, ids=[w[0] for w in WORDS])
async def test_an_illegal_step_is_refused_in_words(
    scene: Connection, what: str, words: str, statements: tuple[str, ...]
) -> None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await play(scene, *statements)
    assert words in str(refused.value)


async def test_every_check_is_named_and_tried(
    superuser: Connection,
) -> None:
    rows = await superuser.fetch(
        "SELECT conname FROM pg_constraint WHERE contype = 'c' AND coninhcount = 0"
        " AND connamespace = 'nodus'::regnamespace"
    )
    named = {row["conname"] for row in rows}
    # a name that Postgres chose would be on no list of ours
    assert named == {*CHECKS, *CHECKS_OF_THE_OWNER}


async def test_a_writer_in_repeatable_read_is_refused(either_url: str) -> None:
    connection = await asyncpg.connect(either_url)
    try:
        transaction = connection.transaction(isolation="repeatable_read")
        await transaction.start()
        await connection.execute("SET LOCAL ROLE nodus_scheduler")
        with pytest.raises(asyncpg.RaiseError, match="the feed needs READ COMMITTED"):
            await connection.execute("SELECT nodus.lock_feed()")
        await transaction.rollback()
    finally:
        await connection.close()
