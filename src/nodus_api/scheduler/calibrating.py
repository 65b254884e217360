"""Runs that succeeded teach how long the next of their name take (SC-352, SC-301)."""

from datetime import timedelta

from nodus_api.kernel.calibration import Calibration, program_hours
from nodus_api.kernel.offering import Family
from nodus_api.kernel.request import PlacementRequest
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import Stage
from nodus_api.storage.batch import Batch
from nodus_api.storage.calibration_store import (
    Lineage,
    read_calibrations,
    read_families,
    write_calibrations,
)
from nodus_api.storage.records import AttemptRecord

_HOUR = timedelta(hours=1)


async def calibrate(batch: Batch) -> None:
    """Write what the Attempts teach that succeeded in this batch."""
    ended = [
        record
        for no, record in batch.records.items()
        if record.attempt.stage is Stage.SUCCEEDED
        and batch.loaded[no].attempt.live
        and record.attempt.command_started is not None
        and record.view.placement is not None
        and record.view.placement.choice is not None
    ]
    if not ended:
        return
    lineages = [Lineage.of(one.workload) for one in ended]
    known = await read_calibrations(batch.connection, lineages)
    classes = await read_families(batch.connection, {_offering(one) for one in ended})
    learnt: dict[Lineage, dict[Family, Calibration]] = {}
    for lineage, record in zip(lineages, ended, strict=True):
        if _offering(record) not in classes:
            continue
        family, speed = classes[_offering(record)]
        before = learnt.get(lineage, {}).get(family) or known.get(lineage, {}).get(family)
        learnt.setdefault(lineage, {})[family] = _after(before or Calibration(), record, speed)
    await write_calibrations(batch.connection, learnt, batch.now)


def _offering(record: AttemptRecord) -> str:
    choice = record.view.placement.choice if record.view.placement else None
    return "" if choice is None else choice.offering


def _after(before: Calibration, record: AttemptRecord, speed: float) -> Calibration:
    attempt, placement = record.attempt, record.view.placement
    choice = None if placement is None else placement.choice
    if choice is None or attempt.command_started is None or attempt.finished is None:
        return before
    actual = (attempt.finished - attempt.command_started) / _HOUR
    spec = WorkloadSpec.from_json(record.workload.kind, record.workload.spec)
    cursor = attempt.restore.cursor if attempt.restore else None
    whole = not attempt.resumes
    after = before.after_whole(actual * speed) if whole else before
    if spec.estimate_hours is None or (not whole and cursor is None):
        return after  # of a run that went on from somewhere, nobody knows how much it had to do
    predicted = program_hours(
        PlacementRequest.of(spec, cursor=cursor),
        speed=speed,
        interruptions_per_hour=float(choice.predicted.interruption_rate),
    )
    return after.after_estimated(actual, predicted)
