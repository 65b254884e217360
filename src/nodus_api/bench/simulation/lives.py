"""What becomes of one simulated Attempt: its life is drawn first, its row tells what is next.

Pure: the times are simulated, chance is what the life was drawn with.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from hashlib import sha256

from nodus_api.bench.simulation.fleet import Fleet
from nodus_api.kernel import events
from nodus_api.kernel.attempt import Attempt, Placement
from nodus_api.kernel.lifecycle import advance
from nodus_api.kernel.vocabulary import MachineState, Reason, Stage, Trigger
from nodus_api.scheduler.checkpointing import proposed
from nodus_api.scheduler.intents import intended
from nodus_api.scheduler.settling import count_costs
from nodus_api.storage.leader_store import Reign
from nodus_api.storage.records import AttemptRecord, Machine, Report, Tenancy

_SECOND = timedelta(seconds=1)
_STEPS = 1000
"""Units of a simulated program's work; its checkpoints name how many are done."""


class Ending(Enum):
    """How a life ends."""

    SUCCESS = "Success"
    CUSTOMER_EXIT = "CustomerExit"
    OUT_OF_MEMORY = "OutOfMemory"
    PREEMPTED = "Preempted"
    NODE_LOST = "NodeLost"
    START_FAILED = "StartFailed"


_SHARES = (
    (Ending.SUCCESS, 0.74),
    (Ending.CUSTOMER_EXIT, 0.09),
    (Ending.PREEMPTED, 0.09),
    (Ending.NODE_LOST, 0.03),
    (Ending.OUT_OF_MEMORY, 0.03),
    (Ending.START_FAILED, 0.02),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """How long the parts of an Attempt's life take, and how it ends."""

    wait: timedelta
    grant: timedelta
    boot: timedelta
    pull: timedelta
    run: timedelta
    teardown: timedelta
    reports: int
    """Signs of life on the way, after each of which the bill is counted."""
    ending: Ending

    @property
    def report_every(self) -> timedelta:
        """The time between two signs of life, in whole seconds."""
        return max(self.run // (self.reports + 1) // _SECOND, 1) * _SECOND


MEAN_LIFE = timedelta(seconds=1000)
"""About the mean of `draw`, from queue to proven deletion."""


def draw(chance: Callable[[], float]) -> Life:
    """Draw a life; `chance` gives uniform numbers in [0, 1), of which it takes eight."""

    def seconds(least: int, most: int) -> timedelta:
        return timedelta(seconds=least + int(chance() * (most - least)))

    point, ending = chance(), Ending.SUCCESS
    for one, share in _SHARES:
        if point < share:
            ending = one
            break
        point -= share
    return Life(
        ending=ending,
        wait=seconds(1, 30),
        grant=seconds(2, 60),
        boot=seconds(15, 90),
        pull=seconds(1, 20),
        run=seconds(60, 1640),
        teardown=seconds(3, 40),
        reports=int(chance() * 4),
    )


def due(attempt: Attempt, life: Life) -> datetime | None:
    """Return when the next thing happens to an Attempt; None after its proven deletion."""
    match attempt.stage:
        case Stage.PENDING | Stage.PLACING:
            return attempt.queued + life.wait
        case Stage.ACQUIRING:
            return (attempt.acquired or attempt.queued) + life.grant
        case Stage.STARTING if attempt.registered is None:
            return (attempt.billing_start or attempt.queued) + life.boot
        case Stage.STARTING:
            return (attempt.registered or attempt.queued) + life.pull
        case Stage.RUNNING:
            return _next_report(attempt, life) or _end(attempt, life)
        case _ if attempt.deletion_proven is None and attempt.finished is not None:
            return attempt.finished + life.teardown
        case _:
            return None


def step(
    record: AttemptRecord, life: Life, *, reign: Reign, fleet: Fleet, placement: Placement
) -> AttemptRecord:
    """Return the record after the next thing in its life (SC-004); a dead one as it is.

    What follows from it, the bill among it, is `settle`'s.
    """
    attempt = record.attempt
    at = due(attempt, life)
    if at is None:
        return record
    match attempt.stage:
        case Stage.PENDING | Stage.PLACING:
            return _placed(record, reign, fleet, placement, at)
        case Stage.ACQUIRING:
            return _granted(record, at)
        case Stage.STARTING if attempt.registered is None:
            if life.ending is Ending.START_FAILED:
                fault = events.StartFault(at=at, reason=Reason.START_FAILED)
                return record.moved(advance(attempt, fault))
            return _registered(record, at)
        case Stage.STARTING:
            size = _size(record) if attempt.restore else None
            started = events.CommandStarted(at=at, restore_bytes=size)
            return record.moved(advance(attempt, started))
        case Stage.RUNNING if at < _end(attempt, life):
            return _reported(record, life, at)
        case Stage.RUNNING:
            return record.moved(advance(attempt, _last(life, at)))
        case _:
            return _gone(record, at)


def _end(attempt: Attempt, life: Life) -> datetime:
    return (attempt.command_started or attempt.queued) + life.run


def _next_report(attempt: Attempt, life: Life) -> datetime | None:
    """Return when the program is heard of next; None once its end comes first."""
    since = attempt.command_started or attempt.queued
    heard = max(attempt.last_heartbeat or since, since)
    number = (heard - since) // life.report_every + 1
    return since + number * life.report_every if number <= life.reports else None


def _placed(
    record: AttemptRecord, reign: Reign, fleet: Fleet, placement: Placement, at: datetime
) -> AttemptRecord:
    choice = placement.choice
    assert choice is not None  # noqa: S101 - the simulated fleet has room for all that is asked
    tenancy = intended(
        record,
        reign,
        offer=fleet.offers[choice.offering],
        offering=choice.offering,
        market=choice.market,
        rate=choice.rate_usd_per_hour,
        now=at,
    )
    claimed = advance(record.attempt, events.Claimed(at=at, start_deadline=at + 60 * 60 * _SECOND))
    moved = record.moved(advance(claimed, events.Placed(at=at))).with_tenancy(tenancy)
    return replace(moved, view=replace(moved.view, placement=placement))


def _granted(record: AttemptRecord, at: datetime) -> AttemptRecord:
    attempt = advance(record.attempt, events.CapacityGranted(at=at))
    record = record.moved(attempt)
    return _with_machine(
        record,
        lambda machine: replace(
            machine,
            state=MachineState.GRANTED,
            handle=machine.key,
            granted=at,
            billing_start=attempt.billing_start,
        ),
    )


def _registered(record: AttemptRecord, at: datetime) -> AttemptRecord:
    """T9, and the program may start: this machine has won (SC-341)."""
    record = record.moved(advance(record.attempt, events.Registered(at=at, pull_seconds=1)))
    record = _with_machine(
        record, lambda one: replace(one, state=MachineState.REGISTERED, registered=at)
    )
    tenancy = record.held[0]
    return record.with_tenancy(replace(tenancy, lease=replace(tenancy.lease, won=True)))


def _reported(record: AttemptRecord, life: Life, at: datetime) -> AttemptRecord:
    """Hear of the program: by a checkpoint where it can go on from one, and count its bill."""
    if not record.workload.spec["checkpoint"]["restartable"]:
        alive = record.moved(advance(record.attempt, events.Heartbeat(at=at)))
        return count_costs(alive)
    tenancy = record.held[0]
    seq = record.slot.last_seq + 1
    started = record.attempt.command_started or at
    done = int(_STEPS * ((at - started) / life.run))
    earlier = record.attempt.restore.cursor if record.attempt.restore else None
    done += (_STEPS - done) * earlier.completed // _STEPS if earlier else 0
    report = Report(
        machine=tenancy.machine.no or 0,
        fence=tenancy.lease.fence,
        n=seq,
        kind="checkpoint",
        event_at=at,
        received=at,
        body={
            "seq": seq,
            "bytes": _size(record),
            "uri": f"simulated:///{record.attempt.uid}/{seq}",
            "sha256": sha256(f"{record.attempt.uid}/{seq}".encode()).hexdigest(),
            "cursor": {"completed": done, "total": _STEPS},
        },
    )
    return count_costs(proposed(record, tenancy, report, at))


def _last(life: Life, at: datetime) -> events.Event:
    match life.ending:
        case Ending.PREEMPTED:
            return events.CapacityLost(
                at=at, trigger=Trigger.PROVIDER_EVIDENCE, reason=Reason.PREEMPTED
            )
        case Ending.NODE_LOST:
            return events.CapacityLost(
                at=at, trigger=Trigger.HEARTBEAT_LOSS, reason=Reason.NODE_LOST
            )
        case Ending.OUT_OF_MEMORY:
            return events.Exited(at=at, exit_code=137, signal=9, oom=True)
        case Ending.CUSTOMER_EXIT:
            return events.Exited(at=at, exit_code=3)
        case _:
            return events.Exited(at=at, exit_code=0)


def _gone(record: AttemptRecord, at: datetime) -> AttemptRecord:
    """Let the machines be gone; `settle` proves the deletion and counts the bill (T18)."""
    for tenancy in record.tenancies:
        if tenancy.machine.state is MachineState.GONE:
            continue
        machine = replace(tenancy.machine, state=MachineState.GONE, gone=at, next_try=None)
        lease = tenancy.lease if not tenancy.open else replace(tenancy.lease, released=at)
        record = record.with_tenancy(Tenancy(machine=machine, lease=lease))
    return record


def _with_machine(record: AttemptRecord, change: Callable[[Machine], Machine]) -> AttemptRecord:
    tenancy = record.held[0]
    return record.with_tenancy(replace(tenancy, machine=change(tenancy.machine)))


def _size(record: AttemptRecord) -> int:
    """Return the bytes of a slot's checkpoints, between 1 and 64 GiB."""
    digest = sha256(f"{record.attempt.workload}/{record.attempt.slot}".encode()).digest()
    return (1 + digest[0] % 64) << 30
