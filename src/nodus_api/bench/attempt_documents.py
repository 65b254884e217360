"""Attempts by the ten thousand, for measuring: real documents of real lives, cheaply repeated.

One document a stage goes through the projection; of each further Attempt only what tells it from
its siblings is written anew: uid, name, project, Job and slot.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import orjson

from nodus_api.attempts.projection import render
from nodus_api.kernel.attempt import (
    Attempt,
    AttemptView,
    Checkpoints,
    Choice,
    CostSegment,
    Owner,
    Placement,
    Prediction,
    Rejection,
)
from nodus_api.kernel.vocabulary import Market, OwnerKind, Profile, Reason, Segment, Stage

SLOTS = 8
"""Attempts of one Job."""

_QUEUED = datetime(2026, 3, 1, 10, 0, 55, tzinfo=UTC)
_UID = UUID("0b7c41a2-58de-4f6f-8a4e-6f2f9b1d7c01")
_JOB_UID = UUID("7d5c9a3e-2f1b-4c8d-9e0a-1b2c3d4e5f60")
_NAME, _PROJECT, _JOB, _SLOT = "name-of-it", "project-of-it", "job-of-it", "777777777"
_OFFERINGS = ("h100-sxm-80g-x1-eu", "h100-sxm-80g-x1-us", "a100-sxm-80g-x1-eu", "l4-24g-x1-us")


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeAttempt:
    """One Attempt as storage holds it: `doc` without its resourceVersion, `sel` as JSON text."""

    uid: UUID
    project: str
    name: str
    sel: str
    doc: bytes


class AttemptMaker:
    """Makes the Attempt of a number, in one of four stages; equal calls give equal bytes."""

    def __init__(self, *, projects: int) -> None:
        """Each Job has `SLOTS` Attempts; Jobs are dealt to so many projects in turn."""
        self._projects = projects
        self._templates = [render(view) for view in _lives()]

    def make(self, number: int, stage: int | None = None) -> MadeAttempt:
        """Return Attempt `number`; without a `stage`, 90 of 100 are finished."""
        if stage is None:
            stage = number % 100 if number % 100 < 4 else 4 + number % 4
        template = self._templates[stage % len(self._templates)]
        job, slot = divmod(number, SLOTS)
        project, job_name = f"team-{job % self._projects:04}", f"train-{job:06}"
        name = f"{job_name}-{slot}-e1-k7f3q"
        uid = UUID(int=_UID.int + number)
        words = {_NAME: name, _PROJECT: project, _JOB: job_name, _SLOT: str(slot)}
        doc, sel = template.doc, orjson.dumps(template.sel)
        for word, value in words.items():
            doc = doc.replace(word.encode(), value.encode())
            sel = sel.replace(word.encode(), value.encode())
        doc = doc.replace(str(_UID).encode(), str(uid).encode())
        return MadeAttempt(uid=uid, project=project, name=name, sel=sel.decode(), doc=doc)

    def all(self, count: int) -> Iterator[MadeAttempt]:
        """Give the Attempts of the numbers below `count`."""
        return map(self.make, range(count))


def _lives() -> Iterator[AttemptView]:
    owner = Owner(kind=OwnerKind.JOB, name=_JOB, uid=_JOB_UID)
    queued = Attempt(
        uid=_UID,
        project=_PROJECT,
        name=_NAME,
        workload=owner.uid,
        slot=_SLOT,
        epoch=1,
        queued=_QUEUED,
    )
    yield AttemptView(attempt=queued, owner=owner, segments=())
    for offering in _OFFERINGS[:3]:
        yield _ran(_running(queued), owner, offering)
    finished = _QUEUED + timedelta(hours=2)
    for offering in _OFFERINGS:
        done = replace(
            _running(queued),
            stage=Stage.FAILED if offering is _OFFERINGS[2] else Stage.SUCCEEDED,
            reason=Reason.CUSTOMER_EXIT if offering is _OFFERINGS[2] else None,
            finished=finished,
            exit_code=3 if offering is _OFFERINGS[2] else 0,
            deletion_proven=finished + timedelta(seconds=60),
        )
        yield _ran(done, owner, offering)


def _running(queued: Attempt) -> Attempt:
    return replace(
        queued,
        stage=Stage.RUNNING,
        acquired=_QUEUED + timedelta(seconds=10),
        billing_start=_QUEUED + timedelta(seconds=25),
        registered=_QUEUED + timedelta(seconds=85),
        command_started=_QUEUED + timedelta(seconds=105),
        pull_seconds=20,
    )


def _ran(attempt: Attempt, owner: Owner, offering: str) -> AttemptView:
    started = attempt.command_started or _QUEUED
    segments = (
        _segment(Segment.BOOT, 0, attempt.billing_start or _QUEUED, started),
        _segment(Segment.RUNNING, 1, started, started + timedelta(hours=1)),
    )
    return AttemptView(
        attempt=attempt,
        owner=owner,
        segments=segments,
        placement=_placement(offering),
        checkpoints=Checkpoints(count=2, last_seq=2),
    )


def _segment(kind: Segment, seq: int, start: datetime, end: datetime) -> CostSegment:
    return CostSegment(
        machine=1,
        seq=seq,
        segment=kind,
        start=start,
        end=end,
        covered=False,
        rate_usd_per_hour=Decimal("1.25"),
        usd=Decimal("1.250000"),
    )


def _placement(offering: str) -> Placement:
    choice = Choice(
        offering=offering,
        region_class=offering.rpartition("-")[2],
        market=Market.SPOT,
        rate_usd_per_hour=Decimal("1.250000"),
        scores={
            "health": Decimal("0.9"),
            "fit": Decimal("1"),
            "timeToResult": Decimal("0.70505"),
            "costToComplete": Decimal("0.88124"),
            "recoveryValue": Decimal("0"),
        },
        fallbacks=tuple(other for other in _OFFERINGS if other != offering),
        predicted=Prediction(
            hours=Decimal("6.7174"),
            cost_usd=Decimal("8.39675"),
            interruption_rate=Decimal("0.05"),
        ),
    )
    rejected = tuple(
        Rejection(offering=f"b200-sxm-192g-x{count}-us", reason="InsufficientCapacity")
        for count in (1, 2, 4, 8)
    )
    return Placement(profile=Profile.BALANCED, candidates=8, rejected=rejected, choice=choice)
