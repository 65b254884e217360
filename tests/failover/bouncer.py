"""A real pgbouncer in transaction mode before the session's server."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.cli.live import eventually

from nodus_api.storage.embedded import EmbeddedPostgres

PORT = 6432

_CONFIGURATION = """
[databases]
nodus = host={server} port=5432 dbname=nodus user=postgres
[pgbouncer]
unix_socket_dir = {folder}
listen_port = {port}
auth_type = any
pool_mode = transaction
default_pool_size = {size}
logfile = {folder}/pgbouncer.log
pidfile = {folder}/pgbouncer.pid
"""


def program() -> str | None:
    """Return the program, if Debian's package is installed."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextlib.contextmanager
def bouncer(server: EmbeddedPostgres, folder: Path, *, size: int) -> Iterator[str]:
    """Yield the address of a pooler with `size` connections to the server, while it runs."""
    _, _, account = server._prepare()
    found = program()
    assert found is not None
    folder.mkdir(mode=0o700)
    if account.switch:
        os.chown(folder, account.uid, account.gid)
    written = folder / "pgbouncer.ini"
    written.write_text(
        _CONFIGURATION.format(server=server._run_dir, folder=folder, port=PORT, size=size)
    )
    written.chmod(0o644)
    running = subprocess.Popen(  # noqa: S603 -- Debian's, found above
        [found, "-q", str(written)],
        user=account.uid if account.switch else None,
        group=account.gid if account.switch else None,
        extra_groups=[] if account.switch else None,
        stdin=subprocess.DEVNULL,
    )
    try:
        socket = folder / f".s.PGSQL.{PORT}"
        eventually(lambda: socket.exists() or running.poll() is not None)
        assert running.poll() is None, (folder / "pgbouncer.log").read_text()
        yield f"postgresql://postgres@/nodus?host={folder}&port={PORT}"
    finally:
        running.terminate()
        running.wait(30)
        shutil.rmtree(folder)
