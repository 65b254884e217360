"""The log's edge may reach the marker of an epoch before a replica has read it."""

from dataclasses import replace

import pytest
from tests.watchcache.feed_log import Epoch, FeedLog

from nodus_api.watchcache import Window
from nodus_api.watchcache.contents import Contents, FeedFault


async def test_the_end_of_an_epoch_is_as_good_as_the_marker_of_the_next() -> None:
    """storage.md section 8: an idle log whose rows are all old, then a failover, then upkeep."""
    log = FeedLog()
    contents = Contents(Window())
    async with log.snapshot(Window().stubs) as snapshot:
        contents.loaded(snapshot.state, snapshot.recent, 0.0)
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
