"""One POST over a Unix socket: as much of HTTP/1.1 as our own server speaks there.

Written out, because the HTTP client of the standard library loads the e-mail package and TLS, which
take a third of a runner's start.
"""

import socket
from collections.abc import Mapping

_HEAD_BYTES = 65536
_READ_BYTES = 65536


def post(
    socket_path: str,
    target: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    seconds: float,
    most: int,
) -> tuple[int, bytes]:
    """Return status and content, at most `most` bytes of it.

    `headers` must ask the server to close the connection. At most `seconds` without a byte. Raises
    OSError, and ValueError for what is no whole answer; one in chunks is none, since nothing that
    is asked for here needs them.
    """
    sent = {"Host": "runner", "Content-Length": str(len(body)), **headers}
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        connection.connect(socket_path)
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        status, told, content = _head(connection)
        length = told.get("content-length", "")
        if "transfer-encoding" in told or not (length.isascii() and length.isdigit()):
            raise ValueError("the answer does not say how long it is")
        wanted = min(int(length), most)
        while len(content) < wanted:
            content += _some(connection)
    return status, content[:wanted]


def _head(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers by their names in lower case, and what came of the content."""
    received = b""
    while b"\r\n\r\n" not in received:
        if len(received) > _HEAD_BYTES:
            raise ValueError("the head of the answer does not end")
        received += _some(connection)
    head, _, content = received.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    version, _, said = first.partition(" ")
    number = said[:3]
    if not version.startswith("HTTP/1.") or not (number.isascii() and number.isdigit()):
        raise ValueError("the answer is no HTTP")
    told = (line.partition(":") for line in rest)
    return int(number), {name.strip().lower(): value.strip() for name, _, value in told}, content


def _some(connection: socket.socket) -> bytes:
    received = connection.recv(_READ_BYTES)
    if not received:
        raise ValueError("the answer ends early")
    return received
