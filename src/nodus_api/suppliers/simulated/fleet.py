"""The fleet: machines that are made, granted, lost, reclaimed and torn down in its own time.

It is a model of events in order of time, with no task and no clock that runs: `catch_up` lets
everything happen that is due. What it knows is the truth that tests compare the ledger with
(SC-733).
"""

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from nodus_api.clock import Clock
from nodus_api.suppliers.simulated.chance import Chance
from nodus_api.suppliers.simulated.faults import FaultKind, Scripted
from nodus_api.suppliers.simulated.machine import Machine, Reclaim
from nodus_api.suppliers.simulated.mail import Mail
from nodus_api.suppliers.simulated.model import ClassModel, FleetModel
from nodus_api.suppliers.simulated.programs import name_of, program_of
from nodus_api.suppliers.simulated.reports import Letter
from nodus_api.suppliers.simulated.runner import Pace, Runner
from nodus_api.suppliers.simulated.timetable import Action, Timers, Timetable
from nodus_api.suppliers.supplier import Invalid, MachineIntent, NoCapacity

_NOW = timedelta(0)
_SKEW = timedelta(seconds=120)
_VANISHING = 0.25
"""The share of hardware losses after which nothing is listed any more."""
_MOST_DEAF = 5
_GAP = (timedelta(seconds=30), timedelta(seconds=900))
_FALSE_ALARM = timedelta(seconds=60)
"""The notice of a reclaim that does not come, where the class has none."""


@dataclass(frozen=True, slots=True)
class Run:
    """A program that truly ran; `ended` is None while it does."""

    attempt: UUID
    epoch: int
    handle: str
    started: datetime


@dataclass(slots=True, eq=False)
class Fleet:
    """All machines that were ever made. `start` is the zero of traces and scripts."""

    model: FleetModel
    clock: Clock
    seed: int
    start: datetime
    timetable: Timetable = field(default_factory=Timetable)
    machines: dict[str, Machine] = field(default_factory=dict)
    """Every machine ever made, by handle."""
    keys: dict[str, Machine] = field(default_factory=dict)
    """The machine of every key that was ever used."""
    runs: list[Run] = field(default_factory=list)
    """Every program that ever started."""
    happened: Counter[FaultKind] = field(default_factory=Counter)
    """The faults that were made."""
    checkpoints: dict[UUID, set[str]] = field(default_factory=dict)
    mail: Mail = field(init=False)
    chance: Chance = field(init=False)
    _present: dict[str, dict[str, Machine]] = field(init=False)
    """Those of which something is left, by class and handle."""
    _classes: dict[str, ClassModel] = field(init=False)
    _occasions: Counter[str] = field(default_factory=Counter)
    _named: Counter[str] = field(default_factory=Counter)
    """How many machines were made for each name."""
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        """Put into the timetable what happens whatever is made."""
        self.chance = Chance(self.seed)
        self.mail = Mail(self)
        self._classes = {one.offered.name: one for one in self.model.classes}
        self._present = {name: {} for name in self._classes}
        for model in self.model.classes:
            for at, _ in (model.spot_capacity or model.capacity).points:
                self.timetable.put(self.start + at, self._shrinking(model))
        for script in self.model.faults.scripts:
            if script.kind in (FaultKind.NODE_LOST, FaultKind.RECLAIMED):
                self.timetable.put(self.start + script.at, self._scripted(script))

    # -- time ---------------------------------------------------------------------------------

    def catch_up(self) -> datetime:
        """Let everything happen that is due by now; return the moment."""
        now = self.clock.now()
        self.timetable.run(now)
        return now

    def next_event(self) -> datetime | None:
        """Return when something happens next by itself."""
        return self.timetable.next()

    def hits(self, kind: FaultKind, occasion: str, *, names: tuple[str, ...] = ()) -> bool:
        """Draw whether a fault happens on an occasion, and count it if it does.

        The n-th occasion of a name has its own draw, so calls elsewhere do not shift it.
        """
        if not self.model.faults.possible(kind):
            return False
        number = self._occasions[f"{kind}/{occasion}"]
        self._occasions[f"{kind}/{occasion}"] += 1
        chance = self.chance.of(occasion, str(number))
        since = self.clock.now() - self.start
        happens = self.model.faults.hits(kind, chance, since, names=names)
        if happens:
            self.happened[kind] += 1
        return happens

    # -- what there is ------------------------------------------------------------------------

    def present(self) -> list[Machine]:
        """Return every machine of which something is left."""
        return [one for machines in self._present.values() for one in machines.values()]

    def free(self, model: ClassModel, *, spot: bool = False) -> int:
        """Return how many machines of a class could be made now, at least 0."""
        since, used = self.clock.now() - self.start, self._present[model.offered.name]
        free = model.capacity.at(since) - len(used)
        if spot and model.spot_capacity is not None:
            free = min(free, model.spot_capacity.at(since) - _spot(used.values()))
        return max(0, free)

    # -- creation -----------------------------------------------------------------------------

    def make(self, intent: MachineIntent, *, visible_after: timedelta = _NOW) -> Machine:
        """Make the machine of a key, or return the one that it has, gone or not.

        Raises NoCapacity, or Invalid for a class that is not offered here.
        """
        if (known := self.keys.get(intent.key)) is not None:
            return known
        model = self._classes.get(intent.offering)
        if model is None:
            raise Invalid(f"class {intent.offering!r} is not offered here")
        if not self.free(model, spot=intent.spot):
            raise NoCapacity(f"no {intent.offering} is free")
        now, name = self.clock.now(), name_of(intent)
        self._named[name] += 1
        machine = Machine(
            handle=f"sim-{next(self._numbers)}-{intent.key[:8]}",
            name=name,
            chance=self.chance.of(name, str(self._named[name])),
            intent=intent,
            model=model,
            created=now,
            visible=now + visible_after,
            timers=Timers(self.timetable),
        )
        machine.skew = self._skew(machine)
        for kind in (FaultKind.BOOT_STUCK, FaultKind.READINESS_LIE, FaultKind.ZOMBIE):
            if self.hits(kind, machine.name, names=machine.names):
                machine.faults.add(kind)
        if self.hits(FaultKind.DELETE_IGNORED, machine.name, names=machine.names):
            machine.deaf_deletes = 1 + int(machine.chance.uniform("deaf") * _MOST_DEAF)
        if self.hits(FaultKind.DELETED_BACK, machine.name, names=machine.names):
            machine.false_proofs = 1
            machine.faults.add(FaultKind.DELETED_BACK)
        self.machines[machine.handle] = self.keys[intent.key] = machine
        self._present[intent.offering][machine.handle] = machine
        grant = machine.chance.length("grant", model.grant)
        machine.timers.set("grant", now + grant, lambda at: self._grant(machine, at))
        return machine

    def _skew(self, machine: Machine) -> timedelta:
        if not self.hits(FaultKind.CLOCK_SKEW, machine.name, names=machine.names):
            return _NOW
        return machine.chance.between("skew", -_SKEW, _SKEW)

    def _grant(self, machine: Machine, at: datetime) -> None:
        machine.granted = at
        self.tenant(machine, machine.intent, at)
        chance, model = machine.chance, machine.model
        loss = chance.until_event("loss", model.losses_per_hour)
        if loss is not None:
            vanishes = chance.happens("vanishes", _VANISHING)
            machine.timers.set(
                "loss", at + loss, lambda at: self.lose(machine, at, vanishes=vanishes)
            )
        names = machine.names
        if self.hits(FaultKind.NOTICE_EMPTY, machine.name, names=names):
            after = chance.between("false alarm", _NOW, timedelta(minutes=20) / self.model.speed)
            machine.timers.set("alarm", at + after, lambda at: self._false_alarm(machine, at))
        if machine.intent.spot:
            reclaim = chance.until_event("reclaim", model.reclaims_per_hour)
            if reclaim is not None:
                told = at + max(reclaim - model.notice, _NOW)
                machine.timers.set("reclaim", told, lambda at: self.announce(machine, at))

    # -- the runner on it ---------------------------------------------------------------------

    def tenant(
        self, machine: Machine, intent: MachineIntent, at: datetime, *, warm: bool = False
    ) -> None:
        """Begin the runner of an intent on a machine; on a warm one without a boot."""
        chance = self.chance.of(name_of(intent), f"run {len(machine.runners)}")
        model = self.model
        program = program_of(intent, model, float(machine.model.offered.speed), self.chance)
        boot = _NOW if warm else chance.length("boot", machine.model.boot)
        every = intent.incarnation.checkpoint_interval
        runner = Runner(
            intent,
            program,
            Pace(
                pull=min(boot, chance.length("pull", machine.model.pull)),
                restore=_NOW
                if intent.incarnation.restore is None
                else chance.length("restore", model.programs.restoring),
                heartbeat=model.heartbeat,
                save_every=None if every is None else every / model.speed,
                saving=model.programs.saving,
            ),
            surroundings=_Around(self, machine),
            timers=Timers(self.timetable),
        )
        machine.intent, machine.runner = intent, runner
        machine.runners.append(runner)
        if FaultKind.BOOT_STUCK not in machine.faults:
            machine.timers.set("boot", at + boot, runner.boot)

    def rent_again(self, machine: Machine, intent: MachineIntent, at: datetime) -> None:
        """Give a wiped machine its next tenant; its own key stays its too."""
        self.keys[intent.key] = machine
        self.tenant(machine, intent, at, warm=True)

    # -- losses -------------------------------------------------------------------------------

    def lose(
        self, machine: Machine, at: datetime, *, reclaimed: bool = False, vanishes: bool = False
    ) -> None:
        """Let a machine die; it is listed as failed until its deletion, unless it `vanishes`."""
        if not machine.in_use(at):
            return
        self._stop_timers(machine)
        machine.failed, machine.reclaimed = at, reclaimed
        if FaultKind.ZOMBIE in machine.faults:
            return  # its runner goes on until somebody deletes it
        if machine.runner is not None:
            machine.runner.kill(at)
        if vanishes:
            machine.gone = at
            self._bury(machine)

    def announce(self, machine: Machine, at: datetime, *, notice: timedelta | None = None) -> None:
        """Announce a reclaim and let it come after the notice; the first one stands."""
        if not machine.in_use(at) or (machine.reclaim and machine.reclaim.comes):
            return
        deadline = at + (machine.model.notice if notice is None else notice)
        machine.reclaim = Reclaim(deadline)
        if deadline <= at:
            self.lose(machine, at, reclaimed=True)
            return
        machine.timers.set("reclaim", deadline, lambda at: self.lose(machine, at, reclaimed=True))

    def _false_alarm(self, machine: Machine, at: datetime) -> None:
        if machine.reclaim is None and machine.in_use(at):
            machine.reclaim = Reclaim(at + (machine.model.notice or _FALSE_ALARM), comes=False)

    def _shrinking(self, model: ClassModel) -> Action:
        """Return what happens when a trace moves: what is too much is reclaimed."""

        def shrink(at: datetime) -> None:
            since, used = at - self.start, list(self._present[model.offered.name].values())
            over = len(used) - model.capacity.at(since)
            if model.spot_capacity is not None:
                over = max(over, _spot(used) - model.spot_capacity.at(since))
            spot = [one for one in used if one.intent.spot and one.in_use(at)]
            for machine in spot[::-1][: max(over, 0)]:
                self.announce(machine, at)

        return shrink

    def _scripted(self, script: Scripted) -> Action:
        """Return what a script does to every machine that matches."""

        def act(at: datetime) -> None:
            for machine in self.present():
                if not script.matches(machine.names) or not machine.in_use(at):
                    continue
                self.happened[script.kind] += 1
                if script.kind is FaultKind.NODE_LOST:
                    self.lose(machine, at)
                else:
                    self.announce(machine, at)

        return act

    # -- the end ------------------------------------------------------------------------------

    def delete(self, machine: Machine, at: datetime) -> None:
        """Begin to tear a machine down, unless it is deaf to it; a repeat changes nothing."""
        if not machine.there(at) or machine.deleting is not None:
            return
        if machine.deaf_deletes:
            machine.deaf_deletes -= 1
            return
        machine.deleting = at
        self._stop_timers(machine)
        if machine.runner is not None:
            machine.runner.kill(at)
        machine.gone = at + machine.chance.length("teardown", machine.model.teardown)
        self.timetable.put(machine.gone, lambda _: self._bury(machine))

    def _bury(self, machine: Machine) -> None:
        """Count a machine no longer: nothing is left of it."""
        self._present[machine.model.offered.name].pop(machine.handle, None)

    def _stop_timers(self, machine: Machine) -> None:
        for name in ("grant", "boot", "loss", "alarm", "reclaim"):
            machine.timers.stop(name)


@dataclass(slots=True, eq=False)
class _Around:
    """What a runner has around it: its machine, and the fleet's mail and disks."""

    fleet: Fleet
    machine: Machine

    def post(self, letter: Letter, at: datetime) -> None:
        if not self.machine.frozen:
            self.fleet.mail.post(letter, at)

    def started(self, runner: Runner, at: datetime) -> None:
        fleet, machine = self.fleet, self.machine
        intent = runner.intent
        fleet.runs.append(Run(intent.attempt_uid, intent.epoch, machine.handle, at))
        if fleet.hits(FaultKind.HEARTBEAT_GAP, name_of(intent), names=machine.names):
            chance = machine.chance
            begins = at + chance.between("gap", _NOW, timedelta(minutes=10))
            machine.silent = begins, begins + chance.between("silence", *_GAP)

    def ended(self, runner: Runner, at: datetime) -> None:
        """Let the word of an end be lost, and the record with it, where that is drawn."""
        fleet, machine = self.fleet, self.machine
        if runner.intent is not machine.intent or runner.stop_at is not None or not runner.begun:
            return
        name = name_of(runner.intent)
        if fleet.hits(FaultKind.EXIT_UNREPORTED, name, names=machine.names):
            machine.frozen = True
        elif fleet.hits(FaultKind.EXIT_LOST, name, names=machine.names) and machine.in_use(at):
            machine.frozen, machine.exit_kept, machine.failed = True, False, at

    def saved(self, runner: Runner, uri: str) -> None:
        own = runner.intent.incarnation
        self.fleet.checkpoints.setdefault(own.workload, set()).add(uri)

    def keeps(self, uri: str) -> bool:
        own = self.machine.intent.incarnation
        return uri in self.fleet.checkpoints.get(own.workload, set())

    def unfit(self) -> bool:
        return self.machine.unfit or FaultKind.READINESS_LIE in self.machine.faults

    def silent(self, at: datetime) -> bool:
        gap = self.machine.silent
        return gap is not None and gap[0] <= at < gap[1]


def _spot(machines: Iterable[Machine]) -> int:
    return sum(one.intent.spot for one in machines)
