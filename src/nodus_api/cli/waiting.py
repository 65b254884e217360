"""`--wait`: shows the Attempts through the public watch until the work has ended."""

from collections.abc import Sequence
from typing import Any

import click

from nodus_api.cli.api_client import ApiClient
from nodus_api.cli.asking import state_of
from nodus_api.cli.errors import Failed
from nodus_api.cli.following import Board, Follower
from nodus_api.cli.progress import choose_progress
from nodus_api.clock import SystemClock
from nodus_api.storage.engine import Database
from nodus_api.tasks import end, spawn
from nodus_api.workloads import Manifest

_CATCH_UP_SECONDS = 10.0
_ENDS = {
    "Succeeded": "succeeded",
    "Failed": "failed",
    "Stopped": "was stopped",
    "Deleted": "was deleted",
}


async def follow(database: Database, client: ApiClient, manifests: Sequence[Manifest]) -> None:
    """Show progress until all of it has ended. Raises Failed unless all of it succeeded."""
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
        _bad_end(one, state, follower.board)
        for one, state, follower in zip(manifests, states, followers, strict=True)
        if state != "Succeeded"
    ]
    if bad:
        raise Failed(f"{'; '.join(bad)}.")
    for one in manifests:
        click.echo(f"{one.kind.lower()}/{one.name} succeeded.")


def _bad_end(manifest: Manifest, state: str, board: Board) -> str:
    """Return how a workload ended, and where to read why; of a failure the Attempt that made it."""
    what = f"{manifest.kind.lower()}/{manifest.name}"
    flag = "" if manifest.project == "default" else f" -n {manifest.project}"
    if state == "Stopped":
        return (
            f"{what} was stopped: to run it again, submit it under another name, or run"
            f" `nodus delete {what}{flag}` first"
        )
    last = [
        name
        for name, one in sorted(board.attempts.items())
        if one["status"]["phase"] == "Failed" and "supersededBy" not in one["status"]
    ]
    if state == "Failed" and last:
        return f"{what} failed: `nodus explain {last[0]}{flag}` says why"
    return f"{what} {_ENDS[state]}: `nodus timeline {what}{flag}` shows what it was"


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
                (await connection.scalars(state_of(one.project, one.kind, one.name))).first()
                for one in manifests
            ]
        states = [str(state or "Deleted") for state in found]
        if all(state in _ENDS for state in states):
            return states
        await clock.sleep(0.25)


async def _catch_up(boards: Sequence[Board]) -> None:
    """Let the watch show what the database says already."""
    clock = SystemClock()
    deadline = clock.monotonic() + _CATCH_UP_SECONDS
    while not all(board.ended() for board in boards) and clock.monotonic() < deadline:
        await clock.sleep(0.05)
