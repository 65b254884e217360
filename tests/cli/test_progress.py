"""What progress says of an Attempt."""

from typing import Any

import pytest

from nodus_api.cli.progress import LiveTable, PlainLines, choose_progress, summary


def attempt(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a-0-e1-abcde", "namespace": "default"}, "status": status}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"phase": "Queued", "progress": {"stage": "Pending"}}, "Queued/Pending"),
        ({"phase": "Running", "progress": {"stage": "Running"}}, "Running"),
        (
            {
                "phase": "Failed",
                "reason": "CustomerExit",
                "exitCode": 3,
                "supersededBy": "a-0-e2-x",
            },
            "Failed  CustomerExit, exit 3, then a-0-e2-x",
        ),
        (
            {"phase": "Failed", "reason": "CustomerExit", "exitCode": 137, "signal": 9},
            "Failed  CustomerExit, exit 137, signal 9",
        ),
        (
            {
                "phase": "Succeeded",
                "exitCode": 0,
                "actual": {"costUSD": "0.000117"},
                "timings": {"deletionProvenTime": "2026-01-01T00:00:00Z"},
            },
            "Succeeded  exit 0  machine gone, 0.000117 USD",
        ),
    ],
)
def test_a_state_in_a_few_words(status: dict[str, Any], said: str) -> None:
    assert summary(attempt(**status)) == said


def test_plain_lines_do_not_repeat_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainLines() as progress:
        for _ in range(2):
            progress.show(attempt(phase="Running"))
        progress.show(attempt(phase="Succeeded", exitCode=0))

    assert capsys.readouterr().out == "a-0-e1-abcde  Running\na-0-e1-abcde  Succeeded  exit 0\n"


def test_a_table_shows_every_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveTable() as progress:
        progress.show(attempt(phase="Running", actual={"costUSD": "0.000100"}))

    assert "a-0-e1-abcde" in capsys.readouterr().out


def test_a_file_gets_plain_lines() -> None:
    assert isinstance(choose_progress(), PlainLines)
