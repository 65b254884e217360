"""Attempts as a list: published documents or archived ones, chosen by name, owner and phase."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.kernel.vocabulary import OwnerKind, Phase
from nodus_api.storage import tables as t

Document = tuple[bytes, int]
"""A finished document without its resourceVersion, and that resourceVersion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which Attempts are meant: of one project, or of all for None, and all that is given."""

    project: str | None
    names: Sequence[str] = ()
    owner: tuple[OwnerKind, str] | None = None
    phases: Sequence[Phase] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """An Attempt of the archive: when it ended, and its last document without its revision."""

    finished: datetime
    uid: UUID
    doc: bytes
    rev: int

    @property
    def place(self) -> tuple[datetime, UUID]:
        """Where it stands among the others."""
        return self.finished, self.uid


async def read_documents(connection: AsyncConnection, chosen: Chosen) -> list[Document]:
    """Return the published documents chosen, by project and name."""
    query = _published(chosen.owner, chosen.phases)
    columns = query.selected_columns
    if chosen.project is not None:
        query = query.where(columns.project == chosen.project)
    if chosen.names:
        query = query.where(columns.name.in_(chosen.names))
    rows = await connection.execute(query.order_by(columns.project, columns.name))
    return [(row.doc, row.rev) for row in rows]


async def read_archived(
    connection: AsyncConnection,
    chosen: Chosen,
    *,
    since: datetime | None,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> list[Archived]:
    """Return at most `limit` of the archived that are chosen, the newest end first.

    Those that ended at `since` or later, and stand behind the place `after`.
    """
    archive = t.attempts_archive.c
    query = _archived(chosen).order_by(archive.finished.desc(), archive.uid.desc()).limit(limit)
    if since is not None:
        query = query.where(archive.finished >= since)
    if after is not None:
        behind = sa.tuple_(archive.finished, archive.uid) < sa.tuple_(*after)
        query = query.where(behind, archive.finished <= after[0])  # so that months are left out
    rows = await connection.execute(query)
    return [Archived(**row) for row in rows.mappings()]


def _published(owner: tuple[OwnerKind, str] | None, phases: Sequence[Phase]) -> sa.Select[Any]:
    """Select by UNIQUE (project, name); labels and fields are those that selectors compare."""
    objects = t.attempt_objects.c
    query = sa.select(objects.project, objects.name, objects.doc, objects.rev)
    if owner is not None:
        kind, name = owner
        query = query.where(objects.sel[("labels", kind.label)].astext == name)
    if phases:
        query = query.where(objects.sel[("fields", "status.phase")].astext.in_(phases))
    return query


def _archived(chosen: Chosen) -> sa.Select[Any]:
    """Select by the index (project, finished), or by the primary key, of each month's table."""
    archive = t.attempts_archive.c
    query = sa.select(archive.finished, archive.uid, archive.doc, archive.rev)
    if chosen.project is not None:
        query = query.where(archive.project == chosen.project)
    if chosen.names:
        query = query.where(archive.name.in_(chosen.names))
    if chosen.owner is not None:
        kind, name = chosen.owner
        query = query.where(archive.workload_kind == kind.value, archive.workload_name == name)
    if chosen.phases:
        query = query.where(archive.phase.in_(chosen.phases))
    return query
