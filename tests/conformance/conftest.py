"""A live server with Attempts of every phase, for real clients."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from tests import programs
from tests.cli.live import Up, eventually, job
from tests.shared import Shared


@contextmanager
def _live(folder: Path) -> Iterator[Up]:
    with Up(folder / "conformance") as running, running.recorded():
        running.nodus("submit", "-f", "-", "--wait", stdin=job("fine", "sleep 1", completions=2))
        retried = job("retried", 'test "$NODUS_EPOCH" = 2', restart={"maxRetries": 1})
        running.nodus("submit", "-f", "-", "--wait", stdin=retried)
        running.nodus("submit", "-f", "-", stdin=job("running", "sleep 7200"))
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


_SHARED = Shared(_live)


@pytest.fixture
def live(open_folder: Path) -> Up:
    """`nodus up` with Jobs that succeeded, failed once, run, and fit nowhere."""
    return _SHARED.get(open_folder)


@dataclass(frozen=True, slots=True)
class Kubectl:
    """One version of kubectl, with the credentials of one server."""

    program: str
    root: Path

    def __call__(self, *arguments: str, code: int = 0, stdin: str = "", **environment: str) -> str:
        """Run it to its end and return what it printed, errors last."""
        done = subprocess.run(  # noqa: S603 -- found on the PATH, or fetched by its hash
            [*self.command, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=self.environment | environment,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    @contextmanager
    def started(self, *arguments: str) -> Iterator[IO[str]]:
        """Yield the output of a command that goes on until this is left."""
        running = subprocess.Popen(  # noqa: S603 -- the same
            [*self.command, *arguments], stdout=subprocess.PIPE, text=True, env=self.environment
        )
        assert running.stdout is not None
        try:
            with running.stdout:
                yield running.stdout
                running.terminate()
        finally:
            running.kill()
            running.wait(20)

    @property
    def command(self) -> tuple[str, ...]:
        return (self.program, "--kubeconfig", str(self.root / "kubeconfig"))

    @property
    def environment(self) -> dict[str, str]:
        cache = self.root / f"kube-cache-{Path(self.program).parent.name}"
        return {**os.environ, "KUBECACHEDIR": str(cache)}


@pytest.fixture(params=list(programs.KUBECTL))
def kubectl(live: Up, request: pytest.FixtureRequest) -> Kubectl:
    """Run each kubectl against the live server; skipped where it could not be had."""
    found = programs.kubectl(request.param)
    if found is None:
        pytest.skip(f"kubectl {request.param} was not fetched: see tests/programs.py")
    return Kubectl(str(found), live.root)
