"""The local supplier's process is killed between any two of its steps on the host (G3, SC-609)."""

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.runner.conftest import SOURCE
from tests.suppliers.conformance import INSTALLATION, an_intent, eventually
from tests.suppliers.conftest import LocalFleet, local_fleet
from tests.suppliers.dying_supplier import next_tenant, program_of

from nodus_api.runner.identity import read_identity, read_spawned
from nodus_api.runner.session import members
from nodus_api.suppliers.local import cgroups
from nodus_api.suppliers.supplier import MachineCondition, Verdict

SWEEP = "NODUS_SWEEP"
SEED = "NODUS_SWEEP_SEED"
RUNS = 5
"""Killed processes a verb in every test run; `NODUS_SWEEP=crash` kills one at every step."""


class Mortal:
    """A process that forks suppliers which die; one a test."""

    def __init__(self, fleet: LocalFleet) -> None:
        self._fleet = fleet
        root = Path(__file__).parent.parent.parent
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            [
                sys.executable,
                "-m",
                "tests.suppliers.dying_supplier",
                str(fleet.root / "machines"),
                str(fleet.server.path),
            ],
            env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{root}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    async def act(self, verb: str, key: str, *, killed_before: int = 0) -> str:
        """Let a new process do something, and die before one of its effects; return its answer."""
        line = f"{verb} {key} {killed_before} {self.marker(key)}\n"
        return await asyncio.to_thread(self._ask, line)

    async def effects(self, verb: str, key: str) -> int:
        answer = await self.act(verb, key)
        assert answer.isdigit(), answer
        return int(answer)

    def marker(self, key: str) -> Path:
        return self._fleet.root / f"starts-of-{key}"

    def starts(self, key: str, *, tenant: int = 1) -> int:
        """Return how often the program of a machine's first or second tenant was started."""
        marker = self.marker(key)
        marker = marker if tenant == 1 else marker.with_name(f"{marker.name}-{tenant}")
        try:
            return marker.read_text(encoding="ascii").count("started")
        except FileNotFoundError:
            return 0

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@pytest.fixture
async def here() -> AsyncIterator[LocalFleet]:
    async with local_fleet() as made:
        yield made


@pytest.fixture
def mortal(here: LocalFleet) -> Iterator[Mortal]:
    process = Mortal(here)
    yield process
    process.close()


def steps(effects: int, seed: int) -> list[int]:
    """Return before which effects a process is killed."""
    every = list(range(1, effects + 1))
    if os.environ.get(SWEEP) in ("full", "crash"):
        return every
    return sorted(random.Random(seed).sample(every, min(RUNS, effects)))  # noqa: S311


def a_key(step: int) -> str:
    """Return a name that no other test run's machines have: cgroups are the host's."""
    return f"killed-{os.getpid()}-{step}"


def a_seed() -> int:
    return int(os.environ.get(SEED) or random.SystemRandom().randrange(1_000_000))


async def has_started(mortal: Mortal, key: str, *, tenant: int = 1) -> None:
    async def look() -> bool:
        return mortal.starts(key, tenant=tenant) > 0

    await eventually(look, seconds=60)


async def is_deleted(fleet: LocalFleet, key: str) -> None:
    """Delete a machine as the next leader does, and see that nothing of it is left."""
    directory = fleet.root / "machines" / key
    identity = read_identity(directory) or read_spawned(directory)
    supplier = fleet.restarted()

    async def gone() -> bool:
        await supplier.delete(key)
        return (await supplier.prove_deleted(key)).verdict is Verdict.GONE

    await eventually(gone, seconds=60)
    assert await supplier.find(key) is None
    for place in (".", ".new", ".trash", ".warm"):
        assert not (fleet.root / "machines" / place / key).exists()
    session = identity.session() if identity else None
    assert session is None or members(session) == []
    base = cgroups.base()
    assert base is None or not cgroups.group_of(base, key).is_dir()


async def test_a_create_that_dies_anywhere_is_made_good(  # P-05, SC-609, SC-710
    here: LocalFleet, mortal: Mortal
) -> None:
    effects, seed = await mortal.effects("create", a_key(0)), a_seed()
    await has_started(mortal, a_key(0))
    await is_deleted(here, a_key(0))
    picked = steps(effects, seed)
    for step in picked:
        key = a_key(step)
        assert await mortal.act("create", key, killed_before=step) == "killed"
        intent = an_intent(key, *program_of(str(mortal.marker(key))))
        await here.restarted().create(intent)
        again = await here.restarted().create(intent)
        assert again.key == key
        assert [one.key async for one in here.supplier.list_owned(INSTALLATION)] == [key]
        await has_started(mortal, key)
        await is_deleted(here, key)
        assert mortal.starts(key) == 1, f"killed before effect {step}; {SEED}={seed}"
    print(f"create: {effects} failpoints, killed before {picked}; {SEED}={seed}")  # noqa: T201


async def test_a_create_that_nobody_repeats_leaves_nothing(  # P-09, SC-611
    here: LocalFleet, mortal: Mortal
) -> None:
    effects, seed = await mortal.effects("create", a_key(0)), a_seed()
    await is_deleted(here, a_key(0))
    for step in steps(effects, seed):
        key = a_key(step)
        assert await mortal.act("create", key, killed_before=step) == "killed"
        await is_deleted(here, key)
        assert mortal.starts(key) <= 1, f"killed before effect {step}; {SEED}={seed}"
        assert [one async for one in here.supplier.list_owned(INSTALLATION)] == []


@pytest.mark.parametrize("verb", ["delete", "signal", "find"])
async def test_what_is_done_to_a_machine_may_die_anywhere(  # P-09, SC-712
    here: LocalFleet, mortal: Mortal, verb: str
) -> None:
    seed = a_seed()
    await _a_machine(here, mortal, a_key(0))
    effects = await mortal.effects(verb, a_key(0))
    await is_deleted(here, a_key(0))
    picked = steps(effects, seed)
    for step in picked:
        key = a_key(step)
        await _a_machine(here, mortal, key)
        answer = await mortal.act(verb, key, killed_before=step)
        assert answer == "killed" or answer.isdigit()  # a wait may take fewer signals
        await is_deleted(here, key)
        assert mortal.starts(key) == 1, f"killed before effect {step}; {SEED}={seed}"
    print(f"{verb}: {effects} failpoints, killed before {picked}; {SEED}={seed}")  # noqa: T201


async def test_a_wipe_that_dies_anywhere_is_gone_on_with(  # SC-343
    here: LocalFleet, mortal: Mortal
) -> None:
    """Whatever a wipe has left, the next one leaves nothing of the tenant, and the machine."""
    seed = a_seed()
    await _a_machine(here, mortal, a_key(0))
    effects = await mortal.effects("wipe", a_key(0))
    await is_deleted(here, a_key(0))
    picked = steps(effects, seed)
    for step in picked:
        key = a_key(step)
        await _a_machine(here, mortal, key)
        answer = await mortal.act("wipe", key, killed_before=step)
        assert answer == "killed" or answer.isdigit()
        await here.restarted().observe([key])
        await here.restarted().wipe(key)
        assert os.listdir(here.root / "machines" / key) == []
        assert not (here.root / "machines" / ".trash" / key).exists()
        view = await here.restarted().find(key)
        assert view is not None
        assert view.condition is MachineCondition.RUNNING
        await is_deleted(here, key)
        assert mortal.starts(key) == 1, f"killed before effect {step}; {SEED}={seed}"
    print(f"wipe: {effects} failpoints, killed before {picked}; {SEED}={seed}")  # noqa: T201


async def test_an_assignment_that_dies_anywhere_is_made_good(  # P-05, SC-343
    here: LocalFleet, mortal: Mortal
) -> None:
    seed = a_seed()
    await _a_machine(here, mortal, a_key(0))
    await here.supplier.wipe(a_key(0))
    effects = await mortal.effects("assign", a_key(0))
    await is_deleted(here, a_key(0))
    picked = steps(effects, seed)
    for step in picked:
        key = a_key(step)
        await _a_machine(here, mortal, key)
        await here.supplier.wipe(key)
        answer = await mortal.act("assign", key, killed_before=step)
        assert answer == "killed" or answer.isdigit()
        intent = next_tenant(key, str(mortal.marker(key)))
        for _ in range(2):
            await here.restarted().assign(key, intent, intent.token)
        await has_started(mortal, key, tenant=2)
        await is_deleted(here, key)
        assert mortal.starts(key, tenant=2) == 1, f"killed before effect {step}; {SEED}={seed}"
    print(f"assign: {effects} failpoints, killed before {picked}; {SEED}={seed}")  # noqa: T201


async def _a_machine(fleet: LocalFleet, mortal: Mortal, key: str) -> None:
    await fleet.supplier.create(an_intent(key, *program_of(str(mortal.marker(key)))))
    await has_started(mortal, key)
