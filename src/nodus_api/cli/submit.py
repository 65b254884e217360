"""`nodus submit` and `nodus stop`: requests to the scheduler, and what becomes of them."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from nodus_api.cli.api_client import ApiClient
from nodus_api.cli.asking import answered, ask, insert, said
from nodus_api.cli.data_directory import DataDirectory
from nodus_api.cli.errors import Refused
from nodus_api.cli.options import (
    database_options,
    opened,
    project_option,
    run_async,
    settings_from,
)
from nodus_api.cli.waiting import follow
from nodus_api.cli.without_container import note_images
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.workloads import Manifest, ManifestError, Verb, parse_manifests

_LARGEST = 4 * 1024 * 1024

manifests_option = click.option(
    "-f",
    "--filename",
    "files",
    required=True,
    multiple=True,
    metavar="FILE",
    help="Manifest; - reads stdin. May be given several times.",
)


@click.command()
@manifests_option
@click.option("--wait", is_flag=True, help="Follow until the work has ended.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the scheduler's answer.")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="How --wait reaches the server [D/kubeconfig]; its namespace is the project without -n.",
)
@project_option
@database_options
@run_async
async def submit(
    files: tuple[str, ...],
    wait: bool,
    no_wait: bool,
    kubeconfig: Path | None,
    project: str,
    **options: Any,
) -> None:
    """Submit the workloads of a manifest, all or none.

    Submitting the same name with the same spec again changes nothing, even after its end: to run
    it once more, give it another name. With --wait the exit code is 0 only if all of it succeeded.

    \b
    Example:
      nodus submit -f job.yaml --wait
      cat job.yaml | nodus submit -f - -n team-a
    """
    if wait and no_wait:
        raise Refused("--wait and --no-wait do not go together: give one.")
    settings = settings_from(options)
    given = None if kubeconfig is None else ApiClient.from_kubeconfig(kubeconfig)
    if given is not None and given.namespace is not None and not named_project():
        project = given.namespace
    manifests = read_manifests(files, project)
    client = None
    if wait:
        client = given or ApiClient.from_kubeconfig(DataDirectory(settings.data_dir).kubeconfig)
    async with opened(settings) as database:
        keys = await insert(database, manifests)
        for manifest, key in zip(manifests, keys, strict=True):
            what = f"{manifest.kind.lower()}/{manifest.name}"
            if no_wait:
                click.echo(f"{what} is queued for the scheduler.")
            else:
                click.echo(said(Verb.SUBMIT, what, await answered(database, key, what)))
        note_images(manifests, settings.supplier)
        if client is not None:
            await follow(database, client, manifests)


@click.command()
@click.argument("owner")
@click.option("--no-wait", is_flag=True, help="Do not wait for the scheduler's answer.")
@project_option
@database_options
@run_async
async def stop(owner: str, no_wait: bool, project: str, **options: Any) -> None:
    """Stop a workload for good; OWNER is KIND/NAME, or the NAME of a Job.

    Its programs get SIGTERM and their grace; what ran is billed to the stop. Wherever an OWNER is
    asked for, PROJECT/KIND/NAME will do, as `nodus cost` prints it.

    \b
    Example:
      nodus stop job/train
    """
    project, kind, name = owner_in(owner, project)
    what = f"{kind.lower()}/{name}"
    async with opened(settings_from(options)) as database:
        key = await ask(database, Verb.STOP, project=project, kind=kind, name=name)
        if no_wait:
            click.echo(f"The stop of {what} is queued for the scheduler.")
        else:
            click.echo(said(Verb.STOP, what, await answered(database, key, what)))


def named_project() -> bool:
    """Return whether the command that runs was given -n."""
    source = click.get_current_context().get_parameter_source("project")
    return source is not ParameterSource.DEFAULT


def owner_in(text: str, project: str) -> tuple[str, OwnerKind, str]:
    """Return project, kind and name of an OWNER, which may be PROJECT/KIND/NAME.

    `project` is that of -n. Raises Refused where the two are given and differ.
    """
    named, slash, rest = text.partition("/")
    if not slash or "/" not in rest:
        return project, *parse_owner(text)
    if named != project and named_project():
        raise Refused(f"{text!r} is of project {named!r}, and -n says {project!r}: leave one out.")
    return named, *parse_owner(rest)


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


def read_manifests(files: Iterable[str], project: str) -> Sequence[Manifest]:
    """Return the checked manifests of all files, - for stdin. Raises Refused."""
    found: dict[tuple[str, str, str], Manifest] = {}
    for file in files:
        for one in _manifests_of(file, project):
            key = one.project, one.kind, one.name
            if key in found:
                what = f"{one.kind} {one.name}"
                raise Refused(f"{_name(file)}: {what} was given already: leave one of the two out.")
            found[key] = one
    return list(found.values())


def _manifests_of(file: str, project: str) -> Sequence[Manifest]:
    try:
        return parse_manifests(_read(file), project=project)
    except ManifestError as error:
        raise Refused(_sentence(file, str(error))) from error


def _name(file: str) -> str:
    return "stdin" if file == "-" else file


def _sentence(file: str, said: str) -> str:
    """Return what is wrong with a manifest; a question has its own mark at its end."""
    return f"{_name(file)}: {said}{'' if said.endswith('?') else '.'}"


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
