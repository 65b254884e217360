"""One writing period, watched by every client that can be had, with one restart in the middle."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.clients.catalog import HAD, SCOPES, Wanted
from tests.clients.judging import States
from tests.clients.site import Site, running, until
from tests.clients.watching import CLOCK, Program, Told
from tests.clients.writing import Lives
from tests.history.checking import WIRE
from tests.history.facts import Request
from tests.history.scope import Scope, scope_of
from tests.history.together import together
from tests.history.truth import Truth

from nodus_api.tasks import end, spawn

COMMITS_BEFORE, COMMITS_AFTER = 100, 200
PACE = 0.03  # seconds between two commits
ENDS = 3  # of each brief watch, by its own timeout


@dataclass
class Period:
    """What was seen from the first commit to the last, and the log of it.

    `stopped` and `started` are when the server was told to stop, and was ready again; `fresh` is
    what it listed at the end, by scope.
    """

    site: Site
    truth: Truth
    told: Mapping[str, Sequence[Told]]
    scopes: Mapping[str, Scope]
    programs: Mapping[str, Program]
    stopped: float
    started: float
    fresh: Mapping[str, Any]
    _states: dict[str, States] = field(default_factory=dict)

    def states(self, scope: str) -> States:
        if scope not in self._states:
            self._states[scope] = States(self.truth, self.scopes[scope])
        return self._states[scope]


@pytest.fixture(scope="session")
async def site(open_folder: Path) -> AsyncIterator[Site]:
    """A server with 60 Attempts or more."""
    folder = open_folder / "clients"
    folder.mkdir(mode=0o711)
    async with running(folder, [*HAD, "late", "nobody"]) as made:
        yield made


@pytest.fixture(scope="session")
async def period(site: Site) -> Period:
    """The period, over, with all its clients ended."""
    if not HAD:
        pytest.skip("no client program could be had: see tests/programs.py")
    scopes = {name: _scope(target) for name, target in SCOPES.items()}
    started = [program(site, name, name) for name in HAD]
    over = asyncio.Event()
    writer = spawn("writer", write(site.lives, over))
    try:
        with together((site,), checkers=WIRE):
            for one in started:
                await one.start()
            for one in started:
                await ready(one, HAD[one.name])
            await _commits(site, COMMITS_BEFORE)
            stopped = CLOCK.monotonic()
            await site.stop()
            await site.start()
            restarted = CLOCK.monotonic()
            await _commits(site, COMMITS_AFTER)
            for one in started:
                await _ended(site, one, HAD[one.name])
            over.set()  # a commit that is cut off may yet succeed, after the log was read
            await writer
        truth = await site.truth()
        for one in started:
            await _caught_up(one, HAD[one.name], truth, scopes)
        fresh = {name: site.json(target)["items"] for name, target in SCOPES.items()}
    finally:
        await end(writer)
        await asyncio.gather(*(one.stop() for one in started))
    return Period(
        site=site,
        truth=truth,
        told={client: told for one in started for client, told in one.told.items()},
        scopes=scopes,
        programs={one.name: one for one in started},
        stopped=stopped,
        started=restarted,
        fresh=fresh,
    )


def program(site: Site, name: str, user: str) -> Program:
    """Return a program that can be had, to be run with a user's kubeconfig."""
    one = HAD[name]
    assert one.command is not None
    scratch = site.root / f"{name}-{user}.tmp"
    scratch.mkdir()
    return Program(
        name=name,
        command=one.command,
        environment={
            **one.environment,
            "KUBECONFIG": str(site.kubeconfig(user)),
            "NODE_EXTRA_CA_CERTS": str(site.ca),
            "TMPDIR": str(scratch),  # where the dynamic Python client keeps what it discovered
        },
        log=site.root / f"{name}-{user}.stderr",
    )


async def write(lives: Lives, over: asyncio.Event) -> None:
    """Commit on and on, until it is over."""
    while not over.is_set():
        await lives.step()
        await lives.clock.sleep(PACE)


async def ready(one: Program, chosen: Wanted) -> None:
    """Wait until each client has seen what there is."""

    def all_ready() -> bool:
        assert one.alive, one.errors()
        return one.ready >= set(chosen.clients)

    await until(all_ready, lambda: f"{set(chosen.clients) - one.ready} ready: {one.errors()}")


def _scope(target: str) -> Scope:
    found = scope_of(Request(target=target))
    assert found is not None
    return found


async def _commits(site: Site, count: int) -> None:
    due = site.lives.commits + count
    await until(lambda: site.lives.commits >= due, lambda: f"{count} commits")


async def _ended(site: Site, one: Program, chosen: Wanted) -> None:
    """Wait until the server has ended so many watches of a program by their timeouts."""

    def enough() -> bool:
        watches = [line for line in site.requests(one.name) if line["verb"] == "watch"]
        long = [line for line in watches if line["ms"] > 2500]
        return len(long) >= ENDS * chosen.brief

    await until(enough, lambda: f"{ENDS} ends of each watch of {one.name}")


async def _caught_up(
    one: Program, chosen: Wanted, truth: Truth, scopes: Mapping[str, Scope]
) -> None:
    for client, scope in chosen.watchers.items():
        due = truth.projection(scopes[scope], 0, truth.head)[-1].rev
        await until(
            lambda client=client, due=due: one.newest.get(client, 0) >= due,  # type: ignore[misc]
            lambda client=client, due=due: f"{client} came to {due}: {one.errors()}",  # type: ignore[misc]
        )
