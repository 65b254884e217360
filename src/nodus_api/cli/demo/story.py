"""What the demo has happen: two Jobs, a drill, a lost rank and a stop by hand, each in its time."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from nodus_api.cli.demo import fit, pair, work
from nodus_api.cli.following import Board
from nodus_api.tasks import spawn

FIT = "decay-fit"
PAIR = "decay-pair"
INDEXES = 4
RANKS = 2
DRILLED = fit.LOST_SLOT
STEPS = 96
SAVED_BEFORE = 2
"""So many checkpoints are committed before something is taken away."""

Attempt = Mapping[str, Any]


def manifests(diary: Path, seconds: float) -> str:
    """Return the demo's Jobs as they would stand in a file."""
    fits = {
        "completions": INDEXES,
        "template": {"command": _command(fit.__name__, FIT, diary, seconds)},
        "checkpoint": {"restartable": True},
        "restart": {"maxRetries": 1},
    }
    ranks = {
        "gang": {"size": RANKS},
        "template": {"command": _command(pair.__name__, PAIR, diary, seconds)},
        "checkpoint": {"restartable": True},
    }
    return yaml.safe_dump_all([_job(FIT, fits), _job(PAIR, ranks)], sort_keys=False)


def _command(module: str, job: str, diary: Path, seconds: float) -> list[str]:
    return [sys.executable, "-m", module, str(diary), job, str(STEPS), str(seconds)]


def _job(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "nodus.dev/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": spec,
    }


@dataclass(slots=True, kw_only=True)
class Hand:
    """What the demo can do to an Attempt or a Job while it runs."""

    drill: Callable[[str], Coroutine[Any, Any, None]]
    stop: Callable[[str], Coroutine[Any, Any, None]]
    tell: Callable[[str], None]


@dataclass(slots=True)
class Story:
    """Acts as the board shows that the time has come; each act once."""

    board: Board
    diary: Path
    hand: Hand
    done: set[str] = field(default_factory=set)
    asking: "list[asyncio.Task[None]]" = field(default_factory=list)
    """Commands on their way: the story goes on meanwhile."""

    async def go_on(self) -> None:
        """Do what is due now; raises what a command raised."""
        for asked in [one for one in self.asking if one.done()]:
            self.asking.remove(asked)
            await asked
        rank = self._one(PAIR, "1", 1)
        if self._due("kill", _has_saved(rank)):
            self.hand.tell(f"The machine of {rank['metadata']['name']} dies: every process of it.")
            kill_machine(self.diary, PAIR, "1", 1)
        drilled = self._one(FIT, DRILLED, 1)
        if self._due("drill", _has_saved(drilled)):
            name = drilled["metadata"]["name"]
            self.hand.tell(f"A drill takes the machine of {name} away.")
            self.asking.append(spawn("drill", self.hand.drill(name)))
        if self._due("stop", self._only_endless_work_is_left()):
            self.hand.tell(f"Index {fit.ENDLESS_SLOT} of {FIT} has no end: it is stopped by hand.")
            self.asking.append(spawn("stop", self.hand.stop(FIT)))

    @property
    def over(self) -> bool:
        """Whether all that was to happen has, and every machine is gone."""
        acted = {"drill", "kill", "stop"} <= self.done and not self.asking
        return acted and self.board.settled() and self._succeeded(PAIR, range(RANKS))

    def _due(self, act: str, now: bool) -> bool:
        if act in self.done or not now:
            return False
        self.done.add(act)
        return True

    def _only_endless_work_is_left(self) -> bool:
        endless = self._last(FIT, fit.ENDLESS_SLOT).get("status", {}).get("phase")
        finite = [slot for slot in range(INDEXES) if str(slot) != fit.ENDLESS_SLOT]
        return endless == "Running" and self._succeeded(FIT, finite)

    def _succeeded(self, job: str, slots: Iterable[int]) -> bool:
        phases = [self._last(job, str(slot)).get("status", {}).get("phase") for slot in slots]
        return all(phase == "Succeeded" for phase in phases)

    def _last(self, job: str, slot: str) -> Attempt:
        epochs = [one for one in self.board.attempts.values() if _is(one, job, slot)]
        return max(epochs, key=lambda one: one["spec"]["epoch"], default={})

    def _one(self, job: str, slot: str, epoch: int) -> Attempt:
        found = (one for one in self.board.attempts.values() if _is(one, job, slot))
        return next((one for one in found if one["spec"]["epoch"] == epoch), {})


def _is(one: Attempt, job: str, slot: str) -> bool:
    owner, its_slot = one["metadata"]["labels"].get("nodus.dev/job"), one["spec"]["slot"]
    return bool((owner, its_slot) == (job, slot))


def _has_saved(one: Attempt) -> bool:
    status = one.get("status", {})
    saved = int(status.get("checkpoints", {}).get("lastSeq", 0)) >= SAVED_BEFORE
    return saved and status.get("phase") == "Running"


def kill_machine(diary: Path, job: str, slot: str, epoch: int) -> None:
    """End a program's whole session by SIGKILL, its runner first, as a power cut would."""
    for started in starts(diary):
        if started[:3] == (job, slot, epoch):
            with suppress(ProcessLookupError):  # it ended by itself just now
                session = os.getsid(started[3])
                os.kill(session, signal.SIGKILL)
                os.killpg(os.getpgid(started[3]), signal.SIGKILL)


def starts(diary: Path) -> Iterator[tuple[str, str, int, int]]:
    """Yield job, slot, epoch and process id of every program that started."""
    notes = diary / work.STARTS
    for line in notes.read_text().splitlines() if notes.exists() else []:
        job, slot, epoch, pid = line.split()
        yield job, slot, int(epoch), int(pid)
