"""The order of entries, against a sorted dict."""

from random import Random
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from nodus_api.watchcache.entry import Entry, Selection
from nodus_api.watchcache.snapshot import CHUNK, ScopeSnapshot, SortedEntries

NOTHING = Selection({}, {})


def entry(name: str, project: str = "p", rev: int = 1) -> Entry:
    return Entry(
        project=project, name=name, uid=UUID(int=1), rev=rev, selection=NOTHING, body=b"{}"
    )


def listed(order: SortedEntries, start: str = "") -> list[str]:
    return [one.name for piece in order.pieces(start) for one in piece]


names = st.text("abcdefgh-.", min_size=1, max_size=3)


edits = st.dictionaries(names, st.none() | st.integers(0, 9), max_size=60)


@given(st.lists(edits, max_size=6), names)
def test_an_order_is_that_of_a_sorted_dict(
    batches: list[dict[str, int | None]], start: str
) -> None:  # LW-106
    order, model = SortedEntries(), dict[str, int]()
    for batch in batches:
        order = order.with_edits(
            {name: None if rev is None else entry(name, rev=rev) for name, rev in batch.items()}
        )
        model |= {name: rev for name, rev in batch.items() if rev is not None}
        model = {name: rev for name, rev in model.items() if batch.get(name, rev) is not None}

        assert listed(order) == sorted(model)
        assert order.size == len(model)
        assert listed(order, start) == sorted(name for name in model if name >= start)
        assert order.rank(start) == sum(name < start for name in model)
        assert {name: found.rev for name in model if (found := order.get(name))} == model
    assert listed(SortedEntries.of(map(entry, model))) == sorted(model)  # in any order before


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 400))
def test_an_order_of_many_chunks_is_that_of_a_sorted_dict(seed: int, at_once: int) -> None:
    chance = Random(seed)  # noqa: S311
    order, model = SortedEntries(), dict[str, int]()
    for rev in range(2000 // at_once):
        new = {f"n{chance.randrange(1500):04}": chance.random() < 0.6 for _ in range(at_once)}
        order = order.with_edits(
            {name: entry(name, rev=rev) if there else None for name, there in new.items()}
        )
        model |= dict.fromkeys(new, rev)
        model = {name: rev for name, rev in model.items() if new.get(name, True)}

        assert listed(order) == sorted(model)
        assert order.size == len(model)
        assert max(map(len, order.pieces()), default=0) <= CHUNK
        start = f"n{chance.randrange(1500):04}"
        assert order.rank(start) == sum(name < start for name in model)
        found = {name: order.get(name) for name in new}
        assert {name: one and one.rev for name, one in found.items()} == {
            name: model.get(name) for name in new
        }


def test_chunks_stay_within_their_bound_while_they_grow_and_shrink() -> None:
    order = SortedEntries.of(entry(f"n{number:05}") for number in range(2000))
    for number in range(3000):
        name = f"n{number % 700:05}-x{number}"
        order = order.with_edits({name: entry(name)})
    assert max(len(piece) for piece in order.pieces()) <= CHUNK
    for name in listed(order)[10:]:
        order = order.with_edits({name: None})

    assert order.size == 10
    assert len(list(order.pieces())) <= 2


def test_a_snapshot_is_not_moved_by_later_changes() -> None:
    before = SortedEntries.of([entry("a"), entry("b")])
    after = before.with_edits({"a": None, "c": entry("c")})

    assert (listed(before), listed(after)) == (["a", "b"], ["b", "c"])


def test_a_page_of_all_projects_begins_after_its_key() -> None:
    parts = tuple(
        (project, SortedEntries.of(entry(name, project) for name in "abc")) for project in "pqr"
    )
    snapshot = ScopeSnapshot(7, parts)

    found = [(e.project, e.name) for piece in snapshot.pieces(("q", "b\0")) for e in piece]

    assert found == [("q", "c"), ("r", "a"), ("r", "b"), ("r", "c")]
    assert snapshot.after(entry("b", "q")) == 4  # LW-111
    assert [e.project for e in snapshot.named("b")] == ["p", "q", "r"]  # LW-100
