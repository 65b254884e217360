"""What ends a program ends those that tests start, however the tests were started.

What a process ignores, its children ignore: under `nohup` SIGHUP, in the background of a shell
SIGINT and SIGQUIT. A handler is not inherited, so the tests themselves go on ignoring them.
"""

import signal
from types import FrameType

ENDS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Ignore it, in this process alone."""


def pytest_configure() -> None:
    """Let what is ignored here take effect in what is started from here."""
    for number in ENDS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignore)
