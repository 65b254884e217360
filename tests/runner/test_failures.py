"""Sentences for what the system refused: words and a path, never a number."""

import errno
from pathlib import Path

import pytest

from nodus_api.runner.failures import plainly


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.EACCES, "Permission denied", "/a/b"), "permission is denied: /a/b"),
        (OSError(errno.ENOENT, "No such file", b"/a/\xff"), "it is not there any more: /a/\udcff"),
        (OSError(errno.ENOTDIR, "Not a directory", "/a"), "not a directory: /a"),
        (OSError(errno.EBADF, "Bad file descriptor", 7), "bad file descriptor"),
        (OSError("a sentence of its own"), "a sentence of its own"),
        (ValueError("embedded null byte"), "embedded null byte"),
    ],
)
def test_words_and_a_path(error: OSError | ValueError, sentence: str) -> None:
    assert plainly(error) == sentence


def test_a_real_refusal_shows_no_number(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Errno") as refused:
        (tmp_path / ("x" * 300)).write_text("")
    assert plainly(refused.value) == f"the name is too long: {tmp_path / ('x' * 300)}"
