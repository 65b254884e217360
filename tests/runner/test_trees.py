"""A directory as one value: what its checksum depends on, and what cannot be kept."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runner.checkpointing import a_state

from nodus_api.runner.trees import BadTree, copy_tree

names = st.sampled_from(["a", "b", "é", "a b", "-", "\udcff", "\n", '"'])
trees = st.recursive(
    st.binary(max_size=20), lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=6
)


def write(path: Path, tree: object) -> int:
    """Write a tree of bytes by name; return how many bytes there are."""
    if isinstance(tree, bytes):
        path.write_bytes(tree)
        return len(tree)
    assert isinstance(tree, dict)
    path.mkdir()
    return sum(write(path / name, one) for name, one in tree.items())


@settings(max_examples=40, deadline=None)  # the disk's time, not ours
@given(tree=st.dictionaries(names, trees, max_size=3))
def test_a_copy_of_a_copy_has_the_same_sum(
    tmp_path_factory: pytest.TempPathFactory, tree: object
) -> None:  # SC-641
    folder = tmp_path_factory.mktemp("tree")
    size = write(folder / "first", tree)

    first = copy_tree(folder / "first", folder / "second")
    second = copy_tree(folder / "second", folder / "third")

    assert first == second
    assert first.bytes == size


@pytest.mark.parametrize("change", ["content", "name", "mode", "link", "more", "less"])
def test_every_change_changes_the_sum(tmp_path: Path, change: str) -> None:
    state = a_state(tmp_path / "state")
    before = copy_tree(state, tmp_path / "before")
    match change:
        case "content":
            (state / "inner" / "data").write_text("weighty")
        case "name":
            (state / "inner" / "data").rename(state / "inner" / "date")
        case "mode":
            (state / "inner" / "data").chmod(0o700)
        case "link":
            (state / "latest").unlink()
            (state / "latest").symlink_to("inner/date")
        case "more":
            (state / "empty").mkdir()
        case _:
            (state / "latest").unlink()

    assert copy_tree(state, tmp_path / "after").sha256 != before.sha256


def test_times_change_nothing(tmp_path: Path) -> None:
    state = a_state(tmp_path / "state")
    before = copy_tree(state, tmp_path / "before")
    os.utime(state / "inner" / "data", (1, 1))

    assert copy_tree(state, tmp_path / "after") == before


def a_socket(path: Path) -> None:
    folder = os.open(path.parent, os.O_DIRECTORY)  # the path itself may be too long for one
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


@pytest.mark.parametrize("make", [os.mkfifo, a_socket])
def test_what_is_no_file_is_refused_and_leaves_nothing(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    state = a_state(tmp_path / "state")
    make(state / "inner" / "thing")

    with pytest.raises(BadTree, match="neither a file, a directory nor a link"):
        copy_tree(state, tmp_path / "copy")

    assert not (tmp_path / "copy").exists()


def test_folders_without_end_are_refused(tmp_path: Path) -> None:
    (tmp_path / "state" / Path(*["d"] * 100)).mkdir(parents=True)

    with pytest.raises(BadTree, match="too deep"):
        copy_tree(tmp_path / "state", tmp_path / "copy")

    assert not (tmp_path / "copy").exists()
    assert copy_tree(tmp_path / "state" / "d", tmp_path / "copy").bytes == 0


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTree, match="there is no directory"):
        copy_tree(tmp_path / "nothing", tmp_path / "copy")


def test_a_directory_is_not_copied_into_itself(tmp_path: Path) -> None:
    with pytest.raises(BadTree, match="holds the place"):
        copy_tree(tmp_path, tmp_path / "inner" / "copy")
