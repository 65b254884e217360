"""A state of before from the history: what is walked, and how long one step holds the loop."""

import asyncio
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from tests.watchcache.test_snapshot import NOTHING

from nodus_api.clock import SystemClock
from nodus_api.tasks import end, spawn
from nodus_api.watchcache import undo
from nodus_api.watchcache.entry import Entry
from nodus_api.watchcache.history import Event
from nodus_api.watchcache.snapshot import CHUNK, ScopeSnapshot, SortedEntries
from nodus_api.watchcache.undo import undone


class Hurrying(SystemClock):
    """A clock on which a millisecond passes from one look to the next."""

    def __init__(self) -> None:
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.looks / 1000


def made(number: int, rev: int) -> Entry:
    name = f"n{number:06}"
    return Entry(
        project="p", name=name, uid=UUID(int=number), rev=rev, selection=NOTHING, body=b"{}"
    )


def changed(before: Entry, rev: int) -> Event:
    return Event(
        rev=rev,
        kind="M",
        uid=before.uid,
        project=before.project,
        name=before.name,
        selection=NOTHING,
        body=b"{}",
        prev_rev=before.rev,
        prev_selection=NOTHING,
        prev_body=before.body,
    )


async def test_others_run_while_many_changes_are_undone() -> None:
    """storage.md section 6: a yield every 3 ms, here three looks at the clock."""
    count = 20_000
    first = [made(number, number) for number in range(count)]
    present, events = list(first), list[Event]()
    for rev in range(count, 3 * count):
        number = rev * 7919 % 15_013  # spread, and some never
        events.append(changed(present[number], rev))
        present[number] = made(number, rev)
    now = ScopeSnapshot(3 * count, (("p", SortedEntries.of(present)),))
    ran = 0

    async def others() -> None:
        nonlocal ran
        while True:
            ran += 1
            await asyncio.sleep(0)

    other = spawn("others", others())
    clock = Hurrying()
    before = await undone(now, events, count - 1, clock)
    await end(other)

    assert [one.rev for piece in before.pieces() for one in piece] == [one.rev for one in first]
    changed_ones = len({event.uid for event in events})
    steps = (len(events) + 2 * changed_ones) // undo._STEP + count // CHUNK
    assert clock.looks >= steps  # no more than so many events, or one chunk, between two looks
    assert ran >= steps // 3  # and whoever looks after 3 ms gives way


@given(
    st.lists(st.integers(0, 700), unique=True),
    st.dictionaries(st.integers(0, 700), st.booleans(), max_size=60),
)
def test_an_edited_order_is_that_of_an_edited_dict(
    before: list[int], edits: dict[int, bool]
) -> None:
    model = {f"n{number:06}": made(number, 1) for number in before}
    order = SortedEntries.of(model.values())
    changes = {f"n{n:06}": made(n, 2) if there else None for n, there in edits.items()}
    *between, edited = order.edited(changes)
    for name, entry in changes.items():
        model.pop(name, None)
        if entry is not None:
            model[name] = entry

    assert edited is not None
    assert all(one is None for one in between)
    assert [one for piece in edited.pieces() for one in piece] == [
        model[name] for name in sorted(model)
    ]
    assert edited.size == len(model)
    assert max((len(piece) for piece in edited.pieces()), default=0) <= CHUNK


def test_an_edit_makes_only_the_chunks_anew_that_it_touches() -> None:
    order = SortedEntries.of(made(number, 1) for number in range(2000))
    pieces = list(order.pieces())
    *_, edited = order.edited({"n000000": None, "n001000": made(1000, 2)})

    assert edited is not None
    kept = [piece for piece in edited.pieces() if any(piece is was for was in pieces)]
    assert len(kept) == len(pieces) - 2
