"""A process that uses the local supplier and is killed before the k-th thing it does to the host.

`python -m tests.suppliers.dying_supplier ROOT SOCKET` reads lines `VERB KEY K MARKER` and forks a
process for each, which kills itself by SIGKILL before the K-th effect; 0 for none. It answers each
with the number of effects that were begun, or `killed`. Effects are counted where Python itself
reports them (audit events), so nothing of the product is replaced.
"""

import asyncio
import os
import signal
import sys
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.suppliers.conformance import INSTALLATION, an_intent

from nodus_api.clock import SystemClock
from nodus_api.suppliers.local import LocalSupplier
from nodus_api.suppliers.supplier import MachineIntent, Order

_EFFECTS = frozenset(
    {
        "fcntl.flock",
        "os.chmod",
        "os.kill",
        "os.killpg",
        "os.mkdir",
        "os.posix_spawn",
        "os.remove",
        "os.rename",
        "os.rmdir",
    }
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Killer:
    """Counts effects, and ends the process before one of them."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.begun = 0
        self.armed = True

    def __call__(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.armed or not _is_effect(event, given):
            return
        self.begun += 1
        if self.begun == self._number:
            signal.raise_signal(signal.SIGKILL)


def _is_effect(event: str, given: tuple[Any, ...]) -> bool:
    if event != "open":
        return event in _EFFECTS
    path, _, flags = given
    return bool(flags & _WRITES) and not str(path).startswith("/dev/")


def program_of(marker: str) -> tuple[str, ...]:
    """Return a program that counts its starts in a file, and runs on."""
    return ("/bin/sh", "-c", f"echo started >> {marker}; exec sleep 600")


def next_tenant(key: str, marker: str) -> MachineIntent:
    """Return what a wiped machine runs next."""
    intent = an_intent(key, *program_of(f"{marker}-2"))
    return replace(intent, fence=2, token=f"second-token-of-{key}")


async def act(root: Path, socket: Path, verb: str, key: str, marker: str) -> None:
    """Do one thing with a new supplier, as a scheduler process that has just begun."""
    supplier = LocalSupplier(
        root,
        installation=INSTALLATION,
        runner_socket=socket,
        slots=2,
        rate=Decimal("0.06"),
        clock=SystemClock(),
        delete_grace=timedelta(seconds=1),
    )
    match verb:
        case "create":
            await supplier.create(an_intent(key, *program_of(marker)))
        case "find":
            await supplier.find(key)
        case "signal":
            await supplier.signal(key, Order(kind="stop", grace=timedelta(seconds=1)))
        case "delete":
            await supplier.delete(key)
        case "wipe":
            await supplier.wipe(key)
        case "assign":
            intent = next_tenant(key, marker)
            await supplier.assign(key, intent, intent.token)
        case _:
            raise ValueError(verb)


def _in_a_fork(root: Path, socket: Path, line: str) -> str:
    verb, key, number, marker = line.split()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        killer = Killer(int(number))
        sys.addaudithook(killer)
        asyncio.run(act(root, socket, verb, key, marker))
        killer.armed = False
        os.write(writing, str(killer.begun).encode())
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with open(reading, encoding="ascii") as answer:
        said = answer.read()
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return "killed"
    return said or f"failed {status}"


def main() -> None:
    root, socket = map(Path, sys.argv[1:])
    for line in sys.stdin:
        sys.stdout.write(f"{_in_a_fork(root, socket, line)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
