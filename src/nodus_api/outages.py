"""What is said of something that fails on and on: one line when it begins, one when it is over."""

import logging


class Outage:
    """One thing that may fail for a while, and is tried again all the time."""

    def __init__(self, log: logging.Logger, *, begins: str, over: str) -> None:
        """`begins` is logged as a warning with the cause, `over` for information."""
        self._log = log
        self._begins = begins
        self._over = over
        self._kind: str | None = None

    def failed(self, error: BaseException, **more: object) -> None:
        """Say what happened, unless the same kind of failure lasts already.

        Of two refusals with different codes each is told; all that tells of a lost connection is
        of one kind.
        """
        kind: str = getattr(error, "sqlstate", "")
        if kind != self._kind:
            self._kind = kind
            self._log.warning(self._begins, extra={"cause": str(error), **more})

    def passed(self) -> None:
        """Say that it is over, if it was not."""
        if self._kind is not None:
            self._kind = None
            self._log.info(self._over)
