"""How much memory the watch cache takes, beside the documents alone.

In a process of its own, since what a process has taken it hardly gives back. The yardstick is the
payload: the bytes of the documents that it serves (storage.md section 6: at most 1.6 times that
with all indexes, and at most 400 MB a process, while the history is empty).
"""

import asyncio
import gc
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import UUID

from nodus_api.bench.attempt_documents import AttemptMaker, MadeAttempt
from nodus_api.bench.report import NotMeasured
from nodus_api.clock import SystemClock
from nodus_api.watchcache.contents import Contents
from nodus_api.watchcache.entry import finished
from nodus_api.watchcache.history import Window

_PIECE = 1000
_FIRST_REV = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheMemory:
    """What one process held; sizes in bytes, the time in seconds."""

    attempts: int
    projects: int
    payload: int
    """Documents with their resourceVersion."""

    cache: int
    """By how much the process grew while it loaded them."""

    process: int
    """All that it held resident, the libraries of a server not among them."""

    load_seconds: float
    """Time of ordering and indexing them, without reading them from the database."""

    @property
    def ratio(self) -> float:
        """The cache as a multiple of the payload."""
        return self.cache / self.payload


async def cache_memory(attempts: int, *, projects: int) -> CacheMemory:
    """Measure the load of so many Attempts in a process of its own. Raises NotMeasured."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nodus_api.bench.cache_memory", str(attempts), str(projects)),
        stdout=subprocess.PIPE,
    )
    out, _ = await process.communicate()
    if process.returncode != 0:
        raise NotMeasured("The process that measures the memory of the watch cache failed.")
    return CacheMemory(**json.loads(out))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    uid: UUID
    project: str
    name: str
    rev: int
    sel: str
    doc: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    head: int
    oldest: int = 1
    epochs: tuple[()] = ()


def _measured(attempts: int, projects: int) -> CacheMemory:
    maker = AttemptMaker(projects=projects)
    clock = SystemClock()
    payload, seconds = 0, 0.0
    contents = Contents(Window())
    gc.collect()
    before = _resident()
    for start in range(0, attempts, _PIECE):
        # made and let go piece by piece, as rows of a database are
        piece = [
            _stored(maker.make(number), _FIRST_REV + number)
            for number in range(start, min(start + _PIECE, attempts))
        ]
        payload += sum(len(finished(one.doc, one.rev)) for one in piece)
        began = clock.monotonic()
        contents.add(piece)
        seconds += clock.monotonic() - began
    began = clock.monotonic()
    contents.ordered(_State(head=_FIRST_REV + attempts))
    contents.loaded(clock.monotonic())
    seconds += clock.monotonic() - began
    gc.collect()
    process = _resident()
    return CacheMemory(
        attempts=len(contents),
        projects=projects,
        payload=payload,
        cache=process - before,
        process=process,
        load_seconds=seconds,
    )


def _stored(made: MadeAttempt, rev: int) -> _Stored:
    return _Stored(
        uid=made.uid, project=made.project, name=made.name, rev=rev, sel=made.sel, doc=made.doc
    )


def _resident() -> int:
    """Return the bytes that this process holds in memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise NotMeasured("The memory of a process is read from /proc, which is not here.")


if __name__ == "__main__":
    found = _measured(int(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.write(json.dumps(asdict(found)))
