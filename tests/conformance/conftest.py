"""A live server with Attempts of every phase, for real clients."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.live import Up, eventually, job

Kubectl = Callable[..., str]


@pytest.fixture(scope="session")
def live(open_folder: Path) -> Iterator[Up]:
    """`nodus up` with Jobs that succeeded, failed once, run, and fit nowhere."""
    with Up(open_folder / "conformance") as running, running.recorded():
        running.nodus("submit", "-f", "-", "--wait", stdin=job("fine", "sleep 1", completions=2))
        retried = job("retried", 'test "$NODUS_EPOCH" = 2', restart={"maxRetries": 1})
        running.nodus("submit", "-f", "-", "--wait", stdin=retried)
        running.nodus("submit", "-f", "-", stdin=job("running", "sleep 600"))
        huge = job("unplaceable", "true", resources={"accelerators": ["h100"], "count": 8})
        running.nodus("submit", "-f", "-", stdin=huge)
        eventually(
            lambda: [one["status"]["phase"] for one in running.attempts("running")] == ["Running"]
        )
        eventually(
            lambda: (
                [one["status"]["phase"] for one in running.attempts("unplaceable")] == ["Failed"]
            )
        )
        yield running
        running.nodus("stop", "job/running")
        eventually(
            lambda: "deletionProvenTime" in running.attempts("running")[0]["status"]["timings"]
        )


@pytest.fixture(scope="session")
def kubectl(live: Up) -> Kubectl:
    """Run the machine's kubectl against the live server; skipped where there is none."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not on the PATH")

    def run(*arguments: str, code: int = 0, stdin: str = "", **environment: str) -> str:
        done = subprocess.run(  # noqa: S603 -- found on the PATH
            [program, "--kubeconfig", str(live.root / "kubeconfig"), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "KUBECACHEDIR": str(live.root / "kube-cache"), **environment},
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return run
