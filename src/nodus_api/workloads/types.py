"""The manifest's schema: what each of the seven kinds may say (SC-101, SC-805, SC-807).

Bytes come in here, so these are pydantic models: names as on the wire, each alias
written out, unknown fields refused. Defaults are not repeated: `kernel.spec` has
them, and a field that is not written is simply absent.
"""

import re
import shlex
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from nodus_api.kernel.vocabulary import OwnerKind

API_VERSION = "nodus.dev/v1"

RegionClass = Literal["us", "ca", "eu", "uk", "in", "jp", "sg", "au", "me", "sa", "af", "other"]
"""The region classes of SC-201."""

MOST_COMPLETIONS = 100_000
MOST_DIGITS = 12
"""Digits before the point in an amount, as the schema's type `usd` holds them."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


def label(value: str) -> str:
    """Return a DNS label of at most 63 characters, or raise ValueError with the rule (LW-210).

    The Attempt's name is made of it, the slot, the epoch and a hash (SC-103), at most 90
    characters in all, so that a good label always gives a good Attempt name.
    """
    if not _LABEL.fullmatch(value):
        raise ValueError(
            "must be a DNS label: 1 to 63 characters of a-z, 0-9 and '-', "
            f"starting and ending with a letter or digit, not {value!r}"
        )
    return value


def amount(value: object) -> Decimal:
    """Return a positive decimal of at most 6 places, from a number or its text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError(f"must be a number such as 2.5, not {_shown(value)}")
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"must be a number such as 2.5, not {_shown(value)}") from None
    if isinstance(value, str) and not _NUMBER.fullmatch(value.lstrip("-")):
        raise ValueError(f"must be a number such as 2.5, not {_shown(value)}")
    if not number.is_finite() or number <= 0:
        raise ValueError(f"must be above 0, not {text}")
    exponent = number.normalize().as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -6:
        raise ValueError(f"must have at most 6 decimals, not {text}")
    if number.adjusted() >= MOST_DIGITS:
        raise ValueError(f"must be below 10 to the {MOST_DIGITS}th, not {text}")
    return number


def _variable(name: str) -> str:
    """Refuse a name that no shell takes, or that is Nodus's own (SC-143)."""
    if not _VARIABLE.fullmatch(name):
        raise ValueError(
            f"has the name {name!r}: write letters, digits and '_', not starting with a digit"
        )
    if name.startswith("NODUS_"):
        raise ValueError(f"sets {name}: names that start with NODUS_ are set by Nodus")
    return name


def _command(value: object) -> object:
    """Say how a command in one string is written as a list."""
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError:
            words = [value]
        raise ValueError(f"must be a list, one word an item: write {_listed(words)}")
    return value


def _listed(words: list[str]) -> str:
    plain = re.compile(r"[\w./=@%+-]*[A-Za-z/_.][\w./=@%+-]*")
    return f"[{', '.join(w if plain.fullmatch(w) else _quoted(w) for w in words)}]"


def _quoted(word: str) -> str:
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _interval(value: object) -> object:
    """Take the word auto for the interval that Nodus chooses (SC-144)."""
    if isinstance(value, str) and value != "auto":
        raise ValueError(f"must be auto or a number of seconds, not {_shown(value)}")
    return None if value == "auto" else value


def _gang(value: object) -> object:
    """Take true for a gang of the usual name, false for none (SC-130)."""
    if isinstance(value, bool):
        return {} if value else None
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"must be true, false, {{size: N}} or {{name: NAME}}, not {_shown(value)}")
    return value


Label = Annotated[str, AfterValidator(label)]
Amount = Annotated[Decimal, BeforeValidator(amount)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Word = Annotated[str, StringConstraints(max_length=131_071)]
"""One argument or value; Linux takes no longer one."""
Command = Annotated[list[Word], BeforeValidator(_command), Field(min_length=1)]
OfferingName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]
Seconds = Annotated[int, Field(ge=1, le=315_360_000)]
CustomerReason = Literal[
    "CustomerExit",
    "OutOfMemory",
    "ImagePullFailed",
    "StartFailed",
]
"""Reasons that a restart rule may name: the customer's failures that may be retried (SC-120)."""


class Block(BaseModel):
    """A mapping in a manifest: no unknown field, no silent conversion; null is absent."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


class Metadata(Block):
    """`metadata`: the workload's name, and its project."""

    name: Label
    namespace: Label | None = None


class TemplateBlock(Block):
    """`spec.template`: what runs."""

    image: Text | None = None
    command: Command | None = None
    env: dict[Annotated[str, AfterValidator(_variable)], Word] | None = None
    working_dir: Text | None = Field(default=None, alias="workingDir")

    @model_validator(mode="after")
    def _something_runs(self) -> "TemplateBlock":
        if self.image is None and self.command is None:
            raise ValueError("says nothing to run: write command, image or both")
        return self


class JobTemplateBlock(TemplateBlock):
    """`spec.template` of a Job, which always says its command (SC-805)."""

    command: Command


class ResourcesBlock(Block):
    """`spec.resources`: what one slot needs."""

    accelerators: list[OfferingName] | None = None
    count: Annotated[int, Field(ge=0, le=1024)] | None = None
    accelerator_memory_gib: Amount | None = Field(default=None, alias="acceleratorMemoryGiB")
    vcpus: Amount | None = None
    memory_gib: Amount | None = Field(default=None, alias="memoryGiB")
    disk_gib: Amount | None = Field(default=None, alias="diskGiB")
    arch: Literal["amd64", "arm64"] | None = None

    @model_validator(mode="after")
    def _accelerators_with_count(self) -> "ResourcesBlock":
        if self.accelerators and self.count == 0:
            raise ValueError("asks for accelerators with count 0: write count 1 or more")
        if not self.accelerators and self.count:
            raise ValueError(
                f"has count {self.count} without accelerators: write accelerators: [h100], "
                "or leave count out"
            )
        if not self.accelerators and self.accelerator_memory_gib is not None:
            raise ValueError("has acceleratorMemoryGiB without accelerators: write accelerators")
        return self


class PlacementBlock(Block):
    """`spec.placement`: where it may run, and what matters."""

    profile: Literal["Balanced", "Cost", "Speed"] | None = None
    regions: list[RegionClass] | None = None
    interruptible: Literal["Allow", "Require", "Never"] | None = None
    hedge: Literal["Never", "Auto", "Always"] | None = None
    offerings: list[OfferingName] | None = None


class IntervalBlock(Block):
    """`spec.checkpoint` of a kind that keeps snapshots."""

    interval_seconds: Annotated[Seconds | None, BeforeValidator(_interval)] = Field(
        default=None, alias="intervalSeconds"
    )
    cost_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = Field(
        default=None, alias="costSeconds"
    )


class CheckpointBlock(IntervalBlock):
    """`spec.checkpoint` of a Job."""

    restartable: bool | None = None


class RestartRuleBlock(Block):
    """One of `spec.restart.rules`; the first that matches decides."""

    exit_codes: list[Annotated[int, Field(ge=1, le=255)]] | None = Field(
        default=None, alias="exitCodes"
    )
    reasons: list[CustomerReason] | None = None
    action: Literal["Retry", "Ignore", "FailSlot", "FailJob"]

    @model_validator(mode="after")
    def _matches_something(self) -> "RestartRuleBlock":
        if not self.exit_codes and not self.reasons:
            raise ValueError("matches nothing: write exitCodes, reasons or both")
        return self


class ReplacementBlock(Block):
    """`spec.restart` of a kind whose exit is final."""

    max_replacements: Annotated[int, Field(ge=0, le=100_000)] | None = Field(
        default=None, alias="maxReplacements"
    )


class RestartBlock(ReplacementBlock):
    """`spec.restart` of a Job."""

    max_retries: Annotated[int, Field(ge=0, le=100_000)] | None = Field(
        default=None, alias="maxRetries"
    )
    rules: list[RestartRuleBlock] | None = None


class LimitsBlock(Block):
    """`spec.limits`: what it may cost and how long it may take."""

    max_cost_usd: Amount | None = Field(default=None, alias="maxCostUSD")
    max_rate_usd_per_hour: Amount | None = Field(default=None, alias="maxRateUSDPerHour")
    max_duration_seconds: Seconds | None = Field(default=None, alias="maxDurationSeconds")
    start_deadline_seconds: Seconds | None = Field(default=None, alias="startDeadlineSeconds")
    funding_wait_seconds: Seconds | None = Field(default=None, alias="fundingWaitSeconds")


class EstimateBlock(Block):
    """`spec.estimate`: hours of work at speed 1."""

    hours: Amount | None = None


class GangBlock(Block):
    """`spec.gang`: all indexes start together, or none; `size` says how many, as completions do."""

    name: Label | None = None
    size: Annotated[int, Field(ge=1, le=MOST_COMPLETIONS)] | None = None


class WorkloadBlock(Block):
    """`spec`: what all kinds share."""

    template: TemplateBlock
    resources: ResourcesBlock | None = None
    placement: PlacementBlock | None = None
    limits: LimitsBlock | None = None
    estimate: EstimateBlock | None = None
    stop_grace_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = Field(
        default=None, alias="stopGraceSeconds"
    )
    auto_resume: bool | None = Field(default=None, alias="autoResume")
    idle_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = Field(
        default=None, alias="idleSeconds"
    )


class JobBlock(WorkloadBlock):
    """`spec` of a Job: so many completions, each in a slot of its own."""

    template: JobTemplateBlock
    completions: Annotated[int, Field(ge=1, le=MOST_COMPLETIONS)] | None = None
    parallelism: Annotated[int, Field(ge=1, le=MOST_COMPLETIONS)] | None = None
    gang: Annotated[GangBlock | None, BeforeValidator(_gang)] = None
    checkpoint: CheckpointBlock | None = None
    restart: RestartBlock | None = None

    @model_validator(mode="before")
    @classmethod
    def _a_gang_of_a_size_has_so_many_completions(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("gang"), dict):
            size = data["gang"].get("size")
            well = isinstance(size, int) and size >= 1  # else the block itself says what is wrong
            if well and data.get("completions") is None:
                return {**data, "completions": size}
        return data

    @model_validator(mode="after")
    def _job_holds_together(self) -> "JobBlock":
        completions = self.completions or 1
        if self.gang is not None and self.gang.size not in (None, completions):
            raise ValueError(
                f"has completions {completions} and a gang of {self.gang.size}: a gang is all of "
                "them, so leave one out"
            )
        if self.gang is not None and (self.parallelism or completions) != completions:
            raise ValueError(
                f"has parallelism {self.parallelism}, which splits a gang of {completions}: "
                "leave parallelism out, or gang"
            )
        return self


class SessionBlock(WorkloadBlock):
    """`spec` of a Sandbox or a Workspace: one slot, until it is stopped or idle."""

    checkpoint: IntervalBlock | None = None
    restart: ReplacementBlock | None = None
    idle_timeout_seconds: Seconds | None = Field(default=None, alias="idleTimeoutSeconds")


class WorkersBlock(WorkloadBlock):
    """`spec` of a Function or an Agent: workers, scaled by `nodus scale`."""

    workers: Annotated[int, Field(ge=0, le=MOST_COMPLETIONS)] | None = None
    restart: ReplacementBlock | None = None


class CpuResourcesBlock(ResourcesBlock):
    """`spec.resources` of a Build or an Import, which runs on CPU classes only (SC-209)."""

    @model_validator(mode="after")
    def _no_accelerator(self) -> "CpuResourcesBlock":
        if self.accelerators:
            raise ValueError("asks for accelerators, but this kind runs without: leave them out")
        return self


class SingleBlock(WorkloadBlock):
    """`spec` of a Build or an Import: one slot, once."""

    resources: CpuResourcesBlock | None = None
    restart: ReplacementBlock | None = None


SPECS: dict[OwnerKind, type[WorkloadBlock]] = {
    OwnerKind.JOB: JobBlock,
    OwnerKind.SANDBOX: SessionBlock,
    OwnerKind.WORKSPACE: SessionBlock,
    OwnerKind.FUNCTION: WorkersBlock,
    OwnerKind.AGENT: WorkersBlock,
    OwnerKind.BUILD: SingleBlock,
    OwnerKind.IMPORT: SingleBlock,
}
"""The schema of each kind's spec."""
