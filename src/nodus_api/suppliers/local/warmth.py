"""A machine between two tenants: its slot is kept, and nothing of the last one (SC-343).

What is known of it then lies beside the work directories, where the program that is wiped away
cannot have written in the name of its machine. The order makes the wipe: the mark first, which
every look obeys; then no live process; then an empty directory in place of the old one; then the
old one's content; then the mark says wiped.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from nodus_api.clock import Clock
from nodus_api.runner.files import DELETING, INTENT, read_json, write_json
from nodus_api.suppliers.local import cgroups, memory_groups
from nodus_api.suppliers.local.deletion import empty_trash, wait_empty
from nodus_api.suppliers.local.processes import Processes
from nodus_api.suppliers.local.workdir import WorkDirectories
from nodus_api.suppliers.supplier import Ambiguous, Invalid, MachineCondition, MachineView

logger = logging.getLogger(__name__)

_KILL_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmth:
    """What stays of a machine without a tenant. `since` is when its billing began."""

    installation: UUID
    fence: int
    since: datetime | None
    wiped: bool


def warmth_of(directories: WorkDirectories, key: str) -> Warmth | None:
    """Return what stays of a machine; None of one that has a tenant, or never was wiped."""
    record = read_json(directories.warmth(key))
    if record is None or _has_tenant(directories, key, record):
        return None
    try:
        since = record["since"]
        return Warmth(
            installation=UUID(record["installation"]),
            fence=int(record["fence"]),
            since=None if since is None else datetime.fromisoformat(since),
            wiped=record["wiped"] is True,
        )
    except (KeyError, TypeError, ValueError):
        return None


def warm_view(directories: WorkDirectories, key: str) -> MachineView | None:
    """Return the view of a machine without a tenant; None of any other."""
    warmth = warmth_of(directories, key)
    if warmth is None:
        return None
    deleting = (directories.path(key) / DELETING).exists()
    ready = warmth.wiped and not deleting
    return MachineView(
        handle=key,
        key=key,
        condition=MachineCondition.RUNNING if ready else MachineCondition.STOPPING,
        billing_start=warmth.since,
        installation=warmth.installation,
    )


async def wipe_machine(
    directories: WorkDirectories,
    key: str,
    view: MachineView | None,
    clock: Clock,
    locked: Callable[[], AbstractAsyncContextManager[None]],
) -> None:
    """Wipe a machine, or go on with a wipe that was cut short; nothing if it is wiped.

    `view` is what it was before, `locked` holds the lock of all machines. Raises Invalid if there
    is no machine, or it is being deleted; Ambiguous if something of the tenant is left.
    """
    async with locked():
        if not _begin(directories, key, view):
            return
        directories.open_up(key)
    await _end_tenant(directories, key, clock)
    async with locked():
        if directories.condemned(key):
            raise Invalid(f"machine {key!r} was deleted while it was wiped")
        directories.vacate(key)
    await empty_trash(directories, key)
    if directories.has_trash(key):
        raise Ambiguous(f"what was on machine {key} is being deleted still")
    async with locked():
        warmth = warmth_of(directories, key)
        if warmth is None or directories.condemned(key):
            raise Invalid(f"machine {key!r} was deleted while it was wiped")
        _write(directories, key, replace(warmth, wiped=True))
    logger.info("a machine was wiped for its next tenant", extra={"machine": key})


def _begin(directories: WorkDirectories, key: str, view: MachineView | None) -> bool:
    """Mark a machine as being wiped; False if it is wiped already."""
    known = warmth_of(directories, key)
    if known is not None:
        if not directories.exists(key):  # the last call died between the old and the new one
            directories.vacate(key)
        return not known.wiped
    if view is None or view.installation is None or directories.condemned(key):
        raise Invalid(f"no machine {key!r} that could be wiped")
    fence = _fence(read_json(directories.path(key) / INTENT) or {})
    began = Warmth(
        installation=view.installation, fence=fence, since=view.billing_start, wiped=False
    )
    _write(directories, key, began)
    return True


async def _end_tenant(directories: WorkDirectories, key: str, clock: Clock) -> None:
    """Kill everything that runs on a machine, and take its groups; raises Ambiguous."""
    Processes(directories.path(key)).kill()
    if not await wait_empty(directories, key, clock, _KILL_SECONDS):
        raise Ambiguous(f"processes of machine {key} survive SIGKILL")
    ended = Processes(directories.path(key))
    if ended.cgroup is not None:
        cgroups.remove(ended.cgroup)
    if ended.memory_group is not None and not memory_groups.remove(ended.memory_group):
        raise Ambiguous(f"the memory group of machine {key} cannot be removed")


def may_assign(directories: WorkDirectories, key: str, fence: int) -> bool:
    """Whether a machine is to take the program of a fence; False if it has it already.

    The caller holds the lock. Raises Invalid for a fence that is over, and of a machine that is
    not wiped, is being deleted, or is not there.
    """
    if not directories.exists(key) or directories.condemned(key):
        raise Invalid(f"no machine {key!r}")
    warmth = warmth_of(directories, key)
    if warmth is None:
        held = _fence(read_json(directories.path(key) / INTENT) or {})
        if held == fence:
            return False
        raise Invalid(f"machine {key!r} is held with fence {held}, not wiped for {fence}")
    if not warmth.wiped or fence <= warmth.fence:
        raise Invalid(f"machine {key!r} is not wiped for fence {fence}")
    return True


def _has_tenant(directories: WorkDirectories, key: str, record: dict[str, Any]) -> bool:
    """Whether an intent of a later fence than the mark's lies in the directory."""
    if record.get("wiped") is not True:
        return False
    intent = read_json(directories.path(key) / INTENT)
    return intent is not None and _fence(intent) > _fence(record)


def _write(directories: WorkDirectories, key: str, warmth: Warmth) -> None:
    record = {
        "installation": str(warmth.installation),
        "fence": warmth.fence,
        "since": warmth.since.isoformat() if warmth.since else None,
        "wiped": warmth.wiped,
    }
    write_json(directories.warmth(key), record)


def _fence(record: dict[str, Any]) -> int:
    fence = record.get("fence")
    return fence if isinstance(fence, int) and not isinstance(fence, bool) else 0
