"""kubectl, unmodified, against `nodus up`."""

import json
import os
import re
import shutil
import subprocess

import pytest
import yaml
from tests.cli.live import Up, eventually, job
from tests.conformance.conftest import Kubectl

pytestmark = pytest.mark.conformance


def rows(table: str) -> list[list[str]]:
    """Return the cells of a printed table; columns are two spaces apart or more."""
    return [re.split(r" {2,}", line.strip()) for line in table.splitlines()]


def test_get_prints_the_columns(kubectl: Kubectl) -> None:  # LW-256
    heading, *lines = rows(kubectl("get", "attempts"))

    assert heading == ["NAME", "PHASE", "REASON", "OFFERING", "COST", "RUNTIME", "AGE"]
    phases = {line[0].rsplit("-", 3)[0]: line[1] for line in lines}
    assert phases["fine"] == "Succeeded"
    assert phases["running"] == "Running"


def test_wide_has_more_columns(kubectl: Kubectl) -> None:  # LW-256
    heading = rows(kubectl("get", "attempts", "-o", "wide"))[0]

    assert heading[:4] == ["NAME", "PHASE", "REASON", "OFFERING"]
    assert {"STAGE", "SLOT", "EPOCH", "REGION", "RATE", "EXIT"} <= set(heading)


def test_all_namespaces_adds_one(kubectl: Kubectl) -> None:  # LW-253
    heading, first, *_ = rows(kubectl("get", "attempts", "-A"))

    assert heading[:2] == ["NAMESPACE", "NAME"]
    assert first[0] == "default"


@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_objects_are_those_of_the_api(kubectl: Kubectl, live: Up, form: str, load: object) -> None:
    assert callable(load)
    shown = load(kubectl("get", "attempts", "-l", "nodus.dev/job=retried", "-o", form))

    assert shown["items"] == live.attempts("retried")
    first, second = shown["items"]
    assert (first["spec"]["slot"], first["spec"]["epoch"], second["spec"]["epoch"]) == ("0", 1, 2)
    assert first["status"]["supersededBy"] == second["metadata"]["name"]
    assert (first["status"]["phase"], first["status"]["reason"]) == ("Failed", "CustomerExit")
    assert (first["status"]["exitCode"], second["status"]["exitCode"]) == (1, 0)


def test_labels_and_fields_select(kubectl: Kubectl) -> None:
    by_label = kubectl("get", "attempts", "-l", "nodus.dev/job=fine", "-o", "name").split()
    assert len(by_label) == 2
    assert all(name.startswith("attempt.nodus.dev/fine-") for name in by_label)

    fields = "status.phase=Failed,status.reason=CustomerExit"
    by_field = kubectl("get", "attempts", "--field-selector", fields, "-o", "name").split()
    assert [name.rsplit("-", 3)[0] for name in by_field] == ["attempt.nodus.dev/retried"]
    assert "No resources found" in kubectl("get", "attempts", "-l", "nodus.dev/job=none")
    refused = kubectl("get", "attempts", "--field-selector", "status.nonsense=x", code=1)
    assert "status.nonsense" in refused


def test_chunks_make_the_same_list(kubectl: Kubectl) -> None:
    whole = kubectl("get", "attempts", "-o", "name")

    assert kubectl("get", "attempts", "--chunk-size=1", "-o", "name") == whole


def test_describe_shows_the_placement(kubectl: Kubectl) -> None:
    said = kubectl("describe", "attempts", "-l", "nodus.dev/job=retried")

    for word in ("Superseded By:", "Candidates:", "Explain:", "Rate USD Per Hour:", "Running USD:"):
        assert word in said


def test_explain_tells_the_fields(kubectl: Kubectl) -> None:  # LW-230
    said = kubectl("explain", "attempts.status.placement")

    assert "KIND:       Attempt" in said
    assert "never names a provider" in " ".join(said.split())
    assert re.search(r"rateUSDPerHour\s+<string>", said)
    assert "FIELDS:" in kubectl("explain", "attempts", "--recursive")


def test_wait_ends_at_a_condition(kubectl: Kubectl, live: Up) -> None:
    name = live.attempts("fine")[0]["metadata"]["name"]
    done = kubectl("wait", f"attempt/{name}", "--for=jsonpath={.status.phase}=Succeeded")

    assert done == f"attempt.nodus.dev/{name} condition met\n"


def test_wait_ends_when_it_comes_true(kubectl: Kubectl, live: Up) -> None:
    live.nodus("submit", "-f", "-", stdin=job("soon", "sleep 2"))
    (soon,) = eventually(lambda: live.attempts("soon"))
    name = soon["metadata"]["name"]

    done = kubectl(
        "wait", f"attempt/{name}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=40s"
    )
    assert "condition met" in done
    assert live.attempts("soon")[0]["status"]["phase"] == "Succeeded"


def test_api_resources_lists_attempts(kubectl: Kubectl) -> None:
    lines = rows(kubectl("api-resources", "--api-group=nodus.dev"))

    assert lines == [
        ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"],
        ["attempts", "att", "nodus.dev/v1", "true", "Attempt"],
    ]
    assert "nodus.dev/v1" in kubectl("api-versions")


def test_a_short_name_and_one_object(kubectl: Kubectl, live: Up) -> None:
    name = live.attempts("fine")[0]["metadata"]["name"]

    assert kubectl("get", "att", name, "-o", "name") == f"attempt.nodus.dev/{name}\n"
    assert f'attempts.nodus.dev "{name}x" not found' in kubectl("get", "att", f"{name}x", code=1)


def test_namespaces_are_the_projects(kubectl: Kubectl) -> None:  # LW-017
    assert "namespace/default" in kubectl("get", "namespaces", "-o", "name").split()


def test_can_i_asks_the_server(kubectl: Kubectl) -> None:  # LW-023
    assert kubectl("auth", "can-i", "list", "attempts.nodus.dev") == "yes\n"


def test_watch_prints_each_change(live: Up) -> None:
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not on the PATH")
    watching = subprocess.Popen(  # noqa: S603 -- found on the PATH
        [
            *(program, "--kubeconfig", str(live.root / "kubeconfig")),
            *("get", "attempts", "-l", "nodus.dev/job=seen", "-w", "--output-watch-events"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "KUBECACHEDIR": str(live.root / "kube-cache")},
    )
    try:
        assert watching.stdout is not None
        live.nodus("submit", "-f", "-", stdin=job("seen", "sleep 1"))
        lines: list[list[str]] = []
        for line in watching.stdout:
            lines.append(re.split(r" {2,}", line.strip()))
            if "Succeeded" in line:
                break
    finally:
        watching.terminate()
        watching.wait(20)
        if watching.stdout is not None:
            watching.stdout.close()

    seen = [(line[0], line[2]) for line in lines[1:]]
    assert seen[0] == ("ADDED", "Queued")
    assert {event for event, _ in seen[1:]} == {"MODIFIED"}
    assert list(dict.fromkeys(phase for _, phase in seen)) == [
        "Queued",
        "Provisioning",
        "Running",
        "Succeeded",
    ]
