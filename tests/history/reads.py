"""H-14, H-16, H-17: what a read that names a revision may be answered with."""

from collections.abc import Iterator
from dataclasses import replace

from tests.history.facts import Answer, Finding, History
from tests.history.knowledge import Knowledge
from tests.history.lists import compared, fetched, listed
from tests.history.scope import Scope, scope_of
from tests.history.truth import EPOCH_BITS, Truth

_TOO_LARGE = "ResourceVersionTooLarge"
_REFUSED = (400, 401, 403, 422, 429, 503)  # nothing is told of the revision


def not_older(history: History, truth: Truth) -> Iterator[Finding]:
    """H-14: a read that names r without Exact is not older than r."""
    for answer, scope in (*listed(history), *fetched(history)):
        if not answer.version or answer.exact or answer.goes_on:
            continue
        yield from _older(answer, scope, truth, int(answer.version), "was asked for, or newer")


def monotone(history: History, truth: Truth) -> Iterator[Finding]:
    """H-14: a client that saw r gets nothing older when it asks for the newest."""
    reads = [one for one in (*listed(history), *fetched(history)) if not one[0].version]
    for client in {answer.client for answer, _ in reads}:
        own = Knowledge(
            replace(
                history,
                heads=(),
                streams=tuple(one for one in history.streams if one.client == client),
                answers=tuple(one for one in history.answers if one.client == client),
            )
        )
        for answer, scope in reads:
            if answer.client == client and not answer.goes_on:
                seen = own.at(answer.asked)
                yield from _older(answer, scope, truth, seen, f"was what {client} had")


def _older(answer: Answer, scope: Scope, truth: Truth, floor: int, why: str) -> Iterator[Finding]:
    """Give what is older than the state at `floor`: a list, or the object of a get."""
    if scope.name is None:
        older = answer.version_told < floor
        told = str(answer.version_told)
    else:
        (item,) = answer.items
        (newest,) = truth.listed(scope, floor) or (None,)
        older = newest is not None and item.rev < newest.rev
        told = str(item)
    if older:
        yield Finding(rule="H-14", where=str(answer), said=f"{floor} {why}", but=f"it is {told}")


def exact(history: History, truth: Truth) -> Iterator[Finding]:
    """H-16: an exact list is state(r), with r as its version, or 410; H-17: or 504 ahead of r."""
    for answer in history.answers:
        scope = scope_of(answer)
        if scope is None or not answer.exact or answer.goes_on:
            continue
        rev = int(answer.version)
        if answer.status not in (200, 410, 504, *_REFUSED):
            yield _wrong(answer, "H-16", f"{rev} was asked for exactly", f"is {answer.status}")
        elif answer.status != 200 or answer.accept:
            continue
        elif answer.version_told != rev:
            yield _wrong(
                answer, "H-16", f"{rev} was asked for exactly", f"is at {answer.version_told}"
            )
        else:
            due = truth.listed(scope, rev)
            page = due[: len(answer.items)] if answer.continues else due
            yield from compared("H-16", str(answer), rev, page, answer.items)


def future(history: History, truth: Truth) -> Iterator[Finding]:
    """H-17: a read of a revision that was not there yet is 504, with its cause; never an answer.

    It was not there if Postgres had an older head after the answer, or has one at the end.
    """
    for answer in history.answers:
        if scope_of(answer) is None or not answer.version.isdigit() or answer.goes_on:
            continue
        rev = int(answer.version)
        later = [head.rev for head in history.heads if head.asked >= answer.answered]
        head = min((*later, truth.head))
        if rev <= head or answer.status in _REFUSED or truth.loss_of(rev):
            continue
        if answer.exact and answer.status == 410 and rev >> EPOCH_BITS > head >> EPOCH_BITS:
            continue
        causes = () if answer.status == 200 else answer.decoded.get("details", {}).get("causes", ())
        if answer.status != 504 or all(cause["reason"] != _TOO_LARGE for cause in causes):
            yield _wrong(
                answer, "H-17", f"the head was {head} afterwards", f"to {rev} is {answer.status}"
            )


def _wrong(answer: Answer, rule: str, said: str, but: str) -> Finding:
    return Finding(rule=rule, where=str(answer), said=said, but=f"the answer {but}")
