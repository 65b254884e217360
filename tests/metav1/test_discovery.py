"""Discovery: LW-017, LW-030 to LW-038."""

import hashlib
from typing import Any

import orjson
import pytest

from nodus_api.attempts.resource import API_RESOURCE as ATTEMPTS
from nodus_api.metav1 import discovery
from nodus_api.metav1.discovery import Document
from nodus_api.metav1.namespaces import API_RESOURCE as NAMESPACES

ALL = (NAMESPACES, ATTEMPTS)
VERSION = {"groupVersion": "nodus.dev/v1", "version": "v1"}


def read(document: Document) -> dict[str, Any]:
    assert document.body.endswith(b"}\n")
    found: dict[str, Any] = orjson.loads(document.body)
    return found


def test_the_groups() -> None:  # LW-030, LW-031
    group = {"name": "nodus.dev", "versions": [VERSION], "preferredVersion": VERSION}
    assert read(discovery.group_list(ALL)) == {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [group],
    }
    assert (
        read(discovery.group("nodus.dev", ALL)) == {"kind": "APIGroup", "apiVersion": "v1"} | group
    )


def test_the_resources_of_the_version() -> None:  # LW-032, LW-033, LW C-20
    document = discovery.resource_list("nodus.dev/v1", ALL)
    assert read(document) == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "nodus.dev/v1",
        "resources": [
            {
                "name": "attempts",
                "singularName": "attempt",
                "namespaced": True,
                "kind": "Attempt",
                "verbs": ["get", "list", "watch"],
                "shortNames": ["att"],
                "categories": ["nodus"],
                "storageVersionHash": "uScZO4qtk90=",
            }
        ],
    }
    assert document.headers == {"Content-Type": "application/json"}


def test_the_core_group_stand_alone() -> None:  # LW-017
    assert read(discovery.api_versions()) == {"kind": "APIVersions", "versions": ["v1"]}
    assert read(discovery.resource_list("v1", ALL))["resources"] == [
        {
            "name": "namespaces",
            "singularName": "namespace",
            "namespaced": False,
            "kind": "Namespace",
            "verbs": ["get", "list", "watch"],
            "shortNames": ["ns"],
        }
    ]


def test_the_aggregated_form() -> None:  # LW-035, LW C-17
    document = discovery.aggregated(ALL)
    assert read(document) == {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": "nodus.dev"},
                "versions": [
                    {
                        "version": "v1",
                        "resources": [
                            {
                                "resource": "attempts",
                                "responseKind": {
                                    "group": "nodus.dev",
                                    "version": "v1",
                                    "kind": "Attempt",
                                },
                                "scope": "Namespaced",
                                "singularResource": "attempt",
                                "verbs": ["get", "list", "watch"],
                                "shortNames": ["att"],
                                "categories": ["nodus"],
                            }
                        ],
                        "freshness": "Current",
                    }
                ],
            }
        ],
    }
    assert document.headers == {
        "Content-Type": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "ETag": f'"{hashlib.sha512(document.body).hexdigest().upper()}"',
        "Vary": "Accept",
        "Cache-Control": "public",
    }


def test_the_aggregated_form_of_the_core_group() -> None:  # LW-017
    items = read(discovery.aggregated(ALL, core=True))["items"]
    assert len(items) == 1
    assert items[0]["metadata"] == {}
    resource = items[0]["versions"][0]["resources"][0]
    assert (resource["resource"], resource["scope"], resource["shortNames"]) == (
        "namespaces",
        "Cluster",
        ["ns"],
    )
    assert resource["responseKind"] == {"group": "", "version": "v1", "kind": "Namespace"}


def test_a_resource_without_short_names_or_categories() -> None:
    bare = discovery.APIResource(
        group="x.dev",
        version="v1",
        name="things",
        singular="thing",
        kind="Thing",
        namespaced=True,
        verbs=("get",),
    )
    plain = read(discovery.resource_list("x.dev/v1", [bare]))["resources"][0]
    full = read(discovery.aggregated([bare]))["items"][0]["versions"][0]["resources"][0]
    assert "shortNames" not in plain | full
    assert "categories" not in plain | full


@pytest.mark.parametrize(
    ("header", "unchanged"),
    [
        (None, False),
        ('"x"', False),
        ("{tag}", True),
        ("W/{tag}", True),
        ('"x", {tag}', True),
        ("*", True),
    ],
)
def test_who_has_the_document_is_told_so(
    header: str | None, unchanged: bool
) -> None:  # LW-037, LW C-18
    document = discovery.aggregated(ALL)
    asked = header and header.replace("{tag}", str(document.etag))
    assert document.unchanged(asked) is unchanged
    assert not discovery.group_list(ALL).unchanged(asked)


def test_the_version() -> None:  # LW-038, LW C-28
    document = discovery.version_info(
        "0.1.0",
        commit="abc",
        build_date="2026-03-01T00:00:00Z",
        runtime="cpython3.13",
        platform="linux/amd64",
    )
    info = read(document)
    assert (info["major"], info["minor"], info["gitVersion"]) == ("1", "37", "v1.37.0+nodus.0.1.0")
    assert {type(value) for value in info.values()} == {str}
    assert set(info) == {
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    }
