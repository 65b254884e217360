"""Who am I, and what may I: SelfSubjectReview and SelfSubjectRulesReview (LW-023)."""

from typing import Any

import orjson
import pytest
from tests.apiserver.conftest import Replica, replica_of, running
from tests.apiserver.test_access import field

from nodus_api.apiserver import ServerOptions

JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
MAY = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def in_protobuf(kind: bytes, spec: bytes) -> bytes:
    review = field(1, b"") + (field(2, spec) if spec else b"") + field(3, b"\x08\x00")
    return b"k8s\0" + field(1, field(2, kind)) + field(2, review) + field(3, b"") + field(4, b"")


async def asked(
    client: Any, path: str, body: bytes, content_type: str = JSON, *, status: int = 201
) -> Any:
    got = await client.request("POST", path, headers={"content-type": content_type}, body=body)
    assert got.status == status, got.body
    return orjson.loads(got.body)


def rules_in(namespace: str) -> bytes:
    return orjson.dumps({"spec": {"namespace": namespace}})


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (JSON, b'{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}'),
        (PROTOBUF, in_protobuf(b"SelfSubjectReview", b"")),
    ],
)
async def test_who_am_i(replica: Replica, content_type: str, body: bytes) -> None:  # LW-023
    assert await asked(replica.alice, WHO, body, content_type) == {
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {},
        "status": {"userInfo": {"username": "alice", "groups": ["system:authenticated"]}},
    }
    admin = await asked(replica.admin, WHO, body, content_type)
    assert admin["status"]["userInfo"] == {
        "username": "admin",
        "groups": ["nodus:admins", "system:authenticated"],
    }


def rules_of(found: Any) -> set[tuple[str, str, str]]:
    """(verb, resource, name) of each resource rule."""
    return {
        (verb, f"{resource}.{group}" if group else resource, name)
        for rule in found["status"]["resourceRules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }


READS = {(verb, "attempts.nodus.dev", "") for verb in ("get", "list", "watch")}
EVERYBODY = {
    ("list", "namespaces", ""),
    ("watch", "namespaces", ""),
    ("create", "selfsubjectreviews.authentication.k8s.io", ""),
    ("create", "selfsubjectaccessreviews.authorization.k8s.io", ""),
    ("create", "selfsubjectrulesreviews.authorization.k8s.io", ""),
}


@pytest.mark.parametrize(
    ("user", "namespace", "rules"),
    [
        ("alice", "example", READS | {("get", "namespaces", "example")}),
        ("alice", "other", set()),
        ("alice", "ghost", set()),
        ("admin", "other", READS | {("get", "namespaces", "")}),
    ],
)
async def test_what_may_i_in_a_project(
    replica: Replica, user: str, namespace: str, rules: set[tuple[str, str, str]]
) -> None:  # LW-023, AS-072
    client = getattr(replica, user)
    found = await asked(client, RULES, rules_in(namespace))
    body = in_protobuf(b"SelfSubjectRulesReview", field(1, namespace.encode()))

    assert rules_of(found) == rules | EVERYBODY
    assert found["spec"] == {"namespace": namespace}
    assert found["status"]["incomplete"] is False
    assert await asked(client, RULES, body, PROTOBUF) == found


@pytest.mark.parametrize("user", ["alice", "admin"])
async def test_the_rules_are_those_that_hold(replica: Replica, user: str) -> None:  # LW-023, AS-073
    """Each path that a rule names is answered, and each that it does not name is refused."""
    client = getattr(replica, user)
    found = await asked(client, RULES, rules_in("example"))
    [paths] = found["status"]["nonResourceRules"]

    assert paths["verbs"] == ["get"]
    urls = {url.replace("/*", "/ping") for url in paths["nonResourceURLs"]}
    assert {"/apis", "/api/v1", "/version", "/openapi/v3/api/v1"} < urls
    for url in sorted(urls - {"/docs/errors/ping"}):
        assert (await client.get(url)).status == 200, url
    assert ("/metrics" in urls) == ((await client.get("/metrics")).status == 200)
    assert ("/readyz/ping" in urls) == ((await client.get("/readyz/ping")).status == 200)
    for verb, resource, _ in rules_of(found):
        asks = dict(zip(("resource", "group"), resource.split(".", 1), strict=False))
        attributes = asks | {"verb": verb, "namespace": "example", "name": "example"}
        body = orjson.dumps({"spec": {"resourceAttributes": attributes}})
        assert (await asked(client, MAY, body))["status"] == {"allowed": True}, attributes


@pytest.mark.parametrize("path", [WHO, RULES])
@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/yaml", b"{}", 415),
        (JSON, b"{", 400),
        (JSON, b"[]", 400),
        (PROTOBUF, b"nonsense", 400),
        (PROTOBUF, b"k8s\0\x12\xff", 400),
    ],
)
async def test_what_cannot_be_read(
    replica: Replica, path: str, content_type: str, body: bytes, status: int
) -> None:  # LW-023
    found = await asked(replica.alice, path, body, content_type, status=status)
    assert found["fix"]


async def test_rules_are_of_one_namespace(replica: Replica) -> None:  # as kube-apiserver
    for body, form in ((rules_in(""), JSON), (in_protobuf(b"x", b""), PROTOBUF)):
        found = await asked(replica.alice, RULES, body, form, status=400)
        assert found["message"] == "no namespace on request"


@pytest.mark.parametrize("path", [WHO, RULES])
async def test_a_stranger_asks_nothing(replica: Replica, path: str) -> None:  # AS-047
    await asked(replica.stranger, path, b"{}", status=401)


async def test_discovery_lists_the_reviews(replica: Replica) -> None:  # LW-023, LW-030
    groups = orjson.loads((await replica.alice.get("/apis")).body)["groups"]

    assert [group["name"] for group in groups] == [
        "nodus.dev",
        "authentication.k8s.io",
        "authorization.k8s.io",
    ]
    for group in groups[1:]:
        base = f"/apis/{group['name']}"
        assert orjson.loads((await replica.alice.get(base)).body)["versions"] == group["versions"]
        listed = orjson.loads((await replica.alice.get(f"{base}/v1")).body)
        assert listed["groupVersion"] == f"{group['name']}/v1"
        for resource in listed["resources"]:
            assert resource["verbs"] == ["create"]
            got = await replica.alice.get(f"{base}/v1/{resource['name']}")
            assert (got.status, got.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "path", [WHO, RULES, "/apis/authentication.k8s.io", "/apis/authorization.k8s.io/v1"]
)
async def test_behind_a_cluster_they_are_the_clusters(path: str) -> None:  # LW-017, LW-023
    replica = replica_of(options=ServerOptions(standalone=False))
    async with running(replica):
        assert (await replica.admin.get(path)).status == 404
        assert (await replica.admin.request("POST", path, body=b"{}")).status == 404
        groups = orjson.loads((await replica.admin.get("/apis")).body)["groups"]

    assert [group["name"] for group in groups] == ["nodus.dev"]
