"""A database without a leader: told, and where that is asked for, not believed (F12)."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import orjson
import pytest
from tests.apiserver.conftest import START, A, N, Replica, fill, replica_of, running

from nodus_api.clock import ManualClock
from nodus_api.storage.errors import StorageUnavailable
from nodus_api.watchcache.heartbeat import Heartbeat

SAYS = "the scheduler's heartbeat in this database is old"


class Leader:
    """Writes its heartbeat each second while it lives, by the clock of its database."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.last: float | None = None  # when it died
        self.away = False

    async def age(self) -> timedelta:
        if self.away:
            raise StorageUnavailable("the model", "away")
        died = self._clock.monotonic() if self.last is None else self.last
        return timedelta(seconds=self._clock.monotonic() - died)


@asynccontextmanager
async def a_replica(*, required: bool) -> AsyncIterator[tuple[Replica, Leader]]:
    clock = ManualClock(START)
    leader = Leader(clock)
    made = replica_of(clock=clock, heartbeat=Heartbeat(leader.age, clock, required=required))
    fill(made)
    async with running(made):
        yield made, leader


async def metrics(replica: Replica) -> dict[str, float]:
    text = (await replica.admin.get("/metrics")).body.decode()
    lines = (line.split() for line in text.splitlines() if line.startswith("nodus_leader"))
    return {name: float(value) for name, value in lines}


CONSISTENT = (N, A, f"{N}?limit=2", f"{N}/train-0-e1")


async def test_a_silent_leader_is_told_once_and_takes_nothing_away(
    caplog: pytest.LogCaptureFixture,
) -> None:  # AS-105
    caplog.set_level(logging.INFO, "nodus_api.watchcache.heartbeat")
    async with a_replica(required=False) as (replica, leader):
        await replica.advance(60)
        assert await metrics(replica) == {
            "nodus_leader_heartbeat_age_seconds": pytest.approx(0, abs=5),
            "nodus_leader_silent": 0,
        }
        leader.last = replica.clock.monotonic()
        await replica.advance(61)
        for target in CONSISTENT:
            assert (await replica.admin.get(target)).status == 200
        assert b"heartbeat" not in (await replica.admin.get("/readyz?verbose")).body
        found = await metrics(replica)
        assert found["nodus_leader_heartbeat_age_seconds"] == pytest.approx(61, abs=1)
        assert found["nodus_leader_silent"] == 1
        assert [r.levelname for r in caplog.records if SAYS in r.message] == ["WARNING"]

        leader.last = None
        await replica.advance(1)
        assert (await metrics(replica))["nodus_leader_silent"] == 0
    assert [r.message for r in caplog.records][-1] == ("the scheduler's heartbeat is fresh again")


async def test_consistent_reads_are_refused_where_a_leader_is_required() -> None:
    async with a_replica(required=True) as (replica, leader):
        await replica.advance(60)
        assert (await replica.admin.get(N)).status == 200
        leader.last = replica.clock.monotonic()
        await replica.advance(14)
        assert (await replica.admin.get(N)).status == 200
        await replica.advance(2)

        for target in CONSISTENT:
            answer = await replica.admin.get(target)
            status = orjson.loads(answer.body)
            assert (answer.status, status["reason"]) == (503, "ServiceUnavailable")
            assert answer.headers["retry-after"] == "1"
            assert "no scheduler has given a sign of life" in status["message"]
        # what does not claim to be the newest goes on, and the replica stays where it is
        for target in (f"{N}?resourceVersion=0", f"{N}?resourceVersion={replica.rev}"):
            assert (await replica.admin.get(target)).status == 200
        watch = f"{N}?watch=1&resourceVersion={replica.rev}"
        async with replica.admin.open("GET", watch) as stream:
            replica.change("example", "train-0-e1", "Failed")
            assert (await stream.event())["type"] == "MODIFIED"

        leader.last = None
        await replica.advance(1)
        assert (await replica.admin.get(N)).status == 200


async def test_its_age_grows_by_our_own_clock_while_the_database_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_replica(required=True) as (replica, leader):
        await replica.advance(1)
        leader.away = True
        await replica.advance(30)
        assert (await metrics(replica))["nodus_leader_heartbeat_age_seconds"] > 15
        assert (await replica.admin.get(N)).status == 503
        assert SAYS not in caplog.text  # nothing was heard: another line says so
        leader.away = False
        await replica.advance(1)
        assert (await replica.admin.get(N)).status == 200


async def test_nobody_is_believed_before_the_leader_was_heard_of() -> None:
    clock = ManualClock(START)
    leader = Leader(clock)
    leader.away = True
    for required, status in ((True, 503), (False, 200)):
        made = replica_of(clock=clock, heartbeat=Heartbeat(leader.age, clock, required=required))
        fill(made)
        async with running(made):
            assert (await made.admin.get(N)).status == status
            assert await metrics(made) == {}
