"""Finished Attempts leave the API for the archive: deleted, too old, or too many (SC-806).

Those of a Deleted workload go as soon as their deletion is proven, in the pass that proves it. For
the others all that is finished is looked through, once a minute.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from nodus_api.scheduler.context import PASSED_THROUGH, LoopContext

log = logging.getLogger(__name__)

_STEP = "retire"

Find = Callable[[int], Awaitable[list[int]]]


async def retire_finished(loop: LoopContext) -> bool:
    """Retire what may go; return whether some of it is left for the next pass."""
    left = False
    if loop.clock.monotonic() >= loop.retention_due:
        left = await _look_through(loop)
    if loop.deleted:
        left |= await _retire(loop, partial(loop.retirement.deleted, loop.deleted))
        there = await loop.retirement.still_there(loop.deleted)
        if loop.deleted - there:
            loop.kept_due = loop.clock.monotonic()  # their checkpoints go next
        loop.deleted = there
    return left


async def _look_through(loop: LoopContext) -> bool:
    """Retire by age and by number, and find what an earlier reign has left behind."""
    store, retention = loop.retirement, loop.retention
    await loop.item("make partitions", 0, partial(store.make_partitions, loop.reign.token))
    await loop.item("tidy machines", 0, partial(store.tidy, loop.reign.token))
    await loop.item("drop partitions", 0, partial(_drop_partitions, loop))
    loop.deleted |= set(await store.deleted_workloads())
    left = await _retire(loop, partial(store.expired, retention.finished))
    left |= await _retire(loop, partial(store.excess, retention.count))
    if not left:
        loop.retention_due = loop.clock.monotonic() + loop.pace.retention.total_seconds()
    return left


async def _drop_partitions(loop: LoopContext) -> None:
    """Drop the months of the archive that are kept long enough."""
    for name in await loop.retirement.expired_partitions(loop.retention.archive):
        await loop.retirement.drop_partition(loop.reign.token, name)
        log.info("a month of the archive is dropped", extra={"partition": name})


async def _retire(loop: LoopContext, find: Find) -> bool:
    """Retire what `find` finds, up to 100 a transaction; return whether there may be more."""
    now, most = loop.clock.monotonic(), loop.pace.placed_at_once
    # those that failed and rest must not keep the others out (P-28)
    found = await find(most + loop.setbacks.resting(_STEP, now))
    ready = [no for no in found if loop.setbacks.over((_STEP, no), now)][:most]
    gone = 0
    for start in range(0, len(ready), loop.pace.batch):
        gone += await _retire_batch(loop, ready[start : start + loop.pace.batch])
    return gone > 0 and len(ready) == most


async def _retire_batch(loop: LoopContext, nos: Sequence[int]) -> int:
    """Retire a batch, or one by one if it fails (SC-606); return how many went."""
    try:
        gone = await loop.retirement.retire(loop.reign.token, nos)
    except PASSED_THROUGH:
        raise
    except Exception:
        log.warning("a batch was not retired and is repeated one by one", exc_info=len(nos) > 1)
        gone = 0
        for no in nos:
            one = partial(loop.retirement.retire, loop.reign.token, [no])
            gone += await loop.item(_STEP, no, one) or 0
    if gone:
        loop.metrics.retired.inc(gone)
        log.info("attempts retired", extra={"attempts": gone})
    return gone
