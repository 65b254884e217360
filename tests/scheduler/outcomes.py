"""What a life came to, in so far as a fault in it may not change it."""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_DELAYED = {"acquiredTime", "billingStartTime", "deletionProvenTime", "queuedTime"}


def over(document: Mapping[str, Any]) -> bool:
    """Return whether an Attempt's machines are proven gone."""
    return "deletionProvenTime" in document["status"]["timings"]


def stands(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return where an Attempt stands."""
    status = document["status"]
    return {
        "stage": status["progress"]["stage"],
        "reason": status.get("reason"),
        "registered": status["timings"].get("registeredTime"),
        "started": status["timings"].get("commandStartedTime"),
        "proven": "deletionProvenTime" in status["timings"],
        "checkpoints": status.get("checkpoints"),
    }


def told(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a document without what a delay of a request or of a proof changes."""
    kept: dict[str, Any] = json.loads(json.dumps(document))
    del kept["metadata"]
    status = kept["status"]
    timings, delayed = status["timings"], set(_DELAYED)
    if "commandStartedTime" not in timings:  # it ends when the scheduler comes to it
        delayed.add("finishedTime")
        status.get("interruption", {}).pop("time", None)
    status["timings"] = {
        name: value
        for name, value in timings.items()
        if name not in delayed and not name.endswith("Seconds")
    }
    segments = status["actual"]["segments"]
    covered = set(segments.pop("coveredByNodus", ()))
    if "commandStartedTime" not in timings:  # covered time of no length is not named
        covered.discard("Boot")
        covered |= {"Boot is charged"} if Decimal(segments["bootUSD"]) else set()
    status["actual"] = {
        "runningUSD": segments.get("runningUSD"),
        "covered": sorted(covered),
        "segments": sorted(segments),
    }
    status["placement"] = {"offering": status["placement"].get("offering")}
    status["progress"] = {"stage": status["progress"]["stage"]}
    return kept


def difference(found: Any, wanted: Any, path: str = "") -> str:
    """Return where two values differ, and how."""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        keys = [key for key in {**wanted, **found} if found.get(key) != wanted.get(key)]
        return "; ".join(
            difference(found.get(key), wanted.get(key), f"{path}.{key}") for key in keys
        )
    return f"{path} is {found}, not {wanted}"
