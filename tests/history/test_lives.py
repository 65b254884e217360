"""Broken documents and books, and the finding that each gives."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from tests.history.checking import findings
from tests.history.examples import LOG, an_account, an_attempt, at, broken, encoded, log_of
from tests.history.facts import Account, History, Ledger, Machine

FAILED: dict[str, Any] = {"reason": "CustomerExit"}


def of(*commits: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, str, str]]:
    return broken(History(log=log_of(*commits)))


def life(*documents: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return what is broken in the life of one object, a commit a document."""
    first, *more = documents
    return of([("A", first)], *([("M", one)] for one in more))


def with_timings(document: dict[str, Any], **timings: str | None) -> dict[str, Any]:
    told = {**document["status"]["timings"], **timings}
    kept = {name: moment for name, moment in told.items() if moment is not None}
    return {**document, "status": {**document["status"], "timings": kept}}


def with_segments(document: dict[str, Any], **amounts: str) -> dict[str, Any]:
    actual = document["status"]["actual"]
    return {
        **document,
        "status": {
            **document["status"],
            "actual": {**actual, "segments": {**actual["segments"], **amounts}},
        },
    }


def test_the_example_is_sound() -> None:
    assert findings(History(log=LOG)) == []


def test_a_log_with_a_gap() -> None:
    gap = tuple(row for row in LOG if row.rev != 5)
    assert broken(History(log=gap))[0] == ("log", "revision 4", "the next row is 6")
    marker = replace(LOG[0], rev=1 << 44, tx=99)
    assert findings(History(log=(*LOG, marker))) == []


def test_a_stage_that_goes_back() -> None:  # P-01
    running = an_attempt("a1", "Running", cost="0.001000")
    back = an_attempt("a1", "Starting", cost="0.001000")
    assert of([("A", running)], [("M", back)])[0] == (
        "H-23 P-01",
        "Running leads to Running, Succeeded, Failed, Lost, Stopped",
        "the next stage is Starting",
    )


def test_a_life_after_the_end() -> None:  # P-01
    ended = an_attempt("a1", "Failed", cost="0.001000", **FAILED)
    again = an_attempt("a1", "Running", cost="0.001000")
    assert ("H-23 P-01", "Failed leads to Failed", "the next stage is Running") in life(
        ended, again
    )


def test_stages_passed_inside_a_commit_may_be_missing() -> None:  # P-01
    assert life(an_attempt("a1"), an_attempt("a1", "Succeeded", cost="0.000000")) == []


@pytest.mark.parametrize(
    ("document", "said", "but"),
    [
        (an_attempt("a1", phase="Running"), "stage Pending", "phase Running"),
        (an_attempt("a1", "Failed", cost="0.000000"), "phase Failed", "reason None"),
        (
            an_attempt("a1", "Running", reason="CustomerExit"),
            "phase Running",
            "reason CustomerExit",
        ),
        (an_attempt("a1", "Stopped", reason="NodeLost"), "phase Cancelled", "reason NodeLost"),
    ],
)
def test_a_phase_that_is_not_the_stages(  # P-02
    document: dict[str, Any], said: str, but: str
) -> None:
    assert ("H-23 P-02", said, but) in life(document)


def test_milestones_out_of_order() -> None:  # P-03
    early = with_timings(an_attempt("a1", "Acquiring"), acquiredTime="2025-12-31T23:59:59Z")
    assert life(early) == [
        (
            "H-23 P-03",
            "queuedTime is 2026-01-01T00:00:00Z",
            "acquiredTime is 2025-12-31T23:59:59Z",
        )
    ]


def test_a_milestone_in_parts_of_a_second() -> None:  # P-03, SC-005
    fine = with_timings(an_attempt("a1", "Acquiring"), acquiredTime="2026-01-01T00:00:01.5Z")
    assert (
        "H-23 P-03",
        "milestones are whole seconds",
        "acquiredTime is 2026-01-01T00:00:01.5Z",
    ) in (life(fine))


def test_an_end_without_its_time() -> None:  # P-03
    endless = with_timings(an_attempt("a1", "Succeeded"), finishedTime=None)
    assert [rule for rule, *_ in life(endless)] == ["H-23 P-03"]


def test_a_milestone_that_moves() -> None:  # P-03
    one = an_attempt("a1", "Running", cost="0.001000")
    two = with_timings(one, commandStartedTime="2026-01-01T00:00:09Z")
    assert life(one, two) == [
        ("H-23 P-03", "commandStartedTime is 2026-01-01T00:00:04Z", "then 2026-01-01T00:00:09Z")
    ]
    gone = with_timings(one, commandStartedTime=None)
    assert life(one, gone) == [
        ("H-23 P-03", "commandStartedTime is 2026-01-01T00:00:04Z", "then absent")
    ]


def test_the_acquired_time_may_move_until_the_grant() -> None:  # P-03, SC-006
    one = an_attempt("a1", "Acquiring")
    two = with_timings(one, acquiredTime="2026-01-01T00:00:09Z")
    assert life(one, two) == []
    granted = an_attempt("a1", "Starting")
    moved = with_timings(granted, acquiredTime="2026-01-01T00:00:00Z")
    assert [rule for rule, *_ in life(granted, moved)] == ["H-23 P-03"]


def test_a_spec_that_changes() -> None:  # LW-214
    assert life(an_attempt("a1"), {**an_attempt("a1"), "spec": {"slot": "1", "epoch": 1}})[0] == (
        "H-23 P-03",
        "the spec is {'slot': '0', 'epoch': 1}",
        "then {'slot': '1', 'epoch': 1}",
    )


def test_two_live_attempts_of_a_slot() -> None:  # P-04
    found = of([("A", an_attempt("a1", supersededBy="a2")), ("A", an_attempt("a2", epoch=2))])
    assert found == [("H-23 P-04", "a1 at 2 is live", "so is a2 at 3")]


def test_one_commit_ends_the_one_and_begins_the_other() -> None:  # P-04: no live two at its end
    ended = an_attempt("a1", "Failed", supersededBy="a2", **FAILED)
    assert of([("A", an_attempt("a1"))], [("A", an_attempt("a2", epoch=2)), ("M", ended)]) == []


def test_an_epoch_left_out() -> None:  # P-04
    found = of(
        [("A", an_attempt("a1", "Failed", **FAILED))],
        [("A", an_attempt("a3", epoch=3))],
    )
    assert found == [("H-23 P-04", "epochs count from 1", "there were [1, 3]")]


def test_a_successor_that_is_not_named() -> None:  # P-04, SC-105
    ended = an_attempt("a1", "Failed", **FAILED)
    assert of([("A", ended)], [("A", an_attempt("a2", epoch=2))]) == [
        ("H-23 P-04", "a1 is followed by a2", "supersededBy is absent")
    ]
    early = an_attempt("a1", "Failed", supersededBy="a2", **FAILED)
    assert of([("A", early)]) == [("H-23 P-04", "a1 is followed by none", "supersededBy is a2")]


def test_segments_that_do_not_add_up() -> None:  # P-12
    wrong = with_segments(an_attempt("a1", "Running", cost="0.001000"), bootUSD="0.000001")
    assert life(wrong) == [
        (
            "H-23 P-12",
            "the segments are 0.000001, 0.000000, 0.001000, 0.000000",
            "costUSD is 0.001000",
        )
    ]


def test_a_negative_amount() -> None:  # P-12
    wrong = with_segments(
        an_attempt("a1", "Running", cost="0.001000"), bootUSD="-0.001000", restoreUSD="0.001000"
    )
    assert [rule for rule, *_ in life(wrong)] == ["H-23 P-12"]


def test_a_cost_that_is_not_time_by_rate() -> None:  # P-12
    wrong = an_attempt("a1", "Running", cost="0.001000")
    wrong["status"]["actual"]["hours"] = "0.000300"
    assert life(wrong) == [
        ("H-23 P-12", "0.000300 h at 3.60 USD/h are charged", "costUSD is 0.001000")
    ]


def test_a_cost_that_falls() -> None:  # P-13
    more, less = (an_attempt("a1", "Running", cost=cost) for cost in ("0.002000", "0.001000"))
    assert life(more, less) == [("H-23 P-13", "costUSD is 0.002000", "then 0.001000")]
    assert life(more, an_attempt("a1", "Lost", cost="0.000000", reason="NodeLost")) == []  # SC-509


def test_a_cost_that_moves_after_the_proof() -> None:  # P-13
    one, two = (
        an_attempt("a1", "Failed", proven=True, cost=cost, **FAILED)
        for cost in ("0.001000", "0.002000")
    )
    assert life(one, two) == [
        ("H-23 P-13", "the machine is proven gone at costUSD 0.001000", "then it is 0.002000")
    ]


# rows, document, log and machines of one commit --------------------------------------------------


def booked(*accounts: Account, **more: Any) -> History:
    log = log_of([("A", an_attempt("b1", "Succeeded", cost="0.007200"))])
    return replace(History(log=log, ledgers=(Ledger(head=2, accounts=accounts),)), **more)


def an_entry(**changes: Any) -> Account:
    return replace(an_account(), rev=2, **changes)


def altered(document: bytes, changes: Mapping[bytes, bytes]) -> bytes:
    for one, two in changes.items():
        assert one in document
        document = document.replace(one, two)
    return document


def test_sound_books_give_nothing() -> None:
    assert findings(booked(an_entry())) == []


def test_a_document_that_its_rows_do_not_project_to() -> None:  # H-23
    entry = an_entry()
    other = altered(entry.rendered, {b'"0.007200"': b'"0.007201"'})
    assert broken(booked(replace(entry, rendered=other))) == [
        ("H-23", f"the rows project to {other!r}", f"the document is {entry.stored!r}")
    ]


def test_a_document_that_is_not_the_logs() -> None:  # H-23
    assert broken(booked(replace(an_entry(), rev=1))) == [
        ("H-23", "the log has b1 at 2", "stored is 1")
    ]
    assert broken(booked()) == [("H-23", "the log has b1 at 2", "no document of it is stored")]
    ghost = replace(an_entry(), uid="ghost")
    assert ("H-23", "the log has no such object", "stored is 2") in broken(booked(ghost))


def test_a_document_that_tells_another_cost_than_the_ledger() -> None:  # P-12
    first, second = an_entry().segments
    dearer = (first, replace(second, usd=second.usd + Decimal("0.000001")))
    assert broken(booked(an_entry(segments=dearer))) == [
        ("P-12", "the ledger charges 0.007201 as costUSD", "the document tells 0.007200"),
        ("P-12", "the ledger charges 0.007201 as runningUSD", "the document tells 0.007200"),
    ]
    covered = (first, replace(second, covered=True))
    assert [rule for rule, *_ in broken(booked(an_entry(segments=covered)))] == ["P-12", "P-12"]


def test_segments_with_a_gap() -> None:  # P-11
    first, second = an_entry().segments
    late = (first, replace(second, start=at(2)))
    assert broken(booked(an_entry(segments=late))) == [
        ("P-11", f"a segment of machine 1 ends at {at(1)}", f"the next starts at {at(2)}")
    ]


def test_a_proof_before_the_machine_is_gone() -> None:  # P-10
    document = an_attempt("b1", "Succeeded", proven=True)
    entry = Account(
        uid="uid-b1",
        name="b1",
        rev=2,
        stored=encoded(document),
        rendered=encoded(document),
        machines=((1, "Gone"), (2, "Releasing")),
    )
    history = History(log=log_of([("A", document)]), ledgers=(Ledger(head=2, accounts=(entry,)),))
    assert broken(history) == [
        ("P-10", "deletion was proven at 2026-01-01T00:00:06Z", "machines [2] are not Gone")
    ]


def test_machines_that_outlive_their_proof() -> None:  # P-09, P-10
    gone = Machine(key="k1", attempt="b1", state="Gone", alive=False)
    held = Machine(key="k2", attempt="b1", state="Granted", alive=True)
    assert findings(booked(an_entry(), machines=(gone, held))) == []
    assert broken(booked(an_entry(), machines=(replace(gone, alive=True),))) == [
        ("P-10", "its row says Gone", "it still runs")
    ]
    assert broken(booked(an_entry(), machines=(gone, held), quiet=True)) == [
        ("P-09", "nothing is left to do", "its row says Granted")
    ]
