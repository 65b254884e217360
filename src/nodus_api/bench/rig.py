"""The product under measurement: an embedded Postgres and a real `nodus serve` over TLS."""

import asyncio
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from nodus_api.bench.report import NotMeasured
from nodus_api.clock import Clock
from nodus_api.storage.access_store import AccessAdmin
from nodus_api.storage.embedded import EmbeddedPostgres
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.migrate import upgrade
from nodus_api.tls import client_context, ensure_certificates
from nodus_api.tokens import hash_secret, make_token

_START_SECONDS = 30.0


class RigFailed(NotMeasured):
    """The product did not start; the sentence says where to look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """Where the running product is reached."""

    database_url: str
    host: str
    port: int
    token: str
    tls: ssl.SSLContext


@asynccontextmanager
async def running(
    folder: Path, *, clock: Clock, entropy: Callable[[int], bytes]
) -> AsyncIterator[Rig]:
    """Start everything in `folder`, which other accounts may traverse; stop it at the end.

    `entropy` gives so many random bytes for the token. Raises RigFailed.
    """
    postgres = EmbeddedPostgres(folder)
    postgres.start()
    try:
        await upgrade(postgres.url)
        files = ensure_certificates(folder / "certs", names=(), clock=clock)
        token = await admin_token(postgres.url, entropy)
        with _serve(postgres.url, folder) as port:
            rig = Rig(
                database_url=postgres.url,
                host="127.0.0.1",
                port=port,
                token=token,
                tls=client_context(files.ca),
            )
            await _until_ready(rig, clock, folder)
            yield rig
    finally:
        postgres.stop()


async def admin_token(url: str, entropy: Callable[[int], bytes], *, username: str = "bench") -> str:
    """Make a token of an administrator; return its text."""
    secret = entropy(32)
    token = make_token(entropy(8), secret)
    database = Database(url, role=Role.SCHEDULER)
    try:
        await AccessAdmin(database).create_token(
            id=token.id,
            secret_sha256=hash_secret(secret),
            username=username,
            groups=("nodus:admins",),
            expires=None,
        )
    finally:
        await database.close()
    return token.text


def serve_command(url: str, folder: Path, port: int) -> list[str]:
    """Return the words that start a replica on a loopback port."""
    return [
        *(sys.executable, "-m", "nodus_api.cli.main", "serve"),
        *("--database-url", url, "--data-dir", str(folder)),
        *("--bind", "127.0.0.1", "--port", str(port)),
        # nobody routes to it any more when it is stopped
        *("--shutdown-delay-duration", "0s"),
        *("--shutdown-watch-termination-grace-period", "0s"),
    ]


@contextmanager
def _serve(url: str, folder: Path) -> Iterator[int]:
    port = free_port()
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 -- our own program
            serve_command(url, folder, port),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
        try:
            yield port
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """Return a loopback port that nobody has now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def _until_ready(rig: Rig, clock: Clock, folder: Path) -> None:
    deadline = clock.monotonic() + _START_SECONDS
    while not await _answers(rig):
        if clock.monotonic() > deadline:
            raise RigFailed(f"`nodus serve` was not ready in time: read {folder / 'serve.log'}.")
        await clock.sleep(0.05)


async def _answers(rig: Rig) -> bool:
    return await ready(rig.host, rig.port, rig.tls)


async def ready(host: str, port: int, tls: ssl.SSLContext) -> bool:
    """Return whether a replica says that it is ready."""
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    except OSError:
        return False
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
        await writer.drain()
        return b" 200 " in await reader.readline()
    except OSError:
        return False
    finally:
        writer.close()
