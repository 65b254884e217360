"""The document of an Attempt: SC-009a, SC-017, SC-102, LW-212 to LW-219, storage.md section 4."""

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.attempts.examples import (
    CHOICE,
    EXAMPLES,
    LOST,
    MEMBER,
    OWNER,
    PENDING,
    PLACEMENT,
    RUNNING,
    STOPPED,
    SUCCEEDED,
    WAITING,
    view,
)

from nodus_api.attempts.projection import HEAD, metadata_of, render, splice
from nodus_api.attempts.selectable import FIELDS, SUPPORTED, selectable
from nodus_api.attempts.types import Attempt
from nodus_api.kernel.attempt import AttemptView
from nodus_api.kernel.vocabulary import OwnerKind, Stage, WaitingFor, phase_of
from nodus_api.metav1 import labels

MIGRATIONS = Path(__file__).parent.parent.parent / "migrations" / "versions"


def document(found: AttemptView) -> dict[str, Any]:
    parsed: dict[str, Any] = orjson.loads(render(found).doc)
    return parsed


def status(found: AttemptView) -> dict[str, Any]:
    parsed: dict[str, Any] = document(found)["status"]
    return parsed


def test_the_head_is_what_the_database_checks() -> None:  # attempt_objects_head
    assert len(HEAD) == 78
    check = HEAD[:75].decode()
    schema = "".join(path.read_text() for path in MIGRATIONS.glob("*.sql"))
    assert f"substr(doc, 1, 75) = convert_to('{check}', 'UTF8')" in schema
    assert f"substr(doc, 76, 3) = convert_to('{HEAD[75:].decode()}', 'UTF8')" in schema


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_document_starts_with_the_head_and_is_whole(name: str) -> None:
    rendered = render(EXAMPLES[name])
    assert rendered.doc.startswith(HEAD)
    Attempt.model_validate_json(rendered.doc)
    assert b"null" not in rendered.doc  # LW-219
    assert render(EXAMPLES[name]) == rendered  # the same view, the same bytes


@given(st.integers(1, 2**63 - 1))
def test_the_version_is_spliced_in_as_a_text(rev: int) -> None:  # LW-215
    doc = render(EXAMPLES["running"]).doc
    spliced = orjson.loads(splice(doc, rev))
    assert spliced["metadata"].pop("resourceVersion") == str(rev)
    original = orjson.loads(doc)
    assert original["metadata"].pop("resourceVersion") == ""
    assert spliced == original


@pytest.mark.parametrize("name", EXAMPLES)
def test_metadata_is_cut_out_without_parsing(name: str) -> None:  # LW-053
    doc = splice(render(EXAMPLES[name]).doc, 7)
    assert orjson.loads(metadata_of(doc)) == orjson.loads(doc)["metadata"]


@given(st.text())
def test_no_text_can_end_the_metadata(text: str) -> None:  # LW-053
    attempt = replace(WAITING, waiting_message=f'{text},"spec":{{{text}')
    doc = render(view(attempt, placement=None)).doc
    assert orjson.loads(metadata_of(doc)) == orjson.loads(doc)["metadata"]


def test_metadata() -> None:  # SC-102, LW-212, LW-214
    metadata = document(EXAMPLES["running"])["metadata"]
    assert metadata == {
        "resourceVersion": "",
        "name": "train-0-e1-k7f3q",
        "namespace": "example",
        "uid": "0b7c41a2-58de-4f6f-8a4e-6f2f9b1d7c01",
        "generation": 1,
        "creationTimestamp": "2026-03-01T10:00:55Z",
        "labels": {"nodus.dev/job": "train"},
        "ownerReferences": [
            {
                "apiVersion": "nodus.dev/v1",
                "kind": "Job",
                "name": "train",
                "uid": "7d5c9a3e-2f1b-4c8d-9e0a-1b2c3d4e5f60",
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_hangs_on_an_attempt_is_well_formed(name: str) -> None:  # LW-211, LW-217
    metadata = document(EXAMPLES[name])["metadata"]

    assert metadata["uid"] == str(UUID(metadata["uid"])) == metadata["uid"].lower()
    assert metadata["uid"] == str(EXAMPLES[name].attempt.uid)
    for key, value in metadata["labels"].items():
        assert (labels.key_errors(key), labels.value_errors(value)) == ([], [])
    for what in ("labels", "annotations"):
        found = metadata.get(what, {"left": "out"})
        assert found  # an empty map is left out
        assert {type(text) for pair in found.items() for text in pair} == {str}
        assert sum(len(text.encode()) for pair in found.items() for text in pair) <= 256 * 1024


@given(st.text())
def test_a_document_is_json_that_every_reader_takes(text: str) -> None:  # LW-220
    """UTF-8, each key once, no number that JSON does not have."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    for name in EXAMPLES:
        rendered = render(replace(EXAMPLES[name], attempt=replace(WAITING, waiting_message=text)))
        found = json.loads(rendered.doc.decode(), object_pairs_hook=once, parse_constant=refuse)
        assert found == orjson.loads(rendered.doc)


@pytest.mark.parametrize("kind", OwnerKind)
def test_every_kind_has_its_own_label(kind: OwnerKind) -> None:  # SC-101, SC-102
    found = replace(EXAMPLES["running"], owner=replace(OWNER, kind=kind))
    metadata = document(found)["metadata"]
    assert metadata["labels"] == {f"nodus.dev/{kind.value.lower()}": "train"}
    assert metadata["ownerReferences"][0]["kind"] == kind.value
    assert render(found).sel["labels"] == metadata["labels"]


@pytest.mark.parametrize("waiting", WaitingFor)
def test_a_queued_attempt_says_what_it_waits_for(waiting: WaitingFor) -> None:  # SC-009a, SC-009b
    attempt = replace(WAITING, waiting_for=waiting, waiting_message="gang of 4: 3 placed at most")
    assert document(view(attempt))["metadata"]["annotations"] == {
        "nodus.dev/waiting-for": waiting.value,
        "nodus.dev/waiting-message": "gang of 4: 3 placed at most",
    }
    silent = replace(WAITING, waiting_for=waiting, waiting_message=None)
    assert document(view(silent))["metadata"]["annotations"] == {
        "nodus.dev/waiting-for": waiting.value
    }


def test_only_a_queued_attempt_waits() -> None:  # SC-009a
    moved = replace(RUNNING, waiting_for=WaitingFor.CAPACITY, waiting_message="x")
    for attempt in (PENDING, moved):
        assert "annotations" not in document(view(attempt))["metadata"]


def test_what_is_always_there() -> None:  # SC-017
    found = document(EXAMPLES["queued"])
    assert found["spec"] == {"epoch": 1, "slot": "0"}
    assert found["status"] == {
        "phase": "Queued",
        "progress": {"stage": "Pending"},
        "timings": {"queuedTime": "2026-03-01T10:00:55Z"},
    }


@pytest.mark.parametrize("stage", Stage)
def test_the_phase_follows_the_stage(stage: Stage) -> None:  # SC-002
    found = status(view(replace(RUNNING, stage=stage)))
    assert (found["phase"], found["progress"]["stage"]) == (phase_of(stage).value, stage.value)


def test_a_placement_without_a_choice_explains_the_wait() -> None:  # SC-017, SC-330
    found = status(EXAMPLES["waiting"])
    assert found["placement"] == {
        "candidates": 5,
        "explain": {
            "profile": "Balanced",
            "rejected": [
                {"offeringClass": "b200-sxm-192g-x1-us", "reason": "InsufficientCapacity"}
            ],
        },
        "profile": "Balanced",
    }
    assert "predicted" not in found


def test_a_placement_with_a_choice() -> None:  # SC-017, SC-331, SC-334, LW-218
    found = status(EXAMPLES["acquiring"])
    assert found["placement"] == {
        "candidates": 5,
        "explain": {
            "fallbacks": ["h100-sxm-80g-x1-us", "a100-sxm-80g-x1-eu"],
            "profile": "Balanced",
            "rejected": [
                {"offeringClass": "b200-sxm-192g-x1-us", "reason": "InsufficientCapacity"}
            ],
            "scores": {
                "fit": "1.0000",
                "timeToResult": "0.7051",  # half up
                "costToComplete": "0.8812",
                "recoveryValue": "0.0000",
                "health": "0.9000",
            },
        },
        "hedged": False,
        "interruptible": True,
        "offering": "h100-sxm-80g-x1-eu",
        "profile": "Balanced",
        "rateUSDPerHour": "1.25",
        "regionClass": "eu",
        "warmReuse": False,
    }
    assert found["predicted"] == {
        "costUSD": "8.396750",
        "hours": "6.717400",
        "interruptionRate": "0.05",
    }
    assert "actual" not in found


def test_scores_have_one_order_whatever_order_they_come_in() -> None:  # byte stability
    backwards = dict(reversed(list(CHOICE.scores.items()))) | {
        "zeta": Decimal(1),
        "alpha": Decimal(1),
    }
    one = replace(PLACEMENT, choice=replace(CHOICE, scores=backwards))
    other = replace(PLACEMENT, choice=replace(CHOICE, scores=dict(sorted(backwards.items()))))
    assert render(view(RUNNING, placement=one)) == render(view(RUNNING, placement=other))
    names = list(status(view(RUNNING, placement=one))["placement"]["explain"]["scores"])
    assert names == [
        "fit",
        "timeToResult",
        "costToComplete",
        "recoveryValue",
        "health",
        "alpha",
        "zeta",
    ]


def test_nothing_rejected_and_no_fallback_are_empty_lists() -> None:  # SC-017
    bare = replace(PLACEMENT, rejected=(), choice=replace(CHOICE, fallbacks=()))
    explain = status(view(RUNNING, placement=bare))["placement"]["explain"]
    assert (explain["rejected"], explain["fallbacks"]) == ([], [])


def test_charges_are_the_sum_of_the_ledger() -> None:  # SC-506, SC-521, example 4a
    assert status(EXAMPLES["failed-lost"])["actual"] == {
        "costUSD": "2.527778",
        "hours": "2.022222",
        "segments": {
            "bootUSD": "0.027778",
            "coveredByNodus": ["Teardown"],
            "restoreUSD": "0.000000",
            "runningUSD": "2.500000",
            "teardownUSD": "0.000000",
        },
    }


def test_charges_are_shown_from_the_grant_and_on_every_end() -> None:  # SC-017
    zeros = {
        "costUSD": "0.000000",
        "hours": "0.000000",
        "segments": {
            "bootUSD": "0.000000",
            "restoreUSD": "0.000000",
            "runningUSD": "0.000000",
            "teardownUSD": "0.000000",
        },
    }
    assert "actual" not in status(EXAMPLES["acquiring"])
    assert status(view(replace(RUNNING, command_started=None)))["actual"] == zeros
    assert status(EXAMPLES["cancelled"])["actual"] == zeros


def test_checkpoints_are_shown_from_the_start_of_the_program() -> None:  # SC-017, SC-142
    assert "checkpoints" not in status(EXAMPLES["starting"])
    assert status(EXAMPLES["running-gang"])["checkpoints"] == {"count": 0}
    assert status(EXAMPLES["failed-signal"])["checkpoints"] == {"count": 0}
    assert status(EXAMPLES["running"])["checkpoints"] == {"count": 2, "lastSeq": 2}
    assert status(EXAMPLES["running-resumed"])["checkpoints"] == {
        "count": 0,
        "restoreBytes": 9_007_199_254_740_993,
    }


def test_exit_codes_and_signals() -> None:  # SC-009, LW-219
    assert status(EXAMPLES["succeeded"])["exitCode"] == 0
    assert "signal" not in status(EXAMPLES["succeeded"])
    killed = status(EXAMPLES["failed-signal"])
    assert (killed["exitCode"], killed["signal"], killed["reason"]) == (137, 9, "CustomerExit")


def test_an_interruption() -> None:  # SC-003, SC-015, SC-016
    found = status(EXAMPLES["failed-lost"])
    assert found["interruption"] == {
        "lostSeconds": 25,
        "recoverySeconds": 420,
        "time": "2026-03-01T12:02:40Z",
        "trigger": "PreemptionNotice",
    }
    assert (found["reason"], found["supersededBy"]) == ("Preempted", "train-0-e2-k7f3q")
    assert "recoverySeconds" not in status(EXAMPLES["cancelled"])["interruption"]
    assert status(EXAMPLES["cancelled"])["interruption"]["lostSeconds"] == 0


def test_timings() -> None:  # SC-007, LW-213
    assert status(EXAMPLES["failed-lost"])["timings"] == {
        "acquiredTime": "2026-03-01T10:01:05Z",
        "billingStartTime": "2026-03-01T10:01:20Z",
        "bootSeconds": 95,
        "commandStartedTime": "2026-03-01T10:02:40Z",
        "deletionProvenTime": "2026-03-01T12:03:40Z",
        "finishedTime": "2026-03-01T12:02:40Z",
        "pullSeconds": 40,
        "queuedTime": "2026-03-01T10:00:55Z",
        "registeredTime": "2026-03-01T10:02:20Z",
        "teardownSeconds": 60,
    }
    assert status(EXAMPLES["running-resumed"])["timings"]["restoreSeconds"] == 95
    never = status(view(replace(STOPPED, resumes=True)))["timings"]
    assert not {"bootSeconds", "restoreSeconds"} & set(never)


def test_seconds_of_zero_are_shown() -> None:  # LW-219, SC-714
    at_once = replace(LOST, deletion_proven=LOST.finished, command_started=LOST.acquired)
    timings = status(view(at_once))["timings"]
    assert (timings["bootSeconds"], timings["teardownSeconds"]) == (0, 0)


def test_a_gang_member_of_rank_zero_shows_its_rank() -> None:  # LW-219, SC-130
    assert document(EXAMPLES["running-gang"])["spec"] == {
        "epoch": 1,
        "gang": {"epoch": 1, "id": "7d5c9a3e-workers", "rank": 0, "size": 4},
        "slot": "3",
    }


def test_a_restore_point() -> None:  # SC-141
    found = document(EXAMPLES["running-resumed"])["spec"]
    assert found["restoreFrom"] == {"cursor": {"completed": 400, "total": 600}, "seq": 4}
    point = EXAMPLES["running-resumed"].attempt.restore
    assert point is not None
    plain = replace(EXAMPLES["running-resumed"].attempt, restore=replace(point, cursor=None))
    assert document(view(plain))["spec"]["restoreFrom"] == {"seq": 4}


def test_fractions_of_seconds_are_not_shown() -> None:  # LW-213
    attempt = replace(SUCCEEDED, finished=SUCCEEDED.queued + timedelta(seconds=1.9))
    assert status(view(attempt))["timings"]["finishedTime"] == "2026-03-01T10:00:56Z"


def test_selectable_fields_are_those_that_are_present() -> None:  # LW-098, LW-099
    assert selectable(EXAMPLES["queued"]) == {
        "status.phase": "Queued",
        "status.progress.stage": "Pending",
        "spec.slot": "0",
    }
    full = view(replace(MEMBER, stage=Stage.LOST, reason=LOST.reason))
    assert selectable(full) == {
        "status.phase": "Failed",
        "status.reason": "Preempted",
        "status.progress.stage": "Lost",
        "spec.slot": "3",
        "spec.gang.id": "7d5c9a3e-workers",
        "status.placement.offering": "h100-sxm-80g-x1-eu",
        "status.placement.regionClass": "eu",
    }
    assert tuple(selectable(full)) == FIELDS
    assert set(FIELDS) | {"metadata.name", "metadata.namespace"} == SUPPORTED
    assert render(full).sel == {"labels": {"nodus.dev/job": "train"}, "fields": selectable(full)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_selectable_fields_agree_with_the_document(name: str) -> None:  # LW-098
    found = document(EXAMPLES[name])
    for field in FIELDS:
        value: Any = found
        for key in field.split("."):
            value = value.get(key, {})
        assert render(EXAMPLES[name]).sel["fields"].get(field, {}) == value
