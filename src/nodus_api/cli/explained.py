"""The facts of `nodus explain`: where an Attempt ran and why, what it waits for, how it ended.

Pure: one value for JSON is made of a life that was read, and the text is made of that value, so
that both say the same. Money and scores are decimal strings, times RFC 3339.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from nodus_api.attempts.projection import WAITING_FOR, WAITING_MESSAGE
from nodus_api.attempts.reasons import REASONS, REJECTIONS
from nodus_api.cli.ending import ended
from nodus_api.cli.released import release_of
from nodus_api.cli.remedies import awaited, remedy_of
from nodus_api.cli.saved import last_checkpoint
from nodus_api.cli.silence import silence_of
from nodus_api.kernel.money import ZERO, format_rate, format_usd
from nodus_api.kernel.scores import NAMES, WEIGHTS
from nodus_api.kernel.vocabulary import Profile
from nodus_api.metav1.times import format_time, parse_time
from nodus_api.storage.lives import KeptDecision, LedgerRow, Life

Facts = dict[str, Any]


def explained(life: Life, now: datetime) -> Facts:
    """Return all that there is to tell of an Attempt, as of `now`."""
    document = life.document
    metadata, spec, status = document["metadata"], document["spec"], document["status"]
    owner = metadata["ownerReferences"][0]
    facts: Facts = {
        "attempt": metadata["name"],
        "project": metadata["namespace"],
        "owner": f"{owner['kind'].lower()}/{owner['name']}",
        "slot": spec["slot"],
        "epoch": spec["epoch"],
        "phase": status["phase"],
        "stage": status["progress"]["stage"],
        "archived": life.archived,
    }
    if "gang" in spec:
        facts["gang"] = spec["gang"]
    if "restoreFrom" in spec:
        facts["restoreFrom"] = spec["restoreFrom"]
    of_now = {
        "waiting": _waiting(life, now),
        "doing": _doing(life),
        "silence": silence_of(life, now),
    }
    facts |= {name: told for name, told in of_now.items() if told}
    if "placement" in status:
        facts["placement"] = _placement(status, life.decision)
    facts["timings"] = status["timings"]
    if "actual" in status:
        facts["cost"] = cost_of(life.ledger)
    if "checkpoints" in status:
        facts["checkpoints"] = status["checkpoints"]
        facts |= last_checkpoint(life)
    if end := _end(life, facts):
        facts["end"] = end
    if "supersededBy" in status:
        facts["supersededBy"] = status["supersededBy"]
    return facts


def cost_of(ledger: Sequence[LedgerRow]) -> Facts:
    """Return what the project pays and what Nodus pays, in sum and by segment (SC-520, SC-523)."""
    charged, covered = _by_segment(ledger, covered=False), _by_segment(ledger, covered=True)
    return {
        "chargedUSD": format_usd(sum(charged.values(), ZERO)),
        "coveredUSD": format_usd(sum(covered.values(), ZERO)),
        "charged": {name: format_usd(usd) for name, usd in charged.items()},
        "covered": {name: format_usd(usd) for name, usd in covered.items()},
    }


def total_of(candidate: Mapping[str, Any]) -> str:
    """Return a kept candidate's total of millionths as a decimal with 6 digits (SC-323)."""
    return f"{Decimal(candidate['total']) / 1_000_000:.6f}"


def weights_of(profile: str) -> dict[str, str]:
    """Return the weights of a profile by the score's name (SC-323)."""
    return {
        name: f"{weight:.2f}" for name, weight in zip(NAMES, WEIGHTS[Profile(profile)], strict=True)
    }


def _by_segment(ledger: Sequence[LedgerRow], *, covered: bool) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for row in ledger:
        if row.covered is covered:
            found[row.segment] = found.get(row.segment, ZERO) + row.usd
    return found


def _waiting(life: Life, now: datetime) -> Facts | None:
    """Return what a queued Attempt waits for, since when, and when it is tried again (SC-009a)."""
    metadata, status = life.document["metadata"], life.document["status"]
    if status["phase"] != "Queued":
        return None
    annotations = metadata.get("annotations", {})
    queued = status["timings"]["queuedTime"]
    waiting: Facts = {
        "for": annotations.get(WAITING_FOR, "Loop"),
        "message": annotations.get(WAITING_MESSAGE, ""),
        "queuedTime": queued,
        "queuedSeconds": max(0, (now - parse_time(queued)) // timedelta(seconds=1)),
    }
    if life.next_try is not None:
        waiting["nextTryTime"] = format_time(life.next_try)
    if life.start_deadline is not None:
        waiting["startDeadlineTime"] = format_time(life.start_deadline)
    return waiting


def _doing(life: Life) -> str | None:
    """Return what goes on with an Attempt that holds a machine, or asks for one."""
    status = life.document["status"]
    timings, stage = status["timings"], status["progress"]["stage"]
    if life.drain_cause is not None and stage in ("Acquiring", "Starting", "Running"):
        trigger, reason, *_ = life.drain_cause.split("/")
        return f"It is being stopped and will end as {reason}" + (
            f" ({trigger})." if trigger else "."
        )
    match stage:
        case "Acquiring":
            asked = timings["acquiredTime"]
            return f"Capacity was asked for at {asked} and is not granted yet."
        case "Starting" if "registeredTime" in timings:
            return (
                f"Its machine registered at {timings['registeredTime']};"
                " the program has not started yet."
            )
        case "Starting":
            granted = timings["billingStartTime"]
            return f"Its machine was granted at {granted} and has not registered yet."
        case "Running":
            return f"Its program has run since {timings['commandStartedTime']}."
        case _:
            return None


def _end(life: Life, facts: Facts) -> Facts | None:
    """Return how it ended, with what to do about it."""
    missed = facts.get("placement", {}).get("sentence")
    release = None
    if life.circumstances is not None:
        release = release_of(life.document, life.circumstances, life.slot_state)
    end = ended(
        life.document["status"], facts.get("cost"), missed, release=release, said=life.last_words
    )
    if end and "reason" in end:
        end["remedy"] = remedy_of(life, release)
        end["final"] = not awaited(life)
    return end


def _placement(status: Mapping[str, Any], decision: KeptDecision | None) -> Facts:
    """Return the decision that stands: its winner, who came next, and who was ruled out."""
    shown = status["placement"]
    placement: Facts = {
        "profile": shown["profile"],
        "weights": weights_of(shown["profile"]),
        "candidates": shown["candidates"],
    }
    if decision is not None:
        placement["decision"] = decision.n
        placement["decidedTime"] = format_time(decision.at)
    if "offering" in shown:
        placement["chosen"] = _chosen(shown, decision)
        placement["runnersUp"] = [_ranked(one) for one in decision.top[1:]] if decision else []
        placement["fallbacks"] = shown["explain"].get("fallbacks", [])
        placement["predicted"] = status["predicted"]
    placement["rejected"] = _rejected(shown["explain"]["rejected"], decision)
    if decision is not None:
        placement["counters"] = decision.told["reasons"]
        if decision.told["relaxed"]:
            placement["relaxed"] = True
        if decision.told["sentence"]:
            placement["sentence"] = decision.told["sentence"]
    return placement


def _chosen(shown: Mapping[str, Any], decision: KeptDecision | None) -> Facts:
    chosen: Facts = {
        "offering": shown["offering"],
        "market": "spot" if shown["interruptible"] else "on-demand",
        "regionClass": shown["regionClass"],
        "rateUSDPerHour": shown["rateUSDPerHour"],
        "scores": shown["explain"]["scores"],
    }
    if decision is not None and decision.top:
        chosen["total"] = total_of(decision.top[0])
    if shown.get("hedged"):
        chosen["hedged"] = True
    if shown.get("warmReuse"):
        chosen["warmReuse"] = True
    return chosen


def _ranked(candidate: Mapping[str, Any]) -> Facts:
    return {
        "offering": candidate["offering"],
        "market": candidate["market"],
        "rateUSDPerHour": format_rate(Decimal(candidate["rateUSDPerHour"])),
        "scores": {name: candidate["scores"][name] for name in NAMES},
        "total": total_of(candidate),
    }


def _rejected(
    shown: Sequence[Mapping[str, Any]], decision: KeptDecision | None
) -> list[dict[str, str]]:
    """Return the rejected classes, each with the sentence of its moment (SC-009b, SC-332)."""
    kept = {} if decision is None else {one["offering"]: one for one in decision.told["classes"]}
    rejected = []
    for one in shown:
        name, reason = one["offeringClass"], one["reason"]
        told = kept.get(name)
        message = told["message"] if told else f"{name}: {meaning_of(reason)}"
        rejected.append({"offering": name, "reason": reason, "message": message})
    return rejected


def meaning_of(code: str) -> str:
    """Return what a code of an end or of a rejection means; the code where it is not known."""
    known = REJECTIONS.get(code) or REASONS.get(code)
    return code if known is None else known.when
