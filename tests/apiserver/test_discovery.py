"""Discovery, OpenAPI and the error pages, as clients ask for them."""

import hashlib

import orjson
import pytest
from tests.apiserver.conftest import Replica, replica_of, running
from tests.watchcache.conftest import until

from nodus_api.apiserver import ServerOptions
from nodus_api.attempts.openapi import openapi_v3
from nodus_api.attempts.reasons import PAGES, REASONS
from nodus_api.metav1.codes import CODES
from nodus_api.metav1.core_openapi import core_openapi_v3

D = "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io"
DOCUMENT = "/openapi/v3/apis/nodus.dev/v1"


async def test_groups(replica: Replica) -> None:  # LW C-16
    found = orjson.loads((await replica.alice.get("/apis")).body)

    assert found["kind"] == "APIGroupList"
    assert found["groups"][0]["name"] == "nodus.dev"


@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_aggregated_discovery(replica: Replica, path: str) -> None:  # LW C-17, C-18, LW-017
    got = await replica.alice.get(path, accept=D)
    again = await replica.alice.get(path, accept=D, if_none_match=got.headers["etag"])

    assert got.headers["content-type"] == (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    )
    assert got.headers["etag"] == f'"{hashlib.sha512(got.body).hexdigest().upper()}"'
    assert (got.headers["vary"], got.headers["cache-control"]) == ("Accept", "public")
    group, *_ = orjson.loads(got.body)["items"]
    assert group["metadata"] == ({} if path == "/api" else {"name": "nodus.dev"})
    assert [one["resource"] for one in group["versions"][0]["resources"]] == [
        "namespaces" if path == "/api" else "attempts"
    ]
    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == got.headers["etag"]
    assert "content-length" not in again.headers


@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_people_get_the_aggregated_form_indented(
    replica: Replica, path: str
) -> None:  # LW-019, LW-037: under the same tag, as kube-apiserver does
    got = await replica.alice.get(path, accept=D)
    indented = await replica.alice.get(path, accept=D, user_agent="curl/8.5.0")

    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    assert indented.body == orjson.dumps(orjson.loads(got.body), option=options)
    assert indented.headers["etag"] == got.headers["etag"]


async def test_the_old_aggregated_form_is_not_served(replica: Replica) -> None:  # LW C-19
    beta = D.replace("v=v2", "v=v2beta1")
    refused = await replica.alice.get("/apis", accept=beta)
    plain = await replica.alice.get("/apis", accept=f"{beta},application/json")

    assert refused.status == 406
    assert orjson.loads(plain.body)["kind"] == "APIGroupList"


async def test_resources_need_no_database() -> None:  # LW C-20, LW-034
    replica = replica_of()
    async with running(replica):
        replica.log.away = replica.tables.away = True
        replica.log.grown.set()
        replica.tables.stir.set()
        await until(lambda: replica.cache.health.refused and replica.app.access.refused)
        got = await replica.alice.get("/apis/nodus.dev/v1")

    [resource] = orjson.loads(got.body)["resources"]
    assert (got.status, resource["name"]) == (200, "attempts")
    assert resource["verbs"] == ["get", "list", "watch"]
    assert resource["storageVersionHash"] == "uScZO4qtk90="


async def test_the_core_group_stand_alone(replica: Replica) -> None:  # LW-017
    versions = orjson.loads((await replica.alice.get("/api")).body)
    resources = orjson.loads((await replica.alice.get("/api/v1")).body)

    assert versions == {"kind": "APIVersions", "versions": ["v1"]}
    assert [r["name"] for r in resources["resources"]] == ["namespaces"]


@pytest.mark.parametrize(
    "path",
    ["/api", "/api/v1", "/api/v1/namespaces", "/api/v1/namespaces/x", "/openapi/v3/api/v1"],
)
async def test_the_core_group_behind_a_cluster(path: str) -> None:  # LW-017
    replica = replica_of(options=ServerOptions(standalone=False))
    async with running(replica):
        got = await replica.admin.get(path)

    assert (got.status, orjson.loads(got.body)["details"]) == (404, {})


async def test_the_version_is_open_to_everybody(replica: Replica) -> None:  # LW C-28
    got = await replica.stranger.get("/version?timeout=32s")

    found = orjson.loads(got.body)
    assert (found["major"], found["minor"]) == ("1", "37")
    assert found["gitVersion"] == "v1.37.0+nodus.0.1.0"


async def test_the_openapi_document(replica: Replica) -> None:  # LW C-89
    index = await replica.alice.get("/openapi/v3")
    url = orjson.loads(index.body)["paths"]["apis/nodus.dev/v1"]["serverRelativeURL"]
    named = await replica.alice.get(url)
    other = await replica.alice.get(f"{DOCUMENT}?hash=X")
    same = await replica.alice.get(url, if_none_match=named.headers["etag"])

    assert url == f"{DOCUMENT}?hash={openapi_v3().digest}"
    assert named.body == other.body == openapi_v3().body
    assert named.headers["cache-control"] == "public, immutable"
    assert named.headers["expires"] == "Fri, 01 Jan 2027 12:00:00 GMT"
    assert other.headers["cache-control"] == "no-cache, private"
    assert (same.status, same.body) == (304, b"")
    assert same.headers["etag"] == named.headers["etag"]
    assert "content-type" not in same.headers  # as kube-apiserver


async def test_the_core_document_stand_alone(replica: Replica) -> None:  # LW-016, LW-230
    index = await replica.alice.get("/openapi/v3")
    url = orjson.loads(index.body)["paths"]["api/v1"]["serverRelativeURL"]
    named = await replica.alice.get(url)

    assert url == f"/openapi/v3/api/v1?hash={core_openapi_v3().digest}"
    assert named.body == core_openapi_v3().body
    assert named.headers["cache-control"] == "public, immutable"


async def test_no_core_document_behind_a_cluster() -> None:  # LW-017
    replica = replica_of(options=ServerOptions(standalone=False))
    async with running(replica):
        index = await replica.alice.get("/openapi/v3")

    assert list(orjson.loads(index.body)["paths"]) == ["apis/nodus.dev/v1"]


async def test_swagger(replica: Replica) -> None:  # LW-233
    got = await replica.alice.get("/openapi/v2", accept="application/json")
    refused = await replica.alice.get(
        "/openapi/v2", accept="application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    )

    assert orjson.loads(got.body)["swagger"] == "2.0"
    assert got.headers["etag"]
    assert refused.status == 406


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3"])
async def test_what_has_no_hash_in_its_url_is_asked_for_again(
    replica: Replica, path: str
) -> None:  # LW-059, as kube-apiserver: nobody between may answer for us
    got = await replica.alice.get(path)
    same = await replica.alice.get(path, if_none_match=got.headers["etag"])

    assert (got.status, same.status) == (200, 304)
    assert got.headers["cache-control"] == same.headers["cache-control"] == "no-cache, private"


@pytest.mark.parametrize("code", sorted({code for codes in PAGES for code in codes}))
async def test_every_code_has_its_page(
    replica: Replica, code: str
) -> None:  # LW-202; SC-011: of those inside an Attempt, too
    text = await replica.stranger.get(f"/docs/errors/{code}", accept="text/plain")
    html = await replica.stranger.get(f"/docs/errors/{code}", accept="text/html,*/*")

    assert (text.status, text.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert code.encode() in text.body
    assert html.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in html.headers["content-security-policy"]


async def test_the_index_of_the_error_pages(replica: Replica) -> None:  # LW-202
    got = await replica.stranger.get("/docs/errors")

    assert got.status == 200
    assert all(f"\n{code}:\n".encode() in got.body for codes in PAGES for code in codes)


async def test_a_word_with_two_meanings_is_told_with_both(replica: Replica) -> None:  # SC-011
    got = await replica.stranger.get("/docs/errors/InternalError")

    assert CODES["InternalError"].when.encode() in got.body
    assert REASONS["InternalError"].when.encode() in got.body


@pytest.mark.parametrize("path", ["/apis/nodus.dev", "/apis/nodus.dev/v1", "/api/v1", "/version"])
async def test_the_aggregated_form_is_of_the_roots_alone(
    replica: Replica, path: str
) -> None:  # LW-035: kube-apiserver knows it nowhere else
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    refused = await replica.admin.get(path, accept=aggregated)
    both = await replica.admin.get(path, accept=f"{aggregated},application/json")

    assert (refused.status, both.status) == (406, 200)
    assert both.headers["content-type"] == "application/json"
