"""Runs a soak: starts everything, disturbs it, and compares what every watcher got with the log."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nodus_api.bench.rig import RigFailed, admin_token, free_port, ready
from nodus_api.bench.soak.history import History, Scope, Truth
from nodus_api.bench.soak.load import OWNER, Load
from nodus_api.bench.soak.processes import Program, Replica, start
from nodus_api.bench.soak.report import SoakReport, memory_of
from nodus_api.bench.soak.watcher import Watcher
from nodus_api.clock import Clock
from nodus_api.storage.embedded import EmbeddedPostgres
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import StorageError
from nodus_api.storage.feed import PIECE, Feed
from nodus_api.storage.migrate import upgrade
from nodus_api.storage.upkeep import WIDTH, UpkeepStore
from nodus_api.tasks import end, spawn
from nodus_api.tls import client_context, ensure_certificates

_USERS = 10  # so that all watchers may meet on one replica: at most 100 of one user (AS-087)
_LIVES_SHARE = 0.1
_SAMPLE_SECONDS = 5.0
_START_SECONDS = 60.0
_CATCH_UP_SECONDS = 90.0
_HISTORY_SECONDS = 330.0  # the watch window, and what it takes to fill
_REPLICA_AT, _POSTGRES_AT = 0.15, 0.35
"""When the two are restarted, as shares of the soak: long before the last third."""
_TOLD_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long and how hard."""

    minutes: float
    rate: float
    """Changes a second; a tenth of them are of whole lives."""
    watchers: int
    projects: int = 25
    attempts: int = 2500
    live: int = 1000
    keep_finished: int = 40
    """Finished Attempts a project; more are retired."""
    retention_seconds: float = 180.0

    @property
    def seconds(self) -> float:
        """How long it writes."""
        return self.minutes * 60


@dataclass(slots=True, kw_only=True)
class _Scene:
    plan: Plan
    clock: Clock
    chance: Callable[[], float]
    tell: Callable[[str], None]
    folder: Path
    postgres: EmbeddedPostgres
    replicas: list[Replica]
    database: Database
    feed: Feed
    tls: ssl.SSLContext
    report: SoakReport
    truth: Truth
    began: float = 0.0

    @property
    def elapsed(self) -> float:
        return self.clock.monotonic() - self.began


async def soak(
    plan: Plan,
    folder: Path,
    *,
    clock: Clock,
    entropy: Callable[[int], bytes],
    chance: Callable[[], float],
    tell: Callable[[str], None],
) -> SoakReport:
    """Run a soak in `folder`, which other accounts may traverse; `tell` is told how it goes.

    Raises RigFailed or a storage error where it could not be run; what it found is in the report.
    """
    async with _scene(plan, folder, clock, chance, tell) as scene:
        tokens = [
            await admin_token(scene.postgres.url, entropy, username=f"soak-{number}")
            for number in range(_USERS)
        ]
        await _until_ready(scene, scene.replicas)
        watchers = _watchers(scene, tokens)
        for watcher in watchers:
            scene.truth.add(watcher.history)
        scene.began = clock.monotonic()
        tasks = [spawn("truth", _follow(scene, watchers))]
        tasks += [spawn(one.history.name, one.run()) for one in watchers]
        tasks.append(spawn("memory", _sample(scene)))
        programs = await _writing(scene)
        try:
            await _disturb(scene, watchers)
            await _end_writing(scene, programs)
            await _catch_up(scene, watchers)
        finally:
            for task in tasks:
                await end(task)
            for program in programs:
                await program.kill()
        return _result(scene, watchers)


@asynccontextmanager
async def _scene(
    plan: Plan,
    folder: Path,
    clock: Clock,
    chance: Callable[[], float],
    tell: Callable[[str], None],
) -> AsyncIterator[_Scene]:
    postgres = EmbeddedPostgres(folder)
    postgres.start()
    async with AsyncExitStack() as stack:
        stack.callback(postgres.stop)
        await upgrade(postgres.url)
        files = ensure_certificates(folder / "certs", names=(), clock=clock)
        database = Database(postgres.url, role=Role.API, pool_size=2)
        stack.push_async_callback(database.close)
        replicas = [
            Replica(url=postgres.url, folder=folder, port=port)
            for port in (free_port(), free_port())
        ]
        for replica in replicas:
            stack.callback(replica.kill)
            replica.start()
        feed = Feed(database, clock=clock)
        report = SoakReport(minutes=plan.minutes, rate_asked=plan.rate, watchers=plan.watchers)
        yield _Scene(
            plan=plan,
            clock=clock,
            chance=chance,
            tell=tell,
            folder=folder,
            postgres=postgres,
            replicas=replicas,
            database=database,
            feed=feed,
            tls=client_context(files.ca),
            report=report,
            truth=Truth(await feed.head(), report.breaches),
        )


def _watchers(scene: _Scene, tokens: list[str]) -> list[Watcher]:
    scopes = _scopes(scene.plan)
    return [
        Watcher(
            history=History(
                name=f"watcher {number}",
                scope=scopes[number % len(scopes)] if number else Scope(),
                breaches=scene.report.breaches,
            ),
            ports=[replica.port for replica in scene.replicas],
            token=tokens[number % len(tokens)],
            tls=scene.tls,
            clock=scene.clock,
            chance=scene.chance,
            position=scene.truth.position,
        )
        for number in range(scene.plan.watchers)
    ]


def _scopes(plan: Plan) -> list[Scope]:
    """Return what is watched by turns: one of all projects to three dozen of a single one."""
    running = ("status.phase", "Running")
    scopes = []
    for number in range(plan.projects):
        changed = OWNER if number == 0 else f"{OWNER}-{number}"
        lived = f"simulated-{number + 1}"
        scopes += [
            Scope(project=lived),
            Scope(project=changed),
            Scope(project=lived, field=running),
            Scope(project=changed, label=("nodus.dev/job", OWNER)),
        ]
    scopes[36::37] = [Scope(field=running), Scope(label=("nodus.dev/job", "sim-1-1"))][
        : len(scopes[36::37])
    ]
    return scopes


# -- what goes on meanwhile --------------------------------------------------------------------


async def _follow(scene: _Scene, watchers: list[Watcher]) -> None:
    """Read the log and compare, ten times a second, whatever becomes of Postgres."""
    while True:
        try:
            rows = await scene.feed.read(scene.truth.position)
        except StorageError:
            rows = []
        scene.truth.read(rows)
        for watcher in watchers:
            watcher.history.compare(scene.truth.position)
        await scene.clock.sleep(0.01 if len(rows) == PIECE else 0.1)


async def _sample(scene: _Scene) -> None:
    while True:
        for replica in scene.replicas:
            replica.sample(scene.elapsed)
        await scene.clock.sleep(_SAMPLE_SECONDS)


async def _writing(scene: _Scene) -> list[Program]:
    plan = scene.plan
    load = Load(
        url=scene.postgres.url,
        rate=plan.rate * (1 - _LIVES_SHARE),
        attempts=plan.attempts,
        projects=plan.projects,
    )
    lives = [
        *("nodus_api.cli.main", "simulate", "--direct", "--attempts", "10000000"),
        *("-o", "json"),
        *("--projects", str(plan.projects), "--rate", str(plan.rate * _LIVES_SHARE)),
        *("--live", str(plan.live), "--keep-finished", str(plan.keep_finished)),
        *("--database-url", scene.postgres.url, "--data-dir", str(scene.folder)),
    ]
    words = ["nodus_api.bench.soak.load"]
    return [
        await start("load", words, scene.folder / "load.log", json.dumps(asdict(load))),
        # the simulation leads, so it keeps the log
        await start(
            "lives",
            lives,
            scene.folder / "lives.log",
            NODUS_FEED_RETENTION=f"{plan.retention_seconds:g}s",
        ),
    ]


async def _disturb(scene: _Scene, watchers: list[Watcher]) -> None:
    """Let time pass, and restart a replica and Postgres on the way."""
    seconds = scene.plan.seconds
    faults = [
        (seconds * _REPLICA_AT, _restart_replica),
        (seconds * _POSTGRES_AT, _restart_postgres),
    ]
    told = 0.0
    while faults or scene.elapsed < seconds:
        if faults and scene.elapsed >= faults[0][0]:
            await faults.pop(0)[1](scene)
        if scene.elapsed >= told:
            told = scene.elapsed + _TOLD_SECONDS
            scene.tell(_how_it_goes(scene, watchers))
        for replica in scene.replicas:
            if replica.died:
                scene.report.breaches.append(f"the replica on port {replica.port} ended by itself")
                replica.start()
        await scene.clock.sleep(0.5)


def _how_it_goes(scene: _Scene, watchers: list[Watcher]) -> str:
    owed = sum(one.history.owed for one in watchers)
    events = sum(one.history.events for one in watchers)
    memory = ", ".join(f"{one.samples[-1][1]:.0f}" for one in scene.replicas if one.samples)
    return (
        f"{scene.elapsed:6.0f} s  {scene.truth.changes} changes  {events} events  {owed} under way"
        f"  {memory} MB  {len(scene.report.breaches)} breaches"
    )


async def _restart_replica(scene: _Scene) -> None:
    replica, began = scene.replicas[0], scene.elapsed
    await asyncio.to_thread(replica.kill)
    replica.start()
    await _until_ready(scene, [replica])
    _note(scene, "a replica was killed and started again", began)


async def _restart_postgres(scene: _Scene) -> None:
    began = scene.elapsed
    await asyncio.to_thread(scene.postgres.stop)
    await asyncio.to_thread(scene.postgres.start)
    head = scene.truth.position
    deadline = scene.clock.monotonic() + _START_SECONDS
    while scene.truth.position <= head and scene.clock.monotonic() < deadline:
        await scene.clock.sleep(0.05)
    _note(scene, "Postgres was restarted", began)


def _note(scene: _Scene, what: str, began: float) -> None:
    back = round(scene.elapsed - began, 2)
    scene.report.faults.append({"at": round(began, 1), "what": what, "backAfterSeconds": back})
    scene.tell(f"{what}; normal after {back} s")


async def _until_ready(scene: _Scene, replicas: list[Replica]) -> None:
    deadline = scene.clock.monotonic() + _START_SECONDS
    for replica in replicas:
        while not await ready("127.0.0.1", replica.port, scene.tls):
            if scene.clock.monotonic() > deadline:
                log = scene.folder / f"serve-{replica.port}.log"
                raise RigFailed(f"`nodus serve` was not ready in time: read {log}.")
            await scene.clock.sleep(0.05)


# -- the end -----------------------------------------------------------------------------------


async def _end_writing(scene: _Scene, programs: list[Program]) -> None:
    report = scene.report
    report.rate = round(scene.truth.changes / scene.elapsed, 1)
    for program in programs:
        done: dict[str, Any] | None = await program.end()
        if done is None:
            log = scene.folder / f"{program.name}.log"
            report.breaches.append(f"the writer `{program.name}` failed: read {log}")
    tables = await UpkeepStore(scene.database).look()
    report.oldest = tables.oldest
    report.partitions_dropped = min(one.first for one in tables.partitions) // WIDTH


async def _catch_up(scene: _Scene, watchers: list[Watcher]) -> None:
    """Wait until every watcher has all that the log has for it."""
    head = await scene.feed.head()
    deadline = scene.clock.monotonic() + _CATCH_UP_SECONDS
    while scene.clock.monotonic() < deadline:
        owed = [one for one in watchers if one.history.owed and not one.history.broken]
        if scene.truth.position >= head and not owed:
            return
        await scene.clock.sleep(0.1)
    for one in watchers:
        if one.history.owed and not one.history.broken:
            one.history.breach(f"{one.history.owed} events did not come by the end")
    if scene.truth.position < head:
        scene.report.breaches.append(f"the log was read to {scene.truth.position} of {head}")


def _result(scene: _Scene, watchers: list[Watcher]) -> SoakReport:
    report, total = scene.report, scene.plan.seconds
    report.changes = scene.truth.changes
    report.events = sum(one.history.events for one in watchers)
    report.streams = sum(one.streams for one in watchers)
    report.cuts = sum(one.cuts for one in watchers)
    report.relists = sum(one.relisted for one in watchers)
    report.longest_away_seconds = round(max(one.longest_away for one in watchers), 2)
    report.memory = [
        memory_of(one, total=total, settled=_HISTORY_SECONDS) for one in scene.replicas
    ]
    return report
