"""Tokens, members and projects at one access revision: immutable, asked without waiting."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from nodus_api.apiserver.access import AccessSnapshot, ProjectRecord, TokenRecord
from nodus_api.apiserver.identity import AUTHENTICATED, User

Subject = tuple[str, str]
"""(`user` or `group`, name)."""

NOBODY: frozenset[Subject] = frozenset()


@dataclass(frozen=True, slots=True)
class ProjectView:
    """One project and who may see it, besides the admins."""

    record: ProjectRecord
    seen_by: frozenset[Subject]

    def visible_to(self, user: User) -> bool:
        """Return whether a user may see the project (AS-072)."""
        return is_visible(user, self.seen_by)


def is_visible(user: User, seen_by: frozenset[Subject]) -> bool:
    """Return whether a user is an admin, or among the subjects himself or by a group."""
    return (
        user.admin
        or ("user", user.name) in seen_by
        or any(("group", group) in seen_by for group in user.groups)
    )


class AccessView:
    """What a snapshot of the access tables says."""

    def __init__(self, snapshot: AccessSnapshot) -> None:
        self.rev = snapshot.rev
        self._tokens = {token.id: token for token in snapshot.tokens}
        members: dict[str, set[Subject]] = {}
        for member in snapshot.members:
            members.setdefault(member.project, set()).add((member.subject_kind, member.subject))
        self._projects = {
            record.name: ProjectView(record, frozenset(members.get(record.name, NOBODY)))
            for record in sorted(snapshot.projects, key=lambda record: record.name)
        }

    def token(self, token_id: str) -> TokenRecord | None:
        """Return a token, valid or not."""
        return self._tokens.get(token_id)

    def user_of(self, token_id: str, now: datetime) -> User | None:
        """Return whose token it is, None when it is unknown, expired or revoked."""
        token = self._tokens.get(token_id)
        if token is None or token.revoked is not None:
            return None
        if token.expires is not None and token.expires <= now:
            return None
        groups = tuple(dict.fromkeys((*token.groups, AUTHENTICATED)))
        return User(name=token.username, groups=groups, token_id=token.id)

    def project(self, name: str) -> ProjectView | None:
        """Return one project."""
        return self._projects.get(name)

    def projects(self) -> Sequence[ProjectView]:
        """Return all projects, by name."""
        return tuple(self._projects.values())

    def may_read(self, user: User, project: str | None) -> bool:
        """Return whether a user may read a project's Attempts, or with None those of all."""
        if user.admin:
            return True
        found = self._projects.get(project) if project is not None else None
        return found is not None and found.visible_to(user)
