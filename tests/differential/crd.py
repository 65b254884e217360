"""The CustomResourceDefinition of Attempts, made of what this server itself publishes of them."""

from collections.abc import Mapping
from typing import Any

import orjson

from nodus_api.attempts import columns, resource
from nodus_api.attempts.openapi import openapi_v3
from nodus_api.attempts.selectable import FIELDS
from nodus_api.metav1.table import Column

_REFERENCE = "#/components/schemas/"
_PATHS = {
    "Phase": ".status.phase",
    "Reason": ".status.reason",
    "Offering": ".status.placement.offering",
    "Cost": ".status.actual.costUSD",
    "Runtime": ".status.timings.commandStartedTime",
    "Age": ".metadata.creationTimestamp",
    "Stage": ".status.progress.stage",
    "Slot": ".spec.slot",
    "Epoch": ".spec.epoch",
    "Rank": ".spec.gang.rank",
    "Region": ".status.placement.regionClass",
    "Rate": ".status.placement.rateUSDPerHour",
    "Profile": ".status.placement.profile",
    "Interruption": ".status.interruption.trigger",
    "Exit": ".status.exitCode",
    "Superseded-By": ".status.supersededBy",
}
"""Where the value of each column after the name stands, as far as it is one value (LW-256)."""
_DATES = ("Runtime", "Age")


def definition() -> dict[str, Any]:
    """Return the definition that makes kube-apiserver serve Attempts as this server does."""
    schemas = orjson.loads(openapi_v3().body)["components"]["schemas"]
    attempt = _structural(schemas["dev.nodus.v1.Attempt"], schemas)
    attempt["properties"]["metadata"] = {"type": "object"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.RESOURCE}.{resource.GROUP}"},
        "spec": {
            "group": resource.GROUP,
            "scope": "Namespaced",
            "names": {
                "plural": resource.RESOURCE,
                "singular": resource.SINGULAR,
                "kind": resource.KIND,
                "listKind": resource.LIST_KIND,
                "shortNames": list(resource.SHORT_NAMES),
                "categories": list(resource.CATEGORIES),
            },
            "versions": [
                {
                    "name": resource.VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": attempt},
                    "selectableFields": [{"jsonPath": f".{field}"} for field in FIELDS],
                    "additionalPrinterColumns": [
                        _printer_column(column) for column in columns.COLUMNS[1:]
                    ],
                }
            ],
        },
    }


def _printer_column(column: Column) -> dict[str, Any]:
    shown: dict[str, Any] = column.to_wire()
    if column.name in _DATES:
        shown["type"] = "date"
    elif column.name == "Rank":
        shown["type"] = "integer"
    if not shown["format"]:
        del shown["format"]
    shown["jsonPath"] = _PATHS[column.name]
    return shown


def _structural(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without references, extensions, and defaults that would add objects."""
    found: dict[str, Any] = {}
    for part in schema.get("allOf", ()):
        found |= _structural(schemas[part["$ref"].removeprefix(_REFERENCE)], schemas)
    for key, value in schema.items():
        if key == "$ref":
            found |= _structural(schemas[value.removeprefix(_REFERENCE)], schemas)
        elif key == "properties":
            found[key] = {name: _structural(one, schemas) for name, one in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            found[key] = _structural(value, schemas)
        elif key not in ("allOf", "default") and not key.startswith("x-"):
            found[key] = value
    return found
