"""A network between the product and Postgres that tests can break without anybody being told."""

import asyncio
import threading
from contextlib import suppress
from typing import Any

from nodus_api.tasks import spawn

_PIECE = 64 * 1024


class Proxy:
    """Forwards a TCP port of this machine to a Unix socket, on a thread of its own.

    After `swallow` nothing goes through, and no end hears of it: connections stay open, those that
    were open are dead for good, as behind a firewall that forgot them. New ones are taken and left
    without an answer until `heal`.
    """

    def __init__(self, target: str) -> None:
        """`target` is the path of the Unix socket."""
        self._target = target
        self._swallows = False
        self._dead: set[int] = set()
        self._open: dict[int, asyncio.StreamWriter] = {}
        self._made = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self.port = 0

    def __enter__(self) -> "Proxy":
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def swallow(self) -> None:
        """Let nothing through from now on."""
        self._swallows = True
        self._dead.update(list(self._open))

    def heal(self) -> None:
        """Let new connections through again."""
        self._swallows = False

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for writer in list(self._open.values()):
            writer.transport.abort()
        mine = asyncio.current_task()
        rest = [task for task in asyncio.all_tasks() if task is not mine]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self._made
        self._made += 1
        self._open[number] = writer
        if self._swallows:
            self._dead.add(number)
        try:
            with suppress(OSError):
                await self._forward(number, reader, writer)
        finally:
            del self._open[number]
            writer.transport.abort()

    async def _forward(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if number in self._dead:
            while await reader.read(_PIECE):
                pass
            return
        back, forth = await asyncio.open_unix_connection(self._target)
        try:
            there = spawn("there", self._pump(number, reader, forth))
            here = spawn("here", self._pump(number, back, writer))
            await asyncio.wait((there, here), return_when=asyncio.FIRST_COMPLETED)
            if number in self._dead:  # who hangs up is not heard at the other end
                await asyncio.wait((there,))
            there.cancel()
            here.cancel()
        finally:
            forth.transport.abort()

    async def _pump(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_PIECE):
                if number not in self._dead:
                    writer.write(data)
                    await writer.drain()
