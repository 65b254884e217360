"""From a machine's intent to a running runner: `intent.json`, and a process that outlives us."""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import nodus_api
from nodus_api.runner.files import LOG, SPAWNED
from nodus_api.runner.identity import identity_of, write_identity
from nodus_api.runner.intent import BadIntent, Restore, RunnerIntent
from nodus_api.runner.program import NO_LIMIT, memory_limit
from nodus_api.suppliers.local import memory_groups
from nodus_api.suppliers.local.workdir import UNPLACED
from nodus_api.suppliers.supplier import Incarnation, MachineIntent

logger = logging.getLogger(__name__)


def runner_intent(
    intent: MachineIntent,
    *,
    runner_socket: Path,
    environment: Mapping[str, str],
    heartbeat: float,
    cgroup: Path | None,
    memory_group: Path | None = None,
    checkpoints: Path,
    rendezvous: str | None = None,
) -> RunnerIntent:
    """Return what the runner is told; the token is not in it but in a file beside it.

    `rendezvous` is where a gang's ranks meet. `checkpoints` holds those of every workload; the
    runner is told of its slot's alone.
    """
    program, incarnation = intent.program, intent.incarnation
    restore = incarnation.restore
    slot = checkpoints / str(incarnation.workload) / quote(incarnation.slot, safe="")
    return RunnerIntent(
        installation=str(intent.installation),
        machine=intent.key,
        attempt=str(intent.attempt_uid),
        epoch=intent.epoch,
        fence=intent.fence,
        command=program.command,
        report_to=f"unix:{runner_socket}",
        environment={**environment, **program.environment},
        context=program_context(incarnation, intent.epoch, rendezvous),
        working_directory=program.working_directory,
        stop_grace=program.stop_grace.total_seconds(),
        heartbeat=heartbeat,
        memory_bytes=program.memory_bytes,
        disk_bytes=program.disk_bytes,
        cgroup=str(cgroup) if cgroup else None,
        memory_group=str(memory_group) if memory_group else None,
        checkpoints=str(slot),
        copies=str(checkpoints / UNPLACED / intent.key),
        restore=Restore(uri=restore.uri, sha256=restore.sha256) if restore else None,
    )


def program_context(
    incarnation: Incarnation, epoch: int, rendezvous: str | None = None
) -> dict[str, str]:
    """Return the NODUS_ variables that the program sees; what does not apply is absent (SC-143)."""
    restore, gang = incarnation.restore, incarnation.gang
    interval = incarnation.checkpoint_interval
    values: dict[str, str | int | None] = {
        "NODUS_PROJECT": incarnation.project,
        "NODUS_ATTEMPT": incarnation.attempt_name,
        "NODUS_SLOT": incarnation.slot,
        "NODUS_EPOCH": epoch,
        "NODUS_RESTORE_SEQ": restore.seq if restore else None,
        "NODUS_CURSOR_COMPLETED": restore.completed if restore else None,
        "NODUS_CURSOR_TOTAL": restore.total if restore else None,
        "NODUS_RANK": gang.rank if gang else None,
        "NODUS_SIZE": gang.size if gang else None,
        "NODUS_GANG_EPOCH": gang.epoch if gang else None,
        "NODUS_RENDEZVOUS": rendezvous if gang else None,
        "NODUS_CHECKPOINT_INTERVAL": round(interval.total_seconds()) if interval else None,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def make_memory_group(directory: Path) -> str:
    """Make the memory group that an intent names; return what will hold the memory limit.

    Without the group the runner falls back to the address space. Repeated by every create and
    look until the runner is there.
    """
    try:
        intent = RunnerIntent.read(directory)
    except BadIntent:
        return NO_LIMIT  # the runner says so, too
    if intent.memory_group is not None and intent.memory_bytes is not None:
        group = Path(intent.memory_group)
        if not memory_groups.make(group, intent.memory_bytes):
            logger.warning("a memory group cannot be made", extra={"machine": directory.name})
            memory_groups.remove(group)
    return memory_limit(intent)


def spawn_runner(directory: Path, environment: Mapping[str, str]) -> int:
    """Start the runner of a directory as the leader of a new session; return its pid.

    Spawning twice is safe: the second runner finds the directory claimed and leaves. If we die
    before the record is written, the runner's own is there a moment later. Raises OSError.
    """
    package = str(Path(nodus_api.__file__).parent.parent)
    log = str(directory / LOG)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        sys.executable,
        # -P: the work directory is no place to import from. -S: nor is what is installed beside us.
        [sys.executable, "-P", "-S", "-m", "nodus_api.runner", str(directory)],
        {**environment, "PYTHONPATH": package, "PYTHONDONTWRITEBYTECODE": "1"},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    write_identity(directory / SPAWNED, identity_of(pid))
    return pid
