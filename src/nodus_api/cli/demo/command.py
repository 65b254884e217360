"""`nodus demo`: the real thing once, from an empty data directory to the bill."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from nodus_api.cli.api_client import ATTEMPTS, ApiClient
from nodus_api.cli.data_directory import DataDirectory, open_data_directory
from nodus_api.cli.demo import show
from nodus_api.cli.demo.checks import complaints
from nodus_api.cli.demo.story import FIT, PAIR, Hand, Story, manifests
from nodus_api.cli.errors import Failed, reported
from nodus_api.cli.following import Follower
from nodus_api.cli.interrupts import ended_like_ctrl_c, undisturbed
from nodus_api.cli.options import data_dir_option
from nodus_api.cli.processes import end_orphans
from nodus_api.cli.progress import choose_progress
from nodus_api.cli.supervisor import PostgresPart
from nodus_api.clock import SystemClock
from nodus_api.runner.files import INTENT
from nodus_api.storage.embedded import EmbeddedPostgres
from nodus_api.suppliers.local.processes import Processes
from nodus_api.tasks import end, spawn

_READY_SECONDS = 60.0
_WORK_SECONDS = 180.0
_STOP_SECONDS = 30.0
_SLOTS = 8
"""Machines at once: all that the demo runs, and room for what replaces the lost ones."""


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(1.0, 60.0),
    default=8.0,
    show_default=True,
    help="How long each program computes, at least.",
)
@data_dir_option
def demo(seconds: float, data_dir: Path | None) -> None:
    """Run whole lives on this machine, show them live, bill them, and check all of it.

    Starts `nodus up` on a free port in a fresh data directory and submits two Jobs whose programs
    do real arithmetic and save checkpoints: one of four indexes (one succeeds, one fails and is
    tried again, one loses its machine in a drill and goes on from its checkpoint, one is stopped
    by hand), and a gang of two that loses a rank. At the end, all is counted again; what is not as
    it must be is said, and the exit code is 1.

    \b
    Example:
      nodus demo
      nodus demo --data-dir /var/tmp/nodus-demo.mine
    """
    root = data_dir if data_dir is not None else _fresh_directory()
    directory = open_data_directory(root)
    directory.logs.mkdir(exist_ok=True)
    log = directory.logs / "up.log"
    click.echo(f"Data directory {directory.root}, log {log}")
    try:
        with ended_like_ctrl_c(), _running_up(directory, log), reported():
            asyncio.run(_play(directory, seconds))
    except click.ClickException as error:
        raise Failed(
            f"The demo did not succeed: {error.message} The log is {log}, programs' output is below"
            f" {directory.machines}."
        ) from error
    click.echo(
        f"Everything is stopped. Its data stays in {directory.root} until you remove it;"
        " `make up` starts a server that stays."
    )


def _fresh_directory() -> Path:
    parent = "/var/tmp" if Path("/var/tmp").is_dir() else None  # noqa: S108 -- mkdtemp makes it
    root = Path(tempfile.mkdtemp(prefix="nodus-demo.", dir=parent))
    root.chmod(0o711)  # the database's own account passes through
    return root


@contextmanager
def _running_up(directory: DataDirectory, log: Path) -> Iterator[None]:
    """Run `nodus up` on a free port while the block runs."""
    up: subprocess.Popen[bytes] | None = None
    stopped = False
    try:
        with undisturbed():
            up = _start_up(directory, log)
        _await_ready(up, log)
        yield
    finally:
        with undisturbed():
            if up is not None:
                stopped = _stop(up, directory)
            _end_programs(directory)
    if not stopped:
        raise Failed("`nodus up` did not stop cleanly.")


def _start_up(directory: DataDirectory, log: Path) -> "subprocess.Popen[bytes]":
    with log.open("wb") as out:
        return subprocess.Popen(  # noqa: S603 -- our own command
            [
                *(sys.executable, "-m", "nodus_api.cli.main", "up", "--port", "0"),
                *("--data-dir", str(directory.root)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=_own_environment(),
            start_new_session=True,
        )


def _own_environment() -> dict[str, str]:
    """Leave out settings of the caller: the demo is the same everywhere."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("NODUS_")}
    return {**own, "NODUS_LOCAL_SLOTS": str(_SLOTS)}


def _await_ready(up: "subprocess.Popen[bytes]", log: Path) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + _READY_SECONDS
    while clock.monotonic() < deadline:
        for line in log.read_text(errors="replace").splitlines():
            if line.startswith("Nodus is ready"):
                click.echo(line)
                return
        try:
            up.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        last = (log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        raise Failed(f"`nodus up` ended at once with exit code {up.returncode}: {last}")
    raise Failed(f"`nodus up` was not ready within {_READY_SECONDS:.0f} s.")


def _stop(up: "subprocess.Popen[bytes]", directory: DataDirectory) -> bool:
    """Stop it; what it could not stop itself is ended all the same, and the answer is False."""
    if up.poll() is None:
        up.send_signal(signal.SIGTERM)
    try:
        code = up.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        up.kill()
        code = up.wait()
    if code < 0:
        end_orphans(directory.run, SystemClock(), keep=(PostgresPart.name,))
        EmbeddedPostgres(directory.root).stop()
    return code == 0


def _end_programs(directory: DataDirectory) -> None:
    """End what a demo that failed, or was interrupted, left running: no scheduler ever will."""
    for machine in directory.machines.iterdir() if directory.machines.is_dir() else ():
        if (machine / INTENT).exists():
            Processes(machine).kill()


async def _play(directory: DataDirectory, seconds: float) -> None:
    """Submit, let the story happen, check it, and show it."""
    diary = directory.root / "diary"
    diary.mkdir()
    text = manifests(diary, seconds)
    file = directory.root / "jobs.yaml"
    file.write_text(text)
    click.echo(f"\nThe Jobs:\n\n{show.indented(text)}")
    await _nodus(directory, "submit", "-f", str(file))
    client = ApiClient.from_kubeconfig(directory.kubeconfig)
    try:
        async with asyncio.timeout(_WORK_SECONDS):
            await _happen(directory, client, diary)
    except TimeoutError as error:
        raise Failed(f"The Jobs had not ended after {_WORK_SECONDS:.0f} s.") from error
    attempts = (await client.get_json(ATTEMPTS.format("default")))["items"]
    show.kubectl(directory)
    show.https(client.server, attempts)
    for job in (FIT, PAIR):
        await _nodus(directory, "timeline", f"job/{job}")
    show.interruptions(attempts)
    await _nodus(directory, "cost", "--by", "owner")
    wrong = complaints(attempts, diary)
    if wrong:
        raise Failed(" ".join(f"{one[:1].upper()}{one[1:]}." for one in wrong))
    click.echo(show.checked(attempts))


async def _happen(directory: DataDirectory, client: ApiClient, diary: Path) -> None:
    """Show the Attempts live, and act in their time, until all have ended and are billed."""
    clock = SystemClock()

    async def drill(attempt: str) -> None:
        await _nodus(directory, "drill", attempt, "--trigger", "node-loss")

    async def stop(job: str) -> None:
        await _nodus(directory, "stop", f"job/{job}")

    with choose_progress() as progress:
        follower = Follower(
            client,
            project="default",
            selector=f"nodus.dev/job in ({FIT},{PAIR})",
            clock=clock,
            changed=progress.show,
        )
        story = Story(follower.board, diary, Hand(drill=drill, stop=stop, tell=click.echo))
        task = spawn("follow", follower.run())
        try:
            while not story.over:
                if task.done():
                    await task
                await story.go_on()
                await clock.sleep(0.1)
        finally:
            await end(task)


async def _nodus(directory: DataDirectory, *arguments: str) -> None:
    """Run a command of this program as a user does, and show it. Raises Failed if it fails."""
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nodus_api.cli.main", *arguments),
        *("--data-dir", str(directory.root)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=_own_environment(),
    )
    try:
        said, _ = await running.communicate()
    finally:
        if running.returncode is None:
            running.terminate()
            await running.wait()
    click.echo(f"\n$ nodus {' '.join(arguments)}\n{said.decode(errors='replace')}")
    if running.returncode != 0:
        raise Failed(f"`nodus {arguments[0]}` ended with exit code {running.returncode}.")
