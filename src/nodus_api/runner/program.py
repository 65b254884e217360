"""The program itself: started in its own group, signalled, and its end told exactly (SC-009)."""

import os
import resource
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from nodus_api.runner import cgroup
from nodus_api.runner.files import STDERR, STDOUT, WORK
from nodus_api.runner.intent import RunnerIntent
from nodus_api.runner.session import kill_members
from nodus_api.runner.times import elapsed


class StartFailed(Exception):
    """The program could not be started, and a second try would fail the same way."""


class Program:
    """A started program; only the thread that made it may call its methods."""

    def __init__(self, process: subprocess.Popen[bytes], cgroup_path: Path | None) -> None:
        self.started_at = elapsed()
        self._process = process
        self._cgroup = cgroup_path

    def signal(self, number: int) -> bool:
        """Signal the program's process group; False if the program has already ended."""
        if _ended(self._process.pid):
            return False
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:  # it has moved to another group
            os.kill(self._process.pid, number)
        return True

    def notify(self, ended: Callable[[float], None]) -> None:
        """Call `ended`, on another thread, with the moment at which the program ends."""

        def wait() -> None:
            # The number stays ours until `finish` reaps it, so a signal can meet no stranger.
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            ended(elapsed())

        threading.Thread(target=wait, name="program", daemon=True).start()

    def finish(self) -> tuple[int, int | None, bool]:
        """Kill what the program left behind; return exit code, signal, whether memory ran out.

        The exit code is 128 + n if signal n killed it; a program that itself exits 137 has no
        signal (SC-009). Waits until the program has ended.
        """
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        if os.getsid(0) == os.getpid():
            kill_members(os.getpid(), spare=os.getpid())
        if self._cgroup is not None:
            cgroup.kill_program(self._cgroup)
        if status >= 0:
            return status, None, False
        oom = status == -signal.SIGKILL and self._cgroup is not None
        return 128 - status, -status, oom and cgroup.out_of_memory(Path(self._cgroup or ""))


def start(intent: RunnerIntent, directory: Path, environment: Mapping[str, str]) -> Program:
    """Start the program; raises StartFailed with a sentence for its owner."""
    if not intent.command:
        raise StartFailed("the command is empty: name a program")
    home = directory / WORK / (intent.working_directory or "")
    (directory / WORK).mkdir(exist_ok=True)
    if not home.is_dir():
        raise StartFailed(f"working directory not found: {home}")
    group = Path(intent.cgroup) if intent.cgroup else None
    try:
        with (
            open(directory / STDOUT, "ab") as out,
            open(directory / STDERR, "ab") as err,
            cgroup.program_leaf(group),
        ):
            process = subprocess.Popen(  # noqa: S603 - running the owner's command is the purpose
                intent.command,
                env=dict(environment),
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                process_group=0,
            )
    except (OSError, ValueError) as error:
        raise StartFailed(_why(intent.command[0], error)) from error
    if intent.memory_bytes is not None and not _memory_limited(group):
        _limit_address_space(process.pid, intent.memory_bytes)
    return Program(process, group)


def _why(command: str, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"command not found: {command}"
    if isinstance(error, PermissionError):
        return f"command not executable: {command}"
    return f"command could not be started: {command}: {error}"


def _ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _memory_limited(group: Path | None) -> bool:
    return group is not None and (group / cgroup.PROGRAM / "memory.max").exists()


def _limit_address_space(pid: int, size: int) -> None:
    # From outside, right after the start: code between fork and exec is not safe with threads.
    with suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_AS, (size, size))
