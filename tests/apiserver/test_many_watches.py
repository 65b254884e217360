"""Long histories and many watchers, over TLS and in process, compared with the log itself."""

import asyncio
import itertools
import random
from collections.abc import Iterable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

import orjson
import pytest
from tests.apiserver.conftest import A, Replica, replica_of, running
from tests.apiserver.raw import Connection, connected, request
from tests.apiserver.serving import Served, served
from tests.asgi_client import Stream
from tests.watchcache.feed_log import FeedLog, Row

from nodus_api.apiserver import ServerOptions
from nodus_api.metav1 import fields, labels

CHANGES = 10_000
WATCHERS = 1_000
Told = tuple[str, int, str]
"""A type, a resourceVersion, and the phase that the object shows."""


class Scene:
    """Attempts that come, change and go, by one seed."""

    def __init__(self, log: FeedLog, seed: int, slots: int = 40) -> None:
        self._log = log
        self._chance = random.Random(seed)  # noqa: S311  a repeatable course of events
        self._alive: dict[int, UUID] = {}
        self._made = 0
        self._slots = slots

    def commit(self) -> int:
        """One commit of one to four changes; returns how many."""
        slots = self._chance.sample(range(self._slots), self._chance.randint(1, 4))
        self._log.commit(*(self._change(slot) for slot in slots))
        return len(slots)

    def _change(self, slot: int) -> tuple[str, UUID, str, str, dict[str, str], dict[str, str]]:
        chance = self._chance
        values = {"team": chance.choice("abc"), "size": str(chance.randint(0, 9))}
        phase = {"status.phase": chance.choice(("Queued", "Running", "Failed"))}
        kind = "A" if slot not in self._alive else "D" if chance.random() < 0.2 else "M"
        if kind == "A":
            self._made += 1
            self._alive[slot] = UUID(int=self._made)
        uid = self._alive.pop(slot) if kind == "D" else self._alive[slot]
        return kind, uid, f"p{slot % 4}", f"n{slot}-e{uid.int}", values, phase


def chosen(
    rows: Iterable[Row], since: int, project: str | None, label: str, field: str
) -> list[Told]:
    """What a watch must say, read off the log in the plainest way (LW-131 to LW-133)."""
    by_label, by_field = labels.parse(label), fields.parse(field)
    last: dict[UUID | None, Row] = {}
    told: list[Told] = []

    def matches(row: Row) -> bool:
        found = orjson.loads(row.sel or "{}")
        return by_label.matches(found["labels"]) and by_field.matches(found["fields"])

    for row in rows:
        if row.uid is None:
            continue
        before = last.pop(row.uid, None)
        if row.kind != "D":
            last[row.uid] = row
        if row.rev <= since or project not in (None, row.project):
            continue
        was = before is not None and matches(before)
        now = row.kind != "D" and matches(row)
        shown = row if now else before
        if shown is not None and (was or now):
            kind = "DELETED" if not now else "MODIFIED" if was else "ADDED"
            phase = orjson.loads(shown.sel or "")["fields"]["status.phase"]
            told.append((kind, row.rev, phase))
    return told


def told_by(line: bytes) -> Told:
    event = orjson.loads(line)
    found = event["object"]
    return event["type"], int(found["metadata"]["resourceVersion"]), found["status"]["phase"]


class Follower:
    """Follows to the end, cut off wherever chance will have it, and resumes from what it has."""

    def __init__(self, one: Served, seed: int, since: int) -> None:
        self._one = one
        self._chance = random.Random(seed)  # noqa: S311
        self.seen: list[Told] = []
        self.since = since
        self.starts = 0

    async def run(self, last: int) -> None:
        while self.since < last:
            self.starts += 1
            async with connected(self._one.port, self._one.context) as connection:
                await self._read(connection, last, self._chance.randint(0, 1500))

    async def _read(self, connection: Connection, last: int, most: int) -> None:
        target = f"{A}?watch=1&resourceVersion={self.since}"
        connection.writer.write(request("GET", target))
        assert (await connection.head()).status == 200
        rest = b""
        while self.since < last and most >= 0:
            async with asyncio.timeout(60):
                rest += await connection.chunk()
            # the line that a cut tears is not seen; all whole ones before it are
            *lines, rest = rest.split(b"\n")
            for line in lines[: most + 1]:
                self.seen.append(told_by(line))
                self.since = self.seen[-1][1]
            most -= len(lines)


@pytest.mark.slow  # ten thousand changes, over TLS
async def test_ten_thousand_changes_under_disconnects(certificates: Path) -> None:
    """Each change exactly once and in order, whenever the connection is cut (LW-131, LW-135)."""
    options = ServerOptions(shutdown_delay=timedelta(0), shutdown_watch_grace=timedelta(0))
    async with served(certificates, options) as one:
        log, start = one.replica.log, one.replica.rev
        scene = Scene(log, seed=1)
        followers = [Follower(one, seed, start) for seed in range(3)]

        async def write() -> None:
            made = 0
            while made < CHANGES:
                made += scene.commit()
                if made % 5 == 0:
                    await asyncio.sleep(0)

        await write()
        last = one.replica.rev
        await asyncio.gather(*(follower.run(last) for follower in followers))

    expected = chosen(log.rows, start, None, "", "")
    assert len(expected) >= CHANGES
    for follower in followers:
        assert follower.starts > 3
        assert follower.seen == expected


SCOPES = (None, "p0", "p1", "p2", "p3")
TEAMS = ("", "team=a", "team!=a", "team in (a,b)", "team notin (a,c)")
SIZES = (
    *("", "size>4", "size<7", "size=3", "size!=5", "size in (1,2)", "size notin (0,9)"),
    *("!gone", "size>2,size<8"),
)
PHASES = tuple(f"status.phase{rest}" for rest in ("=Running", "!=Failed", "=Queued", "!=Queued"))


def selectors() -> list[tuple[str | None, str, str]]:
    """A thousand scopes and selectors, each another one."""
    every = [
        (scope, ",".join(filter(None, (team, size))), phase)
        for scope, team, size, phase in itertools.product(SCOPES, TEAMS, SIZES, ("", *PHASES))
    ]
    return random.Random(3).sample(every, WATCHERS)  # noqa: S311


@pytest.mark.slow  # a thousand streams
async def test_a_thousand_watchers_agree_with_the_log() -> None:
    """Each with a project and selectors of its own (LW-131 to LW-133)."""
    replica = replica_of(options=ServerOptions(max_watches_per_user=WATCHERS))
    scene = Scene(replica.log, seed=2)
    for _ in range(50):
        scene.commit()
    async with running(replica), AsyncExitStack() as held:
        since = replica.rev
        asked = selectors()
        assert len(set(asked)) == WATCHERS
        streams = [await opened(held, replica, since, *one) for one in asked]
        for _ in range(40):
            scene.commit()
            await asyncio.sleep(0)
        for stream, one in zip(streams, asked, strict=True):
            expected = chosen(replica.log.rows, since, *one)
            got = [told_by(await stream.line(60) or b"") for _ in expected]
            assert got == expected, one
        await replica.caught_up()
        assert all(stream.idle() for stream in streams)  # and nothing else


async def opened(
    held: AsyncExitStack, replica: Replica, since: int, project: str | None, label: str, field: str
) -> Stream:
    base = A if project is None else f"/apis/nodus.dev/v1/namespaces/{project}/attempts"
    query = f"watch=1&resourceVersion={since}&labelSelector={quote(label)}"
    target = f"{base}?{query}&fieldSelector={quote(field)}"
    return await held.enter_async_context(replica.admin.open("GET", target))
