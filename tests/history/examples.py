"""A short log of four Attempts, and the histories that sound servers would show of it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.history.checking import findings
from tests.history.facts import Account, Answer, Event, History, Row, Segment, Stream
from tests.history.openings import by_version
from tests.history.scope import Scope, scope_of
from tests.history.truth import Change, Truth

START = datetime(2026, 1, 1, tzinfo=UTC)
ALL = "/apis/nodus.dev/v1/attempts"
ONE = "/apis/nodus.dev/v1/namespaces/default/attempts"
RUNNING = "fieldSelector=status.phase%3DRunning"
_MILESTONES = {
    "Pending": 1,
    "Acquiring": 2,
    "Starting": 3,
    "Running": 5,
    "Succeeded": 6,
    "Failed": 6,
    "Lost": 6,
    "Stopped": 6,
}
_NAMES = (
    "queuedTime",
    "acquiredTime",
    "billingStartTime",
    "registeredTime",
    "commandStartedTime",
    "finishedTime",
    "deletionProvenTime",
)
_PHASES = {
    "Pending": "Queued",
    "Acquiring": "Provisioning",
    "Starting": "Provisioning",
    "Lost": "Failed",
    "Stopped": "Cancelled",
}


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def an_attempt(
    name: str,
    stage: str = "Pending",
    *,
    project: str = "default",
    epoch: int = 1,
    proven: bool = False,
    cost: str | None = None,
    **status: Any,
) -> dict[str, Any]:
    """Return an Attempt's document; its owner is the name's first letter, milestones a second each.

    One with `cost` was charged for running; the rate is 3.6 USD an hour, so 0.001 a second.
    """
    known = 7 if proven else _MILESTONES[stage]
    told: dict[str, Any] = {
        "phase": _PHASES.get(stage, stage),
        "progress": {"stage": stage},
        "timings": {
            milestone: f"2026-01-01T00:00:0{n}Z" for n, milestone in enumerate(_NAMES[:known])
        },
    }
    if cost is not None:
        told["placement"] = {"rateUSDPerHour": "3.60", "hedged": False}
        told["actual"] = {
            "costUSD": cost,
            "hours": f"{float(cost) / 3.6:.6f}",
            "segments": {
                "bootUSD": "0.000000",
                "restoreUSD": "0.000000",
                "runningUSD": cost,
                "teardownUSD": "0.000000",
            },
        }
    return {
        "apiVersion": "nodus.dev/v1",
        "kind": "Attempt",
        "metadata": {
            "resourceVersion": "",
            "uid": f"uid-{name}",
            "name": name,
            "namespace": project,
            "labels": {"nodus.dev/job": name[0]},
            "ownerReferences": [{"uid": f"owner-{name[0]}"}],
        },
        "spec": {"slot": "0", "epoch": epoch},
        "status": told | status,
    }


def encoded(obj: Mapping[str, Any]) -> bytes:
    return json.dumps(obj, separators=(",", ":")).encode()


def log_of(*commits: list[tuple[str, dict[str, Any]]]) -> tuple[Row, ...]:
    """Return a log: an epoch's marker, then each commit's rows (kind, document), a second each."""
    rows = [Row(rev=1, kind="E", tx=1, at=START)]
    for tx, commit in enumerate(commits, 2):
        for kind, obj in commit:
            metadata = obj["metadata"]
            rows.append(
                Row(
                    rev=len(rows) + 1,
                    kind=kind,
                    tx=tx,
                    at=at(tx),
                    uid=metadata["uid"],
                    project=metadata["namespace"],
                    name=metadata["name"],
                    doc=encoded(obj),
                )
            )
    return tuple(rows)


FAILED: dict[str, Any] = {"reason": "CustomerExit", "exitCode": 3, "supersededBy": "a2"}
LOG = log_of(
    [("A", an_attempt("a1"))],  # 2
    [("A", an_attempt("b1")), ("A", an_attempt("c1", project="team"))],  # 3, 4
    [("M", an_attempt("a1", "Acquiring"))],  # 5
    [("M", an_attempt("a1", "Starting", cost="0.000000"))],  # 6
    [("M", an_attempt("a1", "Running", cost="0.001000"))],  # 7
    [("M", an_attempt("b1", "Running", cost="0.000000"))],  # 8
    [  # 9, 10
        ("M", an_attempt("a1", "Failed", cost="0.003600", **FAILED)),
        ("A", an_attempt("a2", epoch=2)),
    ],
    [("M", an_attempt("a1", "Failed", proven=True, cost="0.003600", **FAILED))],  # 11
    [("M", an_attempt("b1", "Succeeded", cost="0.007200"))],  # 12
    [("D", an_attempt("a1", "Failed", proven=True, cost="0.003600", **FAILED))],  # 13
    [("M", an_attempt("a2", "Stopped", epoch=2, reason="Stopped"))],  # 14
)
TRUTH = Truth(LOG)
HEAD = 14


def event(change: Change, *, second: int = 100, kind: str = "") -> Event:
    """Return the event of a change, as a server would send it."""
    return Event(
        type=kind or change.type,
        at=at(second),
        body=change.body,
        rev=change.rev,
        uid=change.uid,
        name=change.name,
    )


def bookmark(rev: int, *, second: int = 100, ends_state: bool = False) -> Event:
    return Event(type="BOOKMARK", at=at(second), body=b"{}", rev=rev, ends_state=ends_state)


def scope(target: str) -> Scope:
    found = scope_of(Stream(target=target, client="any", asked=START, events=()))
    assert found is not None
    return found


def a_stream(
    target: str,
    *,
    state_at: int = 1,
    upto: int = HEAD,
    client: str = "ann",
    asked: int = 50,
    truth: Truth = TRUTH,
) -> Stream:
    """Return the watch that a sound server gives: with its state at `state_at` if it wants one."""
    stream = Stream(target=target, client=client, asked=at(asked), events=())
    start = state_at if stream.wants_state else int(stream.version)
    events = []
    if stream.wants_state:
        for version in by_version(truth, scope(target), state_at):
            row = version.row
            events.append(
                Event(
                    type="ADDED",
                    at=at(100),
                    body=version.body,
                    rev=version.rev,
                    uid=row.uid,
                    name=row.name,
                )
            )
    if stream.wants_end_of_state:
        events.append(bookmark(state_at, ends_state=True))
    events += [event(change) for change in truth.projection(scope(target), start, upto)]
    return replace(stream, events=tuple(events), ending="clean")


def a_list(
    target: str,
    rev: int = HEAD,
    *,
    start: int = 0,
    size: int = 100,
    more: str = "",
    client: str = "ann",
    asked: int = 200,
) -> Answer:
    """Return the list that a sound server gives at `rev`, or the page of it from `start` on."""
    due = TRUTH.listed(scope(target), rev)
    metadata: dict[str, Any] = {"resourceVersion": str(rev)}
    left = len(due) - start - size
    if left > 0:
        metadata["continue"] = more
        if not scope(target).narrowed:
            metadata["remainingItemCount"] = left
    items = b",".join(one.body for one in due[start : start + size])
    return Answer(
        target=target,
        client=client,
        asked=at(asked),
        answered=at(asked + 1),
        body=b'{"kind":"AttemptList","metadata":%b,"items":[%b]}' % (encoded(metadata), items),
    )


def a_get(name: str, rev: int, *, asked: int = 200) -> Answer:
    """Return the get that a sound server gives at `rev`."""
    (found,) = TRUTH.listed(scope(f"{ONE}/{name}"), rev)
    return Answer(
        target=f"{ONE}/{name}",
        client="ann",
        asked=at(asked),
        answered=at(asked + 1),
        body=found.body,
    )


def an_account(name: str = "b1", rev: int = 12) -> Account:
    """Return the rows of an Attempt that match the log: charged for running in two segments."""
    (found,) = TRUTH.listed(scope(f"{ONE}/{name}"), rev)
    return Account(
        uid=found.row.uid,
        name=name,
        rev=rev,
        stored=found.row.doc,
        rendered=found.row.doc,
        segments=tuple(
            Segment(
                machine=1,
                segment="Running",
                start=at(start),
                end=at(start + 1),
                covered=False,
                usd=usd,
            )
            for start, usd in _halves(found.obj["status"]["actual"]["costUSD"])
        ),
        machines=((1, "Releasing"),),
    )


def _halves(cost: str) -> list[tuple[int, Decimal]]:
    return [(0, Decimal(cost) / 2), (1, Decimal(cost) / 2)]


def broken(history: History) -> list[tuple[str, str, str]]:
    """Return the findings without where they are."""
    return [(one.rule, one.said, one.but) for one in findings(history)]
