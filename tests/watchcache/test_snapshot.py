"""The order of entries, against a sorted dict."""

from uuid import UUID

from hypothesis import given
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


@given(st.lists(st.tuples(st.booleans(), names), max_size=200), names)
def test_an_order_is_that_of_a_sorted_dict(
    changes: list[tuple[bool, str]], start: str
) -> None:  # LW-106
    order, model = SortedEntries(), dict[str, int]()
    for rev, (put, name) in enumerate(changes):
        if put:
            order, model[name] = order.put(entry(name, rev=rev)), rev
        else:
            order = order.remove(name)
            model.pop(name, None)

    assert listed(order) == sorted(model)
    assert listed(SortedEntries.of(map(entry, model))) == sorted(model)  # in any order before
    assert order.size == len(model)
    assert listed(order, start) == sorted(name for name in model if name >= start)
    assert order.rank(start) == sum(name < start for name in model)
    assert {name: found.rev for name in model if (found := order.get(name))} == model


def test_chunks_stay_within_their_bound_while_they_grow_and_shrink() -> None:
    order = SortedEntries.of(entry(f"n{number:05}") for number in range(2000))
    for number in range(3000):
        order = order.put(entry(f"n{number % 700:05}-x{number}"))
    assert max(len(piece) for piece in order.pieces()) <= CHUNK
    for name in listed(order)[10:]:
        order = order.remove(name)

    assert order.size == 10
    assert len(list(order.pieces())) <= 2


def test_a_snapshot_is_not_moved_by_later_changes() -> None:
    before = SortedEntries.of([entry("a"), entry("b")])
    after = before.remove("a").put(entry("c"))

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
