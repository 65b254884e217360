"""What a placement is asked for (SC-301), and how the question is kept for replay."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from nodus_api.kernel.attempt import Cursor
from nodus_api.kernel.rejection import FailedAcquisition, LostCandidate, RejectionCode
from nodus_api.kernel.spec import CheckpointPolicy, PlacementPolicy, Resources, WorkloadSpec
from nodus_api.kernel.vocabulary import Market

RESTORE_BYTES_PER_SECOND = 500_000_000
"""How fast a checkpoint is read back (SC-301)."""

DEFAULT_RESTORE_SECONDS = 60.0
"""R where the checkpoint's size is not known (SC-301)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """All that a placement depends on, beside the catalog and the moment (SC-301).

    `work_hours` is what remains at speed 1; `gang_size` is 1 without a gang;
    `quota_left` counts accelerators by name; `on_demand_only` is the guard of SC-122.
    """

    resources: Resources = field(default_factory=Resources)
    policy: PlacementPolicy = field(default_factory=PlacementPolicy)
    checkpoint: CheckpointPolicy = field(default_factory=CheckpointPolicy)
    work_hours: float = 1.0
    resumes: bool = False
    restore_seconds: float = DEFAULT_RESTORE_SECONDS
    gang_size: int = 1
    max_rate_usd_per_hour: Decimal | None = None
    remaining_cost_usd: Decimal | None = None
    start_deadline: datetime | None = None
    closed_offerings: tuple[str, ...] = ()
    quota_left: Mapping[str, int] = field(default_factory=dict)
    lost: tuple[LostCandidate, ...] = ()
    failed: tuple[FailedAcquisition, ...] = ()
    on_demand_only: bool = False
    calibrations: Mapping[str | None, float] = field(default_factory=dict)
    """Factors on the hours by accelerator, None for none; 1 where nothing is known (SC-352)."""

    @property
    def accelerators(self) -> tuple[str | None, ...]:
        """What is allowed, each once, in the order asked for; (None,) without any (SC-209)."""
        return tuple(dict.fromkeys(self.resources.accelerators)) or (None,)

    @classmethod
    def of(
        cls,
        spec: WorkloadSpec,
        *,
        remaining_cost_usd: Decimal | None = None,
        cursor: Cursor | None = None,
        resumes: bool = False,
        restore_bytes: int | None = None,
        usual_hours: float = 1.0,
        calibrations: Mapping[str | None, float] | None = None,
        start_deadline: datetime | None = None,
        closed_offerings: tuple[str, ...] = (),
        quota_left: Mapping[str, int] | None = None,
        lost: tuple[LostCandidate, ...] = (),
        failed: tuple[FailedAcquisition, ...] = (),
        on_demand_only: bool = False,
    ) -> "PlacementRequest":
        """Make the request of one slot, or of one gang, of a workload.

        `remaining_cost_usd` is what is left of the workload's limit, None without one.
        `usual_hours` stands in where the spec estimates nothing; `calibrations` are the
        factors of SC-352; `restore_bytes` is the size of the checkpoint to restore.
        """
        estimate = spec.estimate_hours
        hours = usual_hours if estimate is None else float(estimate)
        if cursor is not None and cursor.total > 0:
            hours *= 1.0 - cursor.completed / cursor.total
        return cls(
            resources=spec.resources,
            policy=spec.placement,
            checkpoint=spec.checkpoint,
            work_hours=hours,
            resumes=resumes,
            restore_seconds=(
                restore_bytes / RESTORE_BYTES_PER_SECOND
                if restore_bytes is not None
                else DEFAULT_RESTORE_SECONDS
            ),
            gang_size=1 if spec.gang is None else spec.completions,
            max_rate_usd_per_hour=spec.limits.max_rate_usd_per_hour,
            remaining_cost_usd=remaining_cost_usd,
            start_deadline=start_deadline,
            closed_offerings=closed_offerings,
            quota_left=quota_left or {},
            lost=lost,
            failed=failed,
            on_demand_only=on_demand_only,
            calibrations=calibrations or {},
        )

    def to_json(self) -> dict[str, Any]:
        """Write the request as it is kept with its decision; calibrations only if there are any."""
        calibrated = {name or "": factor for name, factor in self.calibrations.items()}
        return {
            "resources": self.resources.to_json(),
            "placement": self.policy.to_json(),
            "checkpoint": self.checkpoint.to_json(),
            "workHours": self.work_hours,
            "resumes": self.resumes,
            "restoreSeconds": self.restore_seconds,
            "gangSize": self.gang_size,
            "maxRateUSDPerHour": _text(self.max_rate_usd_per_hour),
            "remainingCostUSD": _text(self.remaining_cost_usd),
            "startDeadline": _moment(self.start_deadline),
            "closedOfferings": sorted(self.closed_offerings),
            "quotaLeft": dict(sorted(self.quota_left.items())),
            "lost": [
                {"offering": one.offering, "market": one.market.value, "at": one.at.isoformat()}
                for one in self.lost
            ],
            "failed": [
                {
                    "offering": one.offering,
                    "market": one.market.value,
                    "until": one.until.isoformat(),
                    "code": one.code.value,
                }
                for one in self.failed
            ],
            "onDemandOnly": self.on_demand_only,
            **({"calibrations": dict(sorted(calibrated.items()))} if calibrated else {}),
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "PlacementRequest":
        """Read a kept request, for replay."""
        checkpoint = CheckpointPolicy.from_json(kept["checkpoint"])
        return cls(
            resources=Resources.from_json(kept["resources"]),
            policy=PlacementPolicy.from_json(kept["placement"], restartable=checkpoint.restartable),
            checkpoint=checkpoint,
            work_hours=float(kept["workHours"]),
            resumes=bool(kept["resumes"]),
            restore_seconds=float(kept["restoreSeconds"]),
            gang_size=int(kept["gangSize"]),
            max_rate_usd_per_hour=_number(kept["maxRateUSDPerHour"]),
            remaining_cost_usd=_number(kept["remainingCostUSD"]),
            start_deadline=_time(kept["startDeadline"]),
            closed_offerings=tuple(kept["closedOfferings"]),
            quota_left=dict(kept["quotaLeft"]),
            lost=tuple(
                LostCandidate(
                    offering=one["offering"],
                    market=Market(one["market"]),
                    at=datetime.fromisoformat(one["at"]),
                )
                for one in kept["lost"]
            ),
            failed=tuple(
                FailedAcquisition(
                    offering=one["offering"],
                    market=Market(one["market"]),
                    until=datetime.fromisoformat(one["until"]),
                    code=RejectionCode(one["code"]),
                )
                for one in kept["failed"]
            ),
            on_demand_only=bool(kept["onDemandOnly"]),
            calibrations={
                name or None: float(factor) for name, factor in kept.get("calibrations", {}).items()
            },
        )


def _text(value: Decimal | None) -> str | None:
    return None if value is None else f"{value:f}"


def _number(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
