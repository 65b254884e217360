"""One replica in process over the model of the log: 12 Attempts in `example`, 3 in `other`."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import orjson
import pytest
from tests.apiserver.access_tables import AccessTables
from tests.asgi_client import AsgiClient
from tests.watchcache.conftest import until
from tests.watchcache.feed_log import FeedLog

from nodus_api.apiserver import ApiServer, ServerOptions, create_app
from nodus_api.apiserver.health import Check
from nodus_api.clock import Clock, ManualClock, SystemClock
from nodus_api.tls import ensure_certificates
from nodus_api.tokens import make_token
from nodus_api.watchcache import AttemptCache, Window
from nodus_api.watchcache.heartbeat import Heartbeat

ADMIN = make_token(b"admin...", b"a" * 32)
ALICE = make_token(b"alice...", b"b" * 32)
START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Ids:
    """Request ids in order."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self) -> UUID:
        self._next += 1
        return UUID(int=self._next)


@dataclass
class Replica:
    """An application that runs, and what a test reaches in it."""

    app: ApiServer
    cache: AttemptCache
    log: FeedLog
    tables: AccessTables
    clock: Clock
    admin: AsgiClient
    alice: AsgiClient
    stranger: AsgiClient
    uids: dict[str, UUID] = field(default_factory=dict)

    @property
    def rev(self) -> int:
        return self.log.rows[-1].rev

    def add(self, project: str, name: str, phase: str = "Queued", **fields: str) -> int:
        uid = UUID(int=(len(self.uids) + 1) * 0x1000_0000_0000_0000_0000_0001)
        self.uids[f"{project}/{name}"] = uid
        labels = {"nodus.dev/job": name.split("-")[0]}
        values = {"status.phase": phase, "spec.slot": "0"} | fields
        return self.log.commit(("A", uid, project, name, labels, values))[0]

    def change(self, project: str, name: str, phase: str, **fields: str) -> int:
        uid = self.uids[f"{project}/{name}"]
        labels = {"nodus.dev/job": name.split("-")[0]}
        values = {"status.phase": phase, "spec.slot": "0"} | fields
        return self.log.commit(("M", uid, project, name, labels, values))[0]

    def delete(self, project: str, name: str) -> int:
        return self.log.commit(("D", self.uids[f"{project}/{name}"], project, name, {}, {}))[0]

    async def compact(self) -> None:
        """Let all history so far be lost, in memory and in the log."""
        await self.admin.get(N)
        assert self.cache._contents is not None
        self.cache._contents.history._drop_through(self.rev)
        self.cache._pins.clear()
        self.log.lost_below = self.rev

    async def advance(self, seconds: float) -> None:
        """Move the clock in quarters of a second, and let the streams follow."""
        assert isinstance(self.clock, ManualClock)
        left = seconds
        while left > 0:
            await self.clock.advance(min(left, 0.25))
            left -= 0.25
            for _ in range(5):
                await asyncio.sleep(0)

    async def caught_up(self) -> None:
        await until(lambda: self.cache.position >= self.rev)


def fill(replica: Replica) -> None:
    replica.add("example", "train-0-e1", "Running")
    replica.add("example", "train-1-e1", "Queued", **{"spec.slot": "1"})
    replica.add(
        "example", "train-2-e1", "Failed", **{"spec.slot": "2", "status.reason": "ProgramFailed"}
    )
    for number in range(9):
        replica.add("example", f"fit-{number}-e1", "Succeeded")
    for number in range(3):
        replica.add("other", f"scan-{number}-e1", "Running")


def replica_of(
    *,
    options: ServerOptions | None = None,
    hot_path: bool = True,
    window: Window | None = None,
    checks: Mapping[str, Check] | None = None,
    live_checks: Mapping[str, Check] | None = None,
    clock: Clock | None = None,
    log: FeedLog | None = None,
    heartbeat: Heartbeat | None = None,
) -> Replica:
    """A replica; of several on one `log` each has all that the log says."""
    log, tables = log or FeedLog(), AccessTables()
    clock = clock or ManualClock(START)
    tables.token(ADMIN, "admin", ("nodus:admins",))
    tables.token(ALICE, "alice", ())
    for name in ("example", "other"):
        tables.project(name, START - timedelta(days=1))
    tables.member("example", "user", "alice")
    consistent = heartbeat.check if heartbeat is not None else lambda: None
    cache = AttemptCache(log, clock=clock, chance=lambda: 0.5, window=window, consistent=consistent)
    app = create_app(
        cache=cache,
        heartbeat=heartbeat,
        access=tables,
        clock=clock,
        new_id=Ids(),
        chance=lambda: 0.5,
        version="0.1.0",
        options=options or ServerOptions(public_url="https://nodus.test"),
        hot_path=hot_path,
        checks=checks,
        live_checks=live_checks,
    )
    return Replica(
        app=app,
        cache=cache,
        log=log,
        tables=tables,
        clock=clock,
        admin=AsgiClient(app, token=ADMIN.text),
        alice=AsgiClient(app, token=ALICE.text),
        stranger=AsgiClient(app),
    )


@asynccontextmanager
async def running(replica: Replica) -> AsyncIterator[Replica]:
    replica.app.background.start()
    try:
        await until(lambda: replica.cache.ready or replica.log.away)
        await until(lambda: replica.app.access.view is not None)
        yield replica
    finally:
        await replica.app.background.stop()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    ensure_certificates(folder, names=["localhost", "127.0.0.1"], clock=SystemClock())
    return folder


@pytest.fixture
async def replica() -> AsyncIterator[Replica]:
    made = replica_of()
    fill(made)
    async with running(made):
        yield made


N = "/apis/nodus.dev/v1/namespaces/example/attempts"
A = "/apis/nodus.dev/v1/attempts"
T = "application/json;as=Table;v=v1;g=meta.k8s.io"


def names(body: bytes) -> list[str]:
    return [item["metadata"]["name"] for item in orjson.loads(body)["items"]]
