"""The OpenAPI documents: LW-230 to LW-241."""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from nodus_api.attempts.openapi import openapi_index, openapi_v2, openapi_v3
from nodus_api.attempts.selectable import FIELDS, SUPPORTED
from nodus_api.metav1.core_openapi import core_openapi_v3
from nodus_api.metav1.namespaces import SUPPORTED_FIELDS
from nodus_api.metav1.openapi import OpenAPIDocument, cache_headers

COMMITTED = Path(__file__).parent.parent.parent / "openapi"
V3: dict[str, Any] = orjson.loads(openapi_v3().body)
CORE: dict[str, Any] = orjson.loads(core_openapi_v3().body)
V2: dict[str, Any] = orjson.loads(openapi_v2().body)
SCHEMAS: dict[str, Any] = V3["components"]["schemas"]
GVK = {"group": "nodus.dev", "version": "v1", "kind": "Attempt"}
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
NAMED = "/apis/nodus.dev/v1/namespaces/{project}/attempts/{name}"
LISTS = ("/apis/nodus.dev/v1/attempts", "/apis/nodus.dev/v1/namespaces/{project}/attempts")
NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of a document."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from nodes(item)


@pytest.mark.parametrize(
    ("name", "document"),
    [("v3", openapi_v3()), ("v3-core", core_openapi_v3()), ("v2", openapi_v2())],
)
def test_the_committed_document_is_the_served_one(name: str, document: OpenAPIDocument) -> None:
    committed = (COMMITTED / f"{name}.json").read_bytes()
    assert committed == document.committed(), "run `nodus openapi` and review the difference"
    assert orjson.loads(committed) == orjson.loads(document.body)


def test_the_index_names_the_document_by_its_hash() -> None:  # LW-230, LW-231
    digest = hashlib.sha512(openapi_v3().body).hexdigest().upper()
    attempts = {
        "apis/nodus.dev/v1": {"serverRelativeURL": f"/openapi/v3/apis/nodus.dev/v1?hash={digest}"}
    }
    core = hashlib.sha512(core_openapi_v3().body).hexdigest().upper()
    assert orjson.loads(openapi_index(standalone=False).body) == {"paths": attempts}
    index = openapi_index(standalone=True)
    assert orjson.loads(index.body) == {
        "paths": attempts | {"api/v1": {"serverRelativeURL": f"/openapi/v3/api/v1?hash={core}"}}
    }
    assert index.etag == f'"{hashlib.sha512(index.body).hexdigest().upper()}"'


def test_only_the_document_asked_for_by_its_hash_may_be_kept() -> None:  # LW-232, LW C-89
    document = openapi_v3()
    common = {
        "Content-Type": "application/json",
        "ETag": f'"{document.digest}"',
        "Vary": "Accept",
    }
    assert cache_headers(document, asked=document.digest, now=NOW) == common | {
        "Cache-Control": "public, immutable",
        "Expires": "Mon, 01 Mar 2027 12:00:00 GMT",
    }
    for asked in (None, "OTHER"):
        assert cache_headers(document, asked=asked, now=NOW) == common | {
            "Cache-Control": "no-cache, private"
        }
    assert document.to_document().unchanged(f'"{document.digest}"')


def test_the_dialects() -> None:  # LW-233, LW-234
    assert V3["openapi"] == "3.0.0"
    assert V2["swagger"] == "2.0"


def test_the_schemas_have_their_names() -> None:  # LW-234
    assert {name for name in SCHEMAS if name.startswith(META)} == {
        f"{META}.{kind}"
        for kind in (
            "ObjectMeta", "ListMeta", "Status", "StatusDetails", "StatusCause", "Time",
            "OwnerReference", "ManagedFieldsEntry", "FieldsV1", "ShardInfo", "WatchEvent",
        )
    }  # fmt: skip
    own = {
        name.removeprefix("dev.nodus.v1.") for name in SCHEMAS if name.startswith("dev.nodus.v1.")
    }
    assert own == {
        "Attempt", "AttemptList", "AttemptSpec", "AttemptGang", "AttemptRestore", "AttemptCursor",
        "AttemptStatus", "AttemptActual", "CostSegments", "AttemptCheckpoints",
        "AttemptInterruption", "AttemptPlacement", "PlacementExplain", "PlacementRejection",
        "AttemptPredicted", "AttemptProgress", "AttemptTimings", "Status",
    }  # fmt: skip


def test_the_merged_document_takes_no_upstream_name() -> None:  # LW-234, field case A11
    assert not [name for name in V2["definitions"] if name.startswith(META)]
    assert "dev.nodus.meta.v1.ObjectMeta" in V2["definitions"]
    assert META not in openapi_v2().body.decode()


@pytest.mark.parametrize(
    ("document", "prefix", "found"),
    [(V3, "#/components/schemas/", SCHEMAS), (V2, "#/definitions/", V2["definitions"])],
)
def test_every_reference_resolves(  # field case A11
    document: dict[str, Any], prefix: str, found: dict[str, Any]
) -> None:
    references = [node["$ref"] for node in nodes(document) if "$ref" in node]
    assert len(references) > 30
    for reference in references:
        assert reference.removeprefix(prefix) in found


def test_only_attempts_carry_a_kind_mark() -> None:  # LW-235, field case A11
    mark = "x-kubernetes-group-version-kind"
    assert {name: schema[mark] for name, schema in SCHEMAS.items() if mark in schema} == {
        "dev.nodus.v1.Attempt": [GVK],
        "dev.nodus.v1.AttemptList": [GVK | {"kind": "AttemptList"}],
    }


def test_there_are_no_unions_and_no_titles() -> None:  # LW-237
    for document in (V3, V2):
        for node in nodes(document):
            assert not {"anyOf", "oneOf", "nullable", "const", "prefixItems"} & set(node)
            assert node.get("type") != "null"
    assert not [schema for schema in SCHEMAS.values() if "title" in schema]


def test_a_reference_is_wrapped_and_described() -> None:  # LW-237
    status = SCHEMAS["dev.nodus.v1.AttemptStatus"]["properties"]
    assert status["placement"] == {
        "description": "Where the Attempt was placed and why; from the first try on.",
        "default": {},
        "allOf": [{"$ref": "#/components/schemas/dev.nodus.v1.AttemptPlacement"}],
    }
    assert V2["definitions"]["dev.nodus.v1.AttemptStatus"]["properties"]["placement"] == {
        "description": "Where the Attempt was placed and why; from the first try on.",
        "$ref": "#/definitions/dev.nodus.v1.AttemptPlacement",
    }
    created = SCHEMAS[f"{META}.ObjectMeta"]["properties"]["creationTimestamp"]
    assert created["allOf"] == [{"$ref": f"#/components/schemas/{META}.Time"}]
    assert "default" not in created  # {} is no time


def test_everything_is_described() -> None:  # LW-238
    for schemas in (SCHEMAS, V2["definitions"]):
        for name, schema in schemas.items():
            assert schema["description"], name
            for field, found in schema.get("properties", {}).items():
                assert found["description"].endswith("."), (name, field)


def test_the_types_of_values() -> None:  # LW-238
    timings = SCHEMAS["dev.nodus.v1.AttemptTimings"]["properties"]
    assert (timings["queuedTime"]["type"], timings["queuedTime"]["format"]) == (
        "string",
        "date-time",
    )
    assert (timings["bootSeconds"]["type"], timings["bootSeconds"]["format"]) == (
        "integer",
        "int64",
    )
    actual = SCHEMAS["dev.nodus.v1.AttemptActual"]["properties"]["costUSD"]
    assert (actual["type"], actual.get("format")) == ("string", None)
    labels = SCHEMAS[f"{META}.ObjectMeta"]["properties"]["labels"]
    assert labels["additionalProperties"] == {"type": "string"}
    assert SCHEMAS["dev.nodus.v1.AttemptSpec"]["required"] == ["epoch", "slot"]


def test_the_paths_and_actions() -> None:  # LW-236, LW-239, LW-241
    for document in (V3, V2):
        actions = {
            (path, method): operation["x-kubernetes-action"]
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if method != "parameters"
        }
        assert actions == {
            (LISTS[0], "get"): "list",
            (LISTS[1], "get"): "list",
            (NAMED, "get"): "get",
            (NAMED, "patch"): "patch",
        }
        for path, method in actions:
            operation = document["paths"][path][method]
            assert operation["x-kubernetes-group-version-kind"] == GVK
            assert {"401", "default"} < set(operation["responses"])
            assert operation["responses"].keys() - {"401", "default"} == {
                "405" if method == "patch" else "200"
            }


def test_lists_tell_what_can_be_selected_by() -> None:  # LW-236
    wanted = [{"fieldPath": field} for field in FIELDS]
    for path in LISTS:
        assert V3["paths"][path]["get"]["x-kubernetes-selectable-fields"] == wanted
    assert SCHEMAS["dev.nodus.v1.Attempt"]["x-kubernetes-selectable-fields"] == wanted


def test_explain_tells_what_can_be_selected_by() -> None:  # LW-098: kubectl shows no fix
    for schema, fields in (
        (SCHEMAS["dev.nodus.v1.Attempt"], SUPPORTED),
        (CORE["components"]["schemas"]["io.k8s.api.core.v1.Namespace"], SUPPORTED_FIELDS),
    ):
        last = schema["description"].rpartition("\n\n")[2]
        assert last.startswith("Field selectors may name metadata.name, ")
        assert set(last.removeprefix("Field selectors may name ")[:-1].split(", ")) == fields


def test_the_core_group_is_documented_for_explain() -> None:  # LW-016, LW-235, LW-236, LW-241
    gvk = {"group": "", "version": "v1", "kind": "Namespace"}
    actions = {
        (path, method): (operation["x-kubernetes-action"], operation["operationId"])
        for path, methods in CORE["paths"].items()
        for method, operation in methods.items()
        if method != "parameters"
    }
    assert actions == {
        ("/api/v1/namespaces", "get"): ("list", "listCoreV1Namespace"),
        ("/api/v1/namespaces/{name}", "get"): ("get", "readCoreV1Namespace"),
        ("/api/v1/namespaces/{name}", "patch"): ("patch", "patchCoreV1Namespace"),
    }
    for path, method in actions:
        assert CORE["paths"][path][method]["x-kubernetes-group-version-kind"] == gvk
    schemas = CORE["components"]["schemas"]
    namespace = schemas["io.k8s.api.core.v1.Namespace"]
    assert namespace["x-kubernetes-group-version-kind"] == [gvk]
    assert set(namespace["properties"]) == {"apiVersion", "kind", "metadata", "status"}
    for name, schema in schemas.items():
        for field, found in schema.get("properties", {}).items():
            assert found["description"].endswith("."), (name, field)  # LW-238
    [name] = CORE["paths"]["/api/v1/namespaces/{name}"]["parameters"]
    assert name["description"] == "The name of the Namespace."
    listed = CORE["paths"]["/api/v1/namespaces"]["get"]["parameters"]
    texts = {parameter["name"]: parameter["description"] for parameter in listed}
    assert "metadata.name=team-a" in texts["fieldSelector"]
    assert "kubernetes.io/metadata.name=team-a" in texts["labelSelector"]


def test_the_parameters() -> None:  # LW-239, LW-241
    def named(parameters: list[dict[str, Any]]) -> list[str]:
        return [parameter["name"] for parameter in parameters]

    assert named(V3["paths"][NAMED]["parameters"]) == ["project", "name"]
    assert named(V3["paths"][LISTS[0]]["parameters"]) == []
    assert named(V3["paths"][NAMED]["patch"]["parameters"]) == ["fieldValidation"]
    for path in LISTS:
        assert named(V3["paths"][path]["get"]["parameters"]) == [
            "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "pretty",
            "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "shardSelector",
            "timeoutSeconds", "watch",
        ]  # fmt: skip
    limit = next(p for p in V3["paths"][LISTS[0]]["get"]["parameters"] if p["name"] == "limit")
    assert limit["schema"] == {"type": "integer"}
    limit = next(p for p in V2["paths"][LISTS[0]]["get"]["parameters"] if p["name"] == "limit")
    assert (limit["type"], limit["uniqueItems"]) == ("integer", True)
    assert V2["paths"][NAMED]["parameters"][0]["required"] is True


def test_operations_have_names_of_their_own() -> None:  # LW-240
    ids = [
        operation["operationId"]
        for methods in V3["paths"].values()
        for method, operation in methods.items()
        if method != "parameters"
    ]
    assert ids == [
        "listNodusDevV1AttemptForAllNamespaces",
        "listNodusDevV1NamespacedAttempt",
        "readNodusDevV1NamespacedAttempt",
        "patchNodusDevV1NamespacedAttempt",
    ]
