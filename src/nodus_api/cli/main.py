"""`nodus`: the group of all commands, each loaded when it is used."""

import importlib
from dataclasses import dataclass
from typing import Any, NoReturn

import click

from nodus_api.cli.interrupts import INTERRUPTED
from nodus_api.cli.process import as_process, collect_from_now_on
from nodus_api.cli.refusals import Failed


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lies, and its line in `nodus --help`."""

    module: str
    attribute: str
    summary: str


COMMANDS = {
    "up": Entry(
        "up", "up", "Run database, scheduler and HTTPS server on this machine until Ctrl-C."
    ),
    "demo": Entry(
        "demo.command",
        "demo",
        "Run whole lives on this machine, show them live, bill them, and check all of it.",
    ),
    "serve": Entry(
        "serve", "serve", "Serve Attempts over HTTPS until SIGTERM; any number of replicas may run."
    ),
    "schedule": Entry(
        "schedule",
        "schedule",
        "Place and drive Attempts until SIGTERM; programs on this host go on without it.",
    ),
    "migrate": Entry(
        "database",
        "migrate",
        "Bring the database's schema up to date; a second run changes nothing.",
    ),
    "doctor": Entry(
        "database",
        "doctor",
        "Check the data directory, the database and the server, a sentence each.",
    ),
    "submit": Entry("submit", "submit", "Submit the workloads of a manifest, all or none."),
    "stop": Entry(
        "submit", "stop", "Stop a workload for good; OWNER is KIND/NAME, or the NAME of a Job."
    ),
    "suspend": Entry(
        "owners",
        "suspend",
        "Stop a workload for a while; OWNER is KIND/NAME, or the NAME of a Job.",
    ),
    "resume": Entry(
        "owners",
        "resume",
        "Let a suspended workload go on; OWNER is KIND/NAME, or the NAME of a Job.",
    ),
    "scale": Entry(
        "owners",
        "scale",
        "Say how many Attempts may live at once; OWNER is KIND/NAME, or the NAME of a Job.",
    ),
    "delete": Entry(
        "owners",
        "delete",
        "Stop a workload and take it out of the API; OWNER is KIND/NAME, or the NAME of a Job.",
    ),
    "estimate": Entry(
        "estimate", "estimate", "Show where a manifest would be placed and why, without running it."
    ),
    "drill": Entry(
        "drill",
        "drill",
        "Lose an Attempt's machine on purpose, by a real fault; Nodus pays for what is lost.",
    ),
    "get": Entry("get", "get", "Show Attempts, all of a project or those named."),
    "explain": Entry(
        "explain",
        "explain",
        "Say why an Attempt ran where it ran, what it waits for, and what ended it.",
    ),
    "timeline": Entry(
        "timeline",
        "timeline",
        "Draw an owner's Attempts over time; OWNER is KIND/NAME, or the NAME of a Job.",
    ),
    "cost": Entry(
        "cost",
        "cost",
        "Show what Attempts cost in USD, by segment, and prove that the segments add up.",
    ),
    "checkpoint": Entry(
        "checkpoint",
        "checkpoint",
        "Save a directory as a checkpoint of the program that runs this command.",
    ),
    "token": Entry("access", "token", "Create, list and revoke API tokens."),
    "project": Entry(
        "access", "project", "Create projects, say who may read them and what they may use."
    ),
    "offerings": Entry(
        "offerings", "offerings", "Import and list what clouds and own fleets offer."
    ),
    "kubeconfig": Entry(
        "kubeconfig", "kubeconfig", "Print a kubeconfig for a user of this server."
    ),
    "openapi": Entry(
        "openapi", "openapi", "Write the OpenAPI documents that the server publishes."
    ),
    "simulate": Entry(
        "simulate", "simulate", "Fill a database with Attempts that live whole lives."
    ),
    "bench": Entry(
        "bench", "bench", "Measure the product on this machine, each case beside its yardstick."
    ),
}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C ends it with exit code 130 (architecture.md, command line)."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            raise  # click ends quietly: who reads has seen enough
        except OSError as error:  # whatever nobody has put into words before, a full disk say
            what = "The output" if error.filename is None else str(error.filename)
            raise Failed(
                f"{what} cannot be used ({error.strerror or error}): see that there is room and"
                " that this user may, and run it again."
            ) from error

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        """Return the commands in the order of their use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- click's signature
        """Import and return a command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"nodus_api.cli.{entry.module}")
        collect_from_now_on()
        command = getattr(module, entry.attribute)
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's signature
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


def product_version() -> str:
    """Return the installed version, or 0+unknown when run from a bare source tree."""
    metadata = importlib.import_module("importlib.metadata")  # the e-mail package comes with it
    try:
        return str(metadata.version("nodus-api"))
    except metadata.PackageNotFoundError:
        return "0+unknown"


def _show_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        click.echo(f"nodus, version {product_version()}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Run, watch and bill Attempts.

    \b
    Example:
      nodus up &
      nodus submit -f job.yaml --wait
      nodus cost --by owner
    """


def run() -> NoReturn:
    """Be the program `nodus`."""
    as_process(lambda: main(prog_name="nodus"))


if __name__ == "__main__":
    run()
