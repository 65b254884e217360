"""The bodies that clients see, one per shape, compared byte by byte."""

import pytest
from tests.golden.shapes import BODIES, shapes

SHAPES = dict(shapes())


@pytest.mark.parametrize("name", SHAPES)
def test_the_body_is_the_reviewed_one(name: str) -> None:
    reviewed = (BODIES / name).read_bytes()
    assert SHAPES[name] == reviewed, "run `python -m tests.golden.shapes` and review the difference"


def test_no_body_is_left_over() -> None:
    assert {path.name for path in BODIES.iterdir()} == set(SHAPES)
