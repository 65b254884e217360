"""The shape of an OpenAPI document, which is what is compared of it.

Of kube's documents our group version's paths, and of these what reads: the rest is of others, or
writes. What a schema says in words and parts is ours to say; tests/metav1 holds it.
"""

from collections.abc import Mapping
from typing import Any

from nodus_api.attempts.resource import GROUP_VERSION

_OURS = f"apis/{GROUP_VERSION}"
_KINDS = ("dev.nodus.v1.Attempt", "dev.nodus.v1.AttemptList")


def shape(document: Any) -> Mapping[str, Any] | None:
    """Return what two servers' documents, or their indexes, share; None where it is neither."""
    if not isinstance(document, dict):
        return None
    version = document.get("openapi") or document.get("swagger")
    if version:
        components = document.get("components") or {"schemas": document["definitions"]}
        return {
            "version": version,
            "paths": {
                _named(path): _operation(one, document)
                for path, one in document["paths"].items()
                if path.startswith(f"/{_OURS}/")
            },
            "kinds": {
                kind: components["schemas"][kind]["x-kubernetes-group-version-kind"]
                for kind in _KINDS
            },
        }
    paths = document.get("paths")
    if not isinstance(paths, dict) or _OURS not in paths:
        return None
    own = paths[_OURS]["serverRelativeURL"]
    path, _, hashed = own.partition("?hash=")
    return {"document": path, "digits of the hash": (len(hashed), hashed == hashed.upper())}


def _operation(path: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how a path is read; parameters stand at the path, at the operation, or elsewhere."""
    got = path["get"]
    parameters = [*path.get("parameters", ()), *got.get("parameters", ())]
    return {
        "operationId": got["operationId"],
        "action": got["x-kubernetes-action"],
        "kind": got["x-kubernetes-group-version-kind"],
        "parameters": sorted({_named(_resolved(one, document)["name"]) for one in parameters}),
        "responses": sorted(got["responses"]),
        "types": sorted(got["responses"]["200"].get("content") or got.get("produces", ())),
    }


def _resolved(parameter: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = document if "$ref" in parameter else parameter
    for key in parameter.get("$ref", "#").split("/")[1:]:
        found = found[key]
    return dict(found)


def _named(name: str) -> str:
    """Call the project as kube does: the reference names it otherwise (LW-239)."""
    return name.replace("project", "namespace")
