"""`nodus up --supplier simulated`: the same scheduler on machines that exist in memory (SC-730)."""

from pathlib import Path

import pytest
import yaml
from tests.cli.live import Up


@pytest.mark.slow  # a whole `nodus up`
def test_ten_minutes_pass_in_a_second(open_folder: Path) -> None:
    manifest = {
        "apiVersion": "nodus.dev/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {
            "template": {
                "command": ["python", "train.py"],
                "env": {"SIMULATED_SECONDS": "600", "SIMULATED_EXIT_CODE": "0"},
            },
            "resources": {"accelerators": ["h100-sxm"], "count": 1},
        },
    }
    with Up(open_folder / "simulated", ("--supplier", "simulated", "--speed", "1000")) as up:
        done = up.nodus("submit", "-f", "-", "--wait", stdin=yaml.safe_dump(manifest))
        (attempt,) = up.attempts("train")

    assert done.stdout.splitlines()[-1] == "job/train succeeded."
    assert attempt["status"]["placement"]["offering"].startswith("sim-h100-sxm-")
    assert attempt["status"]["exitCode"] == 0
