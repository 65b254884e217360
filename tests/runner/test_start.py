"""What a runner costs before it does anything: one is started for every life."""

import os
import subprocess
import sys
from pathlib import Path

import nodus_api

# Each took a tenth of a runner's start and more, and serves what most programs never ask for:
# TLS and a client for it, checksums, the removal of trees.
HEAVY = ("email", "hashlib", "http", "shutil", "ssl")


def test_runner_loads_only_what_every_program_needs() -> None:
    code = (
        f"import sys, nodus_api.runner.main\nprint([one for one in {HEAVY} if one in sys.modules])"
    )
    source = str(Path(nodus_api.__file__).parent.parent)
    done = subprocess.run(  # noqa: S603 -- our own
        [sys.executable, "-P", "-S", "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[]"
