"""Watches of projects as namespaces: each caller sees those that are open to it (LW-016)."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nodus_api.apiserver.access import ProjectRecord
from nodus_api.apiserver.access_cache import AccessCache, ProjectEvent
from nodus_api.apiserver.access_view import ProjectView, is_visible
from nodus_api.apiserver.identity import User
from nodus_api.metav1.namespaces import namespace
from nodus_api.watchcache.watcher import CROWD_BYTES, CROWD_EVENTS, Watchers, WatchOver

Choice = Callable[[ProjectRecord], bool]
"""Whether the selectors of a request choose a project."""


@dataclass(frozen=True, slots=True)
class ProjectDelivery:
    """One event for one watcher."""

    type: str
    rev: int
    body: bytes


class ProjectWatcher:
    """Takes the events of projects that a user may see, from an access revision on."""

    def __init__(
        self,
        access: AccessCache,
        registry: "ProjectWatchers",
        *,
        user: User,
        chosen: Choice,
        position: int,
        initial: Sequence[ProjectView] | None,
    ) -> None:
        self.position = position
        self.over: str | None = None
        self._access = access
        self._registry = registry
        self._user = user
        self._chosen = chosen
        self._initial = initial
        self._woken = asyncio.Event()

    @property
    def process_position(self) -> int:
        """How far the process has come."""
        return self._access.view.rev if self._access.view is not None else self.position

    def initial_pieces(self) -> Iterator[Sequence[tuple[int, bytes]]] | None:
        """Give the projects of the start in rising revision."""
        if self._initial is None:
            return None
        ordered = sorted(self._initial, key=lambda project: project.record.access_rev)
        return iter([[(p.record.access_rev, namespace_body(p)) for p in ordered]])

    async def take(self) -> Sequence[ProjectDelivery]:
        """Return the next events; empty when nothing is left. Raises WatchOver."""
        if self.position < self._access.floor:
            raise WatchOver("the watch left the history")
        taken = []
        for event in self._access.events_after(self.position):
            delivery = self._delivery(event)
            if delivery is not None:
                taken.append(delivery)
        self.position = max(self.position, self.process_position)
        return taken

    async def wait(self) -> None:
        """Wait until woken."""
        await self._woken.wait()
        self._woken.clear()

    def wake(self) -> None:
        """Let the stream look again."""
        self._woken.set()

    async def crowded(self, unsent: int) -> bool:
        """Return whether much waits for the client (AS-093)."""
        return unsent > CROWD_BYTES or len(self._access.events_after(self.position)) > CROWD_EVENTS

    def wake_at(self, due: float) -> None:
        """Wake at a moment of the monotonic clock."""
        self._registry.wake_at(due, self)

    def end(self, why: str) -> None:
        """End the stream cleanly."""
        self.over = self.over or why
        self.wake()

    def close(self) -> None:
        """Take the watcher out."""
        self._registry.remove(self)

    def _delivery(self, event: ProjectEvent) -> ProjectDelivery | None:
        known = event.after or event.before
        if known is None or not self._chosen(known.record):
            return None
        was = event.before is not None and is_visible(self._user, event.seen_before)
        now = event.after is not None and is_visible(self._user, event.seen_after)
        if was == now:
            return None
        rev = event.rev
        return ProjectDelivery("ADDED" if now else "DELETED", rev, namespace_body(known, rev))


class ProjectWatchers:
    """All watches of namespaces of this replica."""

    def __init__(self, timers: Watchers) -> None:
        """`timers` wake whoever is due; the watch cache's are lent."""
        self._all: dict[ProjectWatcher, None] = {}
        self._timers = timers

    def wake_at(self, due: float, watcher: ProjectWatcher) -> None:
        """Wake a watcher at a moment of the monotonic clock."""
        self._timers.wake_at(due, watcher)

    def add(self, watcher: ProjectWatcher) -> None:
        """Let a watcher be woken."""
        self._all[watcher] = None

    def remove(self, watcher: ProjectWatcher) -> None:
        """Forget a watcher."""
        self._all.pop(watcher, None)

    def wake(self) -> None:
        """Wake all: the access view changed."""
        for watcher in list(self._all):
            watcher.wake()


def namespace_body(project: ProjectView, rev: int | None = None) -> bytes:
    """Return a project as a Namespace, at its own revision or at that of its end."""
    record = project.record
    return namespace(
        record.name,
        uid=record.uid,
        created=record.created,
        rev=record.access_rev if rev is None else rev,
    )
