"""Shard selectors: `shardRange(object.metadata.uid, '0x…', '0x…') || …` (LW-160 to LW-168).

The expression is CEL of which only this much has a meaning; the error texts are those
of the Kubernetes API.
"""

import re
from dataclasses import dataclass

from nodus_api.metav1.errors import BadRequest
from nodus_api.metav1.golang import quote

UID = "object.metadata.uid"
NAMESPACE = "object.metadata.namespace"
MAX_CHARACTERS = 4096  # holds 54 ranges, so the limit of 64 (LW-165) needs no check of its own
MAX_DEPTH = 50
TOP = "0x10000000000000000"

_FNV_OFFSET = 14695981039346656037
_FNV_PRIME = 1099511628211
_MASK = 2**64 - 1
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<symbol>\|\||&&|[(),.])
    | (?P<text>[rR]?(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))
    | (?P<number>[0-9]\w*)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<end>\Z)
    | (?P<other>.)
    )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRange:
    """Hashes from `start` up to and without `end`, both as `0x` and 16 digits, or 2^64."""

    start: str
    end: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSelector:
    """Ranges over the hash of one field; an object matches if any range holds it."""

    path: str
    ranges: tuple[ShardRange, ...]

    def matches(self, *, uid: str, namespace: str) -> bool:
        """Return whether an object's uid or namespace, whichever is asked for, falls in a range."""
        return self.holds(hash_of(uid if self.path == UID else namespace))

    def holds(self, hashed: str) -> bool:
        """Return whether a value that `hash_of` made falls in a range (LW-162)."""
        return any(
            not _less(hashed, shard.start) and _less(hashed, shard.end) for shard in self.ranges
        )

    def __str__(self) -> str:
        """Return the canonical form, in source order (LW-166)."""
        return " || ".join(
            f"shardRange({self.path}, '{shard.start}', '{shard.end}')" for shard in self.ranges
        )


def hash_of(value: str) -> str:
    """Return the 64-bit FNV-1a hash of a value's UTF-8 bytes as `0x` and 16 digits (LW-162)."""
    number = _FNV_OFFSET
    for byte in value.encode():
        number = ((number ^ byte) * _FNV_PRIME) & _MASK
    return f"0x{number:016x}"


def parse(text: str) -> ShardSelector | None:
    """Return the selector that `text` says, None for an empty parameter (LW-163).

    Raises BadRequest with the texts of LW-164.
    """
    if not text:
        return None
    try:
        return _parse(text.strip())
    except ValueError as wrong:
        raise BadRequest(
            f"invalid shard selector: {wrong}",
            fix="Write shardSelector as shardRange(object.metadata.uid, '0x0000000000000000', "
            f"'{TOP}'), several joined by ||.",
        ) from None


def _parse(text: str) -> ShardSelector:
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{len(text)} characters are too many, at most {MAX_CHARACTERS}")
    if not text:
        raise ValueError(
            "empty shard selector is not allowed; omit the parameter for unfiltered lists"
        )
    found = _ranges(_Expression(text).whole())
    path = found[0][0]
    for other, _ in found:
        if other != path:
            raise ValueError(
                f"all shard ranges must use the same field, got {quote(path)} and {quote(other)}"
            )
    return ShardSelector(path=path, ranges=tuple(shard for _, shard in found))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A parsed expression: a call with arguments, a field path, or a literal."""

    kind: str
    text: str
    arguments: tuple["_Node", ...] = ()


def _ranges(node: _Node) -> list[tuple[str, ShardRange]]:
    if node.kind == "or":
        return [found for argument in node.arguments for found in _ranges(argument)]
    if node.kind == "method":
        raise ValueError(f"{node.text}() may not be called on a value; write shardRange(...)")
    if node.kind != "call":
        raise ValueError(
            f"unexpected expression {quote(node.text)}; expected shardRange() call or || operator"
        )
    if node.text != "shardRange":
        raise ValueError(
            f"unsupported function {quote(node.text)}; only shardRange() and || are allowed"
        )
    if len(node.arguments) != 3:
        raise ValueError(f"shardRange() requires exactly 3 arguments, got {len(node.arguments)}")
    return [_range(*node.arguments)]


def _range(path: _Node, start: _Node, end: _Node) -> tuple[str, ShardRange]:
    if path.kind != "path":
        raise ValueError(
            f"shardRange() first argument: expected field path (e.g. {UID}), got {quote(path.text)}"
        )
    if path.text not in (UID, NAMESPACE):
        raise ValueError(
            f"unsupported field path {quote(path.text)}; supported: {UID}, {NAMESPACE}"
        )
    shard = ShardRange(start=_hex(start, "hexStart"), end=_hex(end, "hexEnd"))
    if not _less(shard.start, shard.end):
        raise ValueError(f"shard range start {shard.start} must be less than end {shard.end}")
    return path.text, shard


def _hex(node: _Node, name: str) -> str:
    """Return a bound to the letter of LW-161."""
    if node.kind != "text":
        raise ValueError(f"{name} must be a string literal (e.g. '0xff'), got {quote(node.text)}")
    value = node.text
    if not value.startswith("0x"):
        raise ValueError(f"{name} must have '0x' prefix, got {quote(value)}")
    digits = value[2:]
    if not digits:
        raise ValueError(f"{name}: hex value is required after '0x'")
    if len(digits) > 17:
        raise ValueError(
            f"{name}: hex value too long ({len(digits)} chars, max 17): {quote(digits)}"
        )
    for char in digits:
        if char not in "0123456789abcdef":
            raise ValueError(f"{name}: invalid hex character {quote(char)} in {quote(value)}")
    if len(digits) == 17 and value != TOP:
        raise ValueError(f"{name}: 17-digit hex value must be '{TOP}' (2^64), got {quote(value)}")
    if len(digits) < 16:
        raise ValueError(
            f"{name} must be a 0x-prefixed 16-digit hex value, got {quote(value)} "
            f"(did you mean {quote('0x' + digits.zfill(16))}?)"
        )
    return value


def _less(a: str, b: str) -> bool:
    return (len(a), a) < (len(b), b)


class _Expression:
    """Parses the part of CEL's grammar that can stand in a shard selector."""

    def __init__(self, text: str) -> None:
        self._tokens = [
            (found.lastgroup or "", found[found.lastgroup or 0]) for found in _TOKEN.finditer(text)
        ]
        self._at = 0

    def whole(self) -> _Node:
        """Return the expression. Raises ValueError if anything is left over."""
        node = self._either(0)
        if self._kind() != "end":
            raise self._unexpected()
        return node

    def _either(self, depth: int) -> _Node:
        if depth > MAX_DEPTH:
            raise ValueError("CEL parse error: expression recursion limit exceeded")
        return self._chain(depth, "||", "or")

    def _chain(self, depth: int, symbol: str, kind: str) -> _Node:
        nodes = [self._both(depth) if symbol == "||" else self._operand(depth)]
        while self._take(symbol):
            nodes.append(self._both(depth) if symbol == "||" else self._operand(depth))
        if len(nodes) == 1:
            return nodes[0]
        return _Node(kind=kind, text=f"_{symbol}_", arguments=tuple(nodes))

    def _both(self, depth: int) -> _Node:
        return self._chain(depth, "&&", "call")

    def _operand(self, depth: int) -> _Node:
        if self._take("("):
            node = self._either(depth + 1)
            self._expect(")")
            return node
        kind, text = self._tokens[self._at]
        if kind not in ("word", "text", "number"):
            raise self._unexpected()
        self._at += 1
        if kind == "word":
            return self._path(text, depth)
        return _Node(kind=kind, text=_unquote(text) if kind == "text" else text)

    def _path(self, text: str, depth: int) -> _Node:
        kind = "call"
        while self._take("."):
            if self._kind() != "word":
                raise self._unexpected()
            text = f"{text}.{self._tokens[self._at][1]}"
            kind = "method"
            self._at += 1
        if not self._take("("):
            return _Node(kind="path", text=text)
        arguments: list[_Node] = []
        while not self._take(")"):
            if arguments:
                self._expect(",")
            arguments.append(self._either(depth + 1))
        return _Node(kind=kind, text=text, arguments=tuple(arguments))

    def _kind(self) -> str:
        return self._tokens[self._at][0]

    def _take(self, symbol: str) -> bool:
        if self._tokens[self._at] != ("symbol", symbol):
            return False
        self._at += 1
        return True

    def _expect(self, symbol: str) -> None:
        if not self._take(symbol):
            raise self._unexpected()

    def _unexpected(self) -> ValueError:
        text = self._tokens[self._at][1]
        return ValueError(
            f"CEL parse error: Syntax error: unexpected {quote(text) if text else 'end'}"
        )


def _unquote(literal: str) -> str:
    if literal[0] in "rR":
        return literal[2:-1]
    return _ESCAPE.sub(
        lambda found: (
            chr(int(found[1] or found[2], 16))
            if found[1] or found[2]
            else _SIMPLE.get(found[3], found[3])
        ),
        literal[1:-1],
    )
