"""The soak sees what it is there to see, and holds when nothing is wrong."""

import json
import os
import random
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from nodus_api.bench.soak.history import History, Scope, Truth
from nodus_api.bench.soak.processes import Replica
from nodus_api.bench.soak.report import memory_of
from nodus_api.bench.soak.run import Plan, soak
from nodus_api.clock import SystemClock
from nodus_api.storage.feed import Change

HEAD = b'{"apiVersion":"nodus.dev/v1","kind":"Attempt","metadata":{"resourceVersion":""'
RUNNING, QUEUED = {"status.phase": "Running"}, {"status.phase": "Queued"}


def document(text: str) -> bytes:
    return HEAD + b',"name":"' + text.encode() + b'"}}'


def line(event: str, text: str, rev: int) -> bytes:
    spliced = document(text).replace(b'Version":""', b'Version":"%d"' % rev)
    return b'{"type":"' + event.encode() + b'","object":' + spliced + b"}\n"


def row(rev: int, kind: str, text: str, fields: dict[str, str], **given: Any) -> Change:
    facts: dict[str, Any] = {
        "uid": UUID(int=1),
        "project": "default",
        "name": "one",
        "ver": rev,
        "tx": rev,
        "prev_sel": None,
        "prev_rev": None,
        "prev_doc": None,
    } | given
    sel = json.dumps({"labels": {}, "fields": fields})
    return Change(rev=rev, kind=kind, sel=sel, doc=document(text), **facts)


def history(scope: Scope | None = None) -> tuple[Truth, History]:
    breaches: list[str] = []
    truth = Truth(1, breaches)
    one = History(name="one", scope=scope or Scope(), breaches=breaches)
    truth.add(one)
    truth.read([row(2, "A", "a", QUEUED), row(3, "M", "b", QUEUED), row(4, "D", "b", QUEUED)])
    return truth, one


GOOD = [(2, line("ADDED", "a", 2)), (3, line("MODIFIED", "b", 3)), (4, line("DELETED", "b", 4))]


def breaches(came: list[tuple[int, bytes | None]]) -> list[str]:
    truth, one = history()
    for rev, text in came:
        one.came(rev, text)
    one.compare(truth.position)
    return truth.breaches


def test_a_history_that_equals_the_log_is_no_breach() -> None:
    truth, one = history()
    for rev, text in [*GOOD, (4, None)]:
        one.came(rev, text)
    one.compare(truth.position)

    assert truth.breaches == []
    assert (one.events, one.owed) == (3, 0)


@pytest.mark.parametrize(
    ("came", "said"),
    [
        (GOOD[1:], "the event of 2 did not come before that of 3"),  # H-03
        ([GOOD[0], GOOD[0]], "revision 2 came after 2"),  # H-02
        ([GOOD[1], GOOD[0]], "revision 2 came after 3"),  # H-01
        ([(2, None)], "a bookmark of 2 came before the event of 2"),  # H-05
        ([(2, line("MODIFIED", "a", 2))], "the event of 2 is not what the log has"),  # H-08
        ([(2, line("ADDED", "b", 2))], "the event of 2 is not what the log has"),  # H-22
    ],
)
def test_a_breach_is_seen(came: list[tuple[int, bytes | None]], said: str) -> None:
    assert said in breaches(came)[0]


def test_an_event_outside_the_scope_is_seen() -> None:
    """H-10."""
    truth, one = history(Scope(field=("status.phase", "Running")))
    one.came(2, line("ADDED", "a", 2))
    one.compare(truth.position)

    assert "the event of 2 was not due" in truth.breaches[0]


def test_what_leaves_the_scope_is_due_as_it_was() -> None:
    """H-08, H-09: DELETED with the last state that matched, at the change's revision."""
    truth, one = history(Scope(field=("status.phase", "Running")))
    before = json.dumps({"labels": {}, "fields": QUEUED})
    truth.read(
        [
            row(5, "A", "a", RUNNING),
            row(6, "M", "b", QUEUED, prev_sel=json.dumps({"labels": {}, "fields": RUNNING})),
            row(7, "M", "c", RUNNING, prev_sel=before),
            row(8, "D", "c", RUNNING),
        ]
    )
    for rev, event, text in [
        (5, "ADDED", "a"),
        (6, "DELETED", "a"),
        (7, "ADDED", "c"),
        (8, "DELETED", "c"),
    ]:
        one.came(rev, line(event, text, rev))
    one.compare(truth.position)

    assert (truth.breaches, one.owed) == ([], 0)


def test_what_a_list_has_told_is_due_no_more() -> None:
    truth, one = history()
    one.listed(5)
    truth.read([row(5, "M", "a", QUEUED), row(6, "M", "a", QUEUED)])
    one.came(6, line("MODIFIED", "a", 6))
    one.compare(truth.position)

    assert (truth.breaches, one.owed) == ([], 0)


def test_a_hole_in_the_log_is_seen() -> None:
    truth, _ = history()
    truth.read([row(6, "A", "a", QUEUED)])
    assert truth.breaches == ["the log goes from 4 to 6"]


@pytest.mark.parametrize(("last", "flat"), [(104.0, True), (120.0, False)])
def test_memory_is_judged_by_the_last_third(tmp_path: Path, last: float, flat: bool) -> None:
    replica = Replica(url="", folder=tmp_path, port=1)
    replica.samples = [(0, 50.0), (300, 90.0), (650, 100.0), (700, 100.0), (800, last)]

    assert memory_of(replica, total=900, settled=330).flat is flat
    assert memory_of(replica, total=900, settled=700).judged is False


@pytest.mark.slow  # two replicas, two writers, Postgres, and a restart of each
async def test_a_short_soak_holds(open_folder: Path) -> None:
    """H-01 to H-05 over a killed replica, a restart of Postgres, and watches that are cut off."""
    folder = open_folder / "soak"
    folder.mkdir(mode=0o711)
    plan = Plan(
        minutes=0.05, rate=60, watchers=12, projects=2, attempts=50, live=20, keep_finished=5
    )

    report = await soak(
        plan,
        folder,
        clock=SystemClock(),
        entropy=os.urandom,
        chance=random.Random(1).random,  # noqa: S311 - when streams are cut
        tell=lambda line: None,
    )

    assert report.breaches == []
    assert report.held
    assert report.events > 0
    assert report.streams >= plan.watchers
    assert [one["what"] for one in report.faults] == [
        "a replica was killed and started again",
        "Postgres was restarted",
    ]
