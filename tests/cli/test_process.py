"""The program's own beginning and end."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.live import environment

PROGRAM = """
import atexit, gc, logging, sys, tempfile, threading, weakref
from nodus_api.cli.process import as_process, collect_from_now_on

class Cyclic:
    def __init__(self):
        self.me = self
    def __del__(self):
        print("taken apart", flush=True)

def program():
    assert not gc.isenabled()
    collect_from_now_on()
    assert gc.isenabled()
    atexit.register(print, "registered")
    kept.append(Cyclic())
    threading.Thread(target=lambda: (threading.Event().wait(0.2), print("thread"))).start()
    sys.stdout.write("unflushed ")
    {last}

kept = []
as_process(program)
"""


@pytest.mark.parametrize(
    ("last", "code", "err"),
    [
        ("return 7", 0, ""),
        ("sys.exit(0)", 0, ""),
        ("sys.exit(None)", 0, ""),
        ("sys.exit(2)", 2, ""),
        ("sys.exit('why')", 1, "why\n"),
        ("raise ValueError('no')", 1, "ValueError: no\n"),
    ],
)
def test_it_exits_as_the_program_says_and_takes_nothing_apart(
    last: str, code: int, err: str
) -> None:
    done = subprocess.run(  # noqa: S603 -- ours
        [sys.executable, "-c", PROGRAM.format(last=last)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment(),
    )

    assert (done.returncode, done.stdout) == (code, "unflushed thread\nregistered\n")
    assert done.stderr.endswith(err)
    assert ("Traceback" in done.stderr) is ("ValueError" in err)


def test_what_cannot_be_written_is_no_success() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(  # noqa: S603 -- ours
            [sys.executable, "-c", PROGRAM.format(last="sys.exit(0)")],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env={**environment(), "PYTHONUNBUFFERED": ""},
        )

    assert (done.returncode, done.stderr) == (1, "")
