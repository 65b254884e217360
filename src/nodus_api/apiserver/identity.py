"""Who a request comes from."""

from dataclasses import dataclass

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ADMINS = "nodus:admins"
"""Members of this group see every project, all projects at once, and `/metrics` (AS-072)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user name and its groups; `token_id` names the credential, for logs and revocation."""

    name: str
    groups: tuple[str, ...]
    token_id: str | None = None

    @property
    def admin(self) -> bool:
        """Whether every project is open to this user."""
        return ADMINS in self.groups


ANONYMOUS = User(name="system:anonymous", groups=(UNAUTHENTICATED,))
"""Who sent no credential, where that is enough (AS-047)."""

UNCHECKED = User(name="system:unchecked", groups=(AUTHENTICATED,))
"""Who sent a credential that cannot be checked yet, for documents that are static (AS-096)."""
