"""`nodus token` and `nodus project`: who may read what, in stand-alone mode (AS-067, AS-072)."""

import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import click

from nodus_api.cli.errors import Refused
from nodus_api.cli.options import (
    PROJECT_NAME,
    database_options,
    opened,
    output_option,
    print_json,
    run_async,
    settings_from,
)
from nodus_api.cli.project_funds import fund_project
from nodus_api.cli.project_quota import project_quota
from nodus_api.cli.tabular import render_table
from nodus_api.clock import SystemClock
from nodus_api.durations import parse_duration
from nodus_api.storage.access_store import AccessAdmin, TokenRecord
from nodus_api.storage.errors import StorageConflict
from nodus_api.tokens import ID_BYTES, SECRET_BYTES, make_token

_LONGEST_NAME = 253


@asynccontextmanager
async def _admin(options: dict[str, Any]) -> AsyncIterator[AccessAdmin]:
    async with opened(settings_from(options)) as database:
        yield AccessAdmin(database)


@click.group()
def token() -> None:
    """Create, list and revoke API tokens.

    \b
    Example:
      nodus token create --user ann --expires 720h
    """


@token.command("create")
@click.option("--user", required=True, help="User name the token stands for.")
@click.option("--group", "groups", multiple=True, help="Group of the user; may be repeated.")
@click.option("--expires", help="How long it is good for, such as 720h [for ever].")
@database_options
@output_option
@run_async
async def create_token(
    user: str, groups: tuple[str, ...], expires: str | None, output: str, **options: Any
) -> None:
    """Make a token and print it, once: only a hash of it is kept.

    \b
    Example:
      nodus token create --user ann --group team-a --expires 720h > ann.token
    """
    for name in (user, *groups):
        _check_subject(name)
        if name.startswith("system:"):
            raise Refused(f"{name!r} cannot be a user or group: names do not start with `system:`.")
    ends = _expiry(expires)
    made = make_token(secrets.token_bytes(ID_BYTES), secrets.token_bytes(SECRET_BYTES))
    async with _admin(options) as admin:
        await admin.create_token(
            id=made.id,
            secret_sha256=made.secret_sha256,
            username=user,
            groups=groups,
            expires=ends,
        )
    if output == "json":
        print_json(
            {
                "id": made.id,
                "token": made.text,
                "user": user,
                "groups": list(groups),
                "expires": _moment(ends) or None,
            }
        )
    else:
        click.echo(made.text)


@token.command("revoke")
@click.argument("id_", metavar="ID")
@database_options
@run_async
async def revoke_token(id_: str, **options: Any) -> None:
    """Revoke a token; it is refused within a second.

    \b
    Example:
      nodus token revoke abcdefghijkl
    """
    async with _admin(options) as admin:
        if not await admin.revoke_token(id_):
            raise Refused(
                f"There is no token {id_!r} that is still good: `nodus token list` shows them."
            )
    click.echo(f"Token {id_} is revoked.")


@token.command("list")
@database_options
@output_option
@run_async
async def list_tokens(output: str, **options: Any) -> None:
    """List tokens, without their secrets; the last use is told to the minute, rounded down.

    STATE is active, expired or revoked.

    \b
    Example:
      nodus token list
    """
    now = SystemClock().now()
    async with _admin(options) as admin:
        rows = [
            {
                "id": one.id,
                "user": one.username,
                "groups": list(one.groups),
                "state": _state(one, now),
                "created": _moment(one.created),
                "expires": _moment(one.expires) or None,
                "revoked": _moment(one.revoked) or None,
                "lastUsed": _last_use(one, table=output == "table"),
            }
            for one in await admin.list_tokens()
        ]
    _show(rows, output)


def _state(token: TokenRecord, now: datetime) -> str:
    """Return whether a token is accepted at a moment, or why not."""
    if token.revoked is not None:
        return "revoked"
    return "expired" if token.expires is not None and token.expires <= now else "active"


def _last_use(token: TokenRecord, *, table: bool) -> str | None:
    """Return the minute of a token's last use; as a moment, not before the token was made.

    A release that noted the writing in place of the use may have left one after the token's end.
    """
    if token.last_used is None:
        return None
    ends = [end for end in (token.revoked, token.expires) if end is not None]
    used = min((token.last_used, *ends))
    return f"{used:%Y-%m-%dT%H:%MZ}" if table else _moment(max(used, token.created))


@click.group()
def project() -> None:
    """Create projects, say who may read them and what they may use.

    \b
    Example:
      nodus project create team-a
      nodus project add-member team-a --user ann --role viewer
      nodus project fund team-a 250.00
    """


project.add_command(fund_project)
project.add_command(project_quota)


@project.command("create")
@click.argument("name")
@click.option(
    "--organization",
    default="default",
    show_default=True,
    help="Whose funds it is paid from; made if it is new.",
)
@database_options
@run_async
async def create_project(name: str, organization: str, **options: Any) -> None:
    """Create a project, which clients see as a namespace.

    The projects of an organization share its funds.

    \b
    Example:
      nodus project create team-a
      nodus project create team-b --organization acme
    """
    for what, given in (("a project", name), ("an organization", organization)):
        if not PROJECT_NAME.fullmatch(given):
            raise Refused(
                f"{given!r} cannot name {what}: use at most 63 of a-z, 0-9 and -, with a letter or"
                " digit at both ends."
            )
    async with _admin(options) as admin:
        try:
            await admin.create_project(name, organization=organization)
        except StorageConflict as conflict:
            raise Refused(f"Project {name!r} exists already: choose another name.") from conflict
    click.echo(f"Project {name} is made.")


@project.command("list")
@database_options
@output_option
@run_async
async def list_projects(output: str, **options: Any) -> None:
    """List projects.

    \b
    Example:
      nodus project list
    """
    async with _admin(options) as admin:
        rows = [
            {"name": one.name, "uid": str(one.uid), "created": _moment(one.created)}
            for one in await admin.list_projects()
        ]
    _show(rows, output)


def _member_options(command: Any) -> Any:
    command = click.option("--group", help="Group that is the member.")(command)
    return click.option("--user", help="User who is the member.")(command)


def _subject(user: str | None, group: str | None) -> tuple[str, str]:
    match user, group:
        case str(name), None:
            return "user", _check_subject(name)
        case None, str(name):
            return "group", _check_subject(name)
        case _:
            raise Refused("Name one member: give either --user or --group.")


@project.command("add-member")
@click.argument("name")
@_member_options
@click.option(
    "--role",
    type=click.Choice(["viewer", "editor", "admin"]),
    default="viewer",
    show_default=True,
    help="Role in the project; each may read.",
)
@database_options
@run_async
async def add_member(
    name: str, user: str | None, group: str | None, role: str, **options: Any
) -> None:
    """Let a user or a group into a project, or change the role.

    \b
    Example:
      nodus project add-member team-a --user ann --role editor
    """
    kind, subject = _subject(user, group)
    async with _admin(options) as admin:
        try:
            await admin.add_member(name, kind, subject, role)
        except StorageConflict as conflict:
            raise _no_project(name) from conflict
    click.echo(f"{kind.capitalize()} {subject} is {role} of {name}.")


@project.command("remove-member")
@click.argument("name")
@_member_options
@database_options
@run_async
async def remove_member(name: str, user: str | None, group: str | None, **options: Any) -> None:
    """Take a user or a group out of a project.

    \b
    Example:
      nodus project remove-member team-a --user ann
    """
    kind, subject = _subject(user, group)
    async with _admin(options) as admin:
        if not await admin.remove_member(name, kind, subject):
            raise Refused(f"{kind.capitalize()} {subject!r} is no member of {name!r}.")
    click.echo(f"{kind.capitalize()} {subject} is no member of {name} any more.")


@project.command("members")
@click.argument("name")
@database_options
@output_option
@run_async
async def list_members(name: str, output: str, **options: Any) -> None:
    """List who may read a project; group nodus:admins reads all and is not listed.

    \b
    Example:
      nodus project members team-a
    """
    async with _admin(options) as admin:
        if name not in {one.name for one in await admin.list_projects()}:
            raise _no_project(name)
        rows = [
            {"kind": one.subject_kind, "name": one.subject, "role": one.role}
            for one in await admin.list_members(name)
        ]
    _show(rows, output)


def _check_subject(name: str) -> str:
    """Return the name of a user or group; refuse what no list could show as it is."""
    if not name or name != name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise Refused(
            f"{name[:80]!r} cannot be a user or group: a name has 1 to {_LONGEST_NAME} characters"
            " that can be printed, and no space at its ends."
        )
    return name


def _no_project(name: str) -> Refused:
    return Refused(f"There is no project {name!r}: make it with `nodus project create {name}`.")


def _expiry(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        life = parse_duration(text)
        if life.total_seconds() <= 0:
            raise ValueError("a token needs a life above 0, such as 720h")
        return SystemClock().now() + life
    except (ValueError, OverflowError) as error:
        raise Refused(f"--expires: {error}.") from error


def _moment(at: datetime | None) -> str:
    return "" if at is None else at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _show(rows: list[dict[str, Any]], output: str) -> None:
    if output == "json":
        print_json(rows)
        return
    if not rows:
        click.echo("None.")
        return
    headings = [re.sub("(?=[A-Z])", "-", key).upper() for key in rows[0]]
    click.echo(
        render_table(headings, [[_cell(value) for value in row.values()] for row in rows]),
        nl=False,
    )


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ",".join(str(one) for one in value)
    return "" if value is None else str(value)
