"""Who may read: tokens, projects and members, for the readers and for the command line.

Readers load everything once and follow `access_changes`; its order is kept by the triggers of the
first migration. What is not there is None or empty; no wire error is known here (AS-067, AS-072).
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.clock import Clock
from nodus_api.storage.driver import Deadline
from nodus_api.storage.engine import Database
from nodus_api.storage.feed import ANSWER_SECONDS
from nodus_api.storage.migrated import again_if_migrated
from nodus_api.storage.statements import database_now
from nodus_api.storage.tables import (
    access_changes,
    funds,
    project_members,
    projects,
    token_uses,
    tokens,
)
from nodus_api.storage.wakeups import ACCESS, LOOP, Wakeups, listen, notify


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """A static token, its secret as SHA-256; `last_used` (whole minutes) for the command line."""

    id: str
    secret_sha256: bytes
    username: str
    groups: tuple[str, ...]
    scopes: tuple[str, ...]
    created: datetime
    expires: datetime | None
    revoked: datetime | None
    last_used: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRecord:
    """A project; `access_rev` is the access revision at which it appeared."""

    name: str
    uid: UUID
    created: datetime
    access_rev: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """A user or group (`subject_kind`) that may read a project; role viewer, editor or admin."""

    project: str
    subject_kind: str
    subject: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSnapshot:
    """All of it at access revision `rev`."""

    rev: int
    projects: tuple[ProjectRecord, ...]
    members: tuple[MemberRecord, ...]
    tokens: tuple[TokenRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessChange:
    """One change; `what` is project, member or token.

    `key` is the project's name (a member's too) or the token's id; `project_uid` is a project's.
    """

    rev: int
    what: str
    key: str
    deleted: bool
    project_uid: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Funds:
    """An organization's money in USD; a `balance` of None means that funds are not controlled."""

    organization: str
    balance: Decimal | None
    held: Decimal
    captured: Decimal


class AccessStore:
    """What a replica knows of access; the reader's role is enough."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    @again_if_migrated
    async def load(self) -> AccessSnapshot:
        """Return everything, in one view of the database."""
        async with self._database.snapshot(deadline=Deadline(ANSWER_SECONDS)) as connection:
            rev = (await connection.scalars(_HEAD)).one()
            return AccessSnapshot(
                rev=rev,
                projects=await _projects(connection),
                members=await _members(connection),
                tokens=tuple(
                    _token(row) for row in (await connection.execute(read_tokens())).mappings()
                ),
            )

    @again_if_migrated
    async def head(self) -> int:
        """Return the newest access revision, 0 if there is none."""
        async with self._database.single_reads(deadline=Deadline(ANSWER_SECONDS)) as connection:
            return int((await connection.scalars(_HEAD)).one())

    @again_if_migrated
    async def changes(self, after: int) -> list[AccessChange]:
        """Return what changed after an access revision, in order."""
        async with self._database.single_reads(deadline=Deadline(ANSWER_SECONDS)) as connection:
            rows = await connection.execute(read_access_changes(after))
            return [AccessChange(**row) for row in rows.mappings()]

    async def tokens_used(self, uses: Mapping[str, float]) -> None:
        """Note the minute at which tokens were used; unknown ids are passed over.

        `uses` are moments of the monotonic clock. `token_used()` notes the minute of `nodus.now()`,
        which is set to each minute in turn: the writing comes later than the use.
        """
        async with self._database.transaction() as connection:
            now = (await connection.scalars(sa.select(database_now))).one()
            # read after the database's, so that no use seems later than it was
            here = self._clock.monotonic()
            minutes: dict[datetime, list[str]] = {}
            for token_id, moment in uses.items():
                at = now - timedelta(seconds=max(here - moment, 0))
                minutes.setdefault(at.replace(second=0, microsecond=0), []).append(token_id)
            for minute, ids in sorted(minutes.items()):
                used = sa.bindparam("ids", sorted(ids), sa.ARRAY(sa.Text))
                pinned = sa.func.set_config("nodus.now", minute.isoformat(), True)
                await connection.execute(sa.select(pinned))
                await connection.execute(sa.select(sa.func.nodus.token_used(used)))

    def listen(self) -> AbstractAsyncContextManager[Wakeups]:
        """Listen for changes of access, on a connection of its own."""
        return listen(self._database, ACCESS, self._clock)


class AccessAdmin:
    """What the command line changes; needs the scheduler's role.

    A name that exists or a project that does not is StorageConflict with the key's name.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create_project(self, name: str, *, organization: str = "default") -> ProjectRecord:
        """Make a project of an existing organization."""
        async with self._database.transaction() as connection:
            await connection.execute(
                sa.insert(projects).values(name=name, organization=organization)
            )
            made = await connection.execute(read_projects().where(projects.c.name == name))
            return ProjectRecord(**made.mappings().one())

    async def list_projects(self) -> tuple[ProjectRecord, ...]:
        """Return the projects by name."""
        async with self._database.transaction(read_only=True) as connection:
            return await _projects(connection)

    async def add_member(self, project: str, subject_kind: str, subject: str, role: str) -> None:
        """Give a user or group a role in a project, in place of the one it has."""
        async with self._database.transaction() as connection:
            await connection.execute(put_member(project, subject_kind, subject, role))

    async def remove_member(self, project: str, subject_kind: str, subject: str) -> bool:
        """Take a user or group out of a project; False if it was not in."""
        members = project_members.c
        delete = sa.delete(project_members).where(
            members.project == project,
            members.subject_kind == subject_kind,
            members.subject == subject,
        )
        async with self._database.transaction() as connection:
            return (await connection.execute(delete)).rowcount > 0

    async def list_members(self, project: str) -> tuple[MemberRecord, ...]:
        """Return a project's members, by kind and name."""
        async with self._database.transaction(read_only=True) as connection:
            members = await _members(connection)
        return tuple(member for member in members if member.project == project)

    async def fund(self, project: str, amount_usd: Decimal) -> Funds | None:
        """Add to the balance of a project's organization; None if there is no such project.

        The first deposit turns the control of funds on. Wakes the loop.
        """
        async with self._database.transaction() as connection:
            row = (await connection.execute(deposit(project, amount_usd))).mappings().one_or_none()
        if row is None:
            return None
        await notify(self._database, LOOP)
        return Funds(**row)

    async def create_token(
        self,
        id: str,
        secret_sha256: bytes,
        username: str,
        groups: Sequence[str] = (),
        expires: datetime | None = None,
    ) -> None:
        """Store a token by the hash of its secret."""
        async with self._database.transaction() as connection:
            await connection.execute(
                sa.insert(tokens).values(
                    id=id,
                    secret_sha256=secret_sha256,
                    username=username,
                    groups=list(groups),
                    expires=expires,
                )
            )

    async def revoke_token(self, id: str) -> bool:
        """End a token; False if there is none of that id that was still good."""
        revoke = (
            sa.update(tokens)
            .where(tokens.c.id == id, tokens.c.revoked.is_(None))
            .values(revoked=sa.func.nodus.now())
        )
        async with self._database.transaction() as connection:
            return (await connection.execute(revoke)).rowcount > 0

    async def list_tokens(self) -> tuple[TokenRecord, ...]:
        """Return the tokens, oldest first, with their last use."""
        read = (
            read_tokens()
            .add_columns(token_uses.c.last_used)
            .outerjoin_from(tokens, token_uses, token_uses.c.id == tokens.c.id)
            .order_by(None)
            .order_by(tokens.c.created, tokens.c.id)
        )
        async with self._database.transaction(read_only=True) as connection:
            return tuple(_token(row) for row in (await connection.execute(read)).mappings())


def read_access_head() -> sa.Select[Any]:
    """The newest access revision; the primary key's last entry."""
    return sa.select(sa.func.coalesce(sa.func.max(access_changes.c.rev), 0))


def read_access_changes(after: int) -> sa.Select[Any]:
    """Access changes after a revision, in order; the primary key."""
    change = access_changes.c
    return (
        sa.select(change.rev, change.what, change.key, change.deleted, change.project_uid)
        .where(change.rev > after)
        .order_by(change.rev)
    )


def read_projects() -> sa.Select[Any]:
    """Every project, by name."""
    project = projects.c
    return sa.select(project.name, project.uid, project.created, project.access_rev).order_by(
        project.name
    )


def read_tokens() -> sa.Select[Any]:
    """Every token, by id."""
    return sa.select(*tokens.c).order_by(tokens.c.id)


def put_member(project: str, subject_kind: str, subject: str, role: str) -> sa.Insert:
    """Insert a member or change its role; an equal one is left alone, so makes no change."""
    fresh = insert(project_members).values(
        project=project, subject_kind=subject_kind, subject=subject, role=role
    )
    return fresh.on_conflict_do_update(
        index_elements=["project", "subject_kind", "subject"],
        set_={"role": fresh.excluded.role},
        where=project_members.c.role != fresh.excluded.role,
    )


def deposit(project: str, amount_usd: Decimal) -> sa.UpdateBase:
    """Add to the balance of the project's organization; takes the lock of its row of funds."""
    owner = sa.select(projects.c.organization).where(projects.c.name == project).scalar_subquery()
    return (
        sa.update(funds)
        .where(funds.c.organization == owner)
        .values(balance=sa.func.coalesce(funds.c.balance, 0) + amount_usd)
        .returning(*funds.c)
    )


async def _projects(connection: AsyncConnection) -> tuple[ProjectRecord, ...]:
    rows = await connection.execute(read_projects())
    return tuple(ProjectRecord(**row) for row in rows.mappings())


async def _members(connection: AsyncConnection) -> tuple[MemberRecord, ...]:
    rows = await connection.execute(
        sa.select(*project_members.c).order_by(*project_members.primary_key)
    )
    return tuple(MemberRecord(**row) for row in rows.mappings())


def _token(row: sa.RowMapping) -> TokenRecord:
    return TokenRecord(**{**row, "groups": tuple(row["groups"]), "scopes": tuple(row["scopes"])})


_HEAD = read_access_head()  # asked for all the time, so put together only once
