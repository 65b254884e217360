"""Every field of the API reference is in the published schema, of its type, and no other is."""

from collections.abc import Iterator
from typing import Any

import orjson

from nodus_api.attempts.openapi import openapi_v3

SCHEMAS: dict[str, Any] = orjson.loads(openapi_v3().body)["components"]["schemas"]

TEXTS = """
apiVersion kind metadata.annotations.* metadata.creationTimestamp metadata.deletionTimestamp
metadata.finalizers[] metadata.generateName metadata.labels.* metadata.managedFields[].apiVersion
metadata.managedFields[].fieldsType metadata.managedFields[].manager
metadata.managedFields[].operation metadata.managedFields[].subresource
metadata.managedFields[].time metadata.name metadata.namespace
metadata.ownerReferences[].apiVersion metadata.ownerReferences[].kind
metadata.ownerReferences[].name metadata.ownerReferences[].uid metadata.resourceVersion
metadata.selfLink metadata.uid spec.gang.id spec.slot status.actual.costUSD status.actual.hours
status.actual.segments.bootUSD status.actual.segments.coveredByNodus[]
status.actual.segments.restoreUSD status.actual.segments.runningUSD
status.actual.segments.teardownUSD status.interruption.time status.interruption.trigger
status.phase status.placement.explain.fallbacks[] status.placement.explain.profile
status.placement.explain.rejected[].offeringClass status.placement.explain.rejected[].reason
status.placement.explain.scores.* status.placement.offering status.placement.profile
status.placement.rateUSDPerHour status.placement.regionClass status.predicted.costUSD
status.predicted.hours status.predicted.interruptionRate status.progress.stage status.reason
status.supersededBy status.timings.acquiredTime status.timings.billingStartTime
status.timings.commandStartedTime status.timings.deletionProvenTime status.timings.finishedTime
status.timings.queuedTime status.timings.registeredTime
"""
NUMBERS = """
metadata.deletionGracePeriodSeconds metadata.generation spec.epoch spec.gang.epoch spec.gang.rank
spec.gang.size spec.restoreFrom.cursor.completed spec.restoreFrom.cursor.total
spec.restoreFrom.seq status.checkpoints.count status.checkpoints.lastSeq
status.checkpoints.restoreBytes status.exitCode status.interruption.lostSeconds
status.interruption.recoverySeconds status.placement.candidates status.signal
status.timings.bootSeconds status.timings.pullSeconds status.timings.restoreSeconds
status.timings.teardownSeconds
"""
TRUTHS = """
metadata.ownerReferences[].blockOwnerDeletion metadata.ownerReferences[].controller
status.placement.hedged status.placement.interruptible status.placement.warmReuse
"""
OBJECTS = "metadata.managedFields[].fieldsV1"


def leaves(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Every value of a schema by its path, arrays as `[]` and free keys as `.*`."""
    while "allOf" in schema:
        schema = SCHEMAS[schema["allOf"][0]["$ref"].rpartition("/")[2]]
    if "properties" in schema:
        for name, found in schema["properties"].items():
            yield from leaves(found, f"{path}.{name}" if path else name)
    elif "additionalProperties" in schema:
        yield from leaves(schema["additionalProperties"], f"{path}.*")
    elif schema["type"] == "array":
        yield from leaves(schema["items"], f"{path}[]")
    else:
        yield path, schema["type"]


def of_type(names: str, kind: str) -> set[tuple[str, str]]:
    return {(name, kind) for name in names.split()}


def test_an_attempt_has_the_fields_of_the_reference() -> None:  # LW-234
    assert set(leaves(SCHEMAS["dev.nodus.v1.Attempt"])) == (
        of_type(TEXTS, "string")
        | of_type(NUMBERS, "integer")
        | of_type(TRUTHS, "boolean")
        | of_type(OBJECTS, "object")
    )


def test_a_list_has_the_fields_of_the_reference() -> None:  # LW-166, LW-234
    of_list = {(p, t) for p, t in leaves(SCHEMAS["dev.nodus.v1.AttemptList"]) if "items" not in p}

    assert of_list == of_type(
        "apiVersion kind metadata.continue metadata.resourceVersion metadata.selfLink "
        "metadata.shardInfo.selector",
        "string",
    ) | of_type("metadata.remainingItemCount", "integer")


def test_an_error_has_the_fields_of_the_reference() -> None:  # LW-180, LW-182
    assert set(leaves(SCHEMAS["dev.nodus.v1.Status"])) == of_type(
        "apiVersion details.causes[].field details.causes[].message details.causes[].reason "
        "details.group details.kind details.name details.uid docs fix kind message "
        "metadata.continue metadata.resourceVersion metadata.selfLink "
        "metadata.shardInfo.selector reason requestId status",
        "string",
    ) | of_type("code details.retryAfterSeconds metadata.remainingItemCount", "integer")


UNITS = {"Seconds": "second", "USD": "USD", "Hour": "hour", "hours": "hours", "Bytes": "bytes"}


def test_every_quantity_is_described_with_its_unit() -> None:  # LW-238
    quantities = [
        (name, end, found["description"])
        for schema in SCHEMAS.values()
        for name, found in schema.get("properties", {}).items()
        for end in UNITS
        if name.endswith(end)
    ]

    assert len(quantities) >= 18
    assert [one for one in quantities if UNITS[one[1]] not in one[2]] == []


def test_actual_says_what_stands_there_where_nothing_was_billed() -> None:  # SC-017, LW-238
    """test_projection.py holds that the zeros are so: here, that they are told."""
    whole = SCHEMAS["dev.nodus.v1.AttemptActual"]["description"]
    field = SCHEMAS["dev.nodus.v1.AttemptStatus"]["properties"]["actual"]["description"]

    assert 'all of it is "0.000000"' in whole
    assert "all zeros where it ended before billing began" in field
