"""How a machine ends: asked, then made to, then removed, then proven gone (SC-712)."""

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from nodus_api.clock import Clock
from nodus_api.suppliers.local import cgroups, memory_groups
from nodus_api.suppliers.local.processes import Processes
from nodus_api.suppliers.local.workdir import FULL, WorkDirectories

logger = logging.getLogger(__name__)

_KILL_SECONDS = 5.0
_REMOVE_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 0.005
_LONGEST_PAUSE_SECONDS = 0.2


def condemn(directories: WorkDirectories, key: str, now: datetime) -> datetime | None:
    """Begin a deletion and return since when it is under way; the caller holds the lock.

    SIGTERM is sent by the call that begins it, and by no later one. None if there is no machine:
    then a tombstone stands for it, so that a create that is still on its way finds it. One whose
    program has removed its own directory is killed.
    """
    directories.open_up(key)
    if not directories.exists(key):
        left = Processes(directories.path(key))
        left.kill()
        if left.memory_group is not None and not memory_groups.remove(left.memory_group):
            return now  # its processes are still ending: `delete_machine` waits for them
        directories.discard(key)
        directories.bury(key, None)
        return None
    since = directories.condemn(key, now)
    if since == now:
        Processes(directories.path(key)).signal_groups(signal.SIGTERM)
    return since


async def delete_machine(
    directories: WorkDirectories, key: str, clock: Clock, *, end_by: datetime
) -> None:
    """End a condemned machine and remove it: SIGKILL at `end_by`, 10 s more at most.

    Continued by the next call if that was not enough. The order makes the proof: the mark first,
    which a runner that is still starting obeys; then no live process; then the tombstone with that
    moment; then the directory.
    """
    left = (end_by - clock.now()).total_seconds()
    if not await wait_empty(directories, key, clock, left):
        Processes(directories.path(key)).kill()
        if not await wait_empty(directories, key, clock, _KILL_SECONDS):
            logger.error("a machine's processes survive SIGKILL", extra={"machine": key})
            return
    ended = Processes(directories.path(key))
    if ended.cgroup is not None:
        cgroups.remove(ended.cgroup)
    if ended.memory_group is not None and not memory_groups.remove(ended.memory_group):
        logger.error("a machine's memory group cannot be removed", extra={"machine": key})
        return
    gone_at = clock.now()
    try:
        directories.bury(key, gone_at)
    except OSError as error:
        if error.errno not in FULL:
            raise
        await _bounded(directories.hollow, key)
        directories.bury(key, gone_at)
    await empty_trash(directories, key)  # of an earlier directory that came back
    directories.discard(key)
    directories.warmth(key).unlink(missing_ok=True)
    await empty_trash(directories, key)


async def empty_trash(directories: WorkDirectories, key: str) -> None:
    """Delete what was discarded; a large tree goes on being deleted after 5 s.

    The proof waits for it: disk is part of a machine.
    """
    await _bounded(directories.empty_trash, key)


async def _bounded(remove: Callable[[str], None], key: str) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.to_thread(remove, key), _REMOVE_SECONDS)


async def wait_empty(directories: WorkDirectories, key: str, clock: Clock, seconds: float) -> bool:
    """Wait until nothing of a machine is alive; False if something still is after `seconds`."""
    deadline = clock.monotonic() + seconds
    pause = _FIRST_PAUSE_SECONDS
    while True:
        processes = Processes(directories.path(key))
        if processes.empty():
            processes.runner()  # reaps it if it is our child
            return True
        left = deadline - clock.monotonic()
        if left <= 0:
            return False
        await clock.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
