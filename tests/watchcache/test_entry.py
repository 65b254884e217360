"""Documents get their resourceVersion, and give it up for another."""

import gc
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from tests.watchcache.feed_log import document

from nodus_api.attempts import projection
from nodus_api.watchcache.entry import HEAD, Selections, at_revision, finished

revisions = st.integers(1, 2**62)
DOC = document(UUID(int=1), "p", "n", {"a": '"'}, {}, 7)


def test_the_head_is_that_of_the_projection() -> None:  # architecture.md, Layout
    assert HEAD + b'"' == projection.HEAD


@given(revisions, revisions)
def test_a_document_takes_any_revision(first: int, second: int) -> None:  # LW-133
    assert finished(DOC, first) == projection.splice(DOC, first)
    assert at_revision(finished(DOC, first), second) == finished(DOC, second)


def test_equal_labels_and_equal_fields_are_one_object_while_something_holds_them() -> None:
    selections = Selections()
    first = selections.of('{"labels":{"a":"b"},"fields":{"f":"1"}}')
    second = selections.of('{"labels":{"a":"b"},"fields":{"f":"2"}}')

    assert selections.of('{"labels":{"a":"b"},"fields":{"f":"1"}}') is first
    assert first.labels is second.labels
    assert (first.labels, first.fields, second.fields) == ({"a": "b"}, {"f": "1"}, {"f": "2"})
    del first, second
    for number in range(2000):  # what is recent is few
        selections.of(f'{{"labels":{{}},"fields":{{"f":"{number}"}}}}')
    gc.collect()
    assert len(selections._recent) <= 1024
    assert len(selections._values) <= 1025
