"""Stored checkpoints of deleted workloads are removed, and nothing else is (SC-126, SC-806).

What lies at the supplier says what is left to do, so a crash leaves nothing behind, not even bytes
that never became a checkpoint. Only a Deleted workload without Attempts is forgotten: both are
final, so that neither a live program nor a later epoch can want its checkpoints, and a deposed
leader that still asks for the removal does no harm.
"""

import logging
from functools import partial
from uuid import UUID

from nodus_api.scheduler.context import LoopContext

log = logging.getLogger(__name__)


async def forget_checkpoints(loop: LoopContext) -> None:
    """Take up what came back, and ask the supplier what it keeps when that is due."""
    for name, answer in loop.calls.drops.returned().items():
        if isinstance(answer, Exception):
            loop.failed_call("drop", answer)
            log.warning(
                "checkpoints could not be removed and are tried again",
                extra={"workload": name, "cause": str(answer)},
            )
        else:
            workload = UUID(name)
            mark = partial(loop.retirement.mark_dropped, loop.reign.token, workload)
            await loop.item("forget", workload, mark)
            log.info("checkpoints removed", extra={"workload": name})
    for kept in loop.calls.kept.returned().values():
        if isinstance(kept, Exception):
            loop.failed_call("kept", kept)
            continue
        for workload in await loop.retirement.forgotten(kept):
            drop = partial(loop.supplier.drop_checkpoints, workload)
            loop.calls.drops.send(str(workload), drop)
    now = loop.clock.monotonic()
    if now >= loop.kept_due and loop.calls.kept.send("all", loop.supplier.kept_checkpoints):
        loop.kept_due = now + loop.pace.sweep.total_seconds()
