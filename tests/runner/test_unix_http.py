"""The runner's own HTTP over a Unix socket: what is an answer, and what is none (SC-645)."""

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodus_api.runner.client import ReportClient, ServerAway


@contextmanager
def answering(*pieces: bytes) -> Iterator[ReportClient]:
    """Give a client whose server answers one report with these bytes, and hangs up."""
    with tempfile.TemporaryDirectory(prefix="nodus-") as folder:
        path = Path(folder) / "runner.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(str(path))
            listening.listen()

            def serve() -> None:
                peer, _ = listening.accept()
                with peer:
                    peer.recv(65536)
                    for piece in pieces:
                        peer.sendall(piece)

            thread = threading.Thread(target=serve)
            thread.start()
            yield ReportClient(f"unix:{path}", token="t")  # noqa: S106 -- no secret
            thread.join()


def test_an_answer_in_pieces_is_one_answer() -> None:
    with answering(
        b"HTTP/1.1 200 OK\r\ncontent-le", b"ngth: 9\r\n\r\n", b'{"a"', b": 17}trailing"
    ) as client:
        answer = client.post({"n": 1})
    assert (answer.status, answer.body) == (200, {"a": 17})


def test_an_error_without_json_is_an_answer() -> None:
    with answering(b"HTTP/1.1 422 Unprocessable\r\nContent-Length: 4\r\n\r\noops") as client:
        answer = client.post({"n": 1})
    assert (answer.status, answer.body) == (422, {})


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"a"',
        b"HTTP/1.1 200 OK\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 xyz\r\nContent-Length: 2\r\n\r\n{}",
        b"x: " + b"y" * 100_000,
    ],
    ids=[
        "nothing",
        "half-head",
        "half-body",
        "no-length",
        "negative",
        "chunks",
        "ssh",
        "no-status",
        "endless-head",
    ],
)
def test_what_is_no_whole_answer_leaves_the_report_to_be_sent_again(said: bytes) -> None:
    with answering(said) as client, pytest.raises(ServerAway):
        client.post({"n": 1})
