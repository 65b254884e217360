"""The book is whole: each scenario, property and field case of the loop has a test that says so."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
SCENARIOS = range(1, 45)
PROPERTIES = range(1, 31)
FIELD_CASES = (1, 3, 6, 8, 11, 13, 16, 18, 21, 23, 26)
"""Of the area "scheduler and cost"."""

_SCENARIO = re.compile(r"Scenarios? (\d+)(?: and (\d+))?\. Given .* when .* then ")


def _tests(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the docstring and the source of each test on the real loop."""
    for path in sorted(folder.glob("test_*.py")):
        source = path.read_text()
        for node in ast.parse(source).body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("test_"):
                text = ast.get_source_segment(source, node) or ""
                comment = source.splitlines()[node.body[0].lineno - 2]
                yield f"{path.name}::{node.name}", ast.get_docstring(node) or "", comment + text


def test_each_scenario_is_a_test_that_begins_with_its_text() -> None:
    told: dict[int, str] = {}
    for name, docstring, _ in _tests(HERE):
        found = _SCENARIO.match(" ".join(docstring.split()))
        for number in found.groups() if found else ():
            if number is not None:
                assert int(number) not in told, (name, told[int(number)])
                told[int(number)] = name
    assert sorted(told) == list(SCENARIOS)


def test_each_property_is_held_somewhere() -> None:
    text = "".join(path.read_text() for path in HERE.parent.rglob("*.py") if path != Path(__file__))
    assert [n for n in PROPERTIES if f"P-{n:02}" not in text] == []


def test_each_field_case_of_the_loop_is_named_by_a_test() -> None:
    told = {
        int(number)
        for _, docstring, source in _tests(HERE)
        for number in re.findall(r"[Ff]ield case D(\d\d)", docstring + source)
    }
    assert sorted(told) == list(FIELD_CASES)
