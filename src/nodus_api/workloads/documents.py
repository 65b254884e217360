"""A manifest's text as plain documents: YAML or JSON, one or several, no key twice."""

import json
from collections.abc import Hashable
from typing import Any

import yaml

LARGEST_MANIFEST = 1_000_000
"""Characters; a manifest says what to run, it does not carry it."""


class ManifestError(Exception):
    """A manifest cannot be taken; the text is one sentence that says what to write instead.

    `document` counts from 1, `field` is the path, such as `spec.template.command[1]`. What a
    terminal would obey instead of showing stands escaped in the sentence.
    """

    def __init__(
        self, sentence: str, *, document: int | None = None, field: str | None = None
    ) -> None:
        self.sentence = _printable(sentence)
        super().__init__(self.sentence)
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


MOST_VALUES = LARGEST_MANIFEST
"""What a document may hold with every alias written out; without aliases it cannot hold more."""


class _DuplicateKey(yaml.MarkedYAMLError):
    """A mapping has the same key twice; YAML itself would keep the last."""


class _Loader(yaml.SafeLoader):
    """The safe loader, which also refuses a key that stands twice, and anchors that multiply.

    A few lines of anchors can stand for more values than any machine holds: what they stand for is
    counted before anything walks it.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node, and count the nodes it stands for, every alias written out."""
        event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML has no types for it
        node: yaml.Node | None = super().compose_node(parent, index)
        if node is not None and not isinstance(event, yaml.AliasEvent):
            sizes = [self._sizes.get(id(one)) for one in _children(node)]
            known = [size for size in sizes if size is not None]
            if len(known) < len(sizes):
                raise _refused("a value holds itself", event.start_mark)
            self._sizes[id(node)] = 1 + sum(known)
            if sum(known) >= MOST_VALUES:
                raise _refused(
                    f"its aliases stand for more than {MOST_VALUES} values", event.start_mark
                )
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Build one value; one that is none of its own tag is an error of that place."""
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError):
            kind = node.tag.rpartition(":")[2]
            raise _refused(f"this is no {kind}", node.start_mark) from None

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


def _refused(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [one for pair in node.value for one in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
