"""One machine as it truly is, and what its supplier says of it (SC-733)."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodus_api.suppliers.simulated.chance import Chance
from nodus_api.suppliers.simulated.faults import FaultKind
from nodus_api.suppliers.simulated.model import ClassModel
from nodus_api.suppliers.simulated.runner import Runner
from nodus_api.suppliers.simulated.timetable import Timers
from nodus_api.suppliers.supplier import MachineCondition, MachineIntent, MachineView


@dataclass(slots=True)
class Reclaim:
    """A reclaim that was announced; not every one comes (NOTICE_EMPTY)."""

    deadline: datetime
    comes: bool = True


@dataclass(slots=True, eq=False)
class Machine:
    """What a create made. Times are true ones; `skew` is how far its own clock is off."""

    handle: str
    name: str
    """`project/owner/slot/epoch` of the intent that made it."""
    chance: Chance
    """Its own: of its name, and of how many were made for it before."""
    intent: MachineIntent
    """The one that it is for now."""
    model: ClassModel
    created: datetime
    visible: datetime
    """From when on a look by key or list shows it."""
    timers: Timers
    skew: timedelta = timedelta(0)
    granted: datetime | None = None
    """Since when it runs and is billed."""
    runner: Runner | None = None
    exit_kept: bool = True
    """Whether its program's end can be read from it (SC-644)."""
    failed: datetime | None = None
    """Since when the supplier says that it was lost."""
    reclaimed: bool = False
    reclaim: Reclaim | None = None
    deaf_deletes: int = 0
    """So many deletes more do nothing."""
    false_proofs: int = 0
    """So many looks call it gone while it is there."""
    deleting: datetime | None = None
    gone: datetime | None = None
    """From when on nothing of it is left; known ahead while it is torn down."""
    faults: set[FaultKind] = field(default_factory=set)
    """What goes wrong with it, drawn when it was made."""
    frozen: bool = False
    """Its runner's words do not get through."""
    unfit: bool = False
    silent: tuple[datetime, datetime] | None = None
    """When its runner's heartbeats do not get through."""
    runners: list[Runner] = field(default_factory=list)
    """All that it has had."""

    @property
    def key(self) -> str:
        """The key by which it is found."""
        return self.intent.key

    @property
    def names(self) -> tuple[str, ...]:
        """What a script may call it."""
        return self.name, self.key

    def there(self, now: datetime) -> bool:
        """Return whether anything of it is left."""
        return self.gone is None or now < self.gone

    def shown(self, now: datetime) -> bool:
        """Return whether looks show it."""
        return self.there(now) and now >= self.visible

    def in_use(self, now: datetime) -> bool:
        """Return whether it could still do its work: not failed, not on its way out."""
        return self.failed is None and self.deleting is None and self.there(now)

    def view(self, now: datetime) -> MachineView:
        """Return what the supplier says of it."""
        condition = self._condition(now)
        exit_, ended = None, self.failed
        if condition is not MachineCondition.FAILED and self.runner and self.exit_kept:
            exit_ = self.runner.exit
            ended = exit_.at if exit_ else None
        return MachineView(
            handle=self.handle,
            key=self.key,
            condition=condition,
            billing_start=self.granted and self.granted + self.skew,
            ended_at=ended and ended + self.skew,
            reclaimed=self.reclaimed,
            exit=exit_.record(self.skew) if exit_ else None,
            address=f"10.0.0.1:{self.handle}",
            installation=self.intent.installation,
        )

    def _condition(self, now: datetime) -> MachineCondition:
        if not self.there(now):
            return MachineCondition.GONE
        if self.failed is not None:
            return MachineCondition.FAILED
        if self.runner is not None and self.runner.exit is not None and self.exit_kept:
            return MachineCondition.GONE
        if self.deleting is not None:
            return MachineCondition.STOPPING
        return MachineCondition.PENDING if self.granted is None else MachineCondition.RUNNING
