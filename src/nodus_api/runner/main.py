"""The runner from its arguments to its end: run what the work directory's intent says."""

import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from nodus_api.runner import cgroup
from nodus_api.runner.client import ReportClient
from nodus_api.runner.files import CA, TOKEN
from nodus_api.runner.identity import claim
from nodus_api.runner.intent import BadIntent, RunnerIntent
from nodus_api.runner.life import Life

logger = logging.getLogger("nodus_api.runner")

_NOT_MINE = 0
_UNUSABLE = 2


def main(arguments: list[str]) -> int:
    """Run to the end; exit code 0, or 2 if the directory cannot be used."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m nodus_api.runner DIRECTORY\n")
        return _UNUSABLE
    directory = Path(arguments[0]).absolute()
    gc.freeze()  # what is loaded by now stays to the end
    gc.enable()
    _close_inherited()
    _log_to_stderr()
    early: list[int] = []
    _listen(early.append)
    try:
        intent = RunnerIntent.read(directory)
        intent = _enter_cgroup(intent)
        if not claim(directory):
            return _NOT_MINE
        token = (directory / TOKEN).read_text(encoding="ascii").strip()
    except (BadIntent, OSError) as error:
        sys.stderr.write(f"{directory} cannot be used: {error}\n")
        return _UNUSABLE
    ca = directory / CA
    client = ReportClient(intent.report_to, token=token, ca=ca if ca.exists() else None)
    life = Life(directory, intent, client.post)
    _listen(life.signalled)
    for number in early:
        life.signalled(number)
    life.run()
    return 0


def _listen(noted: Callable[[int], object]) -> None:
    # A handler, not SIG_IGN: what is ignored stays ignored in the program.
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda received, _: noted(received))


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    line = "%(asctime)s %(levelname)s %(message)s%(cause)s"
    handler.setFormatter(logging.Formatter(line, defaults={"cause": ""}))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _enter_cgroup(intent: RunnerIntent) -> RunnerIntent:
    """Go into the machine's cgroup; without it the session alone holds the machine together."""
    if intent.cgroup is None:
        return intent
    try:
        cgroup.enter(Path(intent.cgroup), cgroup.RUNNER)
    except OSError as error:
        logger.warning("the cgroup cannot be entered", extra={"cause": f": {error}"})
        return replace(intent, cgroup=None)
    return intent


def _close_inherited() -> None:
    """Close what the parent left open, and leave no memory image with the token in it."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):
                os.close(int(name))
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
