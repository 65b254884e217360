"""What to do about an end: advice that can be followed as the workload and its slot stand."""

from dataclasses import replace
from typing import Any

import pytest
from tests.cli.told_lives import a_plain_life, moment

from nodus_api.attempts.reasons import REASONS
from nodus_api.cli.explain_text import explain_text
from nodus_api.cli.explained import explained
from nodus_api.cli.remedies import remedy_of
from nodus_api.kernel.vocabulary import Reason
from nodus_api.storage.lives import Life

AGAIN = "submit it under another name, or run `nodus delete job/train` first."


def a_life(reason: str, **standing: Any) -> Life:
    life = a_plain_life("10:00:00 10:00:01 10:00:02 10:00:03 10:00:09", stage="Lost", reason=reason)
    return replace(life, **{"archived": False, **standing})


def advice(life: Life) -> str:
    return remedy_of(life, None)


@pytest.mark.parametrize("reason", list(Reason))
def test_an_end_whose_slot_is_open_awaits_the_next_attempt(reason: Reason) -> None:  # SC-120
    life = a_life(reason, slot_state="Open", workload_state="Active")

    said = explain_text(explained(life, moment("10:01:00")))
    if reason is Reason.RELEASED:  # its slot may be open for good: with fewer workers (SC-802)
        assert "  Nothing replaced it.\n  What to do: Nothing.\n" in said
    else:
        assert "  Nothing has replaced it yet.\n  What to do: Nothing: its slot is open, " in said


@pytest.mark.parametrize("reason", list(Reason))
@pytest.mark.parametrize("slot", ["Failed", "Stopped"])
def test_a_slot_that_is_closed_is_never_said_to_go_on(reason: Reason, slot: str) -> None:
    life = a_life(reason, slot_state=slot, workload_state="Failed")

    said = advice(life)
    assert "OWNER" not in said
    assert "a new Attempt takes" not in said
    assert "the slot goes on" not in said
    assert "the slot is tried again" not in said
    if reason not in (Reason.RELEASED, Reason.SUSPENDED):
        assert said.endswith(AGAIN)


@pytest.mark.parametrize("reason", list(Reason))
def test_what_was_stopped_or_deleted_is_run_again_as_its_name_stands(
    reason: Reason,
) -> None:  # SC-802, SC-806
    stopped = advice(a_life(reason, slot_state="Stopped", workload_state="Stopped"))
    deleted = advice(a_life(reason, slot_state="Stopped", workload_state="Deleted"))

    assert "nodus resume" not in stopped + deleted
    if reason is not Reason.RELEASED:
        assert stopped.endswith(AGAIN)
        assert deleted.endswith("submit it again: its name is free.")


def test_what_was_lost_and_then_suspended_is_resumed() -> None:
    life = a_life("NodeLost", slot_state="Suspended", workload_state="Suspended")

    assert advice(life) == "Run `nodus resume job/train` to go on from the last checkpoint."
    document = {**life.document, "metadata": {**life.document["metadata"], "namespace": "team-a"}}
    assert "`nodus resume job/train -n team-a`" in advice(replace(life, document=document))


@pytest.mark.parametrize("archived", [True, False])
def test_what_was_replaced_names_what_replaced_it(archived: bool) -> None:
    life = a_life("CustomerExit", archived=archived)
    status = {**life.document["status"], "supersededBy": "train-0-e2-abcde"}
    replaced = replace(life, document={**life.document, "status": status})
    assert advice(replaced) == "Nothing: train-0-e2-abcde took its slot."


def test_an_archived_loss_is_over() -> None:
    assert advice(a_life("NodeLost", archived=True)).endswith(AGAIN)


@pytest.mark.parametrize("reason", ["CustomerExit", "RestoreFailed"])
def test_nobody_is_sent_to_an_output_that_is_not_kept(reason: str) -> None:
    assert "What the program printed is not kept" in REASONS[reason].remedy
