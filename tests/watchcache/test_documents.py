"""Documents of stubs: fetched once, some at a time, and the last used are kept."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest
from tests.watchcache.conftest import until
from tests.watchcache.feed_log import FeedLog

from nodus_api.storage.errors import StorageUnavailable
from nodus_api.tasks import end, spawn
from nodus_api.watchcache import documents
from nodus_api.watchcache.documents import Documents


class Asked(FeedLog):
    """A log that notes what is asked of it, and answers when it is let."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.asked: list[Sequence[int]] = []
        self.running = 0
        self.most = 0
        self.answering = asyncio.Event()
        self.revs = self.commit(*(("A", UUID(int=n), "p", f"n{n}", {}, {}) for n in range(count)))

    async def documents(self, revs: Sequence[int]) -> dict[int, bytes]:
        self.asked.append(revs)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.answering.wait()
            return await super().documents(revs)
        finally:
            self.running -= 1


async def test_what_is_on_its_way_is_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # storage.md section 6, Watch window
    monkeypatch.setattr(documents, "_AT_ONCE", 3)
    log = Asked(20)
    kept = Documents(log)
    first = spawn("first", kept.at(log.revs))
    await until(lambda: log.running == 4)
    second = spawn("second", kept.at(log.revs[5:]))
    await asyncio.sleep(0)
    await end(first)  # a client that leaves takes nothing from the others
    log.answering.set()

    found = await second
    assert sorted(found) == log.revs[5:]
    assert (await kept.at(log.revs)).keys() == set(log.revs)
    assert log.most == 4
    assert [len(revs) for revs in log.asked] == [3, 3, 3, 3, 3, 3, 2]
    assert kept._coming == {}


async def test_a_failure_is_told_to_all_who_wait_and_then_forgotten() -> None:
    log = Asked(2)
    kept = Documents(log)
    waiting = [spawn("asked", kept.at(log.revs)) for _ in range(2)]
    await until(lambda: log.running == 1)
    log.away = True
    log.answering.set()
    for one in waiting:
        with pytest.raises(StorageUnavailable):
            await one
    log.away = False

    assert sorted(await kept.at(log.revs)) == log.revs


async def test_the_last_used_are_kept_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Asked(6)
    log.answering.set()
    size = len(next(iter((await Documents(log).at(log.revs[:1])).values())))
    log.asked.clear()
    monkeypatch.setattr(documents, "_KEPT_BYTES", size * 4 + 3)
    kept = Documents(log)
    await kept.at(log.revs[:4])
    await kept.at(log.revs[:1])
    await kept.at(log.revs[4:5])  # the second goes: the first was used since
    log.asked.clear()

    await kept.at([log.revs[0], *log.revs[2:5]])
    assert log.asked == []
    await kept.at(log.revs[1:2])
    assert log.asked == [log.revs[1:2]]
    assert kept._kept_bytes <= size * 4 + 3


async def test_fetches_end_with_the_cache() -> None:
    log = Asked(2)
    kept = Documents(log)
    asked = spawn("asked", kept.at(log.revs))
    await until(lambda: log.running == 1)
    await kept.close()

    with pytest.raises(asyncio.CancelledError):
        await asked
    assert log.running == 0
