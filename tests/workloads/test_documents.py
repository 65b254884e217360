"""A manifest's text as documents."""

import itertools

import pytest

from nodus_api.workloads.documents import LARGEST_MANIFEST, ManifestError, read_documents


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("a: 1", [{"a": 1}]),
        ('{"a": 1}', [{"a": 1}]),
        ('{"a": "\\u00e9",\n\t"b": [true]}', [{"a": "é", "b": [True]}]),
        ("{a: 1}", [{"a": 1}]),
        ("a: 1\n---\nb: 2", [{"a": 1}, {"b": 2}]),
        ("---\n---\na: 1\n---\n# nothing\n", [{"a": 1}]),
        ("base: &b {x: 1}\nmore: {<<: *b, x: 2}", [{"base": {"x": 1}, "more": {"x": 2}}]),
    ],
)
def test_yaml_and_json_one_and_several(text: str, documents: list[object]) -> None:  # SC-801
    assert read_documents(text) == documents


EMPTY = "the manifest is empty: write a document with apiVersion, kind, metadata and spec"
TWICE = "leave one of them out"


_MULTIPLIED = "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in itertools.pairwise("abcdefghijk")
)
_MERGED = "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, name in itertools.pairwise("abcdefghijk")
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", EMPTY),
        ("# only a comment\n---\n", EMPTY),
        ("null", EMPTY),
        ("a: 1\nb: 2\na: 3", f"the manifest has the key 'a' twice at line 3, column 1: {TWICE}"),
        ("a: {b: 1, b: 2}", f"the manifest has the key 'b' twice at line 1, column 11: {TWICE}"),
        ('{"a": {"b": 1, "b": 2}}', f"the manifest has the key 'b' twice: {TWICE}"),
        ("a: b: c", "the manifest is not YAML at line 1, column 5 (mapping values"),
        ("a: [", "the manifest is not YAML at line 1, column 5 (expected the node content"),
        ('{"a": 1]', "the manifest is not YAML at line 1, column 8"),
        ("? [a]\n: b\n? {c: d}\n: e", "the manifest is not YAML at line 1, column 3 (found unhash"),
        ("a: \x00", "the manifest is not YAML (unacceptable character"),
        ("a: !!python/object:os.system {}", "(could not determine a constructor"),
        ("[" * 100_000, "the manifest cannot be read (maximum recursion depth exceeded"),
        ("a: 2026-13-45", "the manifest is not YAML at line 1, column 4 (this is no timestamp)"),
        ("a: !!bool abc", "the manifest is not YAML at line 1, column 4 (this is no bool)"),
        (
            "a: !!timestamp abc",
            "the manifest is not YAML at line 1, column 4 (this is no timestamp",
        ),
        ('a: !!int ""', "the manifest is not YAML at line 1, column 4 (this is no int)"),
        ("a: " + "9" * 5000, "the manifest is not YAML at line 1, column 4 (this is no int)"),
        ("a: &a [*a]", "the manifest is not YAML at line 1, column 4 (a value holds itself)"),
        (f"a: &a {[1] * 9}\n" + _MULTIPLIED, "its aliases stand for more than 1000000 values"),
        ("a: &a {k: 1}\n" + _MERGED, "its aliases stand for more than 1000000 values"),
        (
            "a" * (LARGEST_MANIFEST + 1),
            "the manifest has 1000001 characters, more than 1000000: submit it in parts",
        ),
    ],
)
def test_what_is_no_manifest_gets_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ManifestError) as refused:
        read_documents(text)

    assert sentence in refused.value.sentence
    assert "\n" not in refused.value.sentence


def test_what_a_terminal_obeys_is_shown_escaped() -> None:
    with pytest.raises(ManifestError) as refused:
        read_documents('"\\e[2J": 1\n"\\e[2J": 2')

    assert refused.value.sentence.isprintable()
    assert "\\x1b[2J" in refused.value.sentence
