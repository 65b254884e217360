"""What a workload asks for: one frozen record for all seven kinds (SC-101, SC-805).

`WorkloadSpec.from_json` reads a spec that intake has checked and fills in every
default; `to_json` writes it whole, in one canonical form, so that two specs that
mean the same are equal (SC-802).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any

from nodus_api.kernel.vocabulary import OwnerKind, Profile, Reason

JsonObject = Mapping[str, Any]

SINGLE_SLOTS = {
    OwnerKind.SANDBOX: "0",
    OwnerKind.WORKSPACE: "0",
    OwnerKind.BUILD: "build",
    OwnerKind.IMPORT: "import",
}
"""The slot's name of the kinds that have exactly one (SC-101)."""

SCALED_KINDS = frozenset({OwnerKind.FUNCTION, OwnerKind.AGENT})
"""Kinds whose slots are workers, as many as `nodus scale` says (SC-807)."""


class InterruptiblePolicy(StrEnum):
    """Whether spot capacity may be used (SC-301)."""

    ALLOW = "Allow"
    REQUIRE = "Require"
    NEVER = "Never"


class HedgePolicy(StrEnum):
    """Whether a second machine may race a slow first one (SC-340)."""

    NEVER = "Never"
    AUTO = "Auto"
    ALWAYS = "Always"


class RestartAction(StrEnum):
    """What a restart rule does about a customer failure (SC-120)."""

    RETRY = "Retry"
    IGNORE = "Ignore"
    FAIL_SLOT = "FailSlot"
    FAIL_JOB = "FailJob"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What the machine runs. An empty command means the image's own."""

    image: str | None = None
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str | None = None

    @classmethod
    def from_json(cls, block: JsonObject) -> "Template":
        """Read the block `template`."""
        return cls(
            image=block.get("image"),
            command=tuple(block.get("command", ())),
            env=dict(block.get("env", {})),
            working_dir=block.get("workingDir"),
        )

    def to_json(self) -> dict[str, Any]:
        """Write the block whole."""
        return _present(
            image=self.image,
            command=list(self.command),
            env=dict(sorted(self.env.items())),
            workingDir=self.working_dir,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one slot needs; None is not asked for.

    The default, one vCPU, is that of an absent block (SC-805). `count` is a number
    of accelerators; `accelerator_memory_gib` is the least of each.
    """

    accelerators: tuple[str, ...] = ()
    count: int = 0
    accelerator_memory_gib: Decimal | None = None
    vcpus: Decimal | None = Decimal(1)
    memory_gib: Decimal | None = None
    disk_gib: Decimal | None = None
    arch: str | None = None

    @classmethod
    def from_json(cls, block: JsonObject | None) -> "Resources":
        """Read the block `resources`; None is an absent block."""
        if block is None:
            return cls()
        accelerators = tuple(block.get("accelerators", ()))
        return cls(
            accelerators=accelerators,
            count=int(block.get("count", 1 if accelerators else 0)),
            accelerator_memory_gib=_decimal(block, "acceleratorMemoryGiB"),
            vcpus=_decimal(block, "vcpus"),
            memory_gib=_decimal(block, "memoryGiB"),
            disk_gib=_decimal(block, "diskGiB"),
            arch=block.get("arch"),
        )

    def to_json(self) -> dict[str, Any]:
        """Write the block whole."""
        return _present(
            accelerators=list(self.accelerators),
            count=self.count,
            acceleratorMemoryGiB=_text(self.accelerator_memory_gib),
            vcpus=_text(self.vcpus),
            memoryGiB=_text(self.memory_gib),
            diskGiB=_text(self.disk_gib),
            arch=self.arch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPolicy:
    """Where a slot may run; an empty list allows all."""

    profile: Profile = Profile.BALANCED
    regions: tuple[str, ...] = ()
    interruptible: InterruptiblePolicy = InterruptiblePolicy.NEVER
    hedge: HedgePolicy = HedgePolicy.NEVER
    offerings: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, block: JsonObject, *, restartable: bool) -> "PlacementPolicy":
        """Read the block `placement`; only restartable work defaults to spot (SC-301)."""
        usual = InterruptiblePolicy.ALLOW if restartable else InterruptiblePolicy.NEVER
        return cls(
            profile=Profile(block.get("profile", Profile.BALANCED)),
            regions=tuple(block.get("regions", ())),
            interruptible=InterruptiblePolicy(block.get("interruptible", usual)),
            hedge=HedgePolicy(block.get("hedge", HedgePolicy.NEVER)),
            offerings=tuple(block.get("offerings", ())),
        )

    def to_json(self) -> dict[str, Any]:
        """Write the block whole."""
        return {
            "profile": self.profile.value,
            "regions": list(self.regions),
            "interruptible": self.interruptible.value,
            "hedge": self.hedge.value,
            "offerings": list(self.offerings),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPolicy:
    """How the program saves its work; an interval of None is chosen by SC-144."""

    restartable: bool = False
    interval_seconds: int | None = None
    cost_seconds: int = 30

    @classmethod
    def from_json(cls, block: JsonObject) -> "CheckpointPolicy":
        """Read the block `checkpoint`."""
        interval = block.get("intervalSeconds", "auto")
        return cls(
            restartable=bool(block.get("restartable", False)),
            interval_seconds=None if interval == "auto" else int(interval),
            cost_seconds=int(block.get("costSeconds", 30)),
        )

    def to_json(self) -> dict[str, Any]:
        """Write the block whole."""
        return {
            "restartable": self.restartable,
            "intervalSeconds": self.interval_seconds or "auto",
            "costSeconds": self.cost_seconds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRule:
    """One rule of SC-120: it matches by exit code or by reason."""

    action: RestartAction
    exit_codes: tuple[int, ...] = ()
    reasons: tuple[Reason, ...] = ()

    def matches(self, *, reason: Reason, exit_code: int | None) -> bool:
        """Return whether an Attempt that ended so falls under this rule."""
        return reason in self.reasons or (exit_code is not None and exit_code in self.exit_codes)

    @classmethod
    def from_json(cls, block: JsonObject) -> "RestartRule":
        """Read one of `restart.rules`."""
        return cls(
            action=RestartAction(block["action"]),
            exit_codes=tuple(block.get("exitCodes", ())),
            reasons=tuple(Reason(reason) for reason in block.get("reasons", ())),
        )

    def to_json(self) -> dict[str, Any]:
        """Write the rule whole."""
        return {
            "exitCodes": list(self.exit_codes),
            "reasons": [reason.value for reason in self.reasons],
            "action": self.action.value,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """When a slot gets its next epoch (SC-120)."""

    max_retries: int = 0
    max_replacements: int = 50
    rules: tuple[RestartRule, ...] = ()

    @classmethod
    def from_json(cls, block: JsonObject) -> "RestartPolicy":
        """Read the block `restart`."""
        return cls(
            max_retries=int(block.get("maxRetries", 0)),
            max_replacements=int(block.get("maxReplacements", 50)),
            rules=tuple(RestartRule.from_json(rule) for rule in block.get("rules", ())),
        )

    def to_json(self) -> dict[str, Any]:
        """Write the block whole."""
        return {
            "maxRetries": self.max_retries,
            "maxReplacements": self.max_replacements,
            "rules": [rule.to_json() for rule in self.rules],
        }


FUNDING_WAIT_SECONDS = 86_400
"""How long a start waits for Funds, unless the spec says else (SC-620)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a workload may cost and how long it may take; None is no limit."""

    max_cost_usd: Decimal | None = None
    max_rate_usd_per_hour: Decimal | None = None
    max_duration_seconds: int | None = None
    start_deadline_seconds: int = 3600
    funding_wait_seconds: int = FUNDING_WAIT_SECONDS
    """How long a start waits for Funds (SC-620)."""

    @classmethod
    def from_json(cls, block: JsonObject) -> "Limits":
        """Read the block `limits`."""
        return cls(
            max_cost_usd=_decimal(block, "maxCostUSD"),
            max_rate_usd_per_hour=_decimal(block, "maxRateUSDPerHour"),
            max_duration_seconds=_integer(block, "maxDurationSeconds"),
            start_deadline_seconds=int(block.get("startDeadlineSeconds", 3600)),
            funding_wait_seconds=int(block.get("fundingWaitSeconds", FUNDING_WAIT_SECONDS)),
        )

    def to_json(self) -> dict[str, Any]:
        """Write the block whole, but for a default that came after the first release.

        A stored spec without it must stay equal to the same manifest submitted again (SC-802).
        """
        wait = self.funding_wait_seconds
        return _present(
            maxCostUSD=_text(self.max_cost_usd),
            maxRateUSDPerHour=_text(self.max_rate_usd_per_hour),
            maxDurationSeconds=self.max_duration_seconds,
            startDeadlineSeconds=self.start_deadline_seconds,
            fundingWaitSeconds=None if wait == FUNDING_WAIT_SECONDS else wait,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """All that the loop needs to know of a workload.

    `completions` and `parallelism` are a Job's; `workers` a Function's or an Agent's;
    `idle_timeout_seconds` a Sandbox's or a Workspace's. `gang` is the group's name if
    all slots start together, else None (SC-130).
    """

    kind: OwnerKind
    template: Template = field(default_factory=Template)
    resources: Resources = field(default_factory=Resources)
    completions: int = 1
    parallelism: int = 1
    workers: int = 1
    idle_timeout_seconds: int | None = None
    gang: str | None = None
    placement: PlacementPolicy = field(default_factory=PlacementPolicy)
    checkpoint: CheckpointPolicy = field(default_factory=CheckpointPolicy)
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    limits: Limits = field(default_factory=Limits)
    estimate_hours: Decimal | None = None
    stop_grace_seconds: int = 30
    auto_resume: bool = False
    idle_seconds: int | None = None
    """How long its machine is kept warm; None for the kind's default (SC-343)."""

    @classmethod
    def from_json(cls, kind: OwnerKind, spec: JsonObject) -> "WorkloadSpec":
        """Read a checked spec, with the defaults of SC-805 for what it leaves out.

        Raises KeyError, ValueError or decimal.InvalidOperation if it was not checked.
        """
        completions = int(spec.get("completions", 1))
        checkpoint = CheckpointPolicy.from_json(spec.get("checkpoint", {}))
        return cls(
            kind=kind,
            template=Template.from_json(spec.get("template", {})),
            resources=Resources.from_json(spec.get("resources")),
            completions=completions,
            parallelism=int(spec.get("parallelism", completions)),
            workers=int(spec.get("workers", 1)),
            idle_timeout_seconds=_integer(spec, "idleTimeoutSeconds"),
            gang=_gang(spec.get("gang", False)),
            placement=PlacementPolicy.from_json(
                spec.get("placement", {}), restartable=checkpoint.restartable
            ),
            checkpoint=checkpoint,
            restart=RestartPolicy.from_json(spec.get("restart", {})),
            limits=Limits.from_json(spec.get("limits", {})),
            estimate_hours=_decimal(spec.get("estimate", {}), "hours"),
            stop_grace_seconds=int(spec.get("stopGraceSeconds", 30)),
            auto_resume=bool(spec.get("autoResume", False)),
            idle_seconds=_integer(spec, "idleSeconds"),
        )

    def to_json(self) -> dict[str, Any]:
        """Write the spec whole: every default stated, what is not asked for left out.

        Decimals are strings without exponent or trailing zeros.
        """
        return {
            "template": self.template.to_json(),
            "resources": self.resources.to_json(),
            "placement": self.placement.to_json(),
            "checkpoint": self.checkpoint.to_json(),
            "restart": self.restart.to_json(),
            "limits": self.limits.to_json(),
            "estimate": _present(hours=_text(self.estimate_hours)),
            "stopGraceSeconds": self.stop_grace_seconds,
            "autoResume": self.auto_resume,
            **_present(idleSeconds=self.idle_seconds),
        } | self._slots_to_json()

    def _slots_to_json(self) -> dict[str, Any]:
        """Write the fields that decide the slots, which differ by kind."""
        if self.kind is OwnerKind.JOB:
            return {
                "completions": self.completions,
                "parallelism": self.parallelism,
                "gang": {"name": self.gang} if self.gang else False,
            }
        if self.kind in SCALED_KINDS:
            return {"workers": self.workers}
        return _present(idleTimeoutSeconds=self.idle_timeout_seconds)


def _gang(value: bool | JsonObject) -> str | None:
    if isinstance(value, Mapping):
        return str(value.get("name", "workers"))
    return "workers" if value else None


def _integer(block: JsonObject, name: str) -> int | None:
    value = block.get(name)
    return None if value is None else int(value)


def _decimal(block: JsonObject, name: str) -> Decimal | None:
    value = block.get(name)
    return None if value is None else Decimal(str(value))


def _text(value: Decimal | None) -> str | None:
    if value is None:
        return None
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
