"""What a runner is asked to do: `intent.json`, as the supplier writes and the runner reads it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nodus_api.runner.files import INTENT, read_json


class BadIntent(Exception):
    """The work directory holds no intent that this runner can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """The committed checkpoint to go on from: where it lies, and its checksum in hex (SC-141)."""

    uri: str
    sha256: str

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> "Restore | None":
        """Return the restore of a JSON object; raises KeyError."""
        return None if value is None else cls(uri=value["uri"], sha256=value["sha256"])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerIntent:
    """One machine's work; durations are seconds.

    `working_directory` is relative to the machine's own folder, if it is not absolute.
    `report_to` is `unix:/path/of/socket` or `https://host:port`. `context` holds the variables of
    SC-143 by name. With `inherit` the program's environment starts from the runner's own (an
    image's), else from nothing but `environment`. `linger` bounds how long a runner whose program
    has ended waits for a server that is away; `exit.json` stays in any case.
    `memory_group` is the cgroup v1 group in which `memory_bytes` is the program's limit (SC-713).
    `disk_bytes` must be free before the program starts. `checkpoints` is where the slot's
    checkpoints lie, by epoch and seq, and `copies`, in the same file system, where this machine
    makes them; both None where nothing keeps any. `restore` is the one to go on from. Once no
    answer has come for `partition_limit`, no new checkpoint is begun (SC-643).
    """

    installation: str
    machine: str
    attempt: str
    epoch: int
    fence: int
    command: tuple[str, ...]
    report_to: str
    environment: Mapping[str, str] = field(default_factory=dict)
    context: Mapping[str, str] = field(default_factory=dict)
    inherit: bool = False
    working_directory: str | None = None
    stop_grace: float = 30.0
    heartbeat: float = 10.0
    linger: float = 3600.0
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    cgroup: str | None = None
    memory_group: str | None = None
    checkpoints: str | None = None
    copies: str | None = None
    restore: Restore | None = None
    partition_limit: float = 600.0

    def to_json(self) -> dict[str, Any]:
        """Return the content of `intent.json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "RunnerIntent":
        """Return the intent of a JSON object.

        Fields that are not known are left out, so that a newer supplier can use an older runner.
        Raises BadIntent if a field that must be there is not.
        """
        known = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
        restore = value.get("restore")
        try:
            made = {"command": tuple(known["command"]), "restore": Restore.from_json(restore)}
            return cls(**{**known, **made})
        except (KeyError, TypeError) as error:
            raise BadIntent(f"intent.json lacks a field: {error}") from error

    @classmethod
    def read(cls, directory: Path) -> "RunnerIntent":
        """Return the intent of a work directory; raises BadIntent."""
        value = read_json(directory / INTENT)
        if value is None:
            raise BadIntent(f"{directory / INTENT} is missing or not a JSON object")
        return cls.from_json(value)


def program_environment(intent: RunnerIntent, own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the program; `own` is the runner's.

    Nothing in the runner's own environment is secret, and its token never enters one. What Nodus
    says of the incarnation (SC-143) cannot be overridden by the spec.
    """
    inherited = dict(own) if intent.inherit else {}
    return {**inherited, **intent.environment, **intent.context}
