"""H-19: what a failover lost is told to nobody afterwards, and what it kept goes on.

The rows of a lost commit are not in the log. Its numbers lie between the last revision that was
kept (prev_last) and the marker of the next epoch, and name nothing there ever again.
"""

from collections.abc import Iterator
from dataclasses import replace

from tests.history.facts import Answer, Finding, History, Stream
from tests.history.knowledge import Knowledge
from tests.history.scope import scope_of
from tests.history.truth import EPOCH_BITS, Truth


def kept(history: History, truth: Truth) -> History:
    """Return the history without what was told of lost commits, which no log can confirm."""
    if not truth.lost:
        return history
    answers = tuple(
        one
        for one in history.answers
        if one.status != 200
        or one.accept
        or not any(map(truth.loss_of, (int(one.version or 0), *_told(one))))
    )
    return replace(
        history,
        heads=tuple(head for head in history.heads if not truth.loss_of(head.rev)),
        answers=answers,
        streams=tuple(
            replace(
                stream,
                events=tuple(one for one in stream.events if not truth.loss_of(one.rev)),
            )
            for stream in history.streams
            if stream.wants_state or not truth.loss_of(int(stream.version or 0))
        ),
    )


def _told(answer: Answer) -> Iterator[int]:
    if "items" in answer.decoded:
        yield answer.version_told
    for item in answer.items:
        yield item.rev


def ended(history: History, truth: Truth) -> Iterator[Finding]:
    """H-19: a stream that stood at a lost revision is told nothing of the epoch after it.

    One that was open ends cleanly at the marker; one that asks for it afterwards gets 410.
    """
    for stream in history.streams:
        if scope_of(stream) is None or stream.status != 200:
            continue
        start = 0 if stream.wants_state else int(stream.version or 0)
        yield from _crossed(stream, truth, start)


def _crossed(stream: Stream, truth: Truth, position: int) -> Iterator[Finding]:
    for event in stream.events:
        gap = truth.loss_of(position)
        if gap is not None and not event.code and event.rev >= gap[1]:
            yield Finding(
                rule="H-19",
                where=str(stream),
                said=f"{position} was lost: {gap[0]} was kept, and then {gap[1]} began",
                but=f"the stream goes on with {event}",
            )
            return
        position = event.rev or position


def of_lost(history: History, truth: Truth) -> Iterator[Finding]:
    """H-19: once an epoch is known, no answer and no exact read is of a revision it lost."""
    known = Knowledge(kept(history, truth))
    for answer in history.answers:
        if scope_of(answer) is None or answer.status != 200 or answer.accept:
            continue
        for rev in _told(answer):
            gap = truth.loss_of(rev)
            if gap is not None and known.at(answer.asked) >= gap[1]:
                yield Finding(
                    rule="H-19",
                    where=str(answer),
                    said=f"{gap[1]} had begun, after {gap[0]}",
                    but=f"the answer tells {rev}",
                )
                break


def unique(history: History, _: Truth) -> Iterator[Finding]:
    """H-19: one number names one object, before a failover and after it."""
    named = {row.rev: (row.uid, "the log") for row in history.log if row.uid}
    told = [
        (str(stream), event.rev, event.uid)
        for stream in history.streams
        for event in stream.changes
    ]
    told += [
        (str(answer), item.rev, item.uid)
        for answer in history.answers
        if scope_of(answer) is not None and answer.status == 200 and not answer.accept
        for item in answer.items
    ]
    for where, rev, uid in told:
        first, said = named.setdefault(rev, (uid, where))
        if first != uid:
            yield Finding(
                rule="H-19", where=where, said=f"{rev} is {first}: {said}", but=f"here it is {uid}"
            )


def of_later_epochs(history: History, truth: Truth) -> Iterator[Finding]:
    """H-19: a read that names a revision of an epoch that never was is 504, or not now."""
    newest = truth.head >> EPOCH_BITS
    for answer in history.answers:
        if scope_of(answer) is None or not answer.version.isdigit() or answer.exact:
            continue
        later = int(answer.version) >> EPOCH_BITS > newest
        if later and answer.status not in (429, 503, 504):
            yield Finding(
                rule="H-19",
                where=str(answer),
                said=f"the newest epoch is {newest}",
                but=f"the answer to {answer.version} is {answer.status}",
            )
