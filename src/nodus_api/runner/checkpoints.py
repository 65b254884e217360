"""From a directory that the program names to a checkpoint that the server has committed (SC-142).

The copy is made on the channel's thread; everything after it is the main thread's. One checkpoint
is proposed at a time, as last answered + 1; later ones wait here. Until the answer that commits it,
a checkpoint is bytes in the store that nobody sees.
"""

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodus_api.runner.channel import Channel, Cursor, Line
from nodus_api.runner.client import Answer
from nodus_api.runner.failures import plainly
from nodus_api.runner.files import sync_directory
from nodus_api.runner.outbox import Report
from nodus_api.runner.trees import BadTree, Measured, copy_tree, remove_tree

CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A copy on its way into the store: it has no seq yet."""

    path: Path
    measured: Measured
    at: float
    cursor: Cursor | None
    id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A copy in its place, `store/SEQ`, that waits for the server's answer."""

    seq: int
    copied: Copied
    path: Path

    def report(self) -> Report:
        """Return the report; a repeat of it is another one, with the same content."""
        cursor = self.copied.cursor
        return Report(
            kind=CHECKPOINT,
            at=self.copied.at,
            fields={
                "seq": self.seq,
                "bytes": self.copied.measured.bytes,
                "uri": self.path.as_uri(),
                "sha256": self.copied.measured.sha256,
                **({} if cursor is None else {"cursor": cursor.to_json()}),
            },
        )


class Copier:
    """Makes the copies of one machine, in a folder that only it uses, None where nothing keeps any.

    Only the channel's thread uses it. `open_to_new` says, before each copy, whether one may be
    begun (SC-643).
    """

    def __init__(self, folder: Path | None, *, open_to_new: Callable[[], bool]) -> None:
        self._folder = folder
        self._open_to_new = open_to_new
        self._count = 0

    def copy(self, line: Line) -> Copied:
        """Copy the directory of a line; raises BadTree, OSError."""
        if self._folder is None:
            raise BadTree("this machine keeps no checkpoints")
        if not self._open_to_new():
            raise BadTree("the server is away for too long: no new checkpoint is begun")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._count += 1
        path = self._folder / str(self._count)
        remove_tree(path)
        measured = copy_tree(line.directory or Path(), path)
        return Copied(path=path, measured=measured, at=line.at, cursor=line.cursor, id=line.id)


class Checkpoints:
    """The copies that wait for their answer, oldest first; `store` keeps those of this epoch."""

    def __init__(self, store: Path | None, channel: Channel) -> None:
        self._store = store
        self._channel = channel
        self._last = 0
        self._open: Proposal | None = None
        self._waiting: deque[Copied] = deque()

    @property
    def settled(self) -> bool:
        """Whether every checkpoint has its answer."""
        return self._open is None and not self._waiting

    def begin(self, last_seq: int) -> None:
        """Count on from the slot's last committed seq, as the answer to canStart has it."""
        self._last = last_seq

    def add(self, copied: Copied) -> None:
        """Queue a copy."""
        self._waiting.append(copied)

    def next(self) -> Report | None:
        """Return the first report of the next proposal; None if one is open, or nothing waits."""
        while self._open is None and self._waiting:
            self._open = self._placed(self._waiting.popleft(), self._last + 1)
            if self._open is not None:
                return self._open.report()
        return None

    def repeated(self) -> Report | None:
        """Return the open proposal once more, None if there is none."""
        return self._open.report() if self._open else None

    def rest(self) -> list[Report]:
        """Return what was never sent, counted on from the open proposal: the program has ended."""
        last = self._open.seq if self._open else self._last
        placed = []
        while self._waiting:
            one = self._placed(self._waiting.popleft(), last + 1)
            if one is not None:
                last = one.seq
                placed.append(one.report())
        return placed

    def answered(self, report: Report, answer: Answer) -> bool:
        """Take an answer to a proposal; return whether it is settled by it."""
        one = self._open
        if one is None or report.fields["seq"] != one.seq:
            return True
        if answer.status // 100 == 2:
            if answer.body.get("committed") != one.seq:
                return False
            self._last, self._open = one.seq, None
            self._channel.committed(one.seq, one.copied.id)
            return True
        self._open = None
        self._last = _last_seq(answer.body, self._last)
        remove_tree(one.path)
        message = answer.body.get("message")
        self._channel.refused(f"the server refused it: {message}", one.copied.id)
        return True

    def _placed(self, copied: Copied, seq: int) -> Proposal | None:
        """Move a copy to its place in one step; what lies there was never committed."""
        path = (self._store or copied.path) / str(seq)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            remove_tree(path)
            os.rename(copied.path, path)
            sync_directory(path.parent)
        except OSError as error:
            remove_tree(copied.path)
            self._channel.refused(f"it could not be stored: {plainly(error)}", copied.id)
            return None
        return Proposal(seq=seq, copied=copied, path=path)


def _last_seq(body: dict[str, Any], known: int) -> int:
    """Return where the slot stands, as the causes of a refusal tell it."""
    with suppress(AttributeError, KeyError, TypeError, ValueError):  # not from our server
        for cause in body["details"]["causes"]:
            if cause.get("field") == "lastSeq":
                return max(0, int(cause["message"]))
    return known
