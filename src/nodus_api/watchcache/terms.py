"""What of a selector the index can answer by itself: all but comparisons of numbers, and names."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodus_api.metav1 import fields, labels
from nodus_api.metav1.labels import Operator
from nodus_api.watchcache.entry import Selection
from nodus_api.watchcache.filters import Filter

LABEL = "label"
FIELD = "field"
Key = tuple[str, str]
"""Where a value stands: (LABEL or FIELD, its name)."""

_NOT_INDEXED = frozenset({fields.NAME, fields.NAMESPACE})
_NEGATIVE = {Operator.NOT_IN, Operator.NOT_EQUALS, Operator.DOES_NOT_EXIST}


@dataclass(frozen=True, slots=True)
class Term:
    """Those that have one of these values under `key`, any value where None; or all others."""

    key: Key
    values: tuple[str, ...] | None
    negated: bool = False
    or_absent: bool = False
    """Whether those without the key are meant, too: an absent field is `""` (LW-099)."""


def values_of(selection: Selection) -> Iterator[tuple[Key, str]]:
    """Give everything that can be selected by: where it stands, and its value."""
    for name, value in selection.labels.items():
        yield (LABEL, name), value
    for name, value in selection.fields.items():
        yield (FIELD, name), value


def split(chosen: Filter) -> tuple[list[Term], Filter]:
    """Return the terms that the index answers, and what is left to be checked one by one."""
    terms: list[Term] = []
    rest = chosen
    if isinstance(chosen.labels, labels.Selector):
        kept = []
        for wanted in chosen.labels.requirements:
            if wanted.operator in (Operator.GREATER_THAN, Operator.LESS_THAN):
                kept.append(wanted)
            else:
                terms.append(_label_term(wanted))
        left = labels.Selector(requirements=tuple(kept)) if kept else None
        rest = replace(rest, labels=left)
    if isinstance(chosen.fields, fields.Selector):
        others = []
        for field in chosen.fields.requirements:
            if field.field in _NOT_INDEXED:
                others.append(field)
            else:
                terms.append(_field_term(field))
        rest = replace(rest, fields=fields.Selector(requirements=tuple(others)) if others else None)
    return terms, rest


def _label_term(wanted: labels.Requirement) -> Term:
    any_value = wanted.operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST)
    return Term(
        key=(LABEL, wanted.key),
        values=None if any_value else wanted.values,
        negated=wanted.operator in _NEGATIVE,
    )


def _field_term(wanted: fields.Requirement) -> Term:
    return Term(
        key=(FIELD, wanted.field),
        values=(wanted.value,),
        negated=wanted.negated,
        or_absent=wanted.value == "",
    )
