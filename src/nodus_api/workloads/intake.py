"""The way in: a checked request becomes one row of `commands` for the loop (SC-801).

All functions run in the caller's transaction, as the role `nodus_scheduler`. What the
loop reads of a command, by verb:

- submit: `kind`, `target` (the name), `body = {"spec": canonical spec}`;
- stop, suspend, resume, delete: `kind`, `target`, `body = {}`;
- scale: `kind`, `target`, `body = {"count": n}`;
- drill: `target` is the Attempt's name, `body = {"trigger": ..., "noticeSeconds": n}`; only a
  preemption has a notice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.clock import Clock
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.storage.engine import Database
from nodus_api.storage.tables import commands, projects
from nodus_api.workloads.validation import Manifest

CHANNEL = "nodus_loop"


class Verb(StrEnum):
    """What can be asked of the loop."""

    SUBMIT = "submit"
    STOP = "stop"
    SUSPEND = "suspend"
    RESUME = "resume"
    SCALE = "scale"
    DELETE = "delete"
    DRILL = "drill"


class RequestRefused(Exception):
    """A request cannot be taken; the text says why and what to do."""


class UnknownProject(RequestRefused):
    """The project does not exist."""

    def __init__(self, project: str) -> None:
        super().__init__(
            f"project {project!r} does not exist: create it with "
            f"`nodus project create {project}`, or name another"
        )
        self.project = project


class KeyReused(RequestRefused):
    """The idempotency key already belongs to another request."""

    def __init__(self, key: str) -> None:
        super().__init__(f"key {key!r} was used for another request: take a new one")
        self.key = key


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the loop made of a command; `message` says more where there is more to say."""

    outcome: str
    message: str | None
    applied: datetime


async def submit(
    connection: AsyncConnection, manifest: Manifest, *, key: str, asked_by: str
) -> int:
    """Ask for a workload; return the command's number.

    The same key with the same request is the same command (idempotent). Raises as
    `request`.
    """
    return await request(
        connection,
        Verb.SUBMIT,
        kind=manifest.kind,
        target=manifest.name,
        project=manifest.project,
        body={"spec": manifest.spec},
        key=key,
        asked_by=asked_by,
    )


async def request(
    connection: AsyncConnection,
    verb: Verb,
    *,
    kind: OwnerKind | None,
    target: str,
    project: str,
    body: Mapping[str, Any],
    key: str,
    asked_by: str,
) -> int:
    """Insert a command, once a key; return its number.

    Call `wake` in the same transaction, or the loop finds it at its next full pass. Raises
    UnknownProject, or KeyReused if the key stands for something else.
    """
    if not await _exists(connection, project):
        raise UnknownProject(project)
    asked = {
        "project": project,
        "verb": Verb(verb).value,
        "kind": None if kind is None else kind.value,
        "target": target,
        "body": dict(body),
    }
    inserted = await connection.scalar(insert_command(key=key, asked_by=asked_by, asked=asked))
    if inserted is not None:
        return int(inserted)
    row = (await connection.execute(command_with(key))).mappings().one()
    if any(row[name] != value for name, value in asked.items()):
        raise KeyReused(key)
    return int(row["no"])


async def wake(connection: AsyncConnection) -> None:
    """Tell the loop, once this transaction commits, that a command waits."""
    await connection.execute(sa.select(sa.func.pg_notify(CHANNEL, "")))


async def outcome(connection: AsyncConnection, key: str) -> Outcome | None:
    """Return what became of the command with this key; None while it is not applied."""
    row = (await connection.execute(command_with(key))).mappings().one_or_none()
    if row is None or row["outcome"] is None:
        return None
    return Outcome(outcome=row["outcome"], message=row["message"], applied=row["applied"])


async def wait_for_outcome(
    database: Database,
    key: str,
    *,
    clock: Clock,
    timeout_seconds: float | None = None,
    poll_seconds: float = 0.1,
) -> Outcome | None:
    """Poll until the loop applied the command; None if it did not in time.

    Without a timeout it waits as long as it takes; cancel it to give up.
    """
    start = clock.monotonic()
    while True:
        async with database.transaction(read_only=True) as connection:
            found = await outcome(connection, key)
        if found is not None:
            return found
        if timeout_seconds is not None and clock.monotonic() - start >= timeout_seconds:
            return None
        await clock.sleep(poll_seconds)


def insert_command(*, key: str, asked_by: str, asked: Mapping[str, Any]) -> sa.Insert:
    """Insert a command unless its key exists; returns the new number. Unique index of `key`."""
    return (
        insert(commands)
        .values(key=key, asked_by=asked_by, **asked)
        .on_conflict_do_nothing(index_elements=[commands.c.key])
        .returning(commands.c.no)
    )


def command_with(key: str) -> sa.Select[Any]:
    """Select the command of a key. Unique index of `key`."""
    return sa.select(commands).where(commands.c.key == key)


async def _exists(connection: AsyncConnection, project: str) -> bool:
    found = await connection.scalar(sa.select(projects.c.name).where(projects.c.name == project))
    return found is not None
