"""Documents fetched from the log: each once for a herd, and kept by their true size."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest
from tests.watchcache.feed_log import FeedLog

from nodus_api.watchcache import documents
from nodus_api.watchcache.documents import Documents
from nodus_api.watchcache.entry import finished


class CountedLog(FeedLog):
    """A log that counts the documents that it gives, some time after it was asked."""

    given = 0

    async def documents(self, revs: Sequence[int]) -> dict[int, bytes]:
        await asyncio.sleep(0)
        found = await super().documents(revs)
        self.given += len(found)
        return found


@pytest.fixture
def log() -> CountedLog:
    made = CountedLog()
    for number in range(20):
        made.commit(("A", UUID(int=number + 1), "p", f"n{number}", {}, {}))
    return made


async def herd(kept: Documents, revs: Sequence[int], size: int) -> list[dict[int, bytes]]:
    return await asyncio.gather(*(kept.at(revs) for _ in range(size)))


async def test_a_herd_fetches_no_more_than_its_slots(log: CountedLog) -> None:
    revs = [row.rev for row in log.rows if row.doc is not None]
    whole = {row.rev: finished(row.doc, row.rev) for row in log.rows if row.doc is not None}

    got = await herd(Documents(log), [*revs, 10_000], 50)

    assert all(one == whole for one in got)
    assert log.given <= 4 * len(revs)


async def test_what_was_fetched_twice_at_once_counts_once(
    log: CountedLog, monkeypatch: pytest.MonkeyPatch
) -> None:  # storage.md section 6
    revs = [row.rev for row in log.rows if row.doc is not None]
    size = sum(len(row.doc) + 2 for row in log.rows if row.doc is not None)
    monkeypatch.setattr(documents, "_KEPT_BYTES", size + 100)
    kept = Documents(log)

    await herd(kept, revs, 4)
    before = log.given
    again = await kept.at(revs)

    assert list(again) == revs
    assert log.given == before  # all of them fit, so all of them are kept


async def test_the_oldest_go_first(log: CountedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    revs = [row.rev for row in log.rows if row.doc is not None]
    monkeypatch.setattr(documents, "_KEPT_BYTES", 1_000)
    monkeypatch.setattr(documents, "_AT_ONCE", 7)
    kept = Documents(log)

    got = await kept.at(revs)

    assert list(got) == revs
    assert 0 < kept._kept_bytes == sum(map(len, kept._kept.values())) <= 1_000
    assert revs[-1] in kept._kept
    assert revs[0] not in kept._kept
