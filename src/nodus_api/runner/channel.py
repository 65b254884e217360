"""The folder in which program and runner talk of progress and checkpoints (SC-642).

`progress` is a FIFO, whose path the program has as NODUS_PROGRESS. It takes one JSON object a line,
at most 4,096 bytes, so that the lines of several writers never mix:

    {"completed": 120, "total": 1000}                            how far it is: its cursor
    {"active": true}                                             a session is in use, nothing else
    {"checkpoint": {"dir": "DIR"}, "completed": 120, "total": 1000, "id": "ID"}
                                     keep a copy of DIR; cursor and id may be left out

DIR must not change until the answer is there. Beside `progress` lie `committed`, the seq of the
last checkpoint that the server has committed; `answers/ID`, `{"committed": true, "seq": 7}` or
`{"committed": false, "message": "…"}`, for each line with an id; and `checkpoint-now`, which is
there while a checkpoint is asked for. All three appear whole, by rename.
"""

import array
import fcntl
import json
import logging
import os
import re
import select
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodus_api.runner.files import write_json, write_text
from nodus_api.runner.times import elapsed
from nodus_api.runner.trees import be_ready

logger = logging.getLogger(__name__)

PROGRESS = "progress"
COMMITTED = "committed"
ANSWERS = "answers"
NOW = "checkpoint-now"
LINE_BYTES = 4096

_READ_BYTES = 65536
_TOLD = 100
"""How many refusals the runner's own log tells of; a program may write bad lines without end."""
_MOST = 2**63
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class BadLine(Exception):
    """A line that says nothing the runner can follow; a sentence for the program's owner."""

    def __init__(self, message: str, *, id: str | None = None) -> None:
        super().__init__(message)
        self.id = id


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far the program is, in its own units: 0 <= completed <= total."""

    completed: int
    total: int

    def to_json(self) -> dict[str, int]:
        """Return the cursor as reports carry it."""
        return {"completed": self.completed, "total": self.total}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What the program said; `at` is the moment of `times.elapsed` at which it was read."""

    at: float
    cursor: Cursor | None = None
    directory: Path | None = None
    id: str | None = None


class Channel:
    """The runner's end. `heard` is called on the channel's own thread, and may take its time.

    `ended` is called there once, after `close`, when all that was written before has been heard.
    """

    def __init__(
        self,
        folder: Path,
        *,
        home: Path,
        heard: Callable[[Line], None],
        ended: Callable[[], None],
    ) -> None:
        self.progress = folder / PROGRESS
        self._folder = folder
        self._home = home
        self._heard = heard
        self._ended = ended
        self._closing, self._close = -1, -1
        self._told = 0

    def open(self) -> None:
        """Make the folder and listen; raises OSError."""
        (self._folder / ANSWERS).mkdir(parents=True, exist_ok=True)
        os.mkfifo(self.progress, 0o600)
        # For writing too: so it has no end of file, and a program that opens it never waits.
        fifo = os.open(self.progress, os.O_RDWR | os.O_NONBLOCK)
        self._closing, self._close = os.pipe()
        threading.Thread(target=self._listen, args=(fifo,), name="channel", daemon=True).start()

    def close(self) -> None:
        """Hear what is still unread, then no more; the program has ended. Only once."""
        os.close(self._close)

    def committed(self, seq: int, id: str | None) -> None:
        """Tell the program that its checkpoint is committed."""
        with self._failing_alone():
            write_text(self._folder / COMMITTED, f"{seq}\n")
        self._answer(id, {"committed": True, "seq": seq})

    def refused(self, message: str, id: str | None) -> None:
        """Tell the program, if it waits, that its checkpoint is not committed and will not be."""
        self._tell("a checkpoint was not taken", f": {message}")
        self._answer(id, {"committed": False, "message": message})

    def ask(self) -> None:
        """Ask the program for a checkpoint; stands until it gives one."""
        with self._failing_alone():
            write_text(self._folder / NOW, "")

    def _answer(self, id: str | None, answer: dict[str, Any]) -> None:
        with self._failing_alone():
            if id is not None:
                write_json(self._folder / ANSWERS / id, answer)

    @contextmanager
    def _failing_alone(self) -> Iterator[None]:
        """Keep what the system refuses from ending more than this word: the program goes on."""
        try:
            yield
        except OSError as error:
            self._tell("the channel failed", f": {error}")

    def _tell(self, message: str, cause: str = "") -> None:
        """Log what went wrong, the first times: beyond that it would fill the disk."""
        self._told += 1
        if self._told <= _TOLD:
            logger.warning(message, extra={"cause": cause})
        if self._told == _TOLD:
            logger.warning("what else goes wrong with the channel is not logged")

    def _listen(self, fifo: int) -> None:
        be_ready()  # here, where no program's start waits for it
        ready = select.poll()
        ready.register(fifo, select.POLLIN)
        ready.register(self._closing, select.POLLIN)
        rest, left = b"", None  # `left`: how much was unread when the program ended
        while left is None or left > 0:
            if left is None and any(one == self._closing for one, _ in ready.poll()):
                left = _unread(fifo)
            try:
                content = os.read(fifo, _READ_BYTES if left is None else min(left, _READ_BYTES))
            except BlockingIOError:
                if left is not None:
                    break  # the program itself has read some of it
                continue
            left = None if left is None else left - len(content)
            *lines, rest = (rest + content).split(b"\n")
            for line in lines:
                self._hear(line)
            if len(rest) > LINE_BYTES:
                self._tell("a line of progress is too long and is dropped")
                rest = b""
        self._hear(rest)
        os.close(fifo)
        os.close(self._closing)
        self._ended()

    def _hear(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            heard = read_line(line, home=self._home, at=elapsed())
        except BadLine as error:
            self.refused(str(error), error.id)
            return
        with self._failing_alone():
            if heard.directory is not None:
                (self._folder / NOW).unlink(missing_ok=True)
        try:
            self._heard(heard)
        except Exception:  # the life's end waits for this thread
            logger.exception("a word of the program could not be taken")
            self.refused("the runner could not take it", heard.id)


def _unread(fifo: int) -> int:
    """Return how many bytes wait in a pipe."""
    size = array.array("i", [0])
    fcntl.ioctl(fifo, termios.FIONREAD, size)
    return size[0]


def read_line(line: bytes, *, home: Path, at: float) -> Line:
    """Return what a line says; a relative directory is one of `home`. Raises BadLine."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        raise BadLine("a line of progress is not JSON") from None
    if not isinstance(said, dict):
        raise BadLine("a line of progress is not a JSON object")
    id = said.get("id")
    if id is not None and not (isinstance(id, str) and _ID.fullmatch(id)):
        raise BadLine("an id is 1 to 64 letters, digits, - and _")
    directory = _directory(said.get("checkpoint"), id)
    cursor = _cursor(said, id)
    if directory is None and cursor is None and said.get("active") is not True:
        raise BadLine("a line has a checkpoint, completed and total, or active", id=id)
    return Line(at=at, cursor=cursor, directory=home / directory if directory else None, id=id)


def _directory(checkpoint: object, id: str | None) -> str | None:
    if checkpoint is None:
        return None
    directory = checkpoint.get("dir") if isinstance(checkpoint, dict) else None
    if not isinstance(directory, str) or not _names(directory):
        raise BadLine('a checkpoint is {"dir": "DIRECTORY"}', id=id)
    return directory


def _names(directory: str) -> bool:
    """Whether a text can name a directory at all."""
    try:
        return bool(directory) and b"\0" not in os.fsencode(directory)
    except UnicodeEncodeError:
        return False


def _cursor(said: dict[str, Any], id: str | None) -> Cursor | None:
    completed, total = said.get("completed"), said.get("total")
    if completed is None and total is None:
        return None
    if type(completed) is not int or type(total) is not int or not 0 <= completed <= total < _MOST:
        raise BadLine("completed and total are whole numbers, 0 <= completed <= total", id=id)
    return Cursor(completed=completed, total=total)
