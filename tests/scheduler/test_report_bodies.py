"""What a runner's report may say: every value fits the row that it is for (SC-641)."""

from typing import Any

import pytest
from pydantic import ValidationError

from nodus_api.scheduler.report_bodies import own_fields, parse

ENVELOPE = {
    "attempt": "11111111-1111-4111-8111-111111111111",
    "epoch": 1,
    "n": 1,
    "machine": "a" * 64,
    "fence": 1,
    "ageMs": 0,
}
TEN_YEARS_MS = 10 * 365 * 86_400_000


def report(kind: str, **fields: Any) -> dict[str, Any]:
    return own_fields(parse({**ENVELOPE, "kind": kind} | fields))


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("registered", {"checks": {"cpus": 2}, "pullMs": 1500}),
        ("registered", {"checks": {"failed": ["7 of 8 accelerators"]}}),
        ("canStart", {}),
        ("started", {"restoreBytes": None}),
        ("started", {"restoreBytes": 2**40}),
        ("heartbeat", {"cursor": {"completed": 1, "total": 2}}),
        ("heartbeat", {"activeAgeMs": 10}),
        ("checkpoint", {"seq": 1, "bytes": 0, "uri": "file:///x", "sha256": "0" * 64}),
        ("notice", {"deadline": "2026-01-01T00:00:00Z"}),
        ("exited", {"exitCode": 0, "signal": None, "oom": False}),
        ("exited", {"exitCode": 255, "startAgeMs": 5, "stopAgeMs": 0.5, "restoreBytes": 7}),
        ("exited", {"exitCode": 139, "signal": 11}),  # SC-009
        ("exited", {"exitCode": 192, "signal": 64}),
        ("exited", {"exitCode": None, "error": "StartFailed", "message": "no such file"}),
    ],
)
def test_what_runners_say_is_kept(kind: str, fields: dict[str, Any]) -> None:
    assert report(kind, **fields) == fields


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("exited", {"exitCode": -1}),
        ("exited", {"exitCode": 256}),
        ("exited", {"exitCode": "3"}),
        ("exited", {"exitCode": True}),
        ("exited", {"signal": 0}),
        ("exited", {"signal": 65}),
        ("exited", {"oom": "no"}),
        ("exited", {"startAgeMs": -1}),
        ("exited", {"startAgeMs": "soon"}),
        ("exited", {"stopAgeMs": TEN_YEARS_MS + 1}),  # SC-615
        ("exited", {"message": 3}),
        ("heartbeat", {"ageMs": TEN_YEARS_MS + 1}),
        ("heartbeat", {"activeAgeMs": TEN_YEARS_MS + 1}),
        ("heartbeat", {"activeAgeMs": -1}),
        ("heartbeat", {"n": 2**63}),
        ("heartbeat", {"epoch": 2**31}),
        ("heartbeat", {"cursor": {"completed": -1, "total": 2}}),
        ("registered", {"pullMs": "long"}),
        ("registered", {"checks": ["good"]}),
        ("registered", {"checks": {"failed": ["x"] * 33}}),
        ("started", {"restoreBytes": -1}),
        ("exited", {"restoreBytes": -1}),
        ("checkpoint", {"sha256": "guess"}),
        ("checkpoint", {"seq": 0}),
        ("checkpoint", {"seq": 2**31, "bytes": 0, "uri": "file:///x", "sha256": "0" * 64}),
        ("dance", {}),
    ],
)
def test_what_no_row_could_hold_is_refused(kind: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        report(kind, **fields)


def test_unknown_fields_of_a_newer_runner_are_left_out() -> None:
    assert report("canStart", hurry=True) == {}


def test_texts_hold_at_most_a_kibibyte_and_no_nul() -> None:
    said = report("exited", message="\0" + "\u00e9" * 2000, error="a\0b")
    assert said == {"message": "\u00e9" * 512, "error": "ab"}
    assert report("exited", message="a\x1b[2J\nb") == {"message": "a [2J b"}
