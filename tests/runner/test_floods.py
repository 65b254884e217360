"""Programs that write more than anyone reads: it costs neither the disk nor the end."""

import os
import signal
import sys
from contextlib import suppress

from tests.runner.conftest import Bench

from nodus_api.runner import files

ESCAPED = """
import os, signal, sys
fifo = os.open(os.environ["NODUS_PROGRESS"], os.O_RDWR)
for _ in range(3):
    child = os.fork()
    if child == 0:
        os.setsid()
        signal.alarm(100)
        while True:
            os.write(fifo, b"x\\n" * 2000)
    print(child, flush=True)
"""


async def test_who_has_left_the_session_does_not_put_off_the_end(bench: Bench) -> None:  # SC-641
    bench.prepare(sys.executable, "-c", ESCAPED)
    await bench.run()
    try:
        await bench.finished(seconds=40)
    finally:
        for pid in (bench.directory / files.STDOUT).read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    assert bench.exit_json()["exitCode"] == 0


async def test_bad_lines_without_end_do_not_fill_the_log(bench: Bench) -> None:  # SC-642
    bench.prepare("/bin/sh", "-c", "yes x | head -c 200000 > $NODUS_PROGRESS")
    await bench.run()
    await bench.finished(seconds=60)
    assert (bench.directory / files.LOG).read_text().count("is not JSON") == 100
