"""What a command does that is told to end."""

import signal
import subprocess
import sys

import pytest
from tests.cli.live import begun

WAITS = """
import asyncio, signal, threading
from nodus_api.cli.interrupts import ended_like_ctrl_c, undisturbed
{before}
try:
    with ended_like_ctrl_c():
        try:
            {body}
        finally:
            with undisturbed():
                signal.raise_signal(signal.SIGTERM)  # somebody is impatient
                print("ended what it started", flush=True)
finally:
    print("never said after a signal", flush=True)
"""
BODIES = {
    "plain": "print('waits', flush=True); threading.Event().wait()",
    "asyncio": "print('waits', flush=True); asyncio.run(asyncio.Event().wait())",
    "short": "print('waits', flush=True); signal.sigtimedwait([], 0.5)",
}
IGNORES_SIGINT = "signal.signal(signal.SIGINT, signal.SIG_IGN)"  # as a shell does behind `&`


def told(body: str, number: signal.Signals, before: str = "") -> tuple[int, str]:
    """Run a program until it waits, send it a signal, and return its end and what it said."""
    program = [sys.executable, "-c", WAITS.format(body=BODIES[body], before=before)]
    with begun(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waits\n"
        child.send_signal(number)
        said, _ = child.communicate(timeout=60)
    return child.returncode, said


@pytest.mark.parametrize("before", ["", IGNORES_SIGINT])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("body", ["plain", "asyncio"])
def test_it_ends_what_it_started_and_then_by_the_signal(
    body: str, number: signal.Signals, before: str
) -> None:
    assert told(body, number, before) == (-number, "ended what it started\n")


def test_nohup_is_respected() -> None:
    code, said = told("short", signal.SIGHUP, "signal.signal(signal.SIGHUP, signal.SIG_IGN)")

    assert "ended what it started\n" in said
    assert code == -signal.SIGTERM  # of the impatient one
