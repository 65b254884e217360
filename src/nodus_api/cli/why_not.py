"""`nodus explain ATTEMPT --why-not CLASS`: one sentence about one class (pure).

First the kept decision is asked; a class that it does not list is looked up in the catalog of
now under the kept request, and the answer says so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from nodus_api.cli.explained import meaning_of, total_of
from nodus_api.kernel.explaining import Standing
from nodus_api.kernel.scores import NAMES
from nodus_api.storage.lives import Life

Answer = dict[str, Any]


def kept_answer(life: Life, offering: str) -> Answer | None:
    """Return the answer that the kept decision gives; None if it does not know the class."""
    shown = life.document["status"].get("placement", {})
    if shown.get("offering") == offering:
        return _chosen(life, shown)
    decision = life.decision
    for one in decision.told["classes"] if decision else ():
        if one["offering"] == offering:
            return _answer(life, offering, "RuledOut", _ruled_out(one), reason=one["reason"])
    for place, one in enumerate(decision.top if decision else (), start=1):
        if one["offering"] == offering and decision is not None:
            return _lost(life, decision.top[0], one, f"came {_ordinal(place)}")
    for one in shown.get("explain", {}).get("rejected", ()):
        if one["offeringClass"] == offering:  # an archived Attempt has its document alone
            said = f"{offering} was ruled out ({one['reason']}): {meaning_of(one['reason'])}"
            return _answer(life, offering, "RuledOut", said, reason=one["reason"])
    return None


def answer_of_now(life: Life, offering: str, found: Sequence[Standing]) -> Answer:
    """Return the answer that the catalog of now gives for a class that it has."""
    fit = [one.ranked for one in found if one.ranked is not None]
    if not fit:
        nearest = max(found, key=lambda one: one.code.number if one.code else -1)
        code, message = nearest.code, nearest.message
        reason = code.value if code else ""
        said = f"By the catalog of now, {message} ({reason})."
        return _answer(life, offering, "RuledOut", said, reason=reason, basis="Now")
    best = max(fit, key=lambda one: one.total).to_json()
    top = life.decision.top if life.decision else ()
    if not top:
        said = f"{offering} fits by the catalog of now: the next try may take it."
        return _answer(life, offering, "Fits", said, basis="Now")
    return _lost(life, top[0], best, "is not among the best five, and by the catalog of now")


def compared(winner: Mapping[str, Any], loser: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return both candidates' scores side by side, in the order of the names."""
    return [
        {"score": name, "winner": winner["scores"][name], "class": loser["scores"][name]}
        for name in NAMES
    ]


def _chosen(life: Life, shown: Mapping[str, Any]) -> Answer:
    offering = shown["offering"]
    market = "spot" if shown["interruptible"] else "on-demand"
    said = f"{offering} ({market}) is the class that was chosen."
    return _answer(life, offering, "Chosen", said)


def _ruled_out(one: Mapping[str, Any]) -> str:
    return f"{one['message']}, so it was ruled out ({one['reason']})."


def _lost(life: Life, winner: Mapping[str, Any], loser: Mapping[str, Any], place: str) -> Answer:
    """Tell score by score what a class that fits lost by (SC-323, SC-324)."""
    scores = compared(winner, loser)
    pairs = ", ".join(f"{one['score']} {one['class']} against {one['winner']}" for one in scores)
    now = "catalog of now" in place
    verb = "has" if now else "with"
    said = (
        f"{loser['offering']} ({loser['market']}) fits, but {place} {verb} {total_of(loser)}"
        f" points, and {winner['offering']} ({winner['market']}) had {total_of(winner)}: {pairs}."
    )
    answer = _answer(
        life, loser["offering"], "LostOnPoints", said, basis="Now" if now else "Decision"
    )
    return answer | {
        "market": loser["market"],
        "total": total_of(loser),
        "winnerTotal": total_of(winner),
        "scores": scores,
    }


def _answer(
    life: Life,
    offering: str,
    standing: str,
    sentence: str,
    *,
    reason: str | None = None,
    basis: str = "Decision",
) -> Answer:
    answer: Answer = {
        "attempt": life.document["metadata"]["name"],
        "offering": offering,
        "standing": standing,
        "basis": basis,
        "sentence": sentence,
    }
    return answer if reason is None else answer | {"reason": reason}


def _ordinal(place: int) -> str:
    return {1: "first", 2: "second", 3: "third", 4: "fourth"}.get(place, "fifth")
