"""What each kind of runner report may carry (SC-641), checked where it comes in.

A runner shares its machine with the program, so nothing it sends is trusted: a value that no row
could hold would stop its Attempt at every pass. What a kind does not know is left out, so that a
newer runner is understood.
"""

from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, model_validator

_LONGEST_AGE_MS = 10 * 365 * 86_400_000
_MESSAGE_BYTES = 1024
_BIGGEST = 2**63 - 1


def kept_text(text: str) -> str:
    """Return a text as it is kept and shown: printable, at most 1 KiB.

    A row holds no NUL and no half of a pair, and a terminal obeys control characters.
    """
    whole = text[: 2 * _MESSAGE_BYTES].replace("\0", "").encode(errors="replace")
    cut = whole[:_MESSAGE_BYTES].decode(errors="ignore")
    return "".join(one if one.isprintable() else " " for one in cut)


Age = Annotated[float, Field(ge=0, le=_LONGEST_AGE_MS)]
"""Milliseconds since an event, on the runner's steady clock (SC-615)."""
Count = Annotated[int, Field(ge=0, le=_BIGGEST)]
Text = Annotated[str, AfterValidator(kept_text)]


class Part(BaseModel):
    """A part of a report: unknown fields are left out."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, populate_by_name=True)


class Cursor(Part):
    """How far the program has come."""

    completed: Count
    total: Count

    @model_validator(mode="after")
    def _within(self) -> Self:
        if self.completed > self.total:
            raise ValueError("completed is more than total")
        return self


class Checks(Part):
    """What the runner saw of its machine; `failed` names what was not as promised."""

    cpus: Count | None = None
    failed: Annotated[list[Text], Field(max_length=32)] = Field(default_factory=list)


class Report(Part):
    """What all reports carry."""

    attempt: Annotated[UUID, Field(strict=False)]
    epoch: int = Field(ge=1, lt=2**31)
    n: int = Field(ge=1, le=_BIGGEST)
    age_ms: Age = Field(alias="ageMs")


class Registered(Report):
    """The runner is there."""

    kind: Literal["registered"]
    checks: Checks = Field(default_factory=Checks)
    pull_ms: Age | None = Field(default=None, alias="pullMs")


class CanStart(Report):
    """The runner asks whether it may start the program."""

    kind: Literal["canStart"]


class Started(Report):
    """The program runs."""

    kind: Literal["started"]
    restore_bytes: Count | None = Field(default=None, alias="restoreBytes")


class Heartbeat(Report):
    """Runner and program are alive; `activeAgeMs` is how long ago the program last said something.

    Its absence means: nothing yet.
    """

    kind: Literal["heartbeat"]
    cursor: Cursor | None = None
    active_age_ms: Age | None = Field(default=None, alias="activeAgeMs")


class Checkpoint(Report):
    """The runner proposes a checkpoint, with all that its row needs (SC-142)."""

    kind: Literal["checkpoint"]
    seq: Annotated[int, Field(ge=1, lt=2**31)]
    bytes: Count
    uri: Annotated[str, Field(min_length=1, max_length=4096, pattern="^[!-~]+$")]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    cursor: Cursor | None = None


class Notice(Report):
    """The machine was told that it will be reclaimed."""

    kind: Literal["notice"]
    deadline: Text | None = None


class Exited(Report):
    """The program ended, or never started: then neither code nor signal is told."""

    kind: Literal["exited"]
    exit_code: Annotated[int, Field(ge=0, le=255)] | None = Field(default=None, alias="exitCode")
    signal: Annotated[int, Field(ge=1, le=64)] | None = None
    oom: bool = False
    restore_bytes: Count | None = Field(default=None, alias="restoreBytes")
    error: Text | None = None
    message: Text = ""
    start_age_ms: Age | None = Field(default=None, alias="startAgeMs")
    stop_age_ms: Age | None = Field(default=None, alias="stopAgeMs")


AnyReport = Annotated[
    Registered | CanStart | Started | Heartbeat | Checkpoint | Notice | Exited,
    Field(discriminator="kind"),
]
_ANY: TypeAdapter[AnyReport] = TypeAdapter(AnyReport)
_ENVELOPE = {"attempt", "epoch", "n", "kind", "age_ms"}


def parse(given: object) -> AnyReport:
    """Return the report of a JSON value; raises pydantic's ValidationError."""
    return _ANY.validate_python(given)


def own_fields(report: AnyReport) -> dict[str, Any]:
    """Return the fields of the report's kind that were given, by their wire names."""
    return report.model_dump(by_alias=True, exclude=_ENVELOPE, exclude_unset=True)
