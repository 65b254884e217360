"""kubectl, unmodified, against `nodus up`."""

import itertools
import json
import re

import pytest
import yaml
from tests.cli.live import Up, eventually, job
from tests.conformance.conftest import Kubectl

from nodus_api.attempts.columns import COLUMNS

pytestmark = pytest.mark.conformance

WATCHED = itertools.count(1)  # Jobs that one test makes, once for each kubectl


def rows(table: str) -> list[list[str]]:
    """Return the cells of a printed table; columns are two spaces apart or more."""
    return [re.split(r" {2,}", line.strip()) for line in table.splitlines()]


def test_get_prints_the_columns(kubectl: Kubectl) -> None:  # LW-256
    heading, *lines = rows(kubectl("get", "attempts"))

    assert heading == ["NAME", "PHASE", "REASON", "OFFERING", "COST", "RUNTIME", "AGE"]
    phases = {line[0].rsplit("-", 3)[0]: line[1] for line in lines}
    assert phases["fine"] == "Succeeded"
    assert phases["running"] == "Running"


def test_wide_has_every_column(kubectl: Kubectl) -> None:  # LW-256, LW C-22
    heading = rows(kubectl("get", "att", "-A", "-o", "wide"))[0]

    assert heading == ["NAMESPACE", *(column.name.upper() for column in COLUMNS)]
    assert len(heading) == 18


def test_a_category_is_its_resource(kubectl: Kubectl) -> None:  # LW C-23
    assert kubectl("get", "nodus", "-o", "name") == kubectl("get", "attempts", "-o", "name")


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


def test_describe_shows_the_placement(kubectl: Kubectl, live: Up) -> None:  # LW C-26
    first = live.attempts("retried")[0]["metadata"]["name"]
    said = kubectl("describe", "attempt", first)

    for word in ("Superseded By:", "Candidates:", "Explain:"):
        assert word in said
    # 1.35 writes Usd, and 1.37 leaves a space out
    assert re.search("Running (USD|Usd):", said)
    assert re.search("Rate (USD|Usd) ?Per Hour:", said)
    assert re.search(r"^Events: +<none>$", said, re.MULTILINE)


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("create", ["create", "-f", "-"]),
        ("create", ["apply", "-f", "-"]),
        ("patch", ["label", "attempt/NAME", "a=b"]),
        ("patch", ["apply", "--server-side", "-f", "-"]),
        ("delete", ["delete", "attempt/NAME"]),
    ],
)
def test_a_write_is_told_why_not(
    kubectl: Kubectl, live: Up, verb: str, arguments: list[str]
) -> None:  # LW C-27, LW-241
    name = live.attempts("fine")[0]["metadata"]["name"]
    manifest = json.dumps(
        {
            "apiVersion": "nodus.dev/v1",
            "kind": "Attempt",
            "metadata": {"name": "mine"},
            "spec": {"epoch": 1, "slot": "0"},
        }
    )
    said = kubectl(*(a.replace("NAME", name) for a in arguments), code=1, stdin=manifest)

    assert "Error from server (MethodNotAllowed): " in said
    assert f'{verb} is not supported on resources of kind "attempts.nodus.dev"' in said


def test_a_missing_name_keeps_its_own_message(kubectl: Kubectl) -> None:  # LW C-24, LW-016
    said = kubectl("get", "attempt", "nope", code=1)
    assert said == 'Error from server (NotFound): attempts.nodus.dev "nope" not found\n'


def test_ages_are_those_of_the_moment_in_a_watch(
    kubectl: Kubectl, live: Up
) -> None:  # LW-252, LW-141
    """An Attempt that is made while the watch runs is 0 s old, not of the future."""
    lines = watched(kubectl, live, "Succeeded")
    ages = [line[-1] for line in lines]

    assert ages
    assert all(re.fullmatch(r"\d+s", age) for age in ages), ages


def test_explain_tells_the_fields(kubectl: Kubectl) -> None:  # LW-230, LW C-25; field case A14
    said = kubectl("explain", "attempts.status.placement")

    assert "KIND:       Attempt" in said
    assert "never names a provider" in " ".join(said.split())
    assert re.search(r"rateUSDPerHour\s+<string>", said)
    assert "FIELDS:" in kubectl("explain", "attempts", "--recursive")


def test_explain_tells_of_namespaces_and_of_selectors(kubectl: Kubectl) -> None:  # LW-016, LW-098
    said = kubectl("explain", "ns")

    assert "KIND:       Namespace" in said
    assert "Field selectors may name metadata.name, status.phase." in " ".join(said.split())
    told = " ".join(kubectl("explain", "attempts").split())
    assert "Field selectors may name metadata.name, metadata.namespace, status.phase," in told


def test_wait_ends_at_a_condition(kubectl: Kubectl, live: Up) -> None:  # LW C-80
    name = live.attempts("fine")[0]["metadata"]["name"]
    done = kubectl("wait", f"attempt/{name}", "--for=jsonpath={.status.phase}=Succeeded")

    assert done == f"attempt.nodus.dev/{name} condition met\n"


def test_wait_by_a_watch_list_is_one_watch(kubectl: Kubectl, live: Up) -> None:  # LW C-80, LW-138
    name = live.attempts("fine")[0]["metadata"]["name"]
    said = kubectl(
        "wait",
        f"attempt/{name}",
        "--for=jsonpath={.status.phase}=Succeeded",
        "-v=6",
        KUBE_FEATURE_WatchListClient="true",
    )
    asked = [line for line in said.splitlines() if "/attempts?" in line]

    assert "condition met" in said
    assert len(asked) == 1
    assert "sendInitialEvents=true" in asked[0]


def test_wait_ends_when_it_comes_true(kubectl: Kubectl, live: Up) -> None:
    owner = f"soon-{next(WATCHED)}"
    live.nodus("submit", "-f", "-", stdin=job(owner, "sleep 2"))
    (soon,) = eventually(lambda: live.attempts(owner))
    name = soon["metadata"]["name"]

    done = kubectl(
        "wait", f"attempt/{name}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=40s"
    )
    assert "condition met" in done
    assert live.attempts(owner)[0]["status"]["phase"] == "Succeeded"


def test_api_resources_lists_attempts(kubectl: Kubectl) -> None:  # LW C-21, LW-017; field case A41
    said = kubectl("api-resources", "-v=6", "--cached=false").splitlines()
    asked = [line for line in said if re.search(r'GET"? (url=")?https://', line)]

    assert sorted(re.split(r" {2,}", line) for line in said if not line.startswith("I")) == [
        ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"],
        ["attempts", "att", "nodus.dev/v1", "true", "Attempt"],
        ["namespaces", "ns", "v1", "false", "Namespace"],
        *(
            [f"{kind.lower()}s", f"{group}.k8s.io/v1", "false", kind]
            for group, kind in (
                ("authorization", "SelfSubjectAccessReview"),
                ("authentication", "SelfSubjectReview"),
                ("authorization", "SelfSubjectRulesReview"),
            )
        ),
    ]
    assert len(asked) == 2
    assert "nodus.dev/v1" in kubectl("api-versions")


def test_a_short_name_and_one_object(kubectl: Kubectl, live: Up) -> None:
    name = live.attempts("fine")[0]["metadata"]["name"]

    assert kubectl("get", "att", name, "-o", "name") == f"attempt.nodus.dev/{name}\n"
    assert f'attempts.nodus.dev "{name}x" not found' in kubectl("get", "att", f"{name}x", code=1)


def test_namespaces_are_the_projects(kubectl: Kubectl) -> None:  # LW-017
    assert "namespace/default" in kubectl("get", "namespaces", "-o", "name").split()


def test_the_version_is_one_that_clients_parse(kubectl: Kubectl) -> None:  # LW C-28, LW-038
    said = kubectl("version", "-o", "json")
    assert json.loads(said[: said.rindex("}") + 1])["serverVersion"]["minor"] == "37"


def test_can_i_asks_the_server(kubectl: Kubectl) -> None:  # LW-023
    assert kubectl("auth", "can-i", "list", "attempts.nodus.dev") == "yes\n"


@pytest.mark.parametrize(
    "question",
    [
        ("delete", "attempts.nodus.dev"),
        ("create", "attempts.nodus.dev", "-A"),
        ("list", "attempts.batch"),
    ],
)
def test_can_i_is_told_no(kubectl: Kubectl, question: tuple[str, ...]) -> None:  # LW-023
    """Not even an admin may write, or read what is not here; scripts go by the exit code.

    kubectl's own warnings, of what discovery does not have, follow on stderr.
    """
    assert kubectl("auth", "can-i", *question, code=1).splitlines()[0] == "no"


def test_can_i_is_of_the_user_who_asks(kubectl: Kubectl, live: Up) -> None:  # LW-023, AS-072
    user = f"asker-{next(WATCHED)}"
    made = json.loads(live.nodus("token", "create", "--user", user, "-o", "json").stdout)
    credential = ("--token", made["token"])
    question = (*credential, "auth", "can-i", "watch", "attempts.nodus.dev")

    eventually(lambda: kubectl(*question, code=1) == "no\n")
    assert kubectl(*question, "-q", code=1) == ""
    assert kubectl(*credential, "auth", "can-i", "get", "/metrics", code=1) == "no\n"
    assert kubectl(*credential, "auth", "can-i", "get", "/version") == "yes\n"
    refused = kubectl(*credential, "get", "attempts", code=1)
    assert f'User "{user}" cannot list resource "attempts"' in refused
    live.nodus("project", "add-member", "default", "--user", user)
    eventually(lambda: kubectl(*credential, "get", "attempts", "-o", "name", "--ignore-not-found"))
    assert kubectl(*question) == "yes\n"
    assert kubectl(*question, "-A", code=1) == "no\n"


def test_can_i_lists_what_holds(kubectl: Kubectl) -> None:  # LW-023
    found = rows(kubectl("auth", "can-i", "--list"))

    assert found[0] == ["Resources", "Non-Resource URLs", "Resource Names", "Verbs"]
    assert ["attempts.nodus.dev", "[]", "[]", "[get list watch]"] in found
    assert ["[/metrics]", "[]", "[get]"] in found


def test_whoami_names_the_user(kubectl: Kubectl) -> None:  # LW-023
    found = rows(kubectl("auth", "whoami"))

    assert ["Username", "admin"] in found
    assert ["Groups", "[nodus:admins system:authenticated]"] in found


def test_as_somebody_else_is_refused(kubectl: Kubectl) -> None:  # AS-025
    kubectl("get", "attempts")  # discovery is kept; asked for as bob, its refusal is `unknown`
    said = kubectl("get", "attempts", "--as", "bob", code=1)
    assert said == (
        'Error from server (Forbidden): users "bob" is forbidden: User "admin" cannot impersonate '
        'resource "users" in API group "" at the cluster scope\n'
    )


def watched(kubectl: Kubectl, live: Up, until: str) -> list[list[str]]:
    """Return the lines of a kubectl watch of a new Job, up to a phase, without the heading.

    The Job is submitted once kubectl has shown an earlier one: its watch then begins before.
    """
    name = f"watched-{next(WATCHED)}"
    live.nodus("submit", "-f", "-", "--wait", stdin=job(f"{name}-before", "exit 0"))
    selector = f"nodus.dev/job in ({name}-before, {name})"
    with kubectl.started(
        "get", "attempts", "-l", selector, "-w", "--output-watch-events"
    ) as output:
        lines: list[list[str]] = []
        submitted = False
        for line in output:
            cells = re.split(r" {2,}", line.strip())
            if cells[1].startswith(f"{name}-before-") and not submitted:
                live.nodus("submit", "-f", "-", stdin=job(name, "sleep 1"))
                submitted = True
            if cells[1].startswith(f"{name}-0-"):
                lines.append(cells)
                if until in line:
                    break
    return lines


def test_watch_prints_each_change(kubectl: Kubectl, live: Up) -> None:  # LW C-79
    seen = [(line[0], line[2]) for line in watched(kubectl, live, "Succeeded")]
    assert seen[0] == ("ADDED", "Queued")
    assert {event for event, _ in seen[1:]} == {"MODIFIED"}
    assert list(dict.fromkeys(phase for _, phase in seen)) == [
        "Queued",
        "Provisioning",
        "Running",
        "Succeeded",
    ]
