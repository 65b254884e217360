"""The soak's writer, a process of its own: changes at a steady rate.

A program: `python -m nodus_api.bench.soak.load` reads a `Load` as JSON from standard input and
writes what it did as JSON to standard output when SIGTERM ends it. It goes on through restarts of
Postgres.
"""

import asyncio
import itertools
import json
import signal
import sys
from dataclasses import asdict, dataclass

import uvloop

from nodus_api.bench.writer import Writer
from nodus_api.clock import SystemClock
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import StorageError

OWNER = "soak"
_AT_ONCE = 25
_AGAIN_SECONDS = 0.2
_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is to be written: changes a second, of Attempts in so many projects."""

    url: str
    rate: float
    attempts: int
    projects: int


@dataclass(slots=True)
class Wrote:
    """What was done."""

    changes: int = 0
    failures: int = 0


async def write(load: Load, stop: asyncio.Event) -> Wrote:
    """Write until `stop`; 25 changes a commit, each with its wake-up."""
    database = Database(load.url, role=Role.SCHEDULER, pool_size=2)
    done = Wrote()
    writer = Writer(database, OWNER, project=OWNER)
    now = _CLOCK.now().replace(microsecond=0)
    numbers = itertools.cycle(await writer.fill(load.attempts, now=now, projects=load.projects))
    began = _CLOCK.monotonic()
    try:
        while not stop.is_set():
            try:
                await writer.change(list(itertools.islice(numbers, _AT_ONCE)))
                done.changes += _AT_ONCE
                await writer.wake()
            except StorageError:
                done.failures += 1
                await _CLOCK.sleep(_AGAIN_SECONDS)
                began += _AGAIN_SECONDS  # what was missed is not made up for
            await _CLOCK.sleep(max(began + done.changes / load.rate - _CLOCK.monotonic(), 0))
    finally:
        await database.close()
    return done


async def _main(load: Load) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    json.dump(asdict(await write(load, stop)), sys.stdout)


if __name__ == "__main__":
    given = Load(**json.load(sys.stdin))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(given))
