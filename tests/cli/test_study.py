"""`nodus simulate --study`: what it refuses before it begins. Its runs: tests/bench."""

from pathlib import Path

import pytest
from tests.cli.conftest import Nodus
from tests.cli.test_bad_input import refusal


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--study", "--rate", "5"), "--study takes no --rate"),
        (("--study", "--take-lead"), "--study takes no --take-lead"),
        (("--study", "--plot", "a.png"), "--plot draws SVG"),
        (("--study", "--plot", "/nowhere/a.svg"), "cannot be written"),
        (("--plot", "a.svg", "--attempts", "1"), "Give --attempts, or --study"),
        ((), "Give --attempts, or --study"),
    ],
)
def test_what_a_study_cannot_do_is_refused_at_once(
    nodus: Nodus, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    assert said in refusal(nodus("simulate", *words, "--data-dir", tmp_path))
