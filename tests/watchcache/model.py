"""What must come out: the log itself, walked in the plainest way."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from tests.watchcache.feed_log import FeedLog, Row

from nodus_api.watchcache import Page
from nodus_api.watchcache.watcher import Delivery

Labels = dict[str, str]
Chooses = Callable[[Labels], bool]


@dataclass(frozen=True)
class Seen:
    """One Attempt as a client sees it: its key, its revision, and which change wrote it."""

    project: str
    name: str
    rev: int
    mark: int


def labels_of(row: Row) -> Labels:
    return dict(orjson.loads(row.sel or "")["labels"])


def state_at(log: FeedLog, rev: int, project: str | None, chooses: Chooses) -> list[Seen]:
    """The state at `rev`, in the order of a list."""
    rows: dict[object, Row] = {}
    for row in log.rows:
        if row.rev > rev or row.uid is None:
            continue
        if row.kind == "D":
            del rows[row.uid]
        else:
            rows[row.uid] = row
    found = [
        Seen(row.project or "", row.name or "", row.rev, row.rev)
        for row in rows.values()
        if project in (None, row.project) and chooses(labels_of(row))
    ]
    return sorted(found, key=lambda seen: (seen.project, seen.name))


def events_after(
    log: FeedLog, rev: int, project: str | None, chooses: Chooses
) -> list[tuple[str, int, int]]:
    """The events of a watch from `rev`: type, revision, and which change wrote the object."""
    current: dict[object, Row] = {}
    events = []
    for row in log.rows:
        if row.uid is None:
            continue
        before = current.pop(row.uid, None)
        if row.kind != "D":
            current[row.uid] = row
        if row.rev <= rev or project not in (None, row.project):
            continue
        was = before is not None and chooses(labels_of(before))
        now = row.kind != "D" and chooses(labels_of(row))
        if now:
            events.append(("MODIFIED" if was else "ADDED", row.rev, row.rev))
        elif was and before is not None:
            events.append(("DELETED", row.rev, before.rev))
    return events


def commit_ends(log: FeedLog) -> set[int]:
    """The revisions at which no commit is half done."""
    last: dict[int, int] = {}
    for row in log.rows:
        last[row.tx] = row.rev
    return set(last.values())


def seen_of(body: bytes | None) -> Seen:
    found: dict[str, Any] = orjson.loads(body or b"")
    meta = found["metadata"]
    return Seen(
        meta["namespace"], meta["name"], int(meta["resourceVersion"]), found["status"]["mark"]
    )


def seen_page(page: Page) -> list[Seen]:
    return [seen_of(entry.body) for entry in page.entries]


def told(delivery: Delivery) -> tuple[str, int, int]:
    seen = seen_of(delivery.body)
    assert seen.rev == delivery.rev
    return delivery.type, delivery.rev, seen.mark
