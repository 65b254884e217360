"""A real `nodus serve` over TLS on a Postgres of its own, which can be stopped and started again.

Each client has a user of its own, so the server's log says who asked what.
"""

import asyncio
import http.client
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.cli.live import environment
from tests.clients.writing import Lives
from tests.history import rows
from tests.history.recording import assert_never_differed
from tests.history.truth import Truth

from nodus_api.cli import kubeconfig
from nodus_api.clock import SystemClock
from nodus_api.storage.access_store import AccessAdmin
from nodus_api.storage.embedded import EmbeddedPostgres
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.migrate import upgrade
from nodus_api.tls import client_context, ensure_certificates
from nodus_api.tokens import hash_secret, make_token

_DEADLINE = 150.0


async def until(
    condition: Callable[[], bool], what: Callable[[], str], seconds: float = _DEADLINE
) -> None:
    """Wait until a condition holds; fails, saying what never came, after so many seconds."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    while not condition():
        assert clock.monotonic() < deadline, f"not within {seconds} s: {what()}"
        await clock.sleep(0.05)


@dataclass
class Site:
    """Where the server is, and the hands on it."""

    root: Path
    postgres: EmbeddedPostgres
    lives: Lives
    port: int
    context: ssl.SSLContext
    tokens: dict[str, str] = field(default_factory=dict)
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return self.tokens["test"]

    @property
    def ca(self) -> Path:
        return self.root / "certs" / "ca.crt"

    @property
    def log(self) -> Path:
        return self.root / "serve.log"

    async def start(self) -> None:
        """Start the server, and wait until it is ready."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603, ASYNC220 -- ours; a start is short
                [
                    *(sys.executable, "-m", "nodus_api.cli.main", "serve"),
                    *("--database-url", self.postgres.url, "--data-dir", str(self.root)),
                    *("--bind", "127.0.0.1", "--port", str(self.port)),
                    *("--shutdown-delay-duration", "500ms"),
                    *("--shutdown-watch-termination-grace-period", "1s"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment(), "NODUS_LOG_FORMAT": "json"},
            )
        await until(self._ready, lambda: f"the server is ready: {self.log.read_text()[-2000:]}")

    async def kill(self) -> None:
        """End the server by SIGKILL."""
        assert self._process is not None
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        self._process = None

    @asynccontextmanager
    async def beside(self, name: str) -> AsyncIterator["Site"]:
        """Start one more replica on the same Postgres, with a data directory of its own."""
        root = self.root / name
        await asyncio.to_thread(shutil.copytree, self.root / "certs", root / "certs")
        other = replace(self, root=root, port=_free_port())
        other.told()
        try:
            await other.start()
            yield other
            assert_never_differed(other.log.read_text())
        finally:
            await other.stop()

    def told(self) -> None:
        """Put where a recorder looks for it what `nodus up` puts there."""
        (self.root / "database-url").write_text(self.postgres.url)
        shutil.copyfile(self.ca, self.root / "ca.crt")

    async def stop(self) -> None:
        """End the server as an operator does, by SIGTERM."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self._process.wait, 40)
        finally:
            self._process.kill()
            self._process = None

    async def stop_postgres(self) -> None:
        await asyncio.to_thread(self.postgres.stop)

    async def start_postgres(self) -> None:
        """Start it, if it is stopped, with connections of the writer anew."""
        await asyncio.to_thread(self.postgres.start)
        await self.lives.database.close()
        self.lives.database = Database(self.postgres.url, role=Role.SCHEDULER)

    def get(
        self, path: str, *, user: str = "test", accept: str = "", seconds: float = 30.0
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers by their lower-case names, and body of a GET."""
        connection = self.connection(seconds)
        try:
            headers = {"Authorization": f"Bearer {self.tokens[user]}"}
            connection.request(
                "GET", path, headers=headers | ({"Accept": accept} if accept else {})
            )
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, named, answer.read()
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        """Return the decoded body of a success."""
        status, _, body = self.get(path)
        assert status == 200, body
        return json.loads(body)

    def connection(self, seconds: float = 30.0) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=seconds, context=self.context
        )

    def kubeconfig(self, user: str) -> Path:
        """Write the kubeconfig of a client, and return where it is."""
        path = self.root / f"{user}.kubeconfig"
        path.write_text(
            kubeconfig.render(
                server=self.server,
                ca=self.ca.read_text(),
                token=self.tokens[user],
                project="default",
                user=user,
            )
        )
        return path

    async def truth(self) -> Truth:
        """Return the log as it is now."""
        return Truth(await rows.read_log(self.lives.database))

    def requests(self, user: str) -> list[dict[str, Any]]:
        """Return the watches and the refusals of a client, in the order of their ends."""
        lines = (line for line in self.log.read_text().splitlines() if line.startswith("{"))
        told = (json.loads(line) for line in lines)
        return [one for one in told if one.get("user") == user and "code" in one]

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()[-2000:]
        connection = self.connection(5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


@asynccontextmanager
async def running(folder: Path, users: list[str]) -> AsyncIterator[Site]:
    """Start everything in `folder`, which other accounts may traverse, with Attempts to see.

    All users but `nobody` are administrators.
    """
    clock = SystemClock()
    postgres = EmbeddedPostgres(folder, settings={"fsync": "off"})
    postgres.start()
    database = Database(postgres.url, role=Role.SCHEDULER)
    site = None
    try:
        await upgrade(postgres.url)
        files = ensure_certificates(folder / "certs", names=(), clock=clock)
        site = Site(
            root=folder,
            postgres=postgres,
            lives=Lives(database=database, clock=clock, chance=random.Random(4)),  # noqa: S311
            port=_free_port(),
            context=client_context(files.ca),
            tokens={user: await _token(database, user) for user in ["test", *users]},
        )
        site.told()
        await site.lives.begin()
        await site.start()
        yield site
        assert_never_differed(site.log.read_text())
    finally:
        if site is not None:
            await site.stop()
            await site.lives.database.close()
        await database.close()
        postgres.stop()


async def _token(database: Database, user: str) -> str:
    secret = os.urandom(32)
    made = make_token(os.urandom(8), secret)
    await AccessAdmin(database).create_token(
        id=made.id,
        secret_sha256=hash_secret(secret),
        username=user,
        groups=() if user == "nobody" else ("nodus:admins",),
        expires=None,
    )
    return made.text


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
