"""What projects may take: quotas of accelerators, and the classes that are open to them (SC-310).

Set by the command line, read by the loop when it places. A quota counts what the machines of a
project have that are not proven gone, asked for or held or on their way out.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.kernel.offering import CPU_UNIT
from nodus_api.storage import tables as t
from nodus_api.storage.conditions import machine_open
from nodus_api.storage.engine import Database
from nodus_api.storage.wakeups import LOOP, notify


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How many of an accelerator a project may have at once, and has; CPU_UNIT counts machines."""

    accelerator: str
    most: int
    used: int

    @property
    def left(self) -> int:
        """How many more it may take; below 0 where the quota was lowered."""
        return self.most - self.used


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowances:
    """All quotas by project, and of restricted classes the projects that they are open to."""

    quotas: Mapping[str, Sequence[Quota]] = field(default_factory=dict)
    open_to: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def left(self, project: str) -> dict[str, int]:
        """Return what a project may still take, by accelerator; any number where it names none."""
        return {one.accelerator: one.left for one in self.quotas.get(project, ())}

    def closed(self, project: str) -> tuple[str, ...]:
        """Return the classes that are not open to a project, sorted."""
        return tuple(sorted(name for name, to in self.open_to.items() if project not in to))


class AllowanceStore:
    """The door to quotas and entitlements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self) -> Allowances:
        """Return all of them; what is in use is counted for projects with a quota alone."""
        async with self._database.snapshot() as connection:
            return await read_allowances(connection)

    async def set_quota(self, project: str, accelerator: str, most: int | None) -> bool:
        """Set how many a project may have at once, None for any number; wakes the loop.

        False if there is no such project. Primary key.
        """
        quotas = t.project_quotas.c
        key = {"project": project, "accelerator": accelerator}
        async with self._database.transaction() as connection:
            if not await _project_exists(connection, project):
                return False
            if most is None:
                await connection.execute(
                    sa.delete(t.project_quotas).where(
                        quotas.project == project, quotas.accelerator == accelerator
                    )
                )
            else:
                row = postgresql.insert(t.project_quotas).values(**key, max_count=most)
                await connection.execute(
                    row.on_conflict_do_update(index_elements=list(key), set_={"max_count": most})
                )
        await notify(self._database, LOOP)
        return True

    async def project_exists(self, project: str) -> bool:
        """Whether there is a project of that name."""
        async with self._database.single_reads() as connection:
            return await _project_exists(connection, project)

    async def restrict(self, offering: str, projects: Collection[str]) -> str | None:
        """Open a class to these projects alone, or to all if there are none; wakes the loop.

        Return what of the names is not there, if anything; then nothing is changed.
        """
        entitlements = t.offering_entitlements
        async with self._database.transaction() as connection:
            if not await _class_exists(connection, offering):
                return offering
            for project in sorted(projects):
                if not await _project_exists(connection, project):
                    return project
            await connection.execute(
                sa.delete(entitlements).where(entitlements.c.offering == offering)
            )
            rows = [{"offering": offering, "project": one} for one in sorted(projects)]
            if rows:
                await connection.execute(sa.insert(entitlements), rows)
        await notify(self._database, LOOP)
        return None

    async def enable(self, offering: str, *, enabled: bool) -> bool:
        """Drain a class, or open it again; wakes the loop. False if there is no such class."""
        classes = t.offering_classes
        write = sa.update(classes).where(classes.c.name == offering).values(enabled=enabled)
        async with self._database.transaction() as connection:
            found = (await connection.execute(write)).rowcount > 0
        await notify(self._database, LOOP)
        return found


async def read_allowances(connection: AsyncConnection) -> Allowances:
    """Return all quotas and entitlements in the caller's view of the database."""
    limits = (await connection.execute(_limits())).all()
    used: dict[tuple[str, str], int] = {}
    if limits:
        given = {"projects": sorted({row.project for row in limits})}
        in_use = await connection.execute(_in_use(), given)
        used = {(row.project, row.accelerator): row.used for row in in_use}
    quotas: dict[str, list[Quota]] = {}
    for row in limits:
        quotas.setdefault(row.project, []).append(
            Quota(
                accelerator=row.accelerator,
                most=row.max_count,
                used=used.get((row.project, row.accelerator), 0),
            )
        )
    open_to: dict[str, set[str]] = {}
    for row in await connection.execute(_entitlements()):
        open_to.setdefault(row.offering, set()).add(row.project)
    return Allowances(
        quotas=quotas, open_to={name: frozenset(projects) for name, projects in open_to.items()}
    )


async def _project_exists(connection: AsyncConnection, name: str) -> bool:
    query = sa.select(t.projects.c.name).where(t.projects.c.name == name)
    return (await connection.scalars(query)).first() is not None


async def _class_exists(connection: AsyncConnection, name: str) -> bool:
    query = sa.select(t.offering_classes.c.name).where(t.offering_classes.c.name == name)
    return (await connection.scalars(query)).first() is not None


@cache
def _limits() -> sa.Select[Any]:
    quotas = t.project_quotas.c
    return sa.select(t.project_quotas).order_by(quotas.project, quotas.accelerator)


@cache
def _entitlements() -> sa.Select[Any]:
    return sa.select(t.offering_entitlements)


@cache
def _in_use() -> sa.Select[Any]:
    """Return what the open machines of :projects have, each with its latest lease.

    Uses `machines_open` and the primary key of leases.
    """
    later = t.leases.alias("later")
    classes = t.offering_classes.c
    unit = sa.func.coalesce(classes.accelerator, CPU_UNIT)
    count = sa.case((classes.accelerator.is_(None), 1), else_=classes.count)
    projects = sa.bindparam("projects", type_=postgresql.ARRAY(sa.Text))
    newer = sa.exists().where(
        later.c.machine == t.leases.c.machine, later.c.fence > t.leases.c.fence
    )
    return (
        sa.select(t.attempts.c.project, unit.label("accelerator"), sa.func.sum(count).label("used"))
        .join(t.leases, t.leases.c.attempt == t.attempts.c.no)
        .join(t.machines, t.machines.c.no == t.leases.c.machine)
        .join(t.offering_classes, classes.name == t.machines.c.offering)
        .where(machine_open(), ~newer, t.attempts.c.project == sa.any_(projects))
        .group_by(t.attempts.c.project, unit)
    )
