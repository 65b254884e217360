"""H-07: n Attempts published at once are one step, which nobody sees half of.

A list whose revision the client chose is exempt (H-16 wins), and so are the later pages of a list,
which carry the revision of the first.
"""

from collections.abc import Iterator

from tests.history.facts import Finding, History
from tests.history.knowledge import Knowledge
from tests.history.lists import fetched, listed
from tests.history.streams import served
from tests.history.truth import Truth


def uncut(history: History, truth: Truth) -> Iterator[Finding]:
    """H-07: no list and no bookmark is at a revision strictly inside a commit."""
    told = [
        (str(answer), "the list", answer.version_told)
        for answer, _ in listed(history)
        if not answer.exact and not answer.goes_on
    ]
    for stream, _ in served(history):
        marks = (one for one in stream.events if one.type == "BOOKMARK")
        told += [(str(stream), "a bookmark", mark.rev) for mark in marks]
    for where, what, rev in told:
        end = truth.commit_end(rev)
        if rev < end:
            yield Finding(
                rule="H-07",
                where=where,
                said=f"a commit goes from {rev}, or before, to {end}",
                but=f"{what} is at {rev}",
            )


def whole(history: History, truth: Truth) -> Iterator[Finding]:
    """H-07: who knows of one change of a commit is shown all of it by a read of the newest."""
    known = Knowledge(history)
    for answer, scope in (*listed(history), *fetched(history)):
        told = known.at(answer.asked)
        end = truth.commit_end(told)
        if answer.version or answer.goes_on or end == told:
            continue
        if scope.name is None:
            torn = told <= answer.version_told < end
        else:
            (item,) = answer.items
            before, after = (truth.listed(scope, rev) for rev in (told, end))
            torn = bool(before and after) and before[0].rev <= item.rev < after[0].rev
        if torn:
            yield Finding(
                rule="H-07",
                where=str(answer),
                said=f"{told} was known when it was asked for, of a commit up to {end}",
                but="the answer lacks the rest of that commit",
            )
