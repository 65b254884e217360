"""A manifest's text as plain documents: YAML or JSON, one or several, no key twice."""

import json
from collections.abc import Hashable
from typing import Any

import yaml

LARGEST_MANIFEST = 1_000_000
"""Characters; a manifest says what to run, it does not carry it."""


class ManifestError(Exception):
    """A manifest cannot be taken; the text is one sentence that says what to write instead.

    `document` counts from 1, `field` is the path, such as `spec.template.command[1]`.
    """

    def __init__(
        self, sentence: str, *, document: int | None = None, field: str | None = None
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.document = document
        self.field = field


def read_documents(text: str) -> list[Any]:
    """Return the documents of a manifest in their order, empty ones left out.

    Raises ManifestError if the text is empty, too long, or neither YAML nor JSON, or if a
    mapping has a key twice.
    """
    if len(text) > LARGEST_MANIFEST:
        raise ManifestError(
            f"the manifest has {len(text)} characters, more than {LARGEST_MANIFEST}: "
            "submit it in parts"
        )
    try:
        documents = _json(text) if text.lstrip()[:1] in ("{", "[") else None
        if documents is None:
            documents = list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        raise ManifestError(_yaml_sentence(error)) from None
    except (RecursionError, OverflowError, ValueError) as error:
        raise ManifestError(
            f"the manifest cannot be read ({_first_line(error)}): write it as YAML or JSON"
        ) from None
    found = [document for document in documents if document is not None]
    if not found:
        raise ManifestError(
            "the manifest is empty: write a document with apiVersion, kind, metadata and spec"
        )
    return found


class _DuplicateKey(yaml.MarkedYAMLError):
    """A mapping has the same key twice; YAML itself would keep the last."""


class _Loader(yaml.SafeLoader):
    """The safe loader, which also refuses a key that stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build one mapping. Merge keys (`<<`) may be overridden, as YAML defines."""
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise _DuplicateKey(problem=f"key {key!r} twice", problem_mark=key_node.start_mark)
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)


def _json(text: str) -> list[Any] | None:
    """Read JSON; None if it is none, for a YAML flow mapping starts alike."""
    try:
        return [json.loads(text, object_pairs_hook=_no_key_twice)]
    except json.JSONDecodeError:
        return None


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateKey(problem=f"key {key!r} twice")
        found[key] = value
    return found


def _yaml_sentence(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
    if isinstance(error, _DuplicateKey):
        return f"the manifest has the {error.problem}{where}: leave one of them out"
    problem = getattr(error, "problem", None) or _first_line(error)
    return f"the manifest is not YAML{where} ({problem}): correct that line"


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
