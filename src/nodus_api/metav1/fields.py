"""Field selectors: `status.phase=Running,spec.slot!=0` (LW-097 to LW-100)."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from nodus_api.metav1.errors import BadRequest

NAME = "metadata.name"
NAMESPACE = "metadata.namespace"

_PART = re.compile(r",|(?:\\.|[^,\\])+|\\", re.DOTALL)
_OPERATOR = re.compile(r"!=|==|=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One term: an exact comparison of a field with a value."""

    field: str
    value: str
    negated: bool = False

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Return whether the field has, or has not, the value; an absent field is `""` (LW-099)."""
        return (fields.get(self.field, "") == self.value) is not self.negated

    def __str__(self) -> str:
        """Return the term in its one canonical form."""
        escaped = re.sub(r"([\\,=])", r"\\\1", self.value)
        return f"{self.field}{'!=' if self.negated else '='}{escaped}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Terms that must all hold; without terms everything matches."""

    requirements: tuple[Requirement, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether everything matches."""
        return not self.requirements

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Return whether every term holds for these fields."""
        return all(requirement.matches(fields) for requirement in self.requirements)

    def exact(self, field: str) -> str | None:
        """Return the value that a field must have, if one term says so (AS-048, LW-100)."""
        for requirement in self.requirements:
            if requirement.field == field and not requirement.negated:
                return requirement.value
        return None

    def check(self, supported: Collection[str]) -> None:
        """Raise BadRequest for the first field that cannot be selected by (LW-098)."""
        for requirement in self.requirements:
            if requirement.field not in supported:
                raise BadRequest(
                    f"field label not supported: {requirement.field}",
                    fix=f"Select by one of: {', '.join(sorted(supported))}.",
                )

    def __str__(self) -> str:
        """Return the canonical form: one text for all selectors that say the same."""
        return ",".join(sorted({str(requirement) for requirement in self.requirements}))


EVERYTHING = Selector()


def parse(text: str) -> Selector:
    """Return the selector that `text` says; which fields exist is asked by `Selector.check`.

    A term of an operator alone says nothing, as in kube-apiserver.
    Raises BadRequest with the parser's text (LW-082, LW-097).
    """
    terms = sorted(term for term in _terms(text) if term)
    try:
        requirements = [_requirement(text, term) for term in terms]
        return Selector(requirements=tuple(r for r in requirements if r.field or r.value))
    except ValueError as wrong:
        raise BadRequest(
            str(wrong),
            fix="Write fieldSelector as field=value or field!=value, joined by commas; "
            r"write \, \= and \\ for , = and \ in a value.",
        ) from None


def _terms(text: str) -> list[str]:
    """Split at commas that no backslash protects."""
    terms = [""]
    for part in _PART.findall(text):
        if part == ",":
            terms.append("")
        else:
            terms[-1] += part
    return terms


def _requirement(text: str, term: str) -> Requirement:
    operator = _OPERATOR.search(term)
    if operator is None:
        raise ValueError(f"invalid selector: '{text}'; can't understand '{term}'")
    return Requirement(
        field=term[: operator.start()],
        value=_unescape(term[operator.end() :]),
        negated=operator.group() == "!=",
    )


def _unescape(value: str) -> str:
    out = []
    chars = iter(value)
    for char in chars:
        if char in ",=":
            raise ValueError(f"invalid field selector: unescaped character in value: {ord(char)}")
        if char == "\\":
            char = next(chars, "")
            if char not in ("\\", ",", "="):
                raise ValueError(f"invalid field selector: invalid escape sequence: \\{char}")
        out.append(char)
    return "".join(out)
