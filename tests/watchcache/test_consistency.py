"""Which state a request asks for: the tables of LW-101, LW-105 and LW-120."""

import pytest
from tests.watchcache.feed_log import Epoch

from nodus_api.watchcache.consistency import (
    CACHED,
    LATEST,
    Mode,
    ReadAt,
    WatchFrom,
    at_least,
    of_list,
    of_watch,
)
from nodus_api.watchcache.epochs import Epochs, Standing

NOT_OLDER = ReadAt(Mode.NOT_OLDER_THAN, 7)
EXACT = ReadAt(Mode.EXACT, 7)


@pytest.mark.parametrize(
    ("match", "rev", "unlimited", "limited"),
    [
        ("", None, LATEST, LATEST),
        ("", 0, CACHED, CACHED),
        ("", 7, NOT_OLDER, EXACT),
        ("NotOlderThan", 0, CACHED, CACHED),
        ("NotOlderThan", 7, NOT_OLDER, NOT_OLDER),
        ("Exact", 7, EXACT, EXACT),
    ],
)
def test_the_table_of_lists(
    match: str, rev: int | None, unlimited: ReadAt, limited: ReadAt
) -> None:  # LW-101
    assert of_list(rev, match, 0) == unlimited
    assert of_list(rev, match, 5) == limited


def test_the_table_of_gets() -> None:  # LW-105
    assert [at_least(rev) for rev in (None, 0, 7)] == [LATEST, CACHED, NOT_OLDER]


@pytest.mark.parametrize(
    ("rev", "initial", "expected"),
    [
        (None, True, WatchFrom(LATEST, initial=True)),
        (None, False, WatchFrom(LATEST, initial=False)),
        (0, True, WatchFrom(CACHED, initial=True)),
        (0, False, WatchFrom(CACHED, initial=False)),
        (7, None, WatchFrom(EXACT, initial=False)),
        (7, True, WatchFrom(NOT_OLDER, initial=True)),
        (7, False, WatchFrom(EXACT, initial=False)),
    ],
)
def test_the_table_of_watches(
    rev: int | None, initial: bool | None, expected: WatchFrom
) -> None:  # LW-120
    assert of_watch(rev, initial) == expected


def test_revisions_across_epochs() -> None:  # storage.md section 8
    one, two = 1 << 44, 2 << 44
    epochs = Epochs(
        [
            Epoch(epoch=0, first_rev=1, prev_last=0),
            Epoch(epoch=1, first_rev=one, prev_last=101),
            Epoch(epoch=2, first_rev=two, prev_last=one),
        ]
    )

    standings = {rev: epochs.standing(rev) for rev in (100, 101, 102, one, one + 1, two + 9)}
    assert standings == {
        100: Standing.VALID,
        101: Standing.VALID,
        102: Standing.LOST,
        one: Standing.VALID,
        one + 1: Standing.LOST,
        two + 9: Standing.VALID,
    }
    assert epochs.standing(3 << 44) is Standing.LATER
    assert [epochs.moved_up(rev) for rev in (100, 101, one, two)] == [100, two, two, two]
    assert (epochs.prev_last(two), epochs.prev_last(two + 1)) == (one, None)
