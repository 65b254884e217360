"""A lack of memory ends the process with one line, wherever it is met and logged."""

import logging

import pytest

from nodus_api.out_of_memory import ends_the_process

log = logging.getLogger("nodus_api.test")


def raised(error: BaseException, cause: BaseException | None = None) -> None:
    try:
        raise error from cause
    except BaseException:
        log.exception("it crashed")


def test_one_line_and_the_end(capsys: pytest.CaptureFixture[str]) -> None:  # F30
    codes: list[int] = []
    handler = logging.StreamHandler()
    logging.getLogger().addHandler(handler)
    try:
        with ends_the_process(codes.append):
            raised(ValueError("odd"))
            raised(ExceptionGroup("of a task group", [ValueError("odd"), MemoryError()]))
            raised(RuntimeError("later"), MemoryError())  # the end is near: nothing more
        raised(MemoryError())
    finally:
        logging.getLogger().removeHandler(handler)

    assert codes == [1]
    said = [line for line in capsys.readouterr().err.splitlines() if line[:1] not in (" ", "")]
    assert said == [
        "it crashed",
        "Traceback (most recent call last):",
        "ValueError: odd",
        "out of memory: this process ends, to be started again",
        "it crashed",
        "Traceback (most recent call last):",
        "MemoryError",
    ]


def test_a_chain_without_an_end_is_no_lack_of_memory() -> None:
    codes: list[int] = []
    with ends_the_process(codes.append):
        one, two = ValueError("one"), ValueError("two")
        one.__cause__, two.__cause__ = two, one
        log.error("it crashed", exc_info=one)
    assert codes == []
