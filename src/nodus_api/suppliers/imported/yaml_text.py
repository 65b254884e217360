"""YAML whose numbers stay the text they were written as, and whose items know their line."""

from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from nodus_api.suppliers.imported.rows import BadFile

_NULL = "tag:yaml.org,2002:null"
_DEEPEST = 20


@dataclass(frozen=True, slots=True)
class Item:
    """A node and its line, from 1."""

    node: yaml.Node
    line: int

    def mapping(self, what: str) -> "dict[str, Item]":
        """Return the items of a mapping by key. Raises BadFile."""
        if not isinstance(self.node, yaml.MappingNode):
            raise BadFile(f"line {self.line}: {what} must be a mapping of names to values")
        found: dict[str, Item] = {}
        for key, value in self.node.value:
            name = _item(key).text(f"a name in {what}")
            if name in found:
                raise BadFile(f"line {_item(key).line}: {name[:60]!r} stands twice in {what}")
            found[name] = _item(value)
        return found

    def sequence(self, what: str) -> "list[Item]":
        """Return the items of a list. Raises BadFile."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise BadFile(f"line {self.line}: {what} must be a list")
        return [_item(one) for one in self.node.value]

    def text(self, what: str) -> str:
        """Return a scalar as it is written; null is empty. Raises BadFile."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise BadFile(f"line {self.line}: {what} must be one value")
        return "" if self.node.tag == _NULL else str(self.node.value)


def read_yaml(text: str) -> Item:
    """Return the one document of a file. Raises BadFile, for anchors and aliases too."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            line = event.start_mark.line + 1 if event.start_mark else 1
            if isinstance(event, yaml.AliasEvent):
                raise BadFile(f"line {line}: write it out, without an alias")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:  # to read on takes the square of the depth
                raise BadFile(f"line {line}: it is nested too deeply")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadFile(f"line {line}: it is not YAML ({error.problem})") from error
    except yaml.YAMLError as error:
        raise BadFile("it is not YAML: it holds characters that are not allowed") from error
    if node is None:
        raise BadFile("it is empty")
    return _item(node)


def expect(found: dict[str, Item], known: tuple[str, ...], what: str) -> None:
    """Raise BadFile for a name that is not known."""
    for name, item in unknown(found, known):
        raise BadFile(
            f"line {item.line}: {name[:60]!r} is not known in {what}; known are {', '.join(known)}"
        )


def unknown(found: dict[str, Item], known: tuple[str, ...]) -> Iterator[tuple[str, Item]]:
    """Yield the names that are not known."""
    yield from ((name, item) for name, item in found.items() if name not in known)


def _item(node: yaml.Node) -> Item:
    return Item(node, node.start_mark.line + 1)
