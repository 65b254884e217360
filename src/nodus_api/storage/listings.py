"""Attempts as a list: published documents or archived ones, chosen by name, owner and phase."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.kernel.vocabulary import OwnerKind, Phase
from nodus_api.storage import tables as t

Document = tuple[bytes, int]
"""A finished document without its resourceVersion, and that resourceVersion."""


async def read_documents(
    connection: AsyncConnection,
    project: str | None,
    *,
    names: Sequence[str] = (),
    owner: tuple[OwnerKind, str] | None = None,
    phases: Sequence[Phase] = (),
    archived: bool = False,
) -> list[Document]:
    """Return the documents of one project, or of all for None, by project and name."""
    query = _archived(owner, phases) if archived else _published(owner, phases)
    columns = query.selected_columns
    if project is not None:
        query = query.where(columns.project == project)
    if names:
        query = query.where(columns.name.in_(names))
    rows = await connection.execute(query.order_by(columns.project, columns.name))
    return [(row.doc, row.rev) for row in rows]


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


def _archived(owner: tuple[OwnerKind, str] | None, phases: Sequence[Phase]) -> sa.Select[Any]:
    archive = t.attempts_archive.c
    query = sa.select(archive.project, archive.name, archive.doc, archive.rev)
    if owner is not None:
        kind, name = owner
        query = query.where(archive.workload_kind == kind.value, archive.workload_name == name)
    if phases:
        query = query.where(archive.phase.in_(phases))
    return query
