"""H-12, H-13, H-15: a list is one state, a fresh one, and its pages are one list."""

from collections.abc import Iterator, Sequence

from tests.history.facts import Answer, Finding, History, Item
from tests.history.knowledge import Knowledge
from tests.history.scope import Scope, scope_of
from tests.history.truth import Truth, Version


def listed(history: History) -> Iterator[tuple[Answer, Scope]]:
    """Give the lists of whole objects that were answered, with what they select."""
    for answer in history.answers:
        scope = scope_of(answer)
        if scope is not None and scope.name is None and answer.status == 200 and not answer.accept:
            yield answer, scope


def fetched(history: History) -> Iterator[tuple[Answer, Scope]]:
    """Give the gets of whole objects that were answered, with what they select."""
    for answer in history.answers:
        scope = scope_of(answer)
        if scope is not None and scope.name and answer.status == 200 and not answer.accept:
            yield answer, scope


def is_state(history: History, truth: Truth) -> Iterator[Finding]:
    """H-12: a whole list at r is state(r)∩S by project and name."""
    for answer, scope in listed(history):
        if answer.continues or answer.goes_on:
            continue
        due = truth.listed(scope, answer.version_told)
        yield from compared("H-12", str(answer), answer.version_told, due, answer.items)


def compared(
    rule: str, where: str, rev: int, due: Sequence[Version], items: Sequence[Item]
) -> Iterator[Finding]:
    """Compare a list with a state: the objects, their bytes, then their order."""
    left = {one.key: one for one in due}
    for item in items:
        version = left.pop(item.key, None)
        if version is None or version.body != item.body:
            has = f"{version}: {version.body!r}" if version else "no such version, or once"
            yield _unequal(rule, where, rev, has, f"{item}: {item.body!r}" if version else item)
    for missing in left.values():
        yield _unequal(rule, where, rev, str(missing), "it not")
    if not left and len(items) == len(due):
        for item, version in zip(items, due, strict=True):
            if item.uid != version.row.uid:
                yield _unequal(rule, where, rev, f"{version} at this place", item)
                break


def _unequal(rule: str, where: str, rev: int, said: object, but: object) -> Finding:
    return Finding(
        rule=rule, where=where, said=f"the state at {rev} has {said}", but=f"the list has {but}"
    )


def fresh(history: History, _: Truth) -> Iterator[Finding]:
    """H-13: a list without a version is not older than what was known when it was asked for.

    By anybody: of any client, on any replica.
    """
    known = Knowledge(history)
    for answer, _scope in listed(history):
        floor = known.at(answer.asked)
        if not answer.version and not answer.goes_on and answer.version_told < floor:
            yield Finding(
                rule="H-13",
                where=str(answer),
                said=f"{floor} was known when the list was asked for",
                but=f"it is at {answer.version_told}",
            )


def fresh_gets(history: History, truth: Truth) -> Iterator[Finding]:
    """H-13: a get without a version gives the version of then, or a later one."""
    known = Knowledge(history)
    for answer, scope in fetched(history):
        (item,) = answer.items
        (newest,) = truth.listed(scope, known.at(answer.asked)) or (None,)
        if not answer.version and newest is not None and item.rev < newest.rev:
            yield Finding(
                rule="H-13",
                where=str(answer),
                said=f"{newest} was known when it was asked for",
                but=f"the answer is {item}",
            )


def found(history: History, truth: Truth) -> Iterator[Finding]:
    """H-13: what was known, and never went, is found by a get without a version."""
    known = Knowledge(history)
    for answer in history.answers:
        scope = scope_of(answer)
        if answer.status != 404 or scope is None or not scope.name or answer.version:
            continue
        for newest in truth.listed(scope, known.at(answer.asked)):
            if newest.row.uid in truth.state(truth.head):
                yield Finding(
                    rule="H-13",
                    where=str(answer),
                    said=f"{newest} was known when it was asked for, and is there yet",
                    but="the answer is 404",
                )


def paged(history: History, truth: Truth) -> Iterator[Finding]:
    """H-15: pages linked by tokens carry one version, and make up its state, each object once."""
    pages = [(answer, scope) for answer, scope in listed(history)]
    by_token = {
        (answer.client, answer.options["continue"]): answer
        for answer, _ in pages
        if "continue" in answer.options
    }
    for answer, scope in pages:
        if not answer.continues or answer.goes_on:
            continue
        chain = [answer]
        while (following := by_token.get((answer.client, chain[-1].continues))) is not None:
            chain.append(following)
        yield from _one_list(chain, scope, truth)


def _one_list(chain: Sequence[Answer], scope: Scope, truth: Truth) -> Iterator[Finding]:
    first = chain[0]
    rev = first.version_told
    for page in chain[1:]:
        if page.version_told != rev:
            yield Finding(
                rule="H-15",
                where=str(first),
                said=f"the first page is at {rev}",
                but=f"a later one is at {page.version_told}",
            )
    items = [item for page in chain for item in page.items]
    due = truth.listed(scope, rev)
    whole = not chain[-1].continues
    yield from compared("H-15", str(first), rev, due if whole else due[: len(items)], items)
    yield from _remaining(chain, scope, len(due))


def _remaining(chain: Sequence[Answer], scope: Scope, size: int) -> Iterator[Finding]:
    """LW-111: how many are left, told without selectors only."""
    shown = 0
    for page in chain:
        shown += len(page.items)
        told = page.decoded["metadata"].get("remainingItemCount")
        due = size - shown if page.continues and not scope.narrowed else None
        if told != due:
            yield Finding(
                rule="H-15",
                where=str(page),
                said=f"{size - shown} objects are left after this page",
                but=f"remainingItemCount is {told}",
            )
