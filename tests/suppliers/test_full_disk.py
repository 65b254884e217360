"""A program that fills the disk of all machines: its deletion gives the room back."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runner.report_server import ReportServer
from tests.suppliers.conformance import an_intent, eventually
from tests.suppliers.conftest import a_supplier

from nodus_api.runner import files
from nodus_api.suppliers.local.workdir import WorkDirectories
from nodus_api.suppliers.supplier import Ambiguous, Verdict


def _ran(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A directory whose `machines` is a file system of 2 MiB of its own."""
    root = Path(tempfile.mkdtemp(prefix="nodus-"))
    machines = root / "machines"
    machines.mkdir()
    if not _ran("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(machines)):
        pytest.skip("this user may mount nothing")
    yield root
    assert _ran("umount", "-l", str(machines))


async def test_a_machine_that_filled_the_disk_is_deleted(small_disk: Path) -> None:  # SC-712
    server = ReportServer(small_disk / "runner.sock")
    await server.start()
    supplier = a_supplier(small_disk, server)
    full = small_disk / "full"
    script = f"cat /dev/zero > big; cat /dev/zero > ../more; : > {full}; exec sleep 60"
    await supplier.create(an_intent("filled", "/bin/sh", "-c", script))

    async def filled() -> bool:
        return full.exists()

    async def gone() -> bool:
        try:
            await supplier.delete("filled")
        except Ambiguous:
            return False
        return (await supplier.prove_deleted("filled")).verdict is Verdict.GONE

    try:
        await eventually(filled)
        await eventually(gone)
    finally:
        await server.stop()
    assert (small_disk / "machines" / ".gone" / "filled").exists()


def test_a_hollow_machine_keeps_its_records(tmp_path: Path) -> None:  # SC-712
    directories = WorkDirectories(tmp_path)
    directories.make("m", {"installation": "x"}, "token")
    closed = directories.path("m") / files.WORK / "closed"
    closed.mkdir(parents=True)
    (closed / "big").write_bytes(b"x" * 100)
    (directories.path("m") / "link").symlink_to("/")
    closed.chmod(0)

    directories.hollow("m")
    directories.hollow("nowhere")

    assert [one.name for one in directories.path("m").iterdir()] == [files.INTENT]
