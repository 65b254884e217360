"""Which groups, versions and resources there are, in both forms (LW-017, LW-030 to LW-038).

Documents are made once from constants, so that they do not depend on a database, on
rights or on a warm cache (LW-034), and have the same tag on every replica (LW-037).
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from nodus_api.metav1.negotiation import AGGREGATED_JSON, JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class APIResource:
    """A resource as discovery tells of it; the core group is empty."""

    group: str
    version: str
    name: str
    singular: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    stored: bool = True
    """Whether a storageVersionHash is told; clients must not interpret it (LW-032)."""

    @property
    def group_version(self) -> str:
        """`nodus.dev/v1`, or the bare version in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A finished answer: its bytes, its content type, and its tag if it has one.

    With a tag the answer carries ETag, Vary and Cache-Control, and If-None-Match is
    answered by 304 without a body (LW-037). Aggregated discovery alone is `public`.
    """

    body: bytes
    content_type: str = JSON
    etag: str | None = None
    cache_control: str = "no-cache, private"

    @property
    def headers(self) -> dict[str, str]:
        """The headers that belong to the document."""
        headers = {"Content-Type": self.content_type}
        if self.etag is not None:
            headers |= {"ETag": self.etag, "Vary": "Accept", "Cache-Control": self.cache_control}
        return headers

    def unchanged(self, if_none_match: str | None) -> bool:
        """Return whether the client has this very document."""
        if self.etag is None or if_none_match is None:
            return False
        tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
        return self.etag in tags or "*" in tags


def api_versions() -> Document:
    """Return the plain form of `/api` (LW-017)."""
    return _document({"kind": "APIVersions", "versions": ["v1"]})


def group_list(resources: Sequence[APIResource]) -> Document:
    """Return the plain form of `/apis` (LW-030)."""
    groups = [_group(group, versions) for group, versions in _by_group(resources).items() if group]
    return _document({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})


def group(name: str, resources: Sequence[APIResource]) -> Document:
    """Return the document of one group, `/apis/nodus.dev` (LW-031)."""
    versions = _by_group(resources)[name]
    return _document({"kind": "APIGroup", "apiVersion": "v1"} | _group(name, versions))


def resource_list(group_version: str, resources: Sequence[APIResource]) -> Document:
    """Return the resources of one version; the aggregator probes it (LW-032, LW-034)."""
    return _document(
        {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": group_version,
            "resources": [
                _resource(resource)
                for resource in resources
                if resource.group_version == group_version
            ],
        }
    )


def aggregated(resources: Sequence[APIResource], *, core: bool = False) -> Document:
    """Return the aggregated form of `/apis`, or of `/api` for the core group (LW-017, LW-035)."""
    items = []
    for name, versions in _by_group(resources).items():
        if (name == "") is core:
            found = [
                {
                    "version": version,
                    "resources": [_aggregated(resource) for resource in members],
                    "freshness": "Current",
                }
                for version, members in versions.items()
            ]
            items.append({"metadata": {"name": name} if name else {}, "versions": found})
    body = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }
    data = orjson.dumps(body, option=orjson.OPT_APPEND_NEWLINE)
    return Document(
        body=data, content_type=AGGREGATED_JSON, etag=etag_of(data), cache_control="public"
    )


def version_info(
    version: str, *, commit: str, build_date: str, runtime: str, platform: str
) -> Document:
    """Return `/version`, whose gitVersion clients parse as semver (LW-038)."""
    return _document(
        {
            "major": "1",
            "minor": "37",
            "gitVersion": f"v1.37.0+nodus.{version}",
            "gitCommit": commit,
            "gitTreeState": "clean",
            "buildDate": build_date,
            "goVersion": runtime,
            "compiler": runtime,
            "platform": platform,
        }
    )


def digest_of(data: bytes) -> str:
    """Return the upper-case hex SHA-512 of a document, the same on every replica (LW-037)."""
    return hashlib.sha512(data).hexdigest().upper()


def etag_of(data: bytes) -> str:
    """Return the quoted tag of a document (LW-037)."""
    return f'"{digest_of(data)}"'


def storage_version_hash(resource: APIResource) -> str:
    """Return the hash that tells clients when the stored version changed (LW-032)."""
    text = f"{resource.group}/{resource.version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _document(body: dict[str, Any]) -> Document:
    return Document(body=orjson.dumps(body, option=orjson.OPT_APPEND_NEWLINE))


def _by_group(resources: Sequence[APIResource]) -> dict[str, dict[str, list[APIResource]]]:
    groups: dict[str, dict[str, list[APIResource]]] = {}
    for resource in resources:
        groups.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
    return groups


def _group(name: str, versions: dict[str, list[APIResource]]) -> dict[str, Any]:
    told = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": told, "preferredVersion": told[0]}


def _resource(resource: APIResource) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": resource.name,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        told["shortNames"] = list(resource.short_names)
    if resource.categories:
        told["categories"] = list(resource.categories)
    if resource.stored:
        told["storageVersionHash"] = storage_version_hash(resource)
    return told


def _aggregated(resource: APIResource) -> dict[str, Any]:
    told: dict[str, Any] = {
        "resource": resource.name,
        "responseKind": {
            "group": resource.group,
            "version": resource.version,
            "kind": resource.kind,
        },
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        told["shortNames"] = list(resource.short_names)
    if resource.categories:
        told["categories"] = list(resource.categories)
    return told
