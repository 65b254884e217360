"""The access tables as a list of facts, with a change a fact: what `AccessStore` offers."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import UUID

from nodus_api.tokens import TokenText


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    id: str
    secret_sha256: bytes
    username: str
    groups: tuple[str, ...]
    expires: datetime | None = None
    revoked: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    name: str
    uid: UUID
    created: datetime
    access_rev: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    project: str
    subject_kind: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    rev: int
    what: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    rev: int
    projects: tuple[Project, ...]
    members: tuple[Member, ...]
    tokens: tuple[Token, ...]


class Waking:
    def __init__(self, stir: asyncio.Event) -> None:
        self._stir = stir
        self.alive = True

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109  the protocol's name
        try:
            async with asyncio.timeout(timeout):
                await self._stir.wait()
        except TimeoutError:
            return False
        self._stir.clear()
        return True


@dataclass
class AccessTables:
    tokens: dict[str, Token] = field(default_factory=dict)
    projects: dict[str, Project] = field(default_factory=dict)
    members: dict[Member, None] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    away: bool = False
    mute: bool = False
    """Whether nobody can follow the changes, while head and snapshot can be read."""
    load_held: asyncio.Event | None = None
    """What a load waits for."""
    stir: asyncio.Event = field(default_factory=asyncio.Event)

    # -- writing ---------------------------------------------------------------------------

    def token(
        self,
        text: TokenText,
        username: str,
        groups: tuple[str, ...],
        expires: datetime | None = None,
    ) -> None:
        self.tokens[text.id] = Token(
            id=text.id,
            secret_sha256=text.secret_sha256,
            username=username,
            groups=groups,
            expires=expires,
        )
        self._changed("token", text.id)

    def revoke(self, token_id: str) -> None:
        now = datetime(2026, 1, 1, tzinfo=UTC)
        self.tokens[token_id] = replace(self.tokens[token_id], revoked=now)
        self._changed("token", token_id)

    def project(self, name: str, created: datetime) -> None:
        rev = self._changed("project", name)
        self.projects[name] = Project(name=name, uid=UUID(int=rev), created=created, access_rev=rev)

    def drop_project(self, name: str) -> None:
        del self.projects[name]
        self.members = {m: None for m in self.members if m.project != name}
        self._changed("project", name)

    def member(self, project: str, kind: str, subject: str) -> None:
        self.members[Member(project=project, subject_kind=kind, subject=subject)] = None
        self._changed("member", project)

    def remove_member(self, project: str, kind: str, subject: str) -> None:
        del self.members[Member(project=project, subject_kind=kind, subject=subject)]
        self._changed("member", project)

    def _changed(self, what: str, key: str) -> int:
        self.log.append(Change(rev=len(self.log) + 1, what=what, key=key))
        self.stir.set()
        return len(self.log)

    # -- what storage.access_store offers ------------------------------------------------------

    def _check(self) -> None:
        if self.away:
            raise ConnectionError("away")

    def _check_followed(self) -> None:
        self._check()
        if self.mute:
            raise ConnectionError("too many connections")

    async def load(self) -> Snapshot:
        self._check()
        if self.load_held is not None:
            await self.load_held.wait()
        return Snapshot(
            rev=len(self.log),
            projects=tuple(self.projects.values()),
            members=tuple(self.members),
            tokens=tuple(self.tokens.values()),
        )

    async def head(self) -> int:
        self._check()
        return len(self.log)

    async def changes(self, after: int) -> Sequence[Change]:
        self._check_followed()
        return self.log[after:]

    async def tokens_used(self, uses: Mapping[str, float]) -> None:
        self.used.extend(uses)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Waking]:
        self._check_followed()
        yield Waking(self.stir)
