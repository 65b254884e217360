"""What is wrong with a manifest, as one sentence: the field's path, and what to write instead."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

Path = tuple[int | str, ...]

_SCALARS = (bool, int, float)


def sentence(error: ErrorDetails, schema: type[BaseModel], prefix: Path = ()) -> tuple[str, str]:
    """Return the field's path and the sentence of a validation error.

    `schema` is the model that was validated, `prefix` where it stands in the document.
    """
    path = prefix + tuple(part for part in error["loc"] if part != "[key]")
    name = dotted(path)
    kind = error["type"]
    if kind == "extra_forbidden":
        return name, f"{name} is not a known field{_instead(error['loc'], schema, prefix)}"
    if kind == "missing":
        return name, f"{name} is missing: write {_EXAMPLES.get(str(path[-1]), 'it')}"
    if kind == "value_error":
        return name, f"{name} {error['ctx']['error']}"
    return name, f"{name} {_wants(error)}"


def dotted(path: Iterable[int | str]) -> str:
    """Return a path as a reader writes it: `spec.restart.rules[0].action`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def nearest(word: str, known: Sequence[str]) -> str | None:
    """Return the known word that was probably meant, or None."""
    by_lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[close[0]] if close else None


def _wants(error: ErrorDetails) -> str:
    """Say what a value must be, and what it is instead."""
    kind, context, got = error["type"], error.get("ctx", {}), shown(error["input"])
    if kind == "literal_error":
        return f"must be {str(context['expected']).replace(chr(39), '')}, not {got}"
    if kind == "string_type":
        hint = f": write {_quoted(error['input'])}" if isinstance(error["input"], _SCALARS) else ""
        return f"must be a string, not {got}{hint}"
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"must be {words} {context[key]}, not {got}"
    if kind in _TYPES:
        return f"must be {_TYPES[kind]}, not {got}"
    return f"is not right: {error['msg']}, not {got}"


_EXAMPLES = {
    "name": "name: train",
    "template": "template: {image: python:3.12, command: [python, train.py]}",
    "command": "command: [python, train.py]",
    "action": "action: Retry",
}
"""What a required field may look like."""

_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "too_short": "a list with at least one item",
    "string_too_short": "a string that is not empty",
    "string_pattern_mismatch": "a name of lower-case letters, digits, '-' and '.'",
}

_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "less_than_equal": ("at most", "le"),
    "string_too_long": ("a string no longer than", "max_length"),
}


def shown(value: object) -> str:
    """Return a value as a reader wrote it, shortened."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        text = repr(value) if isinstance(value, str) else str(value)
    except ValueError:  # Python does not write an int of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _quoted(value: object) -> str:
    return f'"{shown(value)}"'


def _instead(location: Path, schema: type[BaseModel], prefix: Path) -> str:
    """Suggest a field: a near name at the same place, the same name elsewhere, or the list."""
    *parents, name = location
    here = _model_at(schema, parents)
    known = field_names(here)
    close = nearest(str(name), known)
    if close is not None:
        return f": did you mean {close}?"
    elsewhere = nearest_elsewhere(str(name), schema, prefix)
    if elsewhere is not None:
        return f": did you mean {elsewhere}?"
    return f": write one of {', '.join(known)}, or leave it out"


def nearest_elsewhere(name: str, schema: type[BaseModel], prefix: Path = ()) -> str | None:
    """Return the path of a field of that very name anywhere in the schema, or None."""
    return next(
        (dotted(prefix + path) for path in _paths(schema) if path[-1] == name),
        None,
    )


def field_names(model: type[BaseModel]) -> list[str]:
    """Return a model's fields as they are written."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _paths(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        written = field.alias or name
        yield (written,)
        below = _model_in(field.annotation)
        if below is not None and list not in _parts(field.annotation):
            yield from ((written, *path) for path in _paths(below))


def _model_at(model: type[BaseModel], path: Iterable[int | str]) -> type[BaseModel]:
    """Follow a path through the schema; where it leaves the models, the last one stands."""
    for part in path:
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        if part in fields:
            model = _model_in(fields[str(part)].annotation) or model
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    return next(
        (
            part
            for part in _parts(annotation)
            if isinstance(part, type) and issubclass(part, BaseModel)
        ),
        None,
    )


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and everything inside it."""
    yield getattr(annotation, "__origin__", annotation)
    for part in get_args(annotation):
        yield from _parts(part)
