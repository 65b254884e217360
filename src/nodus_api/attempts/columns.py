"""kubectl's table of Attempts: its columns and the cells of one Attempt (LW-253 to LW-256)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from nodus_api.attempts import types
from nodus_api.attempts.placement_types import AttemptPlacement
from nodus_api.attempts.projection import WAITING_FOR
from nodus_api.metav1.objects import WireObject
from nodus_api.metav1.table import Cell, Column, age
from nodus_api.metav1.times import parse_time

DONE = frozenset({"Succeeded", "Failed", "Cancelled"})


def _said(model: type[WireObject], field: str) -> str:
    """The first sentence of a field's own description (LW-256)."""
    description = model.model_fields[field].description or ""
    return description.partition(". ")[0].rstrip(".") + "."


COLUMNS = (
    Column(name="Name", format="name", description="The Attempt's name."),
    Column(name="Phase", description=_said(types.AttemptStatus, "phase")),
    Column(name="Reason", description=_said(types.AttemptStatus, "reason")),
    Column(name="Offering", description=_said(AttemptPlacement, "offering")),
    Column(name="Cost", description=_said(types.AttemptActual, "cost_usd")),
    Column(name="Runtime", description="How long the program has run, or ran."),
    Column(name="Age", description="How long ago the Attempt was created."),
    Column(name="Stage", description=_said(types.AttemptProgress, "stage"), priority=1),
    Column(name="Slot", description=_said(types.AttemptSpec, "slot"), priority=1),
    Column(
        name="Epoch",
        type="integer",
        format="int64",
        description=_said(types.AttemptSpec, "epoch"),
        priority=1,
    ),
    Column(name="Rank", description=_said(types.AttemptGang, "rank"), priority=1),
    Column(name="Region", description=_said(AttemptPlacement, "region_class"), priority=1),
    Column(name="Rate", description=_said(AttemptPlacement, "rate_usd_per_hour"), priority=1),
    Column(name="Profile", description=_said(AttemptPlacement, "profile"), priority=1),
    Column(
        name="Interruption", description=_said(types.AttemptInterruption, "trigger"), priority=1
    ),
    Column(
        name="Exit",
        type="integer",
        format="int32",
        description=_said(types.AttemptStatus, "exit_code"),
        priority=1,
    ),
    Column(
        name="Superseded-By",
        description=_said(types.AttemptStatus, "superseded_by"),
        priority=1,
    ),
)


def cells(obj: dict[str, Any], now: datetime) -> Sequence[Cell]:
    """Return the row of an Attempt, given as its parsed document; ages are as of `now`."""
    metadata, spec, status = obj["metadata"], obj["spec"], obj["status"]
    placement = status.get("placement", {})
    gang = spec.get("gang")
    return [
        metadata["name"],
        status["phase"],
        _reason(metadata, status),
        placement.get("offering"),
        f"${status['actual']['costUSD']}" if "actual" in status else None,
        _runtime(status["timings"], now),
        age(now - parse_time(metadata["creationTimestamp"])),
        status["progress"]["stage"],
        spec["slot"],
        spec["epoch"],
        f"{gang['rank']}/{gang['size']}" if gang else None,
        placement.get("regionClass"),
        placement.get("rateUSDPerHour"),
        placement.get("profile"),
        status.get("interruption", {}).get("trigger"),
        status.get("exitCode"),
        status.get("supersededBy"),
    ]


def completed(obj: dict[str, Any]) -> str | None:
    """Return the phase of an Attempt that is done, for its row's condition (LW-255)."""
    phase: str = obj["status"]["phase"]
    return phase if phase in DONE else None


def _reason(metadata: dict[str, Any], status: dict[str, Any]) -> str | None:
    if "reason" in status:
        return str(status["reason"])
    waiting = metadata.get("annotations", {}).get(WAITING_FOR)
    return f"({waiting})" if waiting and status["phase"] == "Queued" else None


def _runtime(timings: dict[str, str], now: datetime) -> str | None:
    started = timings.get("commandStartedTime")
    if started is None:
        return None
    finished = timings.get("finishedTime")
    end = parse_time(finished) if finished else now
    return age(end - parse_time(started))
