"""`nodus demo`: the real thing once, from an empty data directory to the bill."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import yaml

from nodus_api.cli import demo_fit
from nodus_api.cli.api_client import ATTEMPTS, ApiClient
from nodus_api.cli.asking import answered, insert
from nodus_api.cli.cost import check_costs, show_costs
from nodus_api.cli.data_directory import DataDirectory, open_data_directory
from nodus_api.cli.errors import Failed, reported
from nodus_api.cli.following import Board, Follower
from nodus_api.cli.ledger import read_costs
from nodus_api.cli.options import data_dir_option
from nodus_api.cli.progress import choose_progress
from nodus_api.cli.tabular import render_table
from nodus_api.clock import Clock, SystemClock
from nodus_api.storage.engine import Database, Role
from nodus_api.tasks import end, spawn
from nodus_api.workloads import parse_manifests

JOB = "decay-fit"
INDEXES = 3
_READY_SECONDS = 60.0
_WORK_SECONDS = 150.0
_STOP_SECONDS = 30.0


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 60.0),
    default=6.0,
    show_default=True,
    help="How long each program computes, at least.",
)
@data_dir_option
def demo(seconds: float, data_dir: Path | None) -> None:
    """Run a real Job of three indexes on this machine, show it live, and bill it.

    Starts `nodus up` on a free port in a fresh data directory, submits a Job whose program is a
    numerical fit in plain Python that checks its own result, and stops everything at the end. One
    index fails on purpose and succeeds at its retry, as epoch 2.

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
        with _running_up(directory, log), reported():
            asyncio.run(_show(directory, seconds))
    except click.ClickException as error:
        raise Failed(
            f"The demo did not succeed: {error.message} The log is {log}, programs' output is below"
            f" {directory.machines}."
        ) from error
    click.echo(
        f"Everything is stopped. Its data stays in {directory.root} until you remove it;"
        " `make up` starts a server that stays."
    )


def manifest(seconds: float) -> str:
    """Return the demo's Job as it would stand in a file."""
    job = {
        "apiVersion": "nodus.dev/v1",
        "kind": "Job",
        "metadata": {"name": JOB},
        "spec": {
            "completions": INDEXES,
            "template": {"command": [sys.executable, str(demo_fit.__file__), str(seconds), "1"]},
            "restart": {"maxRetries": 1},
        },
    }
    return yaml.safe_dump(job, sort_keys=False)


def _fresh_directory() -> Path:
    parent = "/var/tmp" if Path("/var/tmp").is_dir() else None  # noqa: S108 -- mkdtemp makes it
    root = Path(tempfile.mkdtemp(prefix="nodus-demo.", dir=parent))
    root.chmod(0o711)  # the database's own account passes through
    return root


@contextmanager
def _running_up(directory: DataDirectory, log: Path) -> Iterator[None]:
    """Run `nodus up` on a free port while the block runs."""
    with log.open("wb") as out:
        up = subprocess.Popen(  # noqa: S603 -- our own command
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
    try:
        _await_ready(up, log)
        yield
    finally:
        stopped = _stop(up)
    if not stopped:
        raise Failed("`nodus up` did not stop cleanly.")


def _own_environment() -> dict[str, str]:
    """Leave out settings of the caller: the demo is the same everywhere."""
    return {k: v for k, v in os.environ.items() if not k.startswith("NODUS_")}


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


def _stop(up: "subprocess.Popen[bytes]") -> bool:
    if up.poll() is None:
        up.send_signal(signal.SIGTERM)
    try:
        return up.wait(_STOP_SECONDS) == 0
    except subprocess.TimeoutExpired:
        up.kill()
        up.wait()
        return False


async def _show(directory: DataDirectory, seconds: float) -> None:
    client = ApiClient.from_kubeconfig(directory.kubeconfig)
    database = Database(directory.database_url.read_text().strip(), role=Role.SCHEDULER)
    try:
        text = manifest(seconds)
        click.echo(f"\nThe Job, as for `nodus submit -f`:\n\n{_indented(text)}")
        manifests = parse_manifests(text)
        for key in await insert(database, manifests):
            await answered(database, key, f"job/{JOB}")
        async with asyncio.timeout(_WORK_SECONDS):
            await _until_billed(client)
        _check(await client.get_json(ATTEMPTS.format("default")))
        _show_kubectl(directory)
        await _show_https(client)
        async with database.snapshot() as connection:
            costs = await read_costs(connection, by="owner", project=None)
        click.echo("\nWhat it cost, from the ledger:\n")
        show_costs(costs, "owner")
        check_costs(costs)
        click.echo("")
    except TimeoutError as error:
        raise Failed(f"The Job had not ended after {_WORK_SECONDS:.0f} s.") from error
    finally:
        await database.close()


async def _until_billed(client: ApiClient) -> None:
    """Show the Attempts live until all have ended and their machines are proven gone."""
    clock: Clock = SystemClock()
    with choose_progress() as progress:
        follower = Follower(
            client,
            project="default",
            selector=f"nodus.dev/job={JOB}",
            clock=clock,
            changed=progress.show,
        )
        task = spawn("follow", follower.run())
        try:
            while not _complete(follower.board):
                if task.done():
                    await task
                await clock.sleep(0.1)
        finally:
            await end(task)


def _complete(board: Board) -> bool:
    """Return whether every index has an ended last Attempt, and all machines are gone."""
    last = [one for one in board.attempts.values() if "supersededBy" not in one["status"]]
    waits_for_retry = any(
        one["status"].get("exitCode") == demo_fit.BROKEN and one["spec"]["epoch"] == 1
        for one in last
    )
    return len(last) == INDEXES and not waits_for_retry and board.settled()


def _check(found: dict[str, Any]) -> None:
    """Raise Failed unless the Attempts are what the demo promises."""
    seen = sorted(
        (
            one["spec"]["slot"],
            one["spec"]["epoch"],
            one["status"]["phase"],
            one["status"].get("exitCode"),
        )
        for one in found["items"]
        if one["metadata"]["labels"].get("nodus.dev/job") == JOB
    )
    wanted = [
        ("0", 1, "Succeeded", 0),
        ("1", 1, "Failed", demo_fit.BROKEN),
        ("1", 2, "Succeeded", 0),
        ("2", 1, "Succeeded", 0),
    ]
    if seen != wanted:
        raise Failed(f"The Attempts are {seen}, but should be {wanted}.")


def _show_kubectl(directory: DataDirectory) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        click.echo("\n(kubectl is not on the PATH, so it is not shown.)")
        return
    click.echo("\nThe Attempts through kubectl:\n")
    command = [kubectl, "--kubeconfig", str(directory.kubeconfig), "get", "attempts"]
    shown = subprocess.run(  # noqa: S603 -- found on the PATH, arguments as a list
        [*command, "-o", "wide"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "KUBECACHEDIR": str(directory.root / "kube-cache")},
    )
    click.echo(shown.stdout, nl=False)
    if shown.returncode != 0:
        raise Failed(f"kubectl ended with exit code {shown.returncode}: {shown.stderr.strip()}")


async def _show_https(client: ApiClient) -> None:
    found = await client.get_json(ATTEMPTS.format("default"))
    click.echo(
        f"\nThe Attempts through plain HTTPS, {client.server}{ATTEMPTS.format('default')}:\n"
    )
    headings = ("NAME", "PHASE", "REASON", "EXIT", "OFFERING", "RUNNING", "COST USD", "NEXT")
    rows = []
    for one in found["items"]:
        status = one["status"]
        actual = status.get("actual", {})
        rows.append(
            [
                one["metadata"]["name"],
                status["phase"],
                status.get("reason", ""),
                str(status.get("exitCode", "")),
                status.get("placement", {}).get("offering", ""),
                actual.get("segments", {}).get("runningUSD", ""),
                actual.get("costUSD", ""),
                status.get("supersededBy", ""),
            ]
        )
    click.echo(render_table(headings, rows), nl=False)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
