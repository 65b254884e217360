"""Label selectors: `a=b,c!=d,e in (f,g),!h` (LW-093 to LW-095).

The grammar and every error text are those of the Kubernetes API, since clients and
people meet them everywhere else.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from nodus_api.metav1.errors import BadRequest
from nodus_api.metav1.golang import parse_int64, quote

_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = rf"({_NAME})?"
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{_NAME}')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    f"'12345', regex used for validation is '{_VALUE}')"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for "
    rf"validation is '{_SUBDOMAIN}')"
)
# blanks are a token of their own: as the beginning of every token, a long run of them that ends in
# none would be read once for each of its characters
_TOKEN = re.compile(r"(==|!=|[=!(),<>])|([^=!(),<> \t\r\n]+)|[ \t\r\n]+")


class Operator(StrEnum):
    """How a requirement compares; the words are those of the error texts."""

    IN = "in"
    NOT_IN = "notin"
    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    GREATER_THAN = "gt"
    LESS_THAN = "lt"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"


_BINARY = {
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
    "=": Operator.EQUALS,
    "==": Operator.DOUBLE_EQUALS,
    "!=": Operator.NOT_EQUALS,
    ">": Operator.GREATER_THAN,
    "<": Operator.LESS_THAN,
}
_FORMS = {
    Operator.IN: "{key} in ({values})",
    Operator.NOT_IN: "{key} notin ({values})",
    Operator.EQUALS: "{key}={values}",
    Operator.DOUBLE_EQUALS: "{key}={values}",
    Operator.NOT_EQUALS: "{key}!={values}",
    Operator.GREATER_THAN: "{key}>{values}",
    Operator.LESS_THAN: "{key}<{values}",
    Operator.EXISTS: "{key}",
    Operator.DOES_NOT_EXIST: "!{key}",
}
_BINARY_WORDS = ", ".join(_BINARY.values())
_NEGATIVE = frozenset({Operator.NOT_IN, Operator.NOT_EQUALS})
_ORDERED = frozenset({Operator.GREATER_THAN, Operator.LESS_THAN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One term: a key, how to compare, the values sorted and each once."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels satisfy the term; `!=` and `notin` need no key (LW-094)."""
        value = labels.get(self.key)
        if self.operator is Operator.EXISTS:
            return value is not None
        if self.operator is Operator.DOES_NOT_EXIST:
            return value is None
        if value is None:
            return self.operator in _NEGATIVE
        if self.operator in _ORDERED:
            return self._in_order(value)
        return (value in self.values) is not (self.operator in _NEGATIVE)

    def __str__(self) -> str:
        """Return the term in its one canonical form."""
        return _FORMS[self.operator].format(key=self.key, values=",".join(self.values))

    def _in_order(self, value: str) -> bool:
        try:
            number = parse_int64(value)
        except ValueError:
            return False
        bound = parse_int64(self.values[0])
        return number > bound if self.operator is Operator.GREATER_THAN else number < bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Terms that must all hold; without terms everything matches."""

    requirements: tuple[Requirement, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether everything matches."""
        return not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether every term holds for these labels."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        """Return the canonical form: one text for all selectors that say the same."""
        return ",".join(sorted({str(requirement) for requirement in self.requirements}))


EVERYTHING = Selector()


def parse(text: str) -> Selector:
    """Return the selector that `text` says.

    Raises BadRequest with the parser's text (LW-082, LW-095).
    """
    try:
        return Selector(requirements=tuple(_Parser(text).parse()))
    except ValueError as wrong:
        raise BadRequest(
            str(wrong),
            fix="Write labelSelector as key=value, key!=value, key in (a,b), key or !key, "
            "joined by commas.",
        ) from None


def key_errors(key: str) -> list[str]:
    """Return what is wrong with a label's key, nothing if it is right (LW-095)."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [
            f"a valid label key {_NAME_TEXT} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        ]
    errors = _prefix_errors(prefix) if slash else []
    if not name:
        errors.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        errors.append("name part must be no more than 63 bytes")
    if not re.fullmatch(_NAME, name):
        errors.append(f"name part {_NAME_TEXT}")
    return errors


def value_errors(value: str) -> list[str]:
    """Return what is wrong with a label's value, nothing if it is right (LW-095)."""
    errors = []
    if len(value.encode()) > 63:
        errors.append("must be no more than 63 bytes")
    if not re.fullmatch(_VALUE, value):
        errors.append(_VALUE_TEXT)
    return errors


def _prefix_errors(prefix: str) -> list[str]:
    if not prefix:
        return ["prefix part must be non-empty"]
    errors = []
    if len(prefix.encode()) > 253:
        errors.append("prefix part must be no more than 253 bytes")
    if not re.fullmatch(_SUBDOMAIN, prefix):
        errors.append(f"prefix part {_SUBDOMAIN_TEXT}")
    return errors


class _Parser:
    """Reads terms from tokens. A token is (is a symbol, text); the end is (True, '')."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[bool, str]] = [
            (symbol != "", symbol or word)
            for symbol, word in _TOKEN.findall(text)
            if symbol or word
        ]
        self._tokens.append((True, ""))
        self._at = 0

    def parse(self) -> list[Requirement]:
        """Return the terms. Raises ValueError at the first thing that is not expected."""
        terms: list[Requirement] = []
        if self._peek() == "":
            return terms
        if not self._starts_term():
            raise ValueError(f"found '{self._peek()}', expected: !, identifier, or 'end of string'")
        while True:
            terms.append(self._requirement())
            after = self._next()
            if after == "":
                return terms
            if after != ",":
                raise ValueError(f"found '{after}', expected: ',' or 'end of string'")
            if not self._starts_term():
                raise ValueError(f"found '{self._peek()}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        try:
            return self._term()
        except ValueError as wrong:
            raise ValueError(f"unable to parse requirement: {wrong}") from None

    def _term(self) -> Requirement:
        negated = self._peek() == "!"
        if negated:
            self._next()
        # After `!` the words in and notin are operators, before a term they are names.
        if self._symbol() or (negated and self._peek() in ("in", "notin")):
            raise ValueError(f"found '{self._next()}', expected: identifier")
        key = self._next()
        if errors := key_errors(key):
            raise ValueError(_invalid("<nil>", key, errors))
        if negated:
            return Requirement(key=key, operator=Operator.DOES_NOT_EXIST)
        if self._peek() in ("", ","):
            return Requirement(key=key, operator=Operator.EXISTS)
        return self._comparison(key)

    def _comparison(self, key: str) -> Requirement:
        word = self._next()
        operator = _BINARY.get(word)
        if operator is None:
            raise ValueError(f"found '{word}', expected: {_BINARY_WORDS}")
        found = self._set() if operator in (Operator.IN, Operator.NOT_IN) else {self._exact()}
        values = tuple(sorted(found))
        wrong = [
            _invalid(f"values[{at}][{key}]", value, errors)
            for at, value in enumerate(values)
            if (errors := value_errors(value))
        ]
        if operator in _ORDERED and not _is_int64(values[0]):
            text = "for 'Gt', 'Lt' operators, the value must be an integer"
            wrong.insert(0, _invalid("values[0]", values[0], [text]))
        if wrong:
            raise ValueError(wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")
        return Requirement(key=key, operator=operator, values=values)

    def _exact(self) -> str:
        if self._peek() in ("", ","):
            return ""
        if self._symbol():
            raise ValueError(f"found '{self._next()}', expected: identifier")
        return self._next()

    def _set(self) -> set[str]:
        opening = self._next()
        if opening != "(":
            raise ValueError(f"found '{opening}' expected: '('")
        if self._symbol() and self._peek() not in (",", ")"):
            raise ValueError(f"found '{self._peek()}', expected: ',', ')' or identifier")
        values: set[str] = set()
        while True:
            if not self._symbol():
                values.add(self._next())
                if self._peek() not in (",", ")"):
                    raise ValueError(f"found '{self._peek()}', expected: ',' or ')'")
            elif self._peek() in (",", ")"):
                values.add("")  # (,a) (a,) (a,,b) and () all hold the empty value
            else:
                raise ValueError(f"found '{self._peek()}', expected: ',', or identifier")
            if self._next() == ")":
                return values

    def _starts_term(self) -> bool:
        return not self._symbol() or self._peek() == "!"

    def _symbol(self) -> bool:
        return self._tokens[self._at][0]

    def _peek(self) -> str:
        return self._tokens[self._at][1]

    def _next(self) -> str:
        word = self._peek()
        self._at += 1
        return word


def _is_int64(text: str) -> bool:
    try:
        parse_int64(text)
    except ValueError:
        return False
    return True


def _invalid(path: str, value: str, errors: list[str]) -> str:
    return f"{path}: Invalid value: {quote(value)}: {'; '.join(errors)}"
