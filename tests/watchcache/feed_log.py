"""A model of the change log: a list of rows, with the promises of storage.md section 1."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

import orjson

from nodus_api.storage.errors import StorageTimeout, StorageUnavailable
from nodus_api.watchcache.entry import HEAD

LABELS = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    rev: int
    kind: str
    tx: int
    uid: UUID | None = None
    project: str | None = None
    name: str | None = None
    ver: int | None = None
    sel: str | None = None
    prev_sel: str | None = None
    prev_rev: int | None = None
    prev_doc: bytes | None = None
    doc: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    uid: UUID
    project: str
    name: str
    rev: int
    sel: str
    doc: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    epoch: int
    first_rev: int
    prev_last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    head: int
    oldest: int
    epochs: tuple[Epoch, ...]


@dataclass
class Snapshot:
    state: State
    stored: list[Stored]
    recent: list[Row]
    piece: int = 3

    async def objects(
        self, project: str | None = None, name: str | None = None
    ) -> AsyncIterator[Sequence[Stored]]:
        found = [
            one
            for one in self.stored
            if project in (None, one.project) and name in (None, one.name)
        ]
        for at in range(0, len(found), self.piece):
            yield found[at : at + self.piece]
            await asyncio.sleep(0)

    async def backfill(self) -> AsyncIterator[Sequence[Row]]:
        for at in range(0, len(self.recent), self.piece):
            yield self.recent[at : at + self.piece]


class Waking:
    def __init__(self, log: "FeedLog") -> None:
        self._log = log
        self.alive = True
        self.listening = True

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109  the protocol's name
        self._log.check()
        try:
            async with asyncio.timeout(timeout):
                await self._log.grown.wait()
        except TimeoutError:
            return False
        self._log.grown.clear()
        return True


@dataclass
class FeedLog:
    """Rows in commit order. `away` makes every call fail; `piece` bounds one read."""

    rows: list[Row] = field(default_factory=lambda: [Row(rev=1, kind="E", tx=1)])
    stored: dict[UUID, Stored] = field(default_factory=dict)
    epochs: tuple[Epoch, ...] = (Epoch(epoch=0, first_rev=1, prev_last=0),)
    away: bool = False
    piece: int = 1000
    backfilled: int = 1000
    stubs_below: int = 0  # back-filled rows up to this revision come without documents
    lost_below: int = 0  # the log has no row of this revision or older
    grown: asyncio.Event = field(default_factory=asyncio.Event)
    heads: int = 0
    slow: bool = False  # a walk of old history, or of all objects, meets its time limit
    standing_away: bool = False  # a read around a cache that lags fails
    standing_held: asyncio.Event | None = None  # … or waits for this
    lagging: bool = False  # whoever follows gets no further row

    # -- writing ---------------------------------------------------------------------------

    def commit(self, *changes: tuple[str, UUID, str, str, LABELS, LABELS]) -> list[int]:
        """One transaction: (kind, uid, project, name, labels, fields) each; returns revisions."""
        tx = self.rows[-1].tx + 1
        revs = [self._append(tx, *change) for change in changes]
        self.grown.set()
        return revs

    def record(
        self, kind: str, uid: UUID, project: str, name: str, sel: str = "", doc: bytes = b""
    ) -> int:
        """One transaction of one change, of a document made elsewhere; returns its revision."""
        rev = self._row(self.rows[-1].tx + 1, kind, uid, project, name, sel, doc)
        self.grown.set()
        return rev

    def _append(
        self, tx: int, kind: str, uid: UUID, project: str, name: str, labels: LABELS, fields: LABELS
    ) -> int:
        sel = orjson.dumps({"labels": labels, "fields": fields}).decode()
        doc = document(uid, project, name, labels, fields, self.rows[-1].rev + 1)
        return self._row(tx, kind, uid, project, name, sel, doc)

    def _row(
        self, tx: int, kind: str, uid: UUID, project: str, name: str, sel: str, doc: bytes
    ) -> int:
        rev = self.rows[-1].rev + 1
        old = self.stored.get(uid)
        if kind == "D":
            assert old is not None
            sel, doc = old.sel, old.doc
            del self.stored[uid]
        else:
            self.stored[uid] = Stored(
                uid=uid, project=project, name=name, rev=rev, sel=sel, doc=doc
            )
        changed = old is not None and kind == "M" and old.sel != sel
        self.rows.append(
            Row(
                rev=rev,
                kind=kind,
                tx=tx,
                uid=uid,
                project=project,
                name=name,
                ver=1,
                sel=sel,
                prev_sel=old.sel if old is not None and changed else None,
                prev_rev=old.rev if old is not None and kind != "A" else None,
                prev_doc=old.doc if old is not None and kind == "M" else None,
                doc=doc,
            )
        )
        return rev

    def begin_epoch(self, *, losing: int = 0) -> int:
        """Start an epoch, the last `losing` rows lost as by a failover; returns its marker."""
        for _ in range(losing):
            lost = self.rows.pop()
            assert lost.uid is not None
            self.stored.pop(lost.uid, None)
            before = [row for row in self.rows if row.uid == lost.uid]
            if before and before[-1].kind != "D":
                row = before[-1]
                self.stored[lost.uid] = Stored(
                    uid=lost.uid,
                    project=row.project or "",
                    name=row.name or "",
                    rev=row.rev,
                    sel=row.sel or "",
                    doc=row.doc or b"",
                )
        number = self.epochs[-1].epoch + 1
        marker = number << 44
        last = self.rows[-1].rev
        self.epochs = (*self.epochs, Epoch(epoch=number, first_rev=marker, prev_last=last))
        self.rows.append(Row(rev=marker, kind="E", tx=self.rows[-1].tx + 1))
        self.grown.set()
        return marker

    # -- what storage.feed offers ------------------------------------------------------------

    def check(self) -> None:
        if self.away:
            raise StorageUnavailable("the model", "away")

    async def state(self) -> State:
        self.check()
        return State(head=self.rows[-1].rev, oldest=max(self.lost_below + 1, 1), epochs=self.epochs)

    async def head(self) -> int:
        self.check()
        self.heads += 1
        return self.rows[-1].rev

    async def read(self, after: int, *, limit: int = 1000) -> list[Row]:
        self.check()
        least = max(after, self.lost_below)
        found = [] if self.lagging else [row for row in self.rows if row.rev > least]
        await asyncio.sleep(0)
        return found[:limit]

    @asynccontextmanager
    async def snapshot(self, window: timedelta) -> AsyncIterator[Snapshot]:
        self.check()
        recent = self.rows[max(0, len(self.rows) - self.backfilled) :] if self.backfilled else []
        yield Snapshot(
            state=await self.state(),
            stored=list(self.stored.values()),
            recent=[
                replace(row, doc=None) if row.rev <= self.stubs_below else row for row in recent
            ],
        )

    @asynccontextmanager
    async def standing(self) -> AsyncIterator[Snapshot]:
        if self.standing_away:
            raise StorageUnavailable("the model", "away")
        if self.slow:
            raise StorageTimeout("57014", "canceling statement due to statement timeout")
        if self.standing_held is not None:
            await self.standing_held.wait()
        yield Snapshot(state=await self.state(), stored=list(self.stored.values()), recent=[])

    async def first_changes(
        self, after: int, upto: int, project: str | None
    ) -> tuple[int, list[Row]]:
        self.check()
        if self.slow:
            raise StorageTimeout("57014", "canceling statement due to statement timeout")
        found: dict[UUID, Row] = {}
        for row in self.rows:
            if max(after, self.lost_below) < row.rev <= upto and row.uid is not None:
                found.setdefault(row.uid, replace(row, doc=None, prev_doc=None))
        await asyncio.sleep(0)
        rows = [row for row in found.values() if project in (None, row.project)]
        return (await self.state()).oldest, rows

    async def documents(self, revs: Sequence[int]) -> dict[int, bytes]:
        self.check()
        return {
            row.rev: row.doc
            for row in self.rows
            if row.rev in revs and row.doc is not None and row.rev > self.lost_below
        }

    async def previous(self, rev: int) -> bytes | None:
        self.check()
        for row in self.rows:
            if row.rev == rev and rev > self.lost_below:
                return row.doc if row.kind == "D" else row.prev_doc
        return None

    async def continue_key(self) -> bytes:
        self.check()
        return b"k" * 32

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Waking]:
        self.check()
        yield Waking(self)


def document(
    uid: UUID, project: str, name: str, labels: LABELS, fields: LABELS, mark: int
) -> bytes:
    """A document whose `status.mark` tells which change wrote it."""
    meta = {
        "name": name,
        "namespace": project,
        "uid": str(uid),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": labels,
    }
    phase = fields.get("status.phase", "Queued")
    status: dict[str, object] = {
        "phase": phase,
        "mark": mark,
        "progress": {"stage": fields.get("status.progress.stage", phase)},
        "timings": {},
    }
    if "status.reason" in fields:
        status["reason"] = fields["status.reason"]
    spec = {"slot": fields.get("spec.slot", "0"), "epoch": 1}
    rest = orjson.dumps(meta)[1:-1]
    return b"%b%b,%b},%b}" % (
        HEAD,
        b'"',
        rest,
        orjson.dumps({"spec": spec, "status": status})[1:-1],
    )
