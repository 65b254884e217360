"""Who may read what: the protocol of the access tables, and this replica's view of them."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol
from uuid import UUID


class TokenRecord(Protocol):
    """One static token, as stored (AS-067)."""

    @property
    def id(self) -> str: ...
    @property
    def secret_sha256(self) -> bytes: ...
    @property
    def username(self) -> str: ...
    @property
    def groups(self) -> tuple[str, ...]: ...
    @property
    def expires(self) -> datetime | None: ...
    @property
    def revoked(self) -> datetime | None: ...


class ProjectRecord(Protocol):
    """One project, which clients see as a namespace."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> UUID: ...
    @property
    def created(self) -> datetime: ...
    @property
    def access_rev(self) -> int: ...


class MemberRecord(Protocol):
    """One subject's role in one project (AS-072)."""

    @property
    def project(self) -> str: ...
    @property
    def subject_kind(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def role(self) -> str: ...


class AccessSnapshot(Protocol):
    """All projects, members and tokens at one access revision."""

    @property
    def rev(self) -> int: ...
    @property
    def projects(self) -> Sequence[ProjectRecord]: ...
    @property
    def members(self) -> Sequence[MemberRecord]: ...
    @property
    def tokens(self) -> Sequence[TokenRecord]: ...


class Wakeups(Protocol):
    """Tells that something may have changed."""

    async def wait(self, timeout: float) -> bool:
        """Return True when notified, False after `timeout` seconds."""
        ...


class AccessSource(Protocol):
    """Where projects, members and tokens come from; `storage.access_store.AccessStore` satisfies it."""

    async def load(self) -> AccessSnapshot:
        """Return everything in one snapshot."""
        ...

    async def head(self) -> int:
        """Return the newest access revision."""
        ...

    def listen(self) -> AbstractAsyncContextManager[Wakeups]:
        """Listen for changes."""
        ...

    async def tokens_used(self, ids: Sequence[str]) -> None:
        """Note that tokens were used, to a minute."""
        ...
