"""The operations of a read-only resource in both documents (LW-236, LW-239, LW-241)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodus_api.metav1.discovery import APIResource
from nodus_api.metav1.negotiation import JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a document refers to a schema, and which of the two it is."""

    reference: str
    swagger: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a path or of a query."""

    name: str
    description: str
    place: str = "query"
    type: str = "string"

    def to_wire(self, dialect: Dialect) -> dict[str, Any]:
        """Return the parameter in the dialect's form."""
        told: dict[str, Any] = {
            "name": self.name,
            "in": self.place,
            "description": self.description,
        }
        if self.place == "path":
            told["required"] = True
        kind = {"type": self.type, "uniqueItems": True} if dialect.swagger else {"type": self.type}
        return told | kind if dialect.swagger else told | {"schema": kind}


PROJECT = Parameter(
    name="project", place="path", description="The project, which is the namespace."
)

_PRETTY = Parameter(
    name="pretty",
    description="Whether the body is indented; by default it is for curl, Wget and browsers.",
)
_RESOURCE_VERSION = Parameter(
    name="resourceVersion",
    description="Which state to answer from. Left out: the most recent one. 0: whatever the "
    "server has at hand. A version: a state at least as new; a watch begins after it.",
)
_LIST = (
    Parameter(
        name="allowWatchBookmarks",
        type="boolean",
        description="Whether a watch may send BOOKMARK events, which tell how far it has come. "
        "Ignored on a list.",
    ),
    Parameter(
        name="continue",
        description="Where to go on, from metadata.continue of the page before. All pages show "
        "the state of the first one; the path and the selectors must stay the same. After some "
        "minutes it expires and is answered by 410.",
    ),
    Parameter(
        name="fieldSelector",
        description="Only objects whose fields have these values, for example "
        "{field}; also field!=value, and several joined by commas.",
    ),
    Parameter(
        name="labelSelector",
        description="Only objects whose labels satisfy this, for example {label}; "
        "also key!=value, key in (a,b), key, !key, and several joined by commas.",
    ),
    Parameter(
        name="limit",
        type="integer",
        description="How many items a page holds at most. More are told by metadata.continue. "
        "Ignored on a watch.",
    ),
    _PRETTY,
    _RESOURCE_VERSION,
    Parameter(
        name="resourceVersionMatch",
        description="How resourceVersion is meant on a list: Exact, that very state, or "
        "NotOlderThan, at least as new.",
    ),
    Parameter(
        name="sendInitialEvents",
        type="boolean",
        description="Whether a watch begins with the present objects as ADDED events, and then, "
        "if bookmarks are allowed, a BOOKMARK with the annotation k8s.io/initial-events-end. "
        "Needs resourceVersionMatch=NotOlderThan.",
    ),
    Parameter(
        name="shardSelector",
        description="Only objects whose uid or namespace hashes into these ranges, for example "
        "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000'); several "
        "joined by ||.",
    ),
    Parameter(
        name="timeoutSeconds",
        type="integer",
        description="How long a watch lasts, in seconds, at most 3600; by default 30 to 60 "
        "minutes. Ignored on a list.",
    ),
    Parameter(
        name="watch",
        type="boolean",
        description="Whether to answer with a stream of changes, one JSON line each, instead of a "
        "list.",
    ),
)
_GET = (_PRETTY, _RESOURCE_VERSION)
_PATCH = (
    Parameter(
        name="fieldValidation",
        description="Without effect, since the resource is read-only and every write is answered "
        "by 405.",
    ),
)


def operations(
    resource: APIResource,
    *,
    model: str,
    list_model: str,
    status_model: str,
    selectable: Sequence[str],
    examples: tuple[str, str],
    dialect: Dialect,
) -> dict[str, dict[str, Any]]:
    """Return the operations by path and method; `examples` are of a field and a label selector.

    Both list paths of a resource in namespaces are there, since `kubectl explain` finds the type
    by one of them; the patch is there so that `kubectl apply` reaches the 405 and its fix (LW-241).
    """
    base = f"/{'apis' if resource.group else 'api'}/{resource.group_version}"
    within = f"{base}/namespaces/{{project}}/" if resource.namespaced else f"{base}/"
    within += resource.name
    scope = "Namespaced" if resource.namespaced else ""
    words = (resource.group or "core").split(".")
    suffix = f"{words[0].capitalize()}{''.join(w.capitalize() for w in words[1:])}"
    suffix += resource.version.capitalize()
    plural = f"{resource.kind}s"

    def operation(
        action: str,
        operation_id: str,
        description: str,
        query: Sequence[Parameter],
        responses: dict[str, Any],
    ) -> dict[str, Any]:
        told: dict[str, Any] = {
            "operationId": operation_id,
            "description": description,
            "tags": [f"{suffix[0].lower()}{suffix[1:]}"],
            "parameters": [parameter.to_wire(dialect) for parameter in query],
            "responses": responses,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {
                "group": resource.group,
                "version": resource.version,
                "kind": resource.kind,
            },
        }
        if dialect.swagger:
            told |= {"consumes": ["*/*"], "produces": [JSON], "schemes": ["https"]}
        if action == "list":
            told["x-kubernetes-selectable-fields"] = [{"fieldPath": field} for field in selectable]
        return told

    errors = {
        "401": _response("No credential, or none that is accepted.", status_model, dialect),
        "default": _response(
            "An error: a Status whose reason is a registered code.", status_model, dialect
        ),
    }
    list_parameters = _list_parameters(*examples)
    listed = {"200": _response("The list, or the events of a watch.", list_model, dialect)} | errors
    found = {"200": _response(f"The {resource.kind}.", model, dialect)} | errors
    refused = {"405": _response("Always: writes are not supported.", status_model, dialect)}
    everywhere = {
        f"{base}/{resource.name}": {
            "get": operation(
                "list",
                f"list{suffix}{resource.kind}ForAllNamespaces",
                f"List or watch the {plural} of all projects.",
                list_parameters,
                listed,
            )
        }
    }
    which = "of one project" if resource.namespaced else "that the caller may see"
    return (everywhere if resource.namespaced else {}) | {
        within: {
            "get": operation(
                "list",
                f"list{suffix}{scope}{resource.kind}",
                f"List or watch the {plural} {which}.",
                list_parameters,
                listed,
            )
        },
        f"{within}/{{name}}": {
            "get": operation(
                "get",
                f"read{suffix}{scope}{resource.kind}",
                f"Read one {resource.kind}.",
                _GET,
                found,
            ),
            "patch": operation(
                "patch",
                f"patch{suffix}{scope}{resource.kind}",
                f"Not supported: {plural} are read-only. The answer is 405 and says what to do.",
                _PATCH,
                refused | errors,
            ),
        },
    }


def parameters(path: str, kind: str, dialect: Dialect) -> list[dict[str, Any]]:
    """Return the parameters that stand in a path of a kind."""
    name = Parameter(name="name", place="path", description=f"The name of the {kind}.")
    return [
        parameter.to_wire(dialect)
        for parameter in (PROJECT, name)
        if f"{{{parameter.name}}}" in path
    ]


def _list_parameters(field: str, label: str) -> Sequence[Parameter]:
    return [
        replace(one, description=one.description.format(field=field, label=label)) for one in _LIST
    ]


def _response(description: str, schema: str, dialect: Dialect) -> dict[str, Any]:
    reference = {"$ref": dialect.reference + schema}
    if dialect.swagger:
        return {"description": description, "schema": reference}
    return {"description": description, "content": {JSON: {"schema": reference}}}
