"""Who may read what: the protocol of the access tables (AS-067, AS-072).

HTTP never imports storage: `storage.access_store.AccessStore` satisfies `AccessSource` by its
shape, and is handed in where the parts are joined.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol
from uuid import UUID


class TokenRecord(Protocol):
    """One static token, as stored (AS-067)."""

    @property
    def id(self) -> str:
        """The public part, 12 characters of base32."""
        ...

    @property
    def secret_sha256(self) -> bytes:
        """What the secret is compared with."""
        ...

    @property
    def username(self) -> str:
        """Whose token it is."""
        ...

    @property
    def groups(self) -> tuple[str, ...]:
        """The user's groups."""
        ...

    @property
    def expires(self) -> datetime | None:
        """When it stops to be valid, None for never."""
        ...

    @property
    def revoked(self) -> datetime | None:
        """When it was revoked, None if it was not."""
        ...


class ProjectRecord(Protocol):
    """One project, which clients see as a namespace."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def uid(self) -> UUID:
        """Its identity."""
        ...

    @property
    def created(self) -> datetime:
        """When it was made."""
        ...

    @property
    def access_rev(self) -> int:
        """The access revision that made it: its resourceVersion (LW-016)."""
        ...


class MemberRecord(Protocol):
    """One subject's role in one project; any role reads (AS-072)."""

    @property
    def project(self) -> str:
        """The project's name."""
        ...

    @property
    def subject_kind(self) -> str:
        """`user` or `group`."""
        ...

    @property
    def subject(self) -> str:
        """The user's or the group's name."""
        ...


class AccessSnapshot(Protocol):
    """All projects, members and tokens at one access revision."""

    @property
    def rev(self) -> int:
        """The revision."""
        ...

    @property
    def projects(self) -> Sequence[ProjectRecord]:
        """Every project."""
        ...

    @property
    def members(self) -> Sequence[MemberRecord]:
        """Every membership."""
        ...

    @property
    def tokens(self) -> Sequence[TokenRecord]:
        """Every token, the revoked ones too or not."""
        ...


class AccessChange(Protocol):
    """One row of `access_changes`."""

    @property
    def rev(self) -> int:
        """The access revision."""
        ...

    @property
    def what(self) -> str:
        """`project`, `member` or `token`."""
        ...

    @property
    def key(self) -> str:
        """The project's name, or the token's id."""
        ...


class Wakeups(Protocol):
    """Tells that something may have changed."""

    @property
    def alive(self) -> bool:
        """Whether notifications still come; if not, listen anew."""
        ...

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109  a poll interval, not a deadline
        """Return True when notified, False after `timeout` seconds."""
        ...


class AccessSource(Protocol):
    """Where projects, members and tokens come from.

    Failures to reach the database are raised as they come: every one means "not now".
    """

    async def load(self) -> AccessSnapshot:
        """Return everything in one snapshot."""
        ...

    async def head(self) -> int:
        """Return the newest access revision."""
        ...

    async def changes(self, after: int) -> Sequence[AccessChange]:
        """Return the changes after a revision, in order."""
        ...

    def listen(self) -> AbstractAsyncContextManager[Wakeups]:
        """Listen for changes."""
        ...

    async def tokens_used(self, uses: Mapping[str, float]) -> None:
        """Note, to a minute, when tokens were used: moments of the monotonic clock by id."""
        ...
