"""`nodus submit` and `nodus stop`: requests to the scheduler, and what becomes of them."""

import getpass
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import sqlalchemy as sa

from nodus_api.cli.api_client import ApiClient
from nodus_api.cli.data_directory import DataDirectory
from nodus_api.cli.errors import Failed, Refused
from nodus_api.cli.following import Board, Follower
from nodus_api.cli.options import (
    database_options,
    find_database,
    project_option,
    run_async,
    settings_from,
)
from nodus_api.cli.progress import choose_progress
from nodus_api.clock import SystemClock
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.storage import tables as t
from nodus_api.storage.engine import Database, Role
from nodus_api.tasks import end, spawn
from nodus_api.workloads import (
    Manifest,
    ManifestError,
    Outcome,
    RequestRefused,
    Verb,
    parse_manifests,
    request,
    wait_for_outcome,
    wake,
)
from nodus_api.workloads import submit as submit_manifest

OUTCOME_SECONDS = 60.0
_CATCH_UP_SECONDS = 10.0
_DONE = frozenset({"Succeeded", "Failed", "Stopped", "Deleted"})
_LARGEST = 4 * 1024 * 1024


@click.command()
@click.option(
    "-f", "--filename", "file", required=True, metavar="FILE", help="Manifest; - reads stdin."
)
@click.option("--wait", "follow", is_flag=True, help="Follow until the work has ended.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the scheduler's answer.")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="How --wait reaches the server [D/kubeconfig].",
)
@project_option
@database_options
@run_async
async def submit(
    file: str, follow: bool, no_wait: bool, kubeconfig: Path | None, project: str, **options: Any
) -> None:
    """Submit the workloads of a manifest, all or none.

    Submitting the same name with the same spec again changes nothing. With --wait the exit code
    is 0 only if all of it succeeded.

    \b
    Example:
      nodus submit -f job.yaml --wait
      cat job.yaml | nodus submit -f - -n team-a
    """
    if follow and no_wait:
        raise Refused("--wait and --no-wait do not go together: give one.")
    settings = settings_from(options)
    try:
        manifests = parse_manifests(_read(file), project=project)
    except ManifestError as error:
        raise Refused(f"{file}: {error}.") from error
    client = None
    if follow:
        client = ApiClient.from_kubeconfig(
            kubeconfig or DataDirectory(settings.data_dir).kubeconfig
        )
    database = Database(find_database(settings), role=Role.SCHEDULER, pool_size=2)
    try:
        keys = await insert(database, manifests)
        for manifest, key in zip(manifests, keys, strict=True):
            what = f"{manifest.kind.lower()}/{manifest.name}"
            if no_wait:
                click.echo(f"{what} is queued for the scheduler.")
            else:
                click.echo(_said(Verb.SUBMIT, what, await answered(database, key, what)))
        if client is not None:
            await _follow(database, client, manifests)
    finally:
        await database.close()


@click.command()
@click.argument("owner")
@click.option("--no-wait", is_flag=True, help="Do not wait for the scheduler's answer.")
@project_option
@database_options
@run_async
async def stop(owner: str, no_wait: bool, project: str, **options: Any) -> None:
    """Stop a workload for good; OWNER is KIND/NAME, or the NAME of a Job.

    Its programs get SIGTERM and their grace; what ran is billed to the stop.

    \b
    Example:
      nodus stop job/train
    """
    kind, name = parse_owner(owner)
    database = Database(find_database(settings_from(options)), role=Role.SCHEDULER, pool_size=1)
    try:
        await _must_run(database, project, kind, name)
        key = str(uuid.uuid4())
        try:
            async with database.transaction() as connection:
                await request(
                    connection,
                    Verb.STOP,
                    kind=kind,
                    target=name,
                    project=project,
                    body={},
                    key=key,
                    asked_by=_user(),
                )
                await wake(connection)
        except RequestRefused as error:
            raise Refused(f"{_sentence(str(error))}") from error
        what = f"{kind.lower()}/{name}"
        if no_wait:
            click.echo(f"The stop of {what} is queued for the scheduler.")
        else:
            click.echo(_said(Verb.STOP, what, await answered(database, key, what)))
    finally:
        await database.close()


def parse_owner(text: str) -> tuple[OwnerKind, str]:
    """Return kind and name of KIND/NAME (`job/train`) or of a bare NAME of a Job."""
    kind, slash, name = text.rpartition("/")
    if not slash:
        return OwnerKind.JOB, name
    for known in OwnerKind:
        if kind.lower() == known.lower():
            return known, name
    kinds = ", ".join(known.lower() for known in OwnerKind)
    raise Refused(f"{text!r} names no owner: write KIND/NAME with a kind of {kinds}.")


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read(_LARGEST + 1) if file == "-" else _bytes_of(Path(file))
        if len(data) > _LARGEST:
            raise Refused(f"{file} is larger than 4 MiB: submit fewer documents at once.")
        return data.decode()
    except UnicodeDecodeError as error:
        raise Refused(f"{file} is not UTF-8 text: give a YAML manifest.") from error
    except OSError as error:
        raise Refused(f"{file} cannot be read ({error.strerror}): give a readable file.") from error


def _bytes_of(path: Path) -> bytes:
    with path.open("rb") as opened:
        return opened.read(_LARGEST + 1)


async def insert(database: Database, manifests: Sequence[Manifest]) -> list[str]:
    """Insert all of it in one transaction, and return a key for each. Raises Refused."""
    keys = [str(uuid.uuid4()) for _ in manifests]
    try:
        async with database.transaction() as connection:
            for manifest, key in zip(manifests, keys, strict=True):
                await submit_manifest(connection, manifest, key=key, asked_by=_user())
            await wake(connection)
    except RequestRefused as error:
        raise Refused(_sentence(str(error))) from error
    return keys


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


def _said(verb: Verb, what: str, outcome: Outcome) -> str:
    """Return what to tell of an answer. Raises Refused when the scheduler did not do it."""
    match outcome.outcome, verb:
        case "Applied", Verb.SUBMIT:
            return f"{what} is submitted."
        case "Applied", Verb.STOP:
            return f"{what} is stopped."
        case "Unchanged", Verb.SUBMIT:
            return f"{what} is there already, with the same spec: nothing changed."
        case "Unchanged", _:
            return f"{what} was stopped already: nothing changed."
        case _, _:
            raise Refused(f"{what}: {outcome.message or outcome.outcome}.")


async def _must_run(database: Database, project: str, kind: OwnerKind, name: str) -> None:
    async with database.transaction(read_only=True) as connection:
        state = (await connection.scalars(_state(project, kind, name))).first()
    if state is None:
        raise Refused(
            f"There is no {kind.lower()}/{name} in project {project}:"
            " `nodus cost --by owner` lists those there are."
        )


def _state(project: str, kind: OwnerKind, name: str) -> sa.Select[tuple[str]]:
    """Select a workload's state by the unique index of its name."""
    return sa.select(t.workloads.c.state).where(
        t.workloads.c.project == project,
        t.workloads.c.kind == kind.value,
        t.workloads.c.name == name,
        t.workloads.c.state != "Deleted",
    )


async def _follow(database: Database, client: ApiClient, manifests: Sequence[Manifest]) -> None:
    clock = SystemClock()
    with choose_progress() as progress:
        followers = [
            Follower(
                client,
                project=one.project,
                selector=f"{one.kind.label}={one.name}",
                clock=clock,
                changed=progress.show,
            )
            for one in manifests
        ]
        tasks = [spawn("follow", follower.run()) for follower in followers]
        try:
            states = await _until_ended(database, manifests, tasks)
            await _catch_up([follower.board for follower in followers])
        finally:
            for task in tasks:
                await end(task)
    bad = [
        f"{one.kind.lower()}/{one.name} is {state}"
        for one, state in zip(manifests, states, strict=True)
        if state != "Succeeded"
    ]
    if bad:
        raise Failed(f"{'; '.join(bad)}: `nodus get -o json` says why.")
    for one in manifests:
        click.echo(f"{one.kind.lower()}/{one.name} succeeded.")


async def _until_ended(
    database: Database, manifests: Sequence[Manifest], tasks: Sequence[Any]
) -> list[str]:
    clock = SystemClock()
    while True:
        for task in tasks:
            if task.done():
                await task  # it ends by an error alone
        async with database.transaction(read_only=True) as connection:
            found = [
                (await connection.scalars(_state(one.project, one.kind, one.name))).first()
                for one in manifests
            ]
        states = [str(state or "Deleted") for state in found]
        if all(state in _DONE for state in states):
            return states
        await clock.sleep(0.25)


async def _catch_up(boards: Sequence[Board]) -> None:
    """Let the watch show what the database says already."""
    clock = SystemClock()
    deadline = clock.monotonic() + _CATCH_UP_SECONDS
    while not all(board.ended() for board in boards) and clock.monotonic() < deadline:
        await clock.sleep(0.05)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in some containers
        return "unknown"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
