"""The data directory: made, refused, locked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodus_api.cli.data_directory import open_data_directory, take_lock
from nodus_api.cli.errors import Refused


def test_a_missing_directory_is_made(tmp_path: Path) -> None:
    directory = open_data_directory(tmp_path / "a" / "b")

    mode = 0o711 if os.geteuid() == 0 else 0o700
    assert directory.root == tmp_path / "a" / "b"
    assert (tmp_path / "a").stat().st_mode & 0o777 == mode
    assert list(directory.root.iterdir()) == []


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("")

    with pytest.raises(
        Refused, match=r"cannot be written .*: give one .* with --data-dir"
    ) as found:
        open_data_directory(tmp_path / "d")
    assert found.value.exit_code == 2


def test_a_directory_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(Refused, match=r"The data directory /proc/nodus cannot be written"):
        open_data_directory(Path("/proc/nodus"))


def test_a_second_lock_is_refused(tmp_path: Path) -> None:
    directory = open_data_directory(tmp_path)
    with take_lock(directory):
        with pytest.raises(Refused) as found:
            take_lock(directory)
        assert str(found.value) == (
            f"The data directory {tmp_path} is in use by another `nodus up` (pid {os.getpid()}):"
            " stop that one, or choose another directory with --data-dir."
        )
    take_lock(directory).close()


def test_no_child_inherits_the_lock(tmp_path: Path) -> None:
    directory = open_data_directory(tmp_path)
    with take_lock(directory):
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            close_fds=False,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"\n"
    try:
        take_lock(directory).close()
    finally:
        child.communicate(timeout=10)


def test_private_files_are_private_from_the_first_moment(tmp_path: Path) -> None:
    directory = open_data_directory(tmp_path)
    directory.write_private(directory.token, "one\n")
    directory.write_private(directory.token, "two\n")

    assert directory.token.read_text() == "two\n"
    assert directory.token.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["token"]
