"""How good predictions have been: what was predicted beside what came, over Attempts that are over.

Read from the documents that clients see, those in the archive too, so that it can be counted again
from the API alone. Hours and cost are compared where the Attempt came to the end that a prediction
foresees (SC-350): it succeeded, or its capacity was lost. Who stops a program, or whose program
fails, ends it at a moment that says nothing of the prediction. Interruptions are compared over the
time of all of them (SC-352).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from statistics import median
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.cli.ledger import in_document
from nodus_api.kernel.vocabulary import Phase, Reason, Trigger
from nodus_api.storage import tables as t

GROUPS = ("profile", "owner", "project", "offering")
"""What a line can stand for; `profile` is a placement profile on one family of classes."""

_ZERO = Decimal(0)
_HOUR = timedelta(hours=1)
_NO_CAPACITY_LOST = frozenset({Trigger.DRILL, Trigger.FUNDING, Trigger.USER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One Attempt that is over: predictions and what came of them, in hours and USD."""

    project: str
    owner: str
    profile: str
    family: str
    offering: str
    predicted_hours: Decimal
    predicted_usd: Decimal
    interruption_rate: Decimal
    actual_hours: Decimal
    actual_usd: Decimal
    exposure_hours: Decimal
    """From the start of its machine's bill to its end."""
    interrupted: bool
    """Whether capacity was lost, not in a drill."""
    comparable: bool
    """Whether its end is one that the prediction foresees."""


@dataclass(slots=True, kw_only=True)
class AccuracyLine:
    """A group of Attempts; `compared` of them count for hours and cost."""

    group: Sequence[str]
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def compared(self) -> list[Outcome]:
        """Those whose hours and cost are compared."""
        return [one for one in self.outcomes if one.comparable]

    @property
    def predicted_hours(self) -> Decimal:
        """The sum of the predicted hours."""
        return _sum(one.predicted_hours for one in self.compared)

    @property
    def actual_hours(self) -> Decimal:
        """The sum of the charged hours."""
        return _sum(one.actual_hours for one in self.compared)

    @property
    def predicted_usd(self) -> Decimal:
        """The sum of the predicted costs."""
        return _sum(one.predicted_usd for one in self.compared)

    @property
    def actual_usd(self) -> Decimal:
        """The sum of what was charged."""
        return _sum(one.actual_usd for one in self.compared)

    @property
    def hours_ratio(self) -> Decimal | None:
        """Actual over predicted hours; None where nothing was predicted."""
        return _ratio(self.actual_hours, self.predicted_hours)

    @property
    def cost_ratio(self) -> Decimal | None:
        """Actual over predicted cost; None where nothing was predicted."""
        return _ratio(self.actual_usd, self.predicted_usd)

    @property
    def hours_error(self) -> Decimal | None:
        """The median over Attempts of how far actual hours were from the predicted, as a share."""
        return _typical((one.predicted_hours, one.actual_hours) for one in self.compared)

    @property
    def cost_error(self) -> Decimal | None:
        """The same of the cost."""
        return _typical((one.predicted_usd, one.actual_usd) for one in self.compared)

    @property
    def expected_interruptions(self) -> Decimal:
        """The predicted rates times the hours in which they could come true."""
        return _sum(one.interruption_rate * one.exposure_hours for one in self.outcomes)

    @property
    def interruptions(self) -> int:
        """How often capacity was lost."""
        return sum(one.interrupted for one in self.outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """All groups in order; `headings` name the parts of a group."""

    headings: Sequence[str]
    lines: Sequence[AccuracyLine]

    @property
    def total(self) -> AccuracyLine:
        """Return all groups as one."""
        return AccuracyLine(
            group=("total", *[""] * (len(self.headings) - 1)),
            outcomes=[outcome for line in self.lines for outcome in line.outcomes],
        )


async def read_accuracy(connection: AsyncConnection, *, by: str, project: str | None) -> Accuracy:
    """Return the accuracy over one project, or over all for None, grouped by one of GROUPS."""
    found = (await connection.execute(_ended(project))).mappings().all()
    return accuracy_of([_outcome(row) for row in found], by=by)


def accuracy_of(outcomes: Iterable[Outcome], *, by: str) -> Accuracy:
    """Group outcomes by one of GROUPS."""
    lines: dict[tuple[str, ...], AccuracyLine] = {}
    for one in outcomes:
        group = (one.profile, one.family) if by == "profile" else (getattr(one, by),)
        lines.setdefault(group, AccuracyLine(group=group)).outcomes.append(one)
    return Accuracy(
        headings=("profile", "family") if by == "profile" else (by,),
        lines=[lines[group] for group in sorted(lines)],
    )


def _ended(project: str | None) -> sa.Select[Any]:
    """Select what documents say of Attempts whose bill is closed and that were placed.

    A sequential read of objects and archive is meant, since all of it is compared.
    """
    live = sa.select(t.attempt_objects.c.project, t.attempt_objects.c.doc)
    archived = sa.select(t.attempts_archive.c.project, t.attempts_archive.c.doc)
    documents = sa.union_all(live, archived).subquery("documents")
    doc = documents.c.doc

    def told(name: str, *path: str) -> Any:
        return in_document(doc, "status", *path).label(name)

    def moment(name: str) -> Any:
        return sa.cast(in_document(doc, "status", "timings", name), t.MOMENT).label(name)

    classes = t.offering_classes
    offering = in_document(doc, "status", "placement", "offering")
    query = (
        sa.select(
            documents.c.project,
            in_document(doc, "metadata", "ownerReferences", "0", "kind").label("kind"),
            in_document(doc, "metadata", "ownerReferences", "0", "name").label("owner"),
            offering.label("offering"),
            classes.c.accelerator,
            classes.c.count.label("accelerators"),
            told("profile", "placement", "profile"),
            told("phase", "phase"),
            told("reason", "reason"),
            told("trigger", "interruption", "trigger"),
            told("predicted_hours", "predicted", "hours"),
            told("predicted_usd", "predicted", "costUSD"),
            told("rate", "predicted", "interruptionRate"),
            told("hours", "actual", "hours"),
            told("usd", "actual", "costUSD"),
            moment("billingStartTime"),
            moment("commandStartedTime"),
            moment("finishedTime"),
        )
        .select_from(documents.outerjoin(classes, classes.c.name == offering))
        .where(
            in_document(doc, "status", "predicted", "hours").is_not(None),
            in_document(doc, "status", "timings", "billingStartTime").is_not(None),
            in_document(doc, "status", "timings", "deletionProvenTime").is_not(None),
        )
    )
    return query if project is None else query.where(documents.c.project == project)


def _outcome(row: Any) -> Outcome:
    lost = row["trigger"] is not None and Trigger(row["trigger"]) not in _NO_CAPACITY_LOST
    interrupted = lost and row["reason"] != Reason.RELEASED.value  # which names its peer's trigger
    started = row["commandStartedTime"] is not None
    accelerator = row["accelerator"]
    exposure = (row["finishedTime"] - row["billingStartTime"]) / _HOUR
    return Outcome(
        project=row["project"],
        owner=f"{row['project']}/{row['kind'].lower()}/{row['owner']}",
        profile=row["profile"],
        family="cpu" if accelerator is None else f"{accelerator} x{row['accelerators']}",
        offering=row["offering"],
        predicted_hours=Decimal(row["predicted_hours"]),
        predicted_usd=Decimal(row["predicted_usd"]),
        interruption_rate=Decimal(row["rate"]),
        actual_hours=Decimal(row["hours"]),
        actual_usd=Decimal(row["usd"]),
        exposure_hours=max(_ZERO, Decimal(str(exposure))),
        interrupted=interrupted,
        comparable=started and (row["phase"] == Phase.SUCCEEDED.value or interrupted),
    )


def _sum(values: Iterable[Decimal]) -> Decimal:
    return sum(values, _ZERO)


def _ratio(actual: Decimal, predicted: Decimal) -> Decimal | None:
    return actual / predicted if predicted else None


def _typical(pairs: Iterable[tuple[Decimal, Decimal]]) -> Decimal | None:
    errors = [abs(actual / predicted - 1) for predicted, actual in pairs if predicted]
    return median(errors) if errors else None
