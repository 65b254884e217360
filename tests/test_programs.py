"""No test is skipped for want of a program that this machine could have made."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import programs
from tests.programs import HOME, WANTED, NoTool, Refused, absence, failure_of, fetch_all


@pytest.mark.parametrize("name", list(WANTED))
def test_what_can_be_made_here_is(name: str) -> None:
    """Go without client-go, Node without client-node and so on are failures of this machine.

    Not where the network refuses their packages, nor where nobody asked for any program, as when
    pytest runs without `make test`: each is told.
    """
    if not HOME.exists():
        pytest.skip("no program was made here: see tests/programs.py")
    found = absence(HOME, name)
    if found is None:
        return
    kind, reason = found
    assert kind in ("NoTool", "Refused"), reason
    pytest.skip(reason)


def made(target: Path) -> None:
    (target / "program").touch()


def failing(error: Exception) -> Callable[[Path], None]:
    def make(_: Path) -> None:
        raise error

    return make


def test_it_is_kept_why_a_program_is_missing(tmp_path: Path) -> None:
    home = tmp_path / "programs"
    wanted = {
        "made": made,
        "tool": failing(NoTool("go is not on the PATH")),
        "refused": failing(Refused("403")),
        "fault": failing(ValueError("main.go:7: undefined: x")),
    }
    fetch_all(home, wanted)

    assert (home / "made" / "program").exists()
    assert {name: absence(home, name) for name in wanted} == {
        "made": None,
        "tool": ("NoTool", "go is not on the PATH"),
        "refused": ("Refused", "403"),
        "fault": ("Fault", "main.go:7: undefined: x"),
    }
    other = absence(home, "new-version")
    assert other is not None
    assert other[0] == "Unknown"


def test_another_try_begins_anew(tmp_path: Path) -> None:
    home = tmp_path / "programs"
    fetch_all(home, {"one": failing(ValueError("broken"))})
    fetch_all(home, {"one": made})

    assert absence(home, "one") is None
    assert [one.name for one in home.iterdir() if one.is_dir()] == ["one"]


def test_a_tool_that_is_not_there_is_no_fault() -> None:
    with pytest.raises(NoTool, match="nodus-has-no-such-tool is not on the PATH"):
        programs._found("nodus-has-no-such-tool")


@pytest.mark.parametrize(
    ("said", "failure"),
    [
        ('go: x@v1: Get "https://a.invalid/x": dial tcp: lookup a.invalid: no such host', Refused),
        ("go: x@v1: reading https://a.invalid/x.zip: 403 Forbidden", Refused),
        ("go: download go1.26 for linux/amd64: toolchain not available", Refused),
        ("npm error code ENOTFOUND", Refused),
        ("npm error code E404", Refused),
        ("ERROR: No matching distribution found for x==1", Refused),
        ("go: go.mod requires go >= 1.26 (running go 1.20; GOTOOLCHAIN=local)", NoTool),
        ("./main.go:404:2: undefined: x", ValueError),
        ("go: updates to go.mod needed", ValueError),
        ("npm error `npm ci` can only install packages when package.json and the lock", ValueError),
        ("verifying x@v1: checksum mismatch", ValueError),
    ],
)
def test_a_refusal_is_told_from_a_fault(said: str, failure: type[ValueError]) -> None:
    assert failure_of(said) is failure


@pytest.mark.parametrize(("said", "error"), [("i/o timeout", Refused), ("panic", ValueError)])
def test_what_a_tool_says_decides(said: str, error: type[Exception]) -> None:
    command = [sys.executable, "-c", f"import sys; sys.exit({said!r})"]
    with pytest.raises(ValueError, match=said) as raised:
        programs._run(command)
    assert raised.type is error
