"""Paths, methods and headers, by the conformance cases of list-watch.md."""

import logging
from typing import Any
from uuid import UUID

import orjson
import pytest
from tests.apiserver.conftest import START, A, N, Replica, T, names, replica_of, running
from tests.apiserver.test_access import changed

from nodus_api.apiserver import ServerOptions

FIXES = {
    "create": "nodus submit -f FILE{project}`",
    "update": "nodus scale OWNER N{project}`",
    "patch": "nodus scale OWNER N{project}`",
    "deletecollection": "nodus stop OWNER{project}`",
    "options": "nodus submit",
}
V1 = "/apis/nodus.dev/v1"
WORDS = {"POST": "create", "PUT": "update", "PATCH": "patch", "OPTIONS": "options"}


def status_of(got: Any) -> Any:
    found = orjson.loads(got.body)
    assert (found["kind"], found["code"]) == ("Status", got.status)
    return found


async def test_an_attempt(replica: Replica) -> None:  # LW C-05
    got = await replica.admin.get(f"{N}/train-0-e1")

    assert (got.status, orjson.loads(got.body)["metadata"]["name"]) == (200, "train-0-e1")
    assert got.headers["content-type"] == "application/json"
    assert got.headers["cache-control"] == "no-cache, private"
    assert str(UUID(got.headers["audit-id"])) == got.headers["audit-id"]


async def test_an_attempt_that_is_not_there(
    replica: Replica,
) -> None:  # LW C-06, LW-003, LW-182, LW-188
    got = await replica.admin.get(f"{N}/nope")

    found = status_of(got)
    assert (found["reason"], found["message"]) == (
        "NotFound",
        'attempts.nodus.dev "nope" not found',
    )
    assert found["details"] == {"name": "nope", "group": "nodus.dev", "kind": "attempts"}
    assert found["requestId"] == got.headers["audit-id"]


@pytest.mark.parametrize(
    ("target", "fix"),
    [
        (f"{N}/nope", "See which names exist: `kubectl get attempts -n example`."),
        (
            "/apis/nodus.dev/v1/namespaces/ghost/attempts/nope",
            'There is no project "ghost": see which there are with `nodus project list` or '
            "`kubectl get namespaces`.",
        ),
        (
            f"{N}/train-0-e1/log",
            'Attempts have no sub-resource "log": read the whole, with its status, by '
            "`kubectl get attempt train-0-e1 -n example -o yaml`.",
        ),
        (
            f"{N}/train-0-e1/proxy/a%20b",
            'Attempts have no sub-resource "proxy/a b": read the whole, with its status, by '
            "`kubectl get attempt train-0-e1 -n example -o yaml`.",
        ),
    ],
)
async def test_the_fix_is_for_what_is_not_there(
    replica: Replica, target: str, fix: str
) -> None:  # LW-003, LW-011, LW-202
    """An Attempt of that name, its project, or something below it."""
    got = await replica.admin.get(target)

    found = status_of(got)
    assert (found["reason"], found["fix"]) == ("NotFound", fix)
    name = target.split("/")[7]
    assert found["message"] == f'attempts.nodus.dev "{name}" not found'
    assert found["details"] == {"name": name, "group": "nodus.dev", "kind": "attempts"}


async def test_who_may_not_see_a_project_is_not_told_whether_it_exists(
    replica: Replica,
) -> None:  # AS-057, LW-011: what is below an Attempt is refused before its rights are asked
    for project in ("other", "ghost"):
        path = f"/apis/nodus.dev/v1/namespaces/{project}/attempts/scan-0-e1"
        closed, below = await replica.alice.get(path), await replica.alice.get(f"{path}/status")
        assert (closed.status, below.status) == (403, 404)
        assert "There is no project" not in status_of(closed)["fix"] + status_of(below)["fix"]


async def test_behind_a_cluster_its_projects_are_not_known_here() -> (
    None
):  # LW-016: namespaces are the cluster's
    options = ServerOptions(public_url="https://nodus.test", standalone=False)
    async with running(replica_of(options=options)) as delegated:
        got = await delegated.admin.get("/apis/nodus.dev/v1/namespaces/ghost/attempts/nope")

    assert status_of(got)["fix"] == "See which names exist: `kubectl get attempts -n ghost`."


@pytest.mark.parametrize("target", [f"{N}/", f"{N}///"])
async def test_slashes_at_the_end_do_not_matter(
    replica: Replica, target: str
) -> None:  # LW C-08, LW-013
    got = await replica.admin.get(target)

    assert (got.status, len(names(got.body))) == (200, 12)


@pytest.mark.parametrize(
    "target", [N, f"{N}/train-0-e1", f"{N}?watch=1", "/apis", "/version", "/livez", "/apis/"]
)
async def test_a_head_is_a_get_without_a_body(replica: Replica, target: str) -> None:  # LW C-09
    head = await replica.admin.request("HEAD", target)
    got = await replica.admin.get(target.partition("?")[0])

    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]


@pytest.mark.parametrize("target", [N, A])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_nothing_is_written_in_a_collection(
    replica: Replica, target: str, method: str
) -> None:  # LW C-10, LW C-11, LW-009, LW-189, LW-191
    got = await replica.admin.request(method, target, body=b"{")

    word = "deletecollection" if method == "DELETE" else WORDS[method]
    found = status_of(got)
    assert (got.status, found["reason"]) == (405, "MethodNotAllowed")
    assert found["message"] == (
        f'{word} is not supported on resources of kind "attempts.nodus.dev"'
    )
    assert found["details"] == {"group": "nodus.dev", "kind": "attempts"}
    assert got.headers["allow"] == "GET, HEAD"
    project = " -n example" if target == N else ""
    assert FIXES[word].format(project=project) in found["fix"]  # LW-202: made for this request


async def test_a_fix_can_be_run_as_it_is_told(replica: Replica) -> None:  # LW-202
    """Whatever the request's path holds: a shell must read one word where one is meant."""
    project = f"{V1}/namespaces/a;reboot/attempts"
    below = status_of(await replica.admin.get(f"{project}/x/log"))
    replica.tables.project("a;reboot", START)
    await changed(replica)
    missing = status_of(await replica.admin.get(f"{project}/x"))
    written = status_of(await replica.admin.request("DELETE", f"{project}/x"))
    refused = status_of(await replica.alice.get(project))

    assert below["fix"].endswith("`kubectl get attempt x -n 'a;reboot' -o yaml`.")
    assert missing["fix"].endswith("`kubectl get attempts -n 'a;reboot'`.")
    assert "`nodus stop OWNER -n 'a;reboot'`" in written["fix"]
    assert "`nodus project add-member 'a;reboot' --user alice`" in refused["fix"]


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
async def test_nothing_is_written_to_an_attempt(replica: Replica, method: str) -> None:  # LW C-12
    headers = {"content-type": "text/x"}
    got = await replica.admin.request(method, f"{N}/train-0-e1", headers=headers, body=b"x")

    word = "delete" if method == "DELETE" else WORDS[method]
    assert status_of(got)["message"].startswith(f"{word} is not supported")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (".", "\".\": may not be '.'"),
        ("%2e%2e", "\"..\": may not be '..'"),
        ("a%25b", "\"a%b\": may not contain '%'"),
    ],
)
@pytest.mark.parametrize("path", [N, "/api/v1/namespaces"])
async def test_a_name_that_none_can_have(
    replica: Replica, path: str, name: str, said: str
) -> None:  # LW-014
    found = status_of(await replica.admin.get(f"{path}/{name}"))

    assert (found["code"], found["reason"]) == (400, "BadRequest")
    assert found["message"] == f"Name parameter invalid: {said}"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_there_are_no_sub_resources(replica: Replica, method: str) -> None:  # LW C-13
    found = status_of(await replica.admin.request(method, f"{N}/train-0-e1/status"))

    assert found["message"] == 'attempts.nodus.dev "train-0-e1" not found'  # LW-011


@pytest.mark.parametrize(
    "target",
    [
        "/apis/nodus.dev/v2/attempts",  # LW C-14
        "/nope",
        "/",
        "/apis/nodus.dev/v1/jobs",
        "/apis/nodus.dev/v1/namespaces/example",
        "/apis/apps/v1",
        "/openapi/v3/apis/apps/v1",
        "/docs/errors/Nope",
        "/livez/nope",
        f"/{N}",  # LW-013: kube-apiserver has no such path either
        "//apis",
        f"{N}//train-0-e1",  # LW-014
        f"{N}/a%2Fb",
        f"{N}/./x",
        "/apis/nodus.dev/v1/namespaces/../attempts",
    ],
)
async def test_what_is_not_there_is_a_status(replica: Replica, target: str) -> None:
    got = await replica.admin.get(target)

    found = status_of(got)
    assert (got.status, found["reason"], found["details"]) == (404, "NotFound", {})
    assert found["message"] == "the server could not find the requested resource"
    assert got.headers["content-type"] == "application/json"


async def test_the_audit_id_is_echoed_once(replica: Replica) -> None:  # LW C-15
    got = await replica.admin.get(N, audit_id="abc")

    assert got.headers["audit-id"] == "abc"
    assert got.header_names.count("audit-id") == 1


async def test_an_odd_audit_id_is_no_request_id(
    replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:  # AS-100
    with caplog.at_level(logging.INFO):
        got = await replica.admin.get(f"{N}/nope", audit_id='a"<b>' + "c" * 100)

    assert got.headers["audit-id"] == 'a"<b>' + "c" * 100
    made = status_of(got)["requestId"]
    assert str(UUID(made)) == made
    [line] = [vars(one) for one in caplog.records if one.message == "request"]
    assert (line["request_id"], line["audit_id"]) == (made, ('a"<b>' + "c" * 100)[:64])


@pytest.mark.parametrize("given", [{}, {"audit_id": "abc"}])
async def test_an_error_is_found_in_the_log_by_its_request_id(
    replica: Replica, caplog: pytest.LogCaptureFixture, given: dict[str, str]
) -> None:  # LW-202
    with caplog.at_level(logging.INFO):
        got = await replica.admin.get(f"{N}/nope", **given)

    [line] = [vars(one) for one in caplog.records if one.message == "request"]
    assert line["request_id"] == status_of(got)["requestId"] == got.headers["audit-id"]
    assert line["code"] == 404
    assert "audit_id" not in line  # it is the request's id


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
@pytest.mark.parametrize("target", ["/apis", "/version", "/metrics", "/livez", "/openapi/v2"])
async def test_other_paths_are_read_only_too(
    replica: Replica, target: str, method: str
) -> None:  # LW-240
    got = await replica.admin.request(method, target)

    assert got.status == 405
    assert status_of(got)["message"] == (
        "the server does not allow this method on the requested resource"
    )
    assert got.headers["allow"] == "GET, HEAD"


async def test_a_table_of_attempts(replica: Replica) -> None:  # LW C-32, C-33
    got = await replica.admin.get(N, accept=T)
    table = orjson.loads(got.body)
    none = orjson.loads((await replica.admin.get(f"{N}?includeObject=None", accept=T)).body)
    whole = orjson.loads((await replica.admin.get(f"{N}?includeObject=Object", accept=T)).body)
    refused = await replica.admin.get(f"{N}?includeObject=X", accept=T)

    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert got.headers["content-type"] == "application/json"  # LW-052
    assert len(table["columnDefinitions"]) == 17
    assert {len(row["cells"]) for row in table["rows"]} == {17}
    assert {row["object"]["kind"] for row in table["rows"]} == {"PartialObjectMetadata"}
    assert {orjson.dumps(row["object"]) for row in none["rows"]} == {b"null"}
    assert {row["object"]["kind"] for row in whole["rows"]} == {"Attempt"}
    assert status_of(refused)["message"] == (
        'Unable to convert to Table as requested: includeObject: Invalid value: "X": '
        "must be 'Metadata', 'Object', 'None', or empty"
    )


async def test_only_a_table_reads_include_object(replica: Replica) -> None:  # LW-254
    assert (await replica.admin.get(f"{N}?includeObject=X")).status == 200
    async with replica.admin.open("GET", f"{N}?watch=1&includeObject=X") as stream:
        assert stream.response.status == 200
    refused = await replica.admin.get(f"{N}?watch=1&includeObject=X", accept=T)

    assert refused.status == 400
    assert status_of(refused)["message"].startswith("Unable to convert to Table as requested: ")


async def test_a_table_of_one_attempt(replica: Replica) -> None:  # LW-250
    table = orjson.loads((await replica.admin.get(f"{N}/train-2-e1", accept=T)).body)
    rev = orjson.loads((await replica.admin.get(f"{N}/train-2-e1")).body)["metadata"][
        "resourceVersion"
    ]

    assert table["metadata"] == {"resourceVersion": rev}
    assert [row["cells"][:3] for row in table["rows"]] == [
        ["train-2-e1", "Failed", "ProgramFailed"]
    ]
    assert table["rows"][0]["conditions"][0]["reason"] == "Failed"  # LW-255


async def test_an_old_table_version_is_answered_in_its_own_name(replica: Replica) -> None:  # LW-051
    accept = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
    table = orjson.loads((await replica.admin.get(N, accept=accept)).body)

    assert table["apiVersion"] == "meta.k8s.io/v1beta1"
    assert table["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"
