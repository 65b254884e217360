"""Tokens, projects and members: loaded, followed, and changed by the command line."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nodus_api.clock import ManualClock, SystemClock
from nodus_api.storage.access_store import AccessAdmin, AccessStore, MemberRecord, TokenRecord
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import StorageConflict, StorageFault

SECRET = bytes(range(32))


@pytest.fixture
def admin(scheduler_database: Database) -> AccessAdmin:
    return AccessAdmin(scheduler_database)


@pytest.fixture
def store(api_database: Database, clock: ManualClock) -> AccessStore:
    return AccessStore(api_database, clock)


async def test_the_first_migration_leaves_project_default(store: AccessStore) -> None:
    found = await store.load()

    assert found.rev == 1
    assert [(project.name, project.access_rev) for project in found.projects] == [("default", 1)]
    assert (found.members, found.tokens) == ((), ())
    assert await store.head() == 1


async def test_every_change_takes_the_next_access_revision(
    admin: AccessAdmin, store: AccessStore
) -> None:  # AS-072
    project = await admin.create_project("demo")
    await admin.add_member("demo", "user", "ann", "viewer")
    await admin.add_member("demo", "user", "ann", "viewer")  # equal: no change
    await admin.add_member("demo", "user", "ann", "admin")
    assert await admin.remove_member("demo", "user", "ann")
    assert not await admin.remove_member("demo", "user", "ann")
    await admin.create_token("abcdefghij23", SECRET, "ann")

    followed = await store.changes(1)
    assert [(c.rev, c.what, c.key, c.deleted) for c in followed] == [
        (2, "project", "demo", False),
        (3, "member", "demo", False),
        (4, "member", "demo", False),
        (5, "member", "demo", True),
        (6, "token", "abcdefghij23", False),
    ]
    assert followed[0].project_uid == project.uid
    assert project.access_rev == 2
    assert await store.changes(6) == []
    assert await store.head() == 6


async def test_tokens_live_until_revoked(
    admin: AccessAdmin, store: AccessStore, clock: ManualClock
) -> None:  # AS-067
    expires = clock.now() + timedelta(hours=1)
    await admin.create_token("abcdefghij23", SECRET, "ann", ("nodus:admins", "dev"), expires)
    made = TokenRecord(
        id="abcdefghij23",
        secret_sha256=SECRET,
        username="ann",
        groups=("nodus:admins", "dev"),
        scopes=(),
        created=clock.now(),
        expires=expires,
        revoked=None,
    )
    assert (await store.load()).tokens == (made,)

    await clock.advance(61)
    assert await admin.revoke_token("abcdefghij23")
    assert not await admin.revoke_token("abcdefghij23")
    assert not await admin.revoke_token("zzzzzzzzzz22")
    assert (await store.load()).tokens == (replace(made, revoked=clock.now()),)


async def test_last_use_is_kept_to_the_minute_and_changes_no_revision(
    admin: AccessAdmin, store: AccessStore, clock: ManualClock
) -> None:  # AS-067
    await admin.create_token("abcdefghij23", SECRET, "ann")
    before = await store.head()
    await clock.advance(119)

    await store.tokens_used({"abcdefghij23": clock.monotonic(), "zzzzzzzzzz22": clock.monotonic()})
    await store.tokens_used({"abcdefghij23": clock.monotonic()})

    (token,) = await admin.list_tokens()
    assert token.last_used == clock.now() - timedelta(seconds=59)
    assert await store.head() == before


async def test_a_use_is_noted_at_its_own_minute_not_at_the_writings(
    admin: AccessAdmin, store: AccessStore, clock: ManualClock
) -> None:  # AS-067: the writing comes up to a minute later
    await admin.create_token("abcdefghij23", SECRET, "ann")
    await admin.create_token("abcdefghij24", SECRET, "ben")
    start = clock.now()
    await clock.advance(50)
    uses = {"abcdefghij23": clock.monotonic()}
    await clock.advance(20)
    uses["abcdefghij24"] = clock.monotonic()
    await clock.advance(55)
    await store.tokens_used(uses)

    noted = {token.username: token.last_used for token in await admin.list_tokens()}
    assert noted == {"ann": start, "ben": start + timedelta(minutes=1)}
    await admin.revoke_token("abcdefghij23")  # and the clock is the database's again
    revoked = {token.username: token.revoked for token in await admin.list_tokens()}
    assert revoked["ann"] == clock.now()


async def test_members_are_listed_by_project(admin: AccessAdmin, store: AccessStore) -> None:
    await admin.create_project("demo")
    await admin.add_member("demo", "user", "bob", "editor")
    await admin.add_member("demo", "group", "dev", "viewer")
    await admin.add_member("default", "user", "ann", "admin")

    assert await admin.list_members("demo") == (
        MemberRecord(project="demo", subject_kind="group", subject="dev", role="viewer"),
        MemberRecord(project="demo", subject_kind="user", subject="bob", role="editor"),
    )
    assert len((await store.load()).members) == 3
    assert [project.name for project in await admin.list_projects()] == ["default", "demo"]


async def test_what_is_there_or_missing_is_named_by_its_key(admin: AccessAdmin) -> None:
    with pytest.raises(StorageConflict, match="projects_pkey"):
        await admin.create_project("default")
    with pytest.raises(StorageConflict, match="label63_form"):
        await admin.create_project("Not A Label")
    with pytest.raises(StorageConflict, match="project_members_project_fkey"):
        await admin.add_member("nowhere", "user", "ann", "viewer")
    with pytest.raises(StorageConflict, match="project_members_role_known"):
        await admin.add_member("default", "user", "ann", "owner")
    with pytest.raises(StorageConflict, match="tokens_username_not_system"):
        await admin.create_token("abcdefghij23", SECRET, "system:admin")


async def test_a_change_wakes_the_replicas(clean_database: str) -> None:
    database = Database(clean_database, role=Role.SCHEDULER)
    store = AccessStore(database, SystemClock())
    async with store.listen() as wakeups:
        assert not await wakeups.wait(0.01)
        await AccessAdmin(database).create_project("demo")
        assert await wakeups.wait(5)
    await database.close()


async def test_the_reader_changes_nothing(api_database: Database) -> None:
    with pytest.raises(StorageFault, match="permission denied"):
        await AccessAdmin(api_database).create_project("demo")
