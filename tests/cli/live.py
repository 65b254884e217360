"""`nodus up` as a child process, its clients, and waiting for what it does."""

import http.client
import json
import logging
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from click.testing import CliRunner, Result
from tests.history.recording import Recorder, assert_never_differed

from nodus_api.cli import processes
from nodus_api.cli.main import main
from nodus_api.clock import SystemClock
from nodus_api.runner.session import kill_members

T = TypeVar("T")
NODUS = (sys.executable, "-m", "nodus_api.cli.main")
ATTEMPTS = "/apis/nodus.dev/v1/namespaces/default/attempts"

_SHORTEST, _LONGEST = 0.02, 0.25  # seconds between two looks


def environment() -> dict[str, str]:
    """Return this process's environment without settings, with the modules at hand.

    Servers compare their caches with the database all the time (G11).
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NODUS_")}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(one for one in sys.path if one),
        "NODUS_CONSISTENCY_INTERVAL": "2s",
    }


@contextmanager
def begun(command: Sequence[str], **how: Any) -> Iterator["subprocess.Popen[Any]"]:
    """Run a command as a child of this environment, which is killed if the block leaves it alive.

    `Popen` itself would wait for it, without a limit.
    """
    with subprocess.Popen(command, **{"env": environment(), **how}) as child:  # noqa: S603 -- ours
        try:
            yield child
        finally:
            child.kill()


def eventually(condition: Callable[[], T], seconds: float = 30.0) -> T:
    """Return the first true answer of `condition`; fail after so many seconds.

    What lasts long is looked at less and less often: a look may be a command, or a TLS connection.
    """
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    between_looks, pause = threading.Event(), _SHORTEST
    while not (answer := condition()):
        assert clock.monotonic() < deadline, f"not within {seconds} s"
        between_looks.wait(pause)
        pause = min(pause * 1.25, _LONGEST)
    return answer


def invoke(*arguments: object, stdin: str | None = None) -> Result:
    """Run a command in this process, and take back what it configured."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        return CliRunner().invoke(
            main, [str(one) for one in arguments], input=stdin, catch_exceptions=False
        )
    finally:
        # what a command configured writes to a stream that is gone now
        for handler in [one for one in root.handlers if one not in handlers]:
            root.removeHandler(handler)
        root.setLevel(level)
        logging.captureWarnings(capture=False)


def job(name: str, program: str, **spec: Any) -> str:
    """Return the manifest of a Job that runs a shell program."""
    return yaml.safe_dump(
        {
            "apiVersion": "nodus.dev/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"template": {"command": ["sh", "-c", program]}, **spec},
        }
    )


@dataclass
class Up:
    """One data directory and the `nodus up` that runs on it."""

    root: Path
    arguments: tuple[str, ...] = ()
    process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)
    recorder: Recorder | None = field(default=None, init=False)

    def __enter__(self) -> "Up":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self._end_runners()

    def _end_runners(self) -> None:
        """End what runs on the machines of the data directory: it outlives `nodus up`."""
        machines = os.fsencode(self.root / "machines") + b"/"
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                arguments = Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
                if any(one.startswith(machines) for one in arguments):
                    kill_members(int(pid))  # a runner leads the session of its program

    @property
    def log(self) -> Path:
        return self.root.with_name(f"{self.root.name}.log")

    @property
    def run_dir(self) -> Path:
        return self.root / "run"

    def start(self) -> None:
        """Start it on a free port, and wait for its ready line."""
        before = self.said().count("Nodus is ready")
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(  # noqa: S603 -- ours
                [*NODUS, "up", "--port", "0", "--data-dir", str(self.root), *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment(),
                start_new_session=True,
            )

        def ready() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.said()
            return self.said().count("Nodus is ready") > before

        eventually(ready, 60)

    def stop(self) -> int:
        """End it as Ctrl-C does, and return its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """End the supervisor alone, by SIGKILL."""
        assert self.process is not None
        self._cutting()
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def pid(self, part: str) -> int:
        """Return the pid of a living part, else 0."""
        found = processes.recorded(self.run_dir).get(part)
        return 0 if found is None else found.pid

    def kill_part(self, part: str) -> int:
        """Kill a part with SIGKILL and return its pid."""
        pid = self.pid(part)
        assert pid
        self._cutting()
        os.kill(pid, signal.SIGKILL)
        return pid

    def _cutting(self) -> None:
        """Tell the recorder that watches may break from now on (H-20)."""
        if self.recorder is not None:
            self.recorder.killed()

    def nodus(self, *arguments: str, stdin: str | None = None, check: bool = True) -> Result:
        """Run a command on this data directory, in this process."""
        done = invoke(*arguments, "--data-dir", self.root, stdin=stdin)
        assert not check or done.exit_code == 0, done.stderr
        return done

    @contextmanager
    def recorded(self) -> Iterator["Up"]:
        """Watch it from now on, and check all that was seen at the end (H-01 to H-23, G11)."""
        with Recorder(self) as self.recorder:
            yield self
        self.recorder = None
        assert_never_differed(self.said())

    # the public API, by the standard library alone ---------------------------------------------

    @property
    def server(self) -> str:
        config = yaml.safe_load((self.root / "kubeconfig").read_text())
        return str(config["clusters"][0]["cluster"]["server"])

    @property
    def token(self) -> str:
        return (self.root / "token").read_text().strip()

    @contextmanager
    def get(
        self, path: str, token: str | None = None, seconds: float = 30.0
    ) -> Iterator[http.client.HTTPResponse]:
        """Yield the answer to a GET."""
        context = ssl.create_default_context(cafile=str(self.root / "ca.crt"))
        connection = http.client.HTTPSConnection(
            self.server.removeprefix("https://"), timeout=seconds, context=context
        )
        try:
            connection.request(
                "GET", path, headers={"Authorization": f"Bearer {token or self.token}"}
            )
            yield connection.getresponse()
        finally:
            connection.close()

    def json(self, path: str = ATTEMPTS) -> Any:
        """Return the decoded body of a success."""
        asked = self.recorder.now() if self.recorder else None
        with self.get(path) as answer:
            body = answer.read()
            assert answer.status == 200, body
        if self.recorder and asked:
            self.recorder.took(path, asked, answer.status, body)
        return json.loads(body)

    def attempts(self, owner: str) -> list[dict[str, Any]]:
        """Return a Job's Attempts, by slot and epoch."""
        found = self.json(f"{ATTEMPTS}?labelSelector=nodus.dev/job%3D{owner}")["items"]
        return sorted(found, key=lambda one: (one["spec"]["slot"], one["spec"]["epoch"]))
