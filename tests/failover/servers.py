"""Two real servers, one following the other, and a door before them that tests move and shut."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from nodus_api.storage.account import Account
from nodus_api.storage.embedded import SOCKET, SUPERUSER, EmbeddedPostgres

SETTINGS = {"fsync": "off", "wal_receiver_status_interval": "1"}


class Server(EmbeddedPostgres):
    """A server that was copied from another one."""

    @property
    def run_dir(self) -> Path:
        return self._run_dir

    @property
    def socket(self) -> Path:
        return self._run_dir / SOCKET

    def promote(self) -> None:
        """Let it lead; it takes writes when this returns."""
        data, binaries, account = self._prepare()
        done = self._run(account, binaries / "pg_ctl", "-D", data, "-w", "-t", "60", "promote")
        assert done.returncode == 0, done.stderr or done.stdout

    def crash(self) -> None:
        """End it as a loss of power does."""
        data, binaries, account = self._prepare()
        stop = ("-D", data, "-w", "-m", "immediate", "stop")
        done = self._run(account, binaries / "pg_ctl", *stop)
        assert done.returncode == 0, done.stderr or done.stdout

    def tool(self, name: str, *arguments: str, feed: str = "") -> str:
        """Run a program of the server as its account."""
        _, binaries, account = self._prepare()
        done = self._run(account, binaries / name, *arguments, feed=feed)
        assert done.returncode == 0, done.stderr or done.stdout
        return done.stdout


def copy_of(source: EmbeddedPostgres, root: Path, *, follows: bool = False) -> Server:
    """Return a server that begins as `source` stands, not started; as its standby if it follows."""
    data, binaries, account = source._prepare()
    root.mkdir(mode=0o711)
    copied = root / data.name
    copied.mkdir(mode=0o700)
    _give(copied, account)
    form = ["-X", "fetch", "--checkpoint=fast", "--no-sync", *(["-R"] if follows else [])]
    done = source._run(
        account,
        binaries / "pg_basebackup",
        "-D",
        copied,
        "-h",
        source._run_dir,
        "-U",
        SUPERUSER,
        *form,
    )
    assert done.returncode == 0, done.stderr
    return Server(root, binaries=binaries, settings=SETTINGS)


def _give(folder: Path, account: Account) -> None:
    if account.switch:
        os.chown(folder, account.uid, account.gid)


@contextlib.contextmanager
def frozen(postmaster: int) -> Iterator[None]:
    """Stop every process of a server for the length of the block."""
    stopped: list[int] = []
    try:
        for pid in (postmaster, *_children(postmaster)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
        yield
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


class Door:
    """A TCP address before a server's socket: moved to another one, or made to swallow all."""

    def __init__(self) -> None:
        self._to: Path | None = None
        self._flows = asyncio.Event()
        self._flows.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> "Door":
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._flows.set()
        self.cut()

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"postgresql://{SUPERUSER}@127.0.0.1:{port}/nodus?sslmode=disable"

    def lead_to(self, server: Path | None) -> None:
        """Let new connections through to a server's socket, or to nobody: they are refused."""
        self._to = server

    def cut(self) -> None:
        """End every connection."""
        for writer in self._writers:
            writer.transport.abort()

    def swallow(self) -> None:
        """Take whatever comes and pass nothing on, old and new; nobody is told."""
        self._flows.clear()

    def flow(self) -> None:
        """Pass things on again, what was swallowed too."""
        self._flows.set()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        await self._flows.wait()
        if self._to is None:
            writer.transport.abort()
            return
        try:
            back, forth = await asyncio.open_unix_connection(self._to)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(forth)
        await asyncio.gather(self._pump(reader, forth), self._pump(back, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(65536):
                await self._flows.wait()
                writer.write(piece)
        writer.transport.abort()
