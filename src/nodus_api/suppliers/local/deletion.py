"""How a machine ends: asked, then made to, then removed, then proven gone (SC-712)."""

import asyncio
import logging
import signal
from contextlib import suppress
from datetime import datetime

from nodus_api.clock import Clock
from nodus_api.suppliers.local import cgroups
from nodus_api.suppliers.local.processes import Processes
from nodus_api.suppliers.local.workdir import WorkDirectories

logger = logging.getLogger(__name__)

_KILL_SECONDS = 5.0
_REMOVE_SECONDS = 10.0
_FIRST_PAUSE_SECONDS = 0.005
_LONGEST_PAUSE_SECONDS = 0.2


async def delete_machine(
    directories: WorkDirectories, key: str, clock: Clock, *, grace: float
) -> None:
    """Delete a machine; `grace` + 15 s at most, continued by the next call if that was not enough.

    The order makes the proof: the mark first, which a runner that is still starting obeys; then no
    live process; then the tombstone with that moment; then the directory.
    """
    if not directories.exists(key):
        if directories.tombstone(key) is None:
            directories.bury(key, None)  # a create that is still on its way finds it
        await _empty_trash(directories, key)
        return
    now = clock.now()
    since = directories.condemn(key, now)
    processes = Processes(directories.path(key))
    if since == now:
        processes.signal_groups(signal.SIGTERM)
    left = grace - max(0.0, (now - since).total_seconds())
    if not await _wait_empty(directories, key, clock, left):
        Processes(directories.path(key)).kill()
        if not await _wait_empty(directories, key, clock, _KILL_SECONDS):
            logger.error("a machine's processes survive SIGKILL", extra={"machine": key})
            return
    await _remove(directories, key, clock.now())


async def _wait_empty(directories: WorkDirectories, key: str, clock: Clock, seconds: float) -> bool:
    """Wait until nothing of the machine is alive; False if it still is after `seconds`."""
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


async def _remove(directories: WorkDirectories, key: str, gone_at: datetime) -> None:
    group = Processes(directories.path(key)).cgroup
    if group is not None:
        cgroups.remove(group)
    directories.bury(key, gone_at)
    directories.discard(key)
    await _empty_trash(directories, key)


async def _empty_trash(directories: WorkDirectories, key: str) -> None:
    with suppress(TimeoutError):  # a large tree goes on being removed; the proof waits for it
        await asyncio.wait_for(asyncio.to_thread(directories.empty_trash, key), _REMOVE_SECONDS)
