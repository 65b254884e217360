"""From the kernel's view of an Attempt to its finished document (SC-017, storage.md section 4).

The writer encodes once; every reader serves these bytes with a resourceVersion spliced
in at a fixed place. So the first bytes never change, and the same view always gives the
same bytes.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from nodus_api.attempts.placement_types import (
    AttemptPlacement,
    AttemptPredicted,
    PlacementExplain,
    PlacementRejection,
)
from nodus_api.attempts.resource import GROUP_VERSION
from nodus_api.attempts.selectable import selectable
from nodus_api.attempts.types import (
    Attempt,
    AttemptActual,
    AttemptCheckpoints,
    AttemptCursor,
    AttemptGang,
    AttemptInterruption,
    AttemptProgress,
    AttemptRestore,
    AttemptSpec,
    AttemptStatus,
    AttemptTimings,
    CostSegments,
)
from nodus_api.kernel import attempt as kernel
from nodus_api.kernel import billing
from nodus_api.kernel.attempt import AttemptView
from nodus_api.kernel.money import format_hours, format_rate, format_score, format_usd
from nodus_api.kernel.naming import owner_label
from nodus_api.kernel.scores import NAMES
from nodus_api.kernel.vocabulary import Phase
from nodus_api.metav1.objects import ObjectMeta, OwnerReference
from nodus_api.metav1.times import format_time

HEAD = b'{"apiVersion":"nodus.dev/v1","kind":"Attempt","metadata":{"resourceVersion":""'
"""How every document starts, with an empty resourceVersion: 78 bytes, held by a CHECK in the
database (`attempt_objects_head`)."""

WAITING_FOR = "nodus.dev/waiting-for"
WAITING_MESSAGE = "nodus.dev/waiting-message"

_AT = len(HEAD) - 1
_METADATA = HEAD.index(b'{"resourceVersion"')


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedAttempt:
    """A document without its resourceVersion, and what selectors compare.

    `sel` is always `{"labels": {...}, "fields": {...}}`; the fields are the selectable ones
    that are present, without metadata.name and metadata.namespace.
    """

    doc: bytes
    sel: dict[str, dict[str, str]]


def render(view: AttemptView) -> RenderedAttempt:
    """Return the document of an Attempt. The same view gives the same bytes."""
    document = Attempt(metadata=_metadata(view), spec=_spec(view.attempt), status=_status(view))
    return RenderedAttempt(
        doc=orjson.dumps(document.to_wire()),
        sel={"labels": _labels(view), "fields": selectable(view)},
    )


def preview(placement: kernel.Placement) -> dict[str, Any]:
    """Return a placement that nothing follows from, as `status.placement` shows one (SC-803).

    `predicted` is beside its fields, where something was chosen.
    """
    shown, predicted = _placement(placement), _predicted(placement)
    document: dict[str, Any] = {} if shown is None else shown.to_wire()
    return document | ({} if predicted is None else {"predicted": predicted.to_wire()})


def splice(doc: bytes, rev: int) -> bytes:
    """Return a rendered document with its resourceVersion in place."""
    return b"%b%d%b" % (doc[:_AT], rev, doc[_AT:])


def metadata_of(doc: bytes) -> bytes:
    """Return the bytes of a document's metadata, without parsing it (LW-053).

    Inside metadata `,"spec":{` cannot stand: quotes in texts are escaped, and the values of
    labels and annotations are texts.
    """
    return doc[_METADATA : doc.index(b',"spec":{', _METADATA)]


def _labels(view: AttemptView) -> dict[str, str]:
    """The owner label, one and only one (SC-102)."""
    return dict([owner_label(view.owner.kind, view.owner.name)])


def _metadata(view: AttemptView) -> ObjectMeta:
    attempt, owner = view.attempt, view.owner
    reference = OwnerReference(
        api_version=GROUP_VERSION,
        kind=owner.kind.value,
        name=owner.name,
        uid=str(owner.uid),
        controller=True,
        block_owner_deletion=False,
    )
    return ObjectMeta(
        name=attempt.name,
        namespace=attempt.project,
        uid=str(attempt.uid),
        generation=1,  # LW-214: the spec never changes
        creation_timestamp=format_time(attempt.queued),
        labels=_labels(view),
        annotations=_annotations(attempt) or None,
        owner_references=(reference,),
    )


def _annotations(attempt: kernel.Attempt) -> dict[str, str]:
    """What a queued Attempt waits for, and one sentence about it (SC-009a, SC-009b)."""
    if attempt.phase is not Phase.QUEUED or attempt.waiting_for is None:
        return {}
    annotations = {WAITING_FOR: attempt.waiting_for.value}
    if attempt.waiting_message:
        annotations[WAITING_MESSAGE] = attempt.waiting_message
    return annotations


def _spec(attempt: kernel.Attempt) -> AttemptSpec:
    return AttemptSpec(
        epoch=attempt.epoch,
        gang=_gang(attempt.gang),
        restore_from=_restore(attempt.restore),
        slot=attempt.slot,
    )


def _gang(gang: kernel.Gang | None) -> AttemptGang | None:
    if gang is None:
        return None
    return AttemptGang(epoch=gang.epoch, id=gang.id, rank=gang.rank, size=gang.size)


def _restore(point: kernel.RestorePoint | None) -> AttemptRestore | None:
    if point is None:
        return None
    cursor = point.cursor
    return AttemptRestore(
        seq=point.seq,
        cursor=AttemptCursor(completed=cursor.completed, total=cursor.total) if cursor else None,
    )


def _status(view: AttemptView) -> AttemptStatus:
    attempt = view.attempt
    return AttemptStatus(
        actual=_actual(view),
        checkpoints=_checkpoints(view),
        exit_code=attempt.exit_code,
        interruption=_interruption(attempt.interruption),
        phase=attempt.phase.value,
        placement=_placement(view.placement),
        predicted=_predicted(view.placement),
        progress=AttemptProgress(stage=attempt.stage.value),
        reason=attempt.reason,
        signal=attempt.signal,
        superseded_by=view.successor,
        timings=_timings(attempt),
    )


def _actual(view: AttemptView) -> AttemptActual | None:
    """From the grant of capacity, and on every finished Attempt, zeros included (SC-017)."""
    if view.attempt.billing_start is None and view.attempt.live:
        return None
    total = billing.actual(view.segments)
    return AttemptActual(
        cost_usd=format_usd(total.cost_usd),
        hours=format_hours(total.hours),
        segments=CostSegments(
            boot_usd=format_usd(total.boot_usd),
            covered_by_nodus=tuple(segment.value for segment in total.covered) or None,
            restore_usd=format_usd(total.restore_usd),
            running_usd=format_usd(total.running_usd),
            teardown_usd=format_usd(total.teardown_usd),
        ),
    )


def _checkpoints(view: AttemptView) -> AttemptCheckpoints | None:
    """From the program's start, also when none was committed (SC-017)."""
    if view.attempt.command_started is None:
        return None
    commits = view.checkpoints
    return AttemptCheckpoints(
        count=commits.count if commits else 0,
        last_seq=commits.last_seq if commits else None,
        restore_bytes=view.attempt.restore_bytes,
    )


def _interruption(interruption: kernel.Interruption | None) -> AttemptInterruption | None:
    if interruption is None:
        return None
    return AttemptInterruption(
        lost_seconds=interruption.lost_seconds,
        recovery_seconds=interruption.recovery_seconds,
        time=format_time(interruption.time),
        trigger=interruption.trigger.value,
    )


def _placement(placement: kernel.Placement | None) -> AttemptPlacement | None:
    """The decision; while nothing is chosen, why nothing was (SC-330)."""
    if placement is None:
        return None
    choice = placement.choice
    rejected = tuple(
        PlacementRejection(offering_class=rejection.offering, reason=rejection.reason)
        for rejection in placement.rejected
    )
    return AttemptPlacement(
        candidates=placement.candidates,
        explain=PlacementExplain(
            fallbacks=choice.fallbacks if choice else None,
            profile=placement.profile.value,
            rejected=rejected,
            scores=_scores(choice) if choice else None,
        ),
        hedged=choice.hedged if choice else None,
        interruptible=choice.interruptible if choice else None,
        offering=choice.offering if choice else None,
        profile=placement.profile.value,
        rate_usd_per_hour=format_rate(choice.rate_usd_per_hour) if choice else None,
        region_class=choice.region_class if choice else None,
        warm_reuse=choice.warm_reuse if choice else None,
    )


def _scores(choice: kernel.Choice) -> dict[str, str]:
    """In a fixed order, since what loads them may not keep one."""
    names = [name for name in NAMES if name in choice.scores]
    names += sorted(set(choice.scores) - set(NAMES))
    return {name: format_score(choice.scores[name]) for name in names}


def _predicted(placement: kernel.Placement | None) -> AttemptPredicted | None:
    if placement is None or placement.choice is None:
        return None
    predicted = placement.choice.predicted
    return AttemptPredicted(
        cost_usd=format_usd(predicted.cost_usd),
        hours=format_hours(predicted.hours),
        interruption_rate=format_rate(predicted.interruption_rate),
    )


def _timings(attempt: kernel.Attempt) -> AttemptTimings:
    return AttemptTimings(
        acquired_time=_time(attempt.acquired),
        billing_start_time=_time(attempt.billing_start),
        boot_seconds=attempt.boot_seconds,
        command_started_time=_time(attempt.command_started),
        deletion_proven_time=_time(attempt.deletion_proven),
        finished_time=_time(attempt.finished),
        pull_seconds=attempt.pull_seconds,
        queued_time=format_time(attempt.queued),
        registered_time=_time(attempt.registered),
        restore_seconds=attempt.restore_seconds,
        teardown_seconds=attempt.teardown_seconds,
    )


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else format_time(moment)
