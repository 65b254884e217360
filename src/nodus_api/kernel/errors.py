"""What the kernel refuses, by the fact that was wrong."""

from nodus_api.kernel.events import Event
from nodus_api.kernel.vocabulary import Stage


class IllegalTransition(Exception):
    """SC-004 lists no transition for this event in this stage.

    Either somebody else moved the Attempt first (read it again and decide again),
    or the event contradicts the Attempt (it is logged and dropped).
    """

    def __init__(self, stage: Stage, event: Event) -> None:
        super().__init__(f"{type(event).__name__} is not possible in stage {stage}: {event}")
        self.stage = stage
        self.event = event
