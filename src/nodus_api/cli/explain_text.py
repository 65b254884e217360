"""The text of `nodus explain`, made of its facts: plain lines, a table of scores (pure)."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from nodus_api.cli.ending import fault_sentence
from nodus_api.cli.saved import at_cursor, saved_line
from nodus_api.cli.silence import silence_lines
from nodus_api.cli.tabular import render_table
from nodus_api.kernel.scores import NAMES
from nodus_api.metav1.table import age

Facts = Mapping[str, Any]


def explain_text(facts: Facts) -> str:
    """Return the whole explanation, a paragraph for each question."""
    paragraphs = [
        _head(facts),
        _waiting(facts.get("waiting")),
        f"{facts['doing']}\n" if "doing" in facts else "",
        _lines([*silence_lines(facts["silence"])]) if "silence" in facts else "",
        saved_line(facts.get("lastCheckpoint"), facts["stage"]),
        _placement(facts.get("placement"), facts),
        _rejected(facts.get("placement")),
        _end(facts),
    ]
    return "\n".join(one for one in paragraphs if one)


def _head(facts: Facts) -> str:
    stage = facts["stage"]
    phase = facts["phase"] if facts["phase"] == stage else f"{facts['phase']} ({stage})"
    lines = [f"{facts['attempt']}  {phase}"]
    what = f"  {facts['owner']}, slot {facts['slot']}, epoch {facts['epoch']}"
    if "gang" in facts:
        gang = facts["gang"]
        what += f", rank {gang['rank']} of a gang of {gang['size']}"
    if "restoreFrom" in facts:
        point = facts["restoreFrom"]
        what += f", goes on from checkpoint {point['seq']}{at_cursor(point.get('cursor'))}"
    lines.append(what + (", archived" if facts["archived"] else ""))
    return _lines(lines)


def _waiting(waiting: Facts | None) -> str:
    if waiting is None:
        return ""
    lines = [f"Waits for {waiting['for']}: {waiting['message'] or 'no reason was given'}."]
    since = age(timedelta(seconds=waiting["queuedSeconds"]))
    lines.append(f"  queued since {waiting['queuedTime']} ({since})")
    if "nextTryTime" in waiting:
        lines.append(f"  next try at {waiting['nextTryTime']}")
    if "startDeadlineTime" in waiting:
        lines.append(f"  given up at {waiting['startDeadlineTime']} (startDeadlineSeconds)")
    return _lines(lines)


def _placement(placement: Facts | None, facts: Facts) -> str:
    if placement is None:
        queued = facts["phase"] == "Queued"
        return "It has not been placed yet: no decision was made.\n" if queued else ""
    when = f" at {placement['decidedTime']}" if "decidedTime" in placement else ""
    tries = f", decision {placement['decision']}" if placement.get("decision", 1) > 1 else ""
    decided = f"Decided{when} by profile {placement['profile']}{tries}"
    candidates = placement["candidates"]
    evaluated = f"{candidates} {'candidate' if candidates == 1 else 'candidates'} evaluated"
    if "chosen" not in placement:
        return f"{decided}, {evaluated}, none taken.\n"
    chosen = placement["chosen"]
    lines = [
        f"{decided}: {chosen['offering']} ({chosen['market']}, {chosen['regionClass']}),"
        f" {chosen['rateUSDPerHour']} USD per hour.",
        f"  {evaluated}; {_extras(chosen)}predicted {placement['predicted']['hours']} h,"
        f" {placement['predicted']['costUSD']} USD",
    ]
    text = _lines(lines) + _indented(_scores(placement))
    if "relaxed" in placement:
        text += (
            "  only classes were left that are avoided otherwise, lost lately or unhealthy: one of"
            " them was taken all the same\n"
        )
    if placement["fallbacks"]:
        text += f"  fallbacks: {', '.join(placement['fallbacks'])}\n"
    return text


def _extras(chosen: Facts) -> str:
    extras = ["hedged"] * ("hedged" in chosen) + ["a warm machine"] * ("warmReuse" in chosen)
    return "".join(f"{one}; " for one in extras)


def _scores(placement: Facts) -> str:
    """The winner's scores, those of the runner-ups, and the weights that add them up."""
    headings = ["", "CLASS", "MARKET", "RATE", *(name.upper() for name in NAMES), "TOTAL"]
    rows = [_row("chosen", placement["chosen"])]
    rows += [_row(str(n), one) for n, one in enumerate(placement["runnersUp"], start=2)]
    weights = placement["weights"]
    rows.append(["", "weights", "", "", *(weights[name] for name in NAMES), "1"])
    return render_table(headings, rows, right=headings[3:])


def _row(place: str, one: Facts) -> list[str]:
    scores = [one["scores"].get(name, "") for name in NAMES]
    return [
        place,
        one["offering"],
        one["market"],
        one["rateUSDPerHour"],
        *scores,
        one.get("total", ""),
    ]


def _rejected(placement: Facts | None) -> str:
    if placement is None or not (placement["rejected"] or placement.get("counters")):
        return ""
    lines = []
    if placement["rejected"]:
        lines.append("Ruled out:")
        lines += [f"  {one['message']}  [{one['reason']}]" for one in placement["rejected"]]
    if counters := placement.get("counters"):
        counted = ", ".join(f"{code} {number}" for code, number in counters.items())
        lines.append(f"Candidates by reason: {counted}")
    return _lines(lines)


def _end(facts: Facts) -> str:
    end = facts.get("end")
    if end is None:
        if "cost" not in facts:
            return ""
        cost = facts["cost"]
        covered = f", {cost['coveredUSD']} covered by Nodus" if cost["covered"] else ""
        return f"So far it costs {cost['chargedUSD']} USD{covered}.\n"
    lines = [f"Ended at {end['time']}. {end['sentence']}"]
    lines += [f"  {line}" for line in _consequences(facts, end)]
    return _lines(lines)


def _consequences(facts: Facts, end: Facts) -> Iterator[str]:
    if "fault" in end:
        yield fault_sentence(end["fault"])
    if "bill" in end:
        yield end["bill"]
    if "lostSeconds" in end:
        saved = facts.get("checkpoints", {}).get("count", 0)
        since = "since its last checkpoint" if saved else "with no checkpoint of its own"
        yield f"Lost work: {end['lostSeconds']} s {since}."
    if "supersededBy" in facts:
        recovered = ""
        if "recoverySeconds" in end:
            recovered = f"; the program ran again after {end['recoverySeconds']} s"
        yield f"Replaced by {facts['supersededBy']}{recovered}."
    elif facts["phase"] != "Succeeded":
        yield "Nothing replaced it." if end.get("final", True) else "Nothing has replaced it yet."
        if "remedy" in end:
            yield f"What to do: {end['remedy']}"
    if "deletionProvenTime" in facts["timings"]:
        yield f"Its machine was proven gone at {facts['timings']['deletionProvenTime']}."
    elif "billingStartTime" in facts["timings"]:
        yield "Its machine is not proven gone yet: the bill may still grow by teardown."


def _lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())
