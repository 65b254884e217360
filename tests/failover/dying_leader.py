"""A writer that gets no further than its commit: `python -m tests.failover.dying_leader URL`.

Commits a change, says its revision, and stands where it would have notified until it is killed.
"""

import asyncio
import sys

from tests.failover.conftest import opened
from tests.watchcache import published

from nodus_api.storage.engine import Role


async def main(url: str) -> None:
    committed = asyncio.Event()

    async def stand(*_: object) -> None:
        committed.set()
        await asyncio.Event().wait()

    published.notify = stand  # type: ignore[attr-defined, assignment]
    async with opened(url, Role.SCHEDULER) as database:
        publishing = asyncio.ensure_future(published.Publisher(database).change(1, "n1", "Running"))
        await committed.wait()
        sys.stdout.write("committed\n")
        sys.stdout.flush()
        await publishing


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
