"""This replica's view of tokens, members and projects, kept by following `access_changes`.

Everything is small and held whole: a change loads the snapshot again, and the difference to the one
before becomes the events of namespace watches (LW-016), each at its own access revision.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from nodus_api.apiserver.access import AccessChange, AccessSource, Wakeups
from nodus_api.apiserver.access_view import NOBODY, AccessView, ProjectView, Subject
from nodus_api.clock import Clock
from nodus_api.outages import Outage
from nodus_api.tasks import end, spawn
from nodus_api.watchcache.freshness import Head, Reached

POLL_SECONDS = 1.0
RETRY_SECONDS = 1.0
USES_SECONDS = 60.0
VIEWS = 16
EVENTS = 10_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectEvent:
    """A project came, went, or is seen by others than before."""

    rev: int
    before: ProjectView | None
    after: ProjectView | None

    @property
    def seen_before(self) -> frozenset[Subject]:
        """Who saw the project before, admins aside."""
        return self.before.seen_by if self.before is not None else NOBODY

    @property
    def seen_after(self) -> frozenset[Subject]:
        """Who sees it now."""
        return self.after.seen_by if self.after is not None else NOBODY


class AccessCache:
    """The newest view, a few older ones, and the events between them."""

    def __init__(self, source: AccessSource, *, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._views: list[AccessView] = []
        self._events: list[ProjectEvent] = []
        self._used: dict[str, float] = {}
        self._uses_due = clock.monotonic() + USES_SECONDS
        self._kicked = asyncio.Event()
        self._head = Head(source.head)
        self._reached = Reached(clock)
        self.floor = 0
        self.refused = False
        self._outage = Outage(
            log, begins="the access tables cannot be read", over="the access tables are read again"
        )
        self.changed: Callable[[], None] = lambda: None

    # -- read --------------------------------------------------------------------------------

    @property
    def view(self) -> AccessView | None:
        """The newest view, None before the first load."""
        return self._views[-1] if self._views else None

    def view_at(self, rev: int) -> AccessView | None:
        """Return a view that was true of the projects at `rev`, if one is still held."""
        for view in reversed(self._views):
            if view.rev <= rev:
                changed = any(view.rev < event.rev <= rev for event in self._events)
                return None if changed else view
        return None

    def events_after(self, rev: int) -> list[ProjectEvent]:
        """Return the events above a revision, in order."""
        return [event for event in self._events if event.rev > rev]

    async def head(self) -> int:
        """Return the newest access revision, read after this call."""
        return await self._head.ask()

    async def reach(self, rev: int) -> bool:
        """Wait up to 3 s until the view has a revision; return whether it has."""
        self._kicked.set()
        return await self._reached.wait(rev)

    def used(self, token_id: str) -> None:
        """Note that a token was used; written once a minute (AS-067)."""
        self._used[token_id] = self._clock.monotonic()

    # -- follow ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load and follow until cancelled; every failure is tried again."""
        try:
            while True:
                try:
                    await self._session()
                except Exception as error:  # noqa: BLE001  the source's errors are not known here
                    self._outage.failed(error)
                    self.refused = True
                    await self._clock.sleep(RETRY_SECONDS)
        finally:
            await self._head.close()

    async def _session(self) -> None:
        async with self._source.listen() as wakeups:
            while wakeups.alive:
                await self._refresh()
                await self._write_uses()
                await self._wait(wakeups)

    async def _wait(self, wakeups: Wakeups) -> None:
        kick = spawn("access-kick", self._kicked.wait())
        wake = spawn("access-wakeup", wakeups.wait(POLL_SECONDS))
        try:
            await asyncio.wait((kick, wake), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._kicked.clear()
            await end(kick)
            await end(wake)

    async def _refresh(self) -> None:
        before = self.view
        if before is None or await self._source.head() != before.rev:
            snapshot = await self._source.load()
            after = AccessView(snapshot)
            if before is None:
                self.floor = after.rev
            else:
                self._record(before, after, await self._source.changes(before.rev))
            self._views = [*self._views, after][-VIEWS:]
            self._reached.advance(after.rev)
            self.changed()
        self.refused = False
        self._outage.passed()

    def _record(
        self, before: AccessView, after: AccessView, changes: Sequence[AccessChange]
    ) -> None:
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        found = []
        for change in changes:
            if change.what == "project":
                first.setdefault(change.key, change.rev)
            if change.what in ("project", "member") and change.rev <= after.rev:
                last[change.key] = change.rev
        for name, rev in last.items():
            old, new = before.project(name), after.project(name)
            if old is not None and new is not None and old.record.uid != new.record.uid:
                # one project went and another took its name: two facts, each at its revision
                found.append(ProjectEvent(rev=first[name], before=old, after=None))
                old = None
            found.append(ProjectEvent(rev=rev, before=old, after=new))
        self._events += sorted(found, key=lambda event: event.rev)
        if len(self._events) > EVENTS:
            self.floor = self._events[-EVENTS - 1].rev
            del self._events[:-EVENTS]

    async def _write_uses(self) -> None:
        now = self._clock.monotonic()
        if self._used and now >= self._uses_due:
            used, self._used = self._used, {}
            self._uses_due = now + USES_SECONDS
            with suppress(Exception):
                await self._source.tokens_used(used)
