"""An organization's money as rows: the account, holds, and what was paid in (SC-620, SC-621).

The loop alone moves holds, in the batch that moves their Attempts; the command line pays in. Both
write differences, so that neither has to wait for the other: the schema refuses a balance below 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.kernel.funding import NOTHING, Account, Hold
from nodus_api.storage import tables as t
from nodus_api.storage.bulk import as_json, rows_of, upsert_rows
from nodus_api.storage.engine import Database
from nodus_api.storage.errors import StorageConflict
from nodus_api.storage.records import AttemptRecord
from nodus_api.storage.wakeups import LOOP, notify

Row = sa.RowMapping | Mapping[str, Any]

OPENING, DEPOSIT = "Opening", "Deposit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What was paid in by way of a project, or stood when control began (Opening)."""

    kind: str
    amount: Decimal
    project: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptHold:
    """The hold of one Attempt that is not archived."""

    project: str
    attempt: str
    hold: Hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """An organization's money at one moment, and what it is made of.

    `holds` are in order of their Attempts; `archived` is what archived Attempts were charged.
    """

    account: Account
    entries: tuple[Entry, ...]
    holds: tuple[KeptHold, ...]
    archived: Decimal


class FundStore:
    """The door to funds for the loop and for the command line."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def accounts(self) -> dict[str, Account]:
        """Return every organization's money. A row an organization."""
        async with self._database.single_reads() as connection:
            found = (await connection.execute(sa.select(t.funds))).mappings()
            return {row["organization"]: Account(**row) for row in found}

    async def deposit(self, project: str, amount: Decimal) -> Account | None:
        """Add to the balance of a project's organization; None if there is no such project.

        The first deposit turns the control of funds on: what is held and captured then is its
        Opening entry. Wakes the loop. Takes the lock of the row of funds.
        """
        async with self._database.transaction() as connection:
            before = await _account(connection, project, lock=True)
            if before is None:
                return None
            if not before.controlled:
                standing = before.held + before.captured
                await _enter(connection, before.organization, project, OPENING, standing)
            await _enter(connection, before.organization, project, DEPOSIT, amount)
            added = await connection.execute(_add(before.organization, amount))
            account = Account(**added.mappings().one())
        await notify(self._database, LOOP)
        return account

    async def statement(self, project: str) -> Statement | None:
        """Return the money of a project's organization; None if there is no such project."""
        async with self._database.snapshot() as connection:
            account = await _account(connection, project)
            if account is None:
                return None
            of = account.organization
            entries = (await connection.execute(_entries(of))).mappings().all()
            holds = (await connection.execute(_holds(of))).mappings().all()
            archived: Decimal = (await connection.execute(_archived(of))).scalar_one()
        return Statement(
            account=account,
            entries=tuple(Entry(**row) for row in entries),
            holds=tuple(
                KeptHold(
                    project=row["project"],
                    attempt=row["name"],
                    hold=Hold(
                        amount=row["amount"], captured=row["captured"], released=row["released"]
                    ),
                )
                for row in holds
            ),
            archived=archived,
        )


async def write_holds(
    connection: AsyncConnection, changes: Iterable[tuple[AttemptRecord, AttemptRecord]]
) -> None:
    """Write the holds that a batch changed, and move the money. Primary keys.

    Raises StorageConflict where an organization has no row of funds.
    """
    rows: list[Mapping[str, Any]] = []
    sums: dict[str, list[Decimal]] = {}
    for before, after in changes:
        if after.hold is None or after.hold == before.hold:
            continue
        organization, old = after.workload.organization, before.hold or NOTHING
        rows.append(
            {
                "attempt": after.no,
                "organization": organization,
                "amount": after.hold.amount,
                "captured": after.hold.captured,
                "released": after.hold.released,
            }
        )
        moved = sums.setdefault(organization, [Decimal(0), Decimal(0)])
        moved[0] += after.hold.held - old.held
        moved[1] += after.hold.captured - old.captured
    if not rows:
        return
    await connection.execute(_write_holds(), as_json(rows))
    given = [
        {"organization": name, "held": held, "captured": captured}
        for name, (held, captured) in sorted(sums.items())
        if held or captured
    ]
    if not given:
        return
    written = (await connection.execute(_move(), as_json(given))).scalars().all()
    if len(written) != len(given):
        raise StorageConflict("funds_pkey", "an organization has no row of funds")


def hold_of(row: Row) -> Hold | None:
    """Return the hold of a loaded Attempt's row; None if it has none."""
    if row["hold_amount"] is None:
        return None
    return Hold(
        amount=row["hold_amount"], captured=row["hold_captured"], released=row["hold_released"]
    )


def account_of(row: Row) -> Account:
    """Return the money of a loaded Attempt's organization, as it stood then."""
    return Account(
        organization=row["organization"],
        balance=row["funds_balance"],
        held=row["funds_held"] or Decimal(0),
        captured=row["funds_captured"] or Decimal(0),
    )


def columns() -> Sequence[sa.ColumnElement[Any]]:
    """Return what a load of Attempts takes along for `hold_of` and `account_of`."""
    return (
        *(t.holds.c[name].label(f"hold_{name}") for name in ("amount", "captured", "released")),
        *(t.funds.c[name].label(f"funds_{name}") for name in ("balance", "held", "captured")),
    )


@cache
def _write_holds() -> postgresql.Insert:
    return upsert_rows(t.holds, ["attempt"], ["organization", "amount", "captured", "released"])


@cache
def _move() -> sa.Update:
    """Move money between the three sums; an uncontrolled balance stays NULL. Primary key."""
    given = rows_of(t.funds, ["organization", "held", "captured"])
    return (
        sa.update(t.funds)
        .where(t.funds.c.organization == given.c.organization)
        .values(
            balance=t.funds.c.balance - given.c.held - given.c.captured,
            held=t.funds.c.held + given.c.held,
            captured=t.funds.c.captured + given.c.captured,
        )
        .returning(t.funds.c.organization)
    )


async def _account(
    connection: AsyncConnection, project: str, *, lock: bool = False
) -> Account | None:
    owner = sa.select(t.projects.c.organization).where(t.projects.c.name == project)
    query = sa.select(t.funds).where(t.funds.c.organization == owner.scalar_subquery())
    if lock:
        query = query.with_for_update()
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else Account(**row)


async def _enter(
    connection: AsyncConnection, organization: str, project: str, kind: str, amount: Decimal
) -> None:
    row = {"organization": organization, "project": project, "kind": kind, "amount": amount}
    await connection.execute(sa.insert(t.fund_entries).values(row))


def _add(organization: str, amount: Decimal) -> sa.UpdateBase:
    return (
        sa.update(t.funds)
        .where(t.funds.c.organization == organization)
        .values(balance=sa.func.coalesce(t.funds.c.balance, 0) + amount)
        .returning(*t.funds.c)
    )


def _entries(organization: str) -> sa.Select[Any]:
    """Return what was paid in, oldest first. Uses `fund_entries_organization`."""
    entries = t.fund_entries.c
    return (
        sa.select(entries.kind, entries.amount, entries.project, entries.at)
        .where(entries.organization == organization)
        .order_by(entries.no)
    )


def _holds(organization: str) -> sa.Select[Any]:
    """Return the holds of Attempts that are not archived. Reads the table of holds."""
    holds = t.holds.c
    return (
        sa.select(t.attempts.c.project, t.attempts.c.name, *holds)
        .join(t.attempts, t.attempts.c.no == holds.attempt)
        .where(holds.organization == organization)
        .order_by(holds.attempt)
    )


def _archived(organization: str) -> sa.Select[Any]:
    return (
        sa.select(sa.func.coalesce(sa.func.sum(t.workloads.c.archived_usd), 0))
        .join(t.projects, t.projects.c.name == t.workloads.c.project)
        .where(t.projects.c.organization == organization)
    )
