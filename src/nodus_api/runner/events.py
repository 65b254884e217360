"""What a life's threads put into its queue; the main thread alone acts on it."""

from dataclasses import dataclass

from nodus_api.runner.channel import Line
from nodus_api.runner.checkpoints import Copied
from nodus_api.runner.client import Answer
from nodus_api.runner.outbox import Report
from nodus_api.runner.restoring import Fetched, NotFetched


@dataclass(frozen=True, slots=True)
class Answered:
    """The server answered a report, or refused it."""

    report: Report
    answer: Answer


@dataclass(frozen=True, slots=True)
class Ended:
    """The program ended, at a moment of `times.elapsed`."""

    at: float


@dataclass(frozen=True, slots=True)
class Signalled:
    """The runner itself got a signal."""

    number: int


@dataclass(frozen=True, slots=True)
class Silent:
    """The channel has heard all that the program wrote before its end."""


Event = Answered | Ended | Signalled | Silent | Line | Copied | Fetched | NotFetched
