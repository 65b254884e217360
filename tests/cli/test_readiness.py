"""`nodus up` says that it is ready when its scheduler is, too."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nodus_api.cli import listening
from nodus_api.cli.up import _scheduler_is_ready


@asynccontextmanager
async def answering(health: socket.socket, status: str) -> AsyncIterator[None]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode())
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, sock=health)
    async with server:
        yield


@pytest.mark.parametrize(
    ("status", "ready"), [("200 OK", True), ("500 Internal Server Error", False)]
)
async def test_a_scheduler_is_as_ready_as_it_says(status: str, ready: bool) -> None:  # SC-645
    health = listening.bind("127.0.0.1", 0)
    async with answering(health.dup(), status):
        assert await _scheduler_is_ready(health) is ready
    health.close()


async def test_a_scheduler_that_does_not_answer_yet_is_not_ready() -> None:
    with listening.bind("127.0.0.1", 0) as health:  # bound for it, as `up` does
        assert await _scheduler_is_ready(health) is False
