"""curl, as the README's line has it."""

import json
import shutil
import subprocess
from typing import Any

import pytest
from tests.cli.live import ATTEMPTS, Up

pytestmark = pytest.mark.conformance


def curl(live: Up, path: str, *more: str) -> Any:
    program = shutil.which("curl")
    if program is None:
        pytest.skip("curl is not on the PATH")
    done = subprocess.run(  # noqa: S603 -- found on the PATH
        [
            *(program, "-sS", "--cacert", str(live.root / "ca.crt"), "--max-time", "30"),
            *("-H", f"Authorization: Bearer {live.token}", *more, live.server + path),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_the_list_is_what_the_reference_describes(live: Up) -> None:
    found = json.loads(curl(live, ATTEMPTS))

    assert (found["kind"], found["apiVersion"]) == ("AttemptList", "nodus.dev/v1")
    by_job = {one["metadata"]["labels"]["nodus.dev/job"]: one for one in found["items"]}
    status = by_job["fine"]["status"]
    assert set(by_job["fine"]["spec"]) == {"slot", "epoch"}
    assert status["progress"] == {"stage": "Succeeded"}
    assert (status["phase"], status["exitCode"]) == ("Succeeded", 0)
    placement = status["placement"]
    assert placement["rateUSDPerHour"] == "0.06"
    assert placement["profile"] == placement["explain"]["profile"] == "Balanced"
    assert set(placement["explain"]["scores"]) == {
        "fit",
        "timeToResult",
        "costToComplete",
        "recoveryValue",
        "health",
    }
    assert set(status["predicted"]) == {"costUSD", "hours", "interruptionRate"}
    timings = [
        status["timings"][name]
        for name in (
            "queuedTime",
            "acquiredTime",
            "billingStartTime",
            "registeredTime",
            "commandStartedTime",
            "finishedTime",
            "deletionProvenTime",
        )
    ]
    assert timings == sorted(timings)
    unplaceable = by_job["unplaceable"]["status"]
    assert (unplaceable["phase"], unplaceable["reason"]) == ("Failed", "Unplaceable")
    assert unplaceable["placement"]["explain"]["rejected"] != []
    assert unplaceable["actual"]["costUSD"] == "0.000000"


def test_segments_add_up_to_the_cost(live: Up) -> None:
    for one in json.loads(curl(live, ATTEMPTS))["items"]:
        actual = one["status"].get("actual")
        if actual is not None:
            parts = [value for key, value in actual["segments"].items() if key.endswith("USD")]
            micros = [round(float(part) * 1_000_000) for part in parts]
            assert sum(micros) == round(float(actual["costUSD"]) * 1_000_000)


def test_a_watch_streams_lines(live: Up) -> None:
    version = json.loads(curl(live, ATTEMPTS))["metadata"]["resourceVersion"]
    path = f"{ATTEMPTS}?watch=1&resourceVersion=0&timeoutSeconds=1"
    events = [json.loads(line) for line in curl(live, path).splitlines()]

    assert {event["type"] for event in events} == {"ADDED"}
    assert {event["object"]["kind"] for event in events} == {"Attempt"}
    assert int(version) > 0


def test_health_needs_no_token(live: Up) -> None:
    assert curl(live, "/livez", "-H", "Authorization:") == "ok"
    assert curl(live, "/readyz", "-H", "Authorization:") == "ok"


def test_metrics_and_version_are_served(live: Up) -> None:
    assert "apiserver_request_total" in curl(live, "/metrics")
    assert "gitVersion" in json.loads(curl(live, "/version"))


def test_write_verbs_are_405(live: Up) -> None:  # LW-021
    status = json.loads(curl(live, ATTEMPTS, "-X", "POST", "-d", "{}"))

    assert (status["code"], status["reason"]) == (405, "MethodNotAllowed")
    assert status["fix"]
    assert status["docs"].startswith(live.server)
    assert status["requestId"]
