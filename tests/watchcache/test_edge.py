"""The log's edge may reach the marker of an epoch before a replica has read it."""

from dataclasses import replace
from uuid import UUID

import pytest
from tests.watchcache.feed_log import Epoch, FeedLog

from nodus_api.watchcache import AttemptCache, Window
from nodus_api.watchcache.consistency import LATEST, Mode, ReadAt, WatchFrom
from nodus_api.watchcache.contents import Contents, FeedFault
from nodus_api.watchcache.errors import StateTooOld


async def test_the_end_of_an_epoch_is_as_good_as_the_marker_of_the_next() -> None:
    """storage.md section 8: an idle log whose rows are all old, then a failover, then upkeep."""
    log = FeedLog()
    contents = Contents(Window())
    async with log.snapshot(Window().stubs) as snapshot:
        contents.ordered(snapshot.state)
        contents.loaded(0.0)
    marker = log.begin_epoch()
    state = replace(await log.state(), oldest=marker)

    contents.took_state(state)  # at the last row before the marker: nothing is missing
    contents.continues(log.rows[-1], contents.position)

    with pytest.raises(FeedFault, match="no longer reaches back"):
        contents.took_state(
            replace(
                state,
                epochs=(*state.epochs, Epoch(epoch=2, first_rev=2 << 44, prev_last=marker + 9)),
                oldest=2 << 44,
            )
        )


async def test_an_epoch_that_another_replica_has_told_of_already(
    log: FeedLog, cache: AttemptCache
) -> None:  # storage.md section 8; several replicas behave as one server
    log.commit(("A", UUID(int=1), "p", "n1", {}, {}))
    await cache.list(None, LATEST)
    for step in ("list", "watch"):
        log.begin_epoch()
        changed = log.commit(("M", UUID(int=1), "p", "n1", {}, {}))[0]
        assert cache.position < changed  # it has had no turn to read it
        at = ReadAt(Mode.EXACT, changed)
        if step == "list":
            page = await cache.list("p", at)
            assert [entry.rev for entry in page.entries] == [changed]
        else:
            watcher = await cache.watch("p", WatchFrom(at, initial=False))
            last = log.commit(("M", UUID(int=1), "p", "n1", {}, {}))[0]
            await cache.list(None, LATEST)
            assert [one.rev for one in await watcher.take()] == [last]
            watcher.close()

    never = ReadAt(Mode.EXACT, 9 << 44)
    with pytest.raises(StateTooOld):
        await cache.list("p", never)
    with pytest.raises(StateTooOld):
        await cache.watch("p", WatchFrom(never, initial=False))
