"""What a name that is not there may have been meant to be: the refusals of the views."""

from collections.abc import Sequence
from difflib import get_close_matches

from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.cli.errors import Refused
from nodus_api.storage import lives


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return ` Did you mean a or b?` of the names closest to one, or nothing."""
    begun = [one for one in known if one.startswith(name)][:3]
    close = list(dict.fromkeys([*begun, *get_close_matches(name, known, n=3, cutoff=0.6)]))[:3]
    return f" Did you mean {' or '.join(close)}?" if close else ""


async def project_must_exist(connection: AsyncConnection, project: str) -> None:
    """Raise Refused with the projects closest to a name that no project has."""
    if not await lives.project_exists(connection, project):
        meant = did_you_mean(project, await lives.project_names(connection))
        raise Refused(
            f"There is no project {project!r}: `nodus project list` shows those there are.{meant}"
        )


async def no_attempt(connection: AsyncConnection, project: str, name: str) -> Refused:
    """Return the refusal of an Attempt's name: another project's, an owner's, or a near one."""
    await project_must_exist(connection, project)
    elsewhere = await lives.projects_with_attempt(connection, name)
    if elsewhere:
        return Refused(
            f"There is no Attempt {name!r} in project {project}, but in {elsewhere[0]}:"
            f" add -n {elsewhere[0]}."
        )
    owners = await lives.owners_of(connection, project)
    meant = name if "/" in name else f"job/{name}"
    if meant in owners:
        return Refused(
            f"{name} names a workload, not an Attempt: `nodus timeline {name} -n {project}` shows"
            f" its Attempts by name."
        )
    close = did_you_mean(name, await lives.attempt_names(connection, project))
    return Refused(
        f"There is no Attempt {name!r} in project {project}: `nodus get -n {project}` lists those"
        f" there are, --archived those that were retired.{close}"
    )


async def attempt_meant(connection: AsyncConnection, project: str, name: str) -> Refused | None:
    """Return the refusal of an Attempt's name where a workload's is asked for."""
    owner = await lives.owner_of_attempt(connection, project, name)
    if owner is None:
        return None
    return Refused(f"{name} is an Attempt of {owner}: name that workload, as {owner}.")


async def no_owner(connection: AsyncConnection, project: str, owner: str) -> Refused:
    """Return the refusal of an owner's name, with those close to it."""
    await project_must_exist(connection, project)
    known = await lives.owners_of(connection, project)
    kind, _, name = owner.partition("/")
    if meant := await attempt_meant(connection, project, name):
        return meant
    names = [one.removeprefix(f"{kind}/") for one in known if one.startswith(f"{kind}/")]
    close = did_you_mean(name, names)
    return Refused(
        f"There is no {owner} in project {project}: `nodus cost --by owner -n {project}` lists"
        f" those that ran.{close}"
    )
