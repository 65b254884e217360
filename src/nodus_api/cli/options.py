"""Options that many commands share, and the settings that follow from them."""

import asyncio
import csv
import functools
import io
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click
import uvloop

from nodus_api import logs
from nodus_api.cli.errors import Refused, reported
from nodus_api.settings import Settings, database_url, has_password, load_settings
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.revision import check_schema

P = ParamSpec("P")
T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
PROJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
DATABASE_URL_FILE = "database-url"


def data_dir_option(command: Command) -> Command:
    """Add --data-dir."""
    return click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        help="Data directory [env NODUS_DATA_DIR; /var/lib/nodus for root,"
        " ~/.local/share/nodus for others].",
    )(command)


def database_options(command: Command) -> Command:
    """Add --database-url, --database-url-file and --data-dir."""
    command = click.option(
        "--database-url-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="File that holds the database URL [env NODUS_DATABASE_URL_FILE].",
    )(command)
    command = click.option(
        "--database-url",
        help="PostgreSQL 15 or newer, such as postgresql://user@host/nodus"
        " [env NODUS_DATABASE_URL; the database of `nodus up`].",
    )(command)
    return data_dir_option(command)


def project_option(command: Command) -> Command:
    """Add -n/--project."""
    return click.option(
        "-n", "--project", default="default", show_default=True, help="Project (namespace)."
    )(command)


def output_option(command: Command) -> Command:
    """Add -o/--output, table or json."""
    return _output(command, "table", "json")


def sheet_output_option(command: Command) -> Command:
    """Add -o/--output, table, json or csv: for what is one line a row."""
    return _output(command, "table", "json", "csv")


def _output(command: Command, *forms: str) -> Command:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(forms),
        default="table",
        show_default=True,
        help="Form of the answer.",
    )(command)


def settings_from(options: Mapping[str, Any]) -> Settings:
    """Return the settings in force under these flags, with logging configured by them.

    A password in the database URL itself is used, with a warning (AS-117).
    """
    with reported():
        settings = load_settings(**options)
    logs.configure(level=settings.log_level, style=settings.log_format)
    if warning := password_warning(settings):
        click.echo(f"Warning: {warning}", err=True)
    return settings


def find_database(settings: Settings) -> str:
    """Return the URL of the database: the one given, else that of the running `nodus up`.

    Raises Refused with what to do when there is neither.
    """
    with reported():
        given = database_url(settings)
    if given is not None:
        return given
    record = settings.data_dir / DATABASE_URL_FILE
    try:
        return record.read_text().strip()
    except FileNotFoundError:
        raise Refused(
            f"No database is named and no `nodus up` runs on {settings.data_dir}: start"
            f" `nodus up --data-dir {settings.data_dir}`, or give --database-url or --data-dir."
        ) from None
    except OSError as error:
        raise Refused(
            f"{record} cannot be read ({error.strerror}): run this as the user of `nodus up`,"
            " or give --database-url."
        ) from error


@asynccontextmanager
async def opened(settings: Settings, *, pool_size: int = 1) -> AsyncIterator[Database]:
    """Yield the database in the command line's role, its schema checked (AS-117)."""
    database = Database(find_database(settings), role=Role.SCHEDULER, pool_size=pool_size)
    try:
        await check_schema(database)
        yield database
    finally:
        await database.close()


def password_warning(settings: Settings) -> str | None:
    """Return a warning if a password stands in the database URL itself (AS-117), else None."""
    if settings.database_url is None or not has_password(settings.database_url.get_secret_value()):
        return None
    return (
        "The database URL carries a password; give it by --database-url-file instead,"
        " since command lines and environments can be read by others."
    )


def run_async(command: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Let an async function be a command's body, on uvloop, its errors reported."""

    @functools.wraps(command)
    def body(*args: P.args, **kwargs: P.kwargs) -> T:
        with reported(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(command(*args, **kwargs))

    return body


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_csv(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows as RFC 4180 has it: a header row, lines that end in CRLF, quotes where needed."""
    out = io.StringIO(newline="")
    csv.writer(out).writerows([headings, *rows])
    click.echo(out.getvalue().encode(), nl=False)  # bytes: no stream turns its line ends
