"""Requests to the scheduler, and its answers (SC-801)."""

import getpass
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from nodus_api.cli.errors import Failed, Refused
from nodus_api.cli.meant import attempt_meant, no_attempt
from nodus_api.clock import SystemClock
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database
from nodus_api.workloads import (
    Manifest,
    Outcome,
    RequestRefused,
    Verb,
    request,
    submit,
    wait_for_outcome,
    wake,
)

OUTCOME_SECONDS = 60.0


async def insert(database: Database, manifests: Sequence[Manifest]) -> list[str]:
    """Insert all of it in one transaction, and return a key for each. Raises Refused."""
    keys = [str(uuid.uuid4()) for _ in manifests]
    try:
        async with database.transaction() as connection:
            for manifest, key in zip(manifests, keys, strict=True):
                await submit(connection, manifest, key=key, asked_by=_user())
            await wake(connection)
    except RequestRefused as error:
        raise Refused(_sentence(str(error))) from error
    return keys


async def ask(
    database: Database,
    verb: Verb,
    *,
    project: str,
    kind: OwnerKind,
    name: str,
    body: Mapping[str, Any] | None = None,
) -> str:
    """Ask for something about a workload that exists, and return the key. Raises Refused."""
    key = str(uuid.uuid4())
    try:
        async with database.transaction() as connection:
            if (await connection.scalars(state_of(project, kind, name))).first() is None:
                if meant := await attempt_meant(connection, project, name):
                    raise meant
                raise Refused(
                    f"There is no {kind.lower()}/{name} in project {project}, or it is deleted:"
                    " `nodus get` shows the Attempts of those there are."
                )
            await request(
                connection,
                verb,
                kind=kind,
                target=name,
                project=project,
                body=body or {},
                key=key,
                asked_by=_user(),
            )
            await wake(connection)
    except RequestRefused as error:
        raise Refused(_sentence(str(error))) from error
    return key


async def ask_drill(
    database: Database, *, project: str, attempt: str, trigger: str, notice: timedelta | None
) -> str:
    """Ask for a drill of an Attempt that exists, and return the key. Raises Refused."""
    key = str(uuid.uuid4())
    seconds = {} if notice is None else {"noticeSeconds": notice // timedelta(seconds=1)}
    known = sa.select(t.attempts.c.no).where(
        t.attempts.c.project == project, t.attempts.c.name == attempt
    )
    try:
        async with database.transaction() as connection:
            if (await connection.scalars(known)).first() is None:
                raise await no_attempt(connection, project, attempt)
            await request(
                connection,
                Verb.DRILL,
                kind=None,
                target=attempt,
                project=project,
                body={"trigger": trigger, **seconds},
                key=key,
                asked_by=_user(),
            )
            await wake(connection)
    except RequestRefused as error:
        raise Refused(_sentence(str(error))) from error
    return key


async def answered(database: Database, key: str, what: str) -> Outcome:
    """Return the scheduler's answer. Raises Failed when there is none in time."""
    found = await wait_for_outcome(
        database, key, clock=SystemClock(), timeout_seconds=OUTCOME_SECONDS
    )
    if found is None:
        raise Failed(
            f"No scheduler has answered about {what} within {OUTCOME_SECONDS:.0f} s; the request"
            " stays queued: see that `nodus up` or `nodus schedule` runs."
        )
    return found


def said(verb: Verb, what: str, outcome: Outcome) -> str:
    """Return what to tell of an answer. Raises Refused when the scheduler did not do it."""
    match outcome.outcome, verb:
        case "Applied", Verb.SUBMIT:
            return f"{what} is submitted."
        case "Applied", Verb.STOP:
            return f"{what} is stopped."
        case "Unchanged", Verb.SUBMIT:
            also = f" {_sentence(outcome.message)}" if outcome.message else ""
            return f"{what} is there already, with the same spec: nothing changed.{also}"
        case "Unchanged", _:
            return f"{what} was stopped already: nothing changed."
        case _, _:
            raise Refused(f"{what}: {outcome.message or outcome.outcome}.")


def state_of(project: str, kind: OwnerKind, name: str) -> sa.Select[tuple[str]]:
    """Select the state of a workload that is not deleted, by the unique index of its name."""
    return sa.select(t.workloads.c.state).where(
        t.workloads.c.project == project,
        t.workloads.c.kind == kind.value,
        t.workloads.c.name == name,
        t.workloads.c.state != "Deleted",
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in some containers
        return "unknown"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
