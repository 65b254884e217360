"""The program itself: started in its own group, signalled, and its end told exactly (SC-009)."""

import os
import resource
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from nodus_api.runner import cgroup
from nodus_api.runner.failures import plainly
from nodus_api.runner.files import STDERR, STDOUT, WORK
from nodus_api.runner.intent import RunnerIntent
from nodus_api.runner.session import kill_members
from nodus_api.runner.times import elapsed

CGROUP_V2 = "cgroup v2"
CGROUP_V1 = "cgroup v1"
ADDRESS_SPACE = "address space"
NO_LIMIT = "none"


class StartFailed(Exception):
    """The program could not be started, and a second try would fail the same way."""


class Program:
    """A started program; only the thread that made it may call its methods.

    `memory_limit` says what holds its memory limit: cgroup v2, cgroup v1, address space or none.
    `message` is what its owner should know of its end beside exit code and signal.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        cgroup_path: Path | None,
        memory_group: Path | None = None,
        memory_limit: str = NO_LIMIT,
    ) -> None:
        self.started_at = elapsed()
        self.memory_limit = memory_limit
        self.message = ""
        self._process = process
        self._cgroup = cgroup_path
        self._memory_group = memory_group

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
        signal (SC-009). Memory ran out if the limit killed the program itself. A child that it
        killed is the program's own affair: how the program then ends is its word, and `message`
        tells of the child. (Kubernetes says OOMKilled of a killed child too, whatever the exit
        code; where cgroup v2 groups the kills, the program dies with it.) Waits until the
        program has ended.
        """
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        if os.getsid(0) == os.getpid():
            kill_members(os.getpid(), spare=os.getpid())
        if self._cgroup is not None:
            cgroup.kill_program(self._cgroup)
        kills = cgroup.killed_for_memory(self._cgroup, self._memory_group)
        oom = status == -signal.SIGKILL and kills > 0
        if kills and not oom:
            self.message = f"the memory limit killed {kills} of the program's processes"
        return (status, None, False) if status >= 0 else (128 - status, -status, oom)


def start(intent: RunnerIntent, directory: Path, environment: Mapping[str, str]) -> Program:
    """Start the program; raises StartFailed with a sentence for its owner."""
    if not intent.command:
        raise StartFailed("the command is empty: name a program")
    home = directory / WORK / (intent.working_directory or "")
    (directory / WORK).mkdir(exist_ok=True)
    if not home.is_dir():
        raise StartFailed(f"working directory not found: {intent.working_directory or '.'}")
    group = Path(intent.cgroup) if intent.cgroup else None
    limit = memory_limit(intent)
    memory = Path(intent.memory_group) if intent.memory_group and limit == CGROUP_V1 else None
    try:
        with (
            open(directory / STDOUT, "ab") as out,
            open(directory / STDERR, "ab") as err,
            cgroup.program_leaf(group),
        ):
            process = _spawn(intent.command, environment, home, (out, err), memory)
    except (OSError, ValueError) as error:
        raise StartFailed(_why(intent.command[0], error)) from error
    if intent.memory_bytes is not None and limit == ADDRESS_SPACE:
        _limit_address_space(process.pid, intent.memory_bytes)
    return Program(process, group, memory, limit)


def memory_limit(intent: RunnerIntent) -> str:
    """Return what will hold the program's memory limit (SC-713).

    The address space stands in where no memory controller can be had: then allocations fail, and
    nothing is killed.
    """
    if intent.memory_bytes is None:
        return NO_LIMIT
    if intent.cgroup and (Path(intent.cgroup) / cgroup.PROGRAM / "memory.max").exists():
        return CGROUP_V2
    if intent.memory_group and (Path(intent.memory_group) / "memory.limit_in_bytes").exists():
        return CGROUP_V1
    return ADDRESS_SPACE


def _spawn(
    command: tuple[str, ...],
    environment: Mapping[str, str],
    home: Path,
    outputs: tuple[BinaryIO, BinaryIO],
    memory_group: Path | None,
) -> "subprocess.Popen[bytes]":
    """Start a process, a member of the memory group from its first instruction; raises OSError.

    A thread of its own goes into the group for that and ends there.
    """
    started: list[subprocess.Popen[bytes] | BaseException] = []

    def work() -> None:
        try:
            if memory_group is not None:
                cgroup.enter_memory_group(memory_group)
            started.append(
                subprocess.Popen(  # noqa: S603 - running the owner's command is the purpose
                    command,
                    env=dict(environment),
                    cwd=home,
                    stdin=subprocess.DEVNULL,
                    stdout=outputs[0],
                    stderr=outputs[1],
                    process_group=0,
                )
            )
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            started.append(error)

    if memory_group is None:
        work()
    else:
        starter = threading.Thread(target=work, name="start")
        starter.start()
        starter.join()
    (outcome,) = started
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _why(command: str, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"command not found: {command}"
    if isinstance(error, PermissionError):
        return f"command not executable: {command}"
    return f"command could not be started: {command}: {plainly(error)}"


def _ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _limit_address_space(pid: int, size: int) -> None:
    # From outside, right after the start: code between fork and exec is not safe with threads.
    with suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_AS, (size, size))
