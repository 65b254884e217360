"""What a simulated runner has around it: a machine, a network and disks."""

from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from nodus_api.suppliers.simulated.reports import Letter

if TYPE_CHECKING:
    from nodus_api.suppliers.simulated.runner import Runner


class Surroundings(Protocol):
    """What a runner needs of the fleet and its machine."""

    def post(self, letter: Letter, at: datetime) -> None:
        """Send a report on its way."""
        ...

    def started(self, runner: "Runner", at: datetime) -> None:
        """Take note that a program began."""
        ...

    def ended(self, runner: "Runner", at: datetime) -> None:
        """Take note that a program, or the way to one, is over."""
        ...

    def saved(self, runner: "Runner", uri: str) -> None:
        """Keep a checkpoint."""
        ...

    def keeps(self, uri: str) -> bool:
        """Return whether a checkpoint is kept."""
        ...

    def unfit(self) -> bool:
        """Return whether the machine is less than was promised."""
        ...

    def silent(self, at: datetime) -> bool:
        """Return whether the runner's heartbeats do not get through then."""
        ...
