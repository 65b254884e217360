"""`nodus get --archived`: what was retired from the API, the newest end first, a page at a time."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.attempts.projection import splice
from nodus_api.cli.errors import Refused
from nodus_api.durations import parse_duration
from nodus_api.metav1.times import format_time
from nodus_api.storage.listings import Archived, Chosen, read_archived

PAGE = 500
"""So many are shown where nobody says how many."""

Place = tuple[datetime, UUID]
"""The end of the last one shown, and its uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Which part of the archive is asked for; `limit` 0 means all of it."""

    since: datetime | None
    limit: int
    after: Place | None


def slice_of(
    archived: bool, since: str | None, limit: int | None, token: str | None, now: datetime
) -> Slice:
    """Return the part asked for. Raises Refused for what cannot be read, or has no archive."""
    given = {"--since": since, "--limit": limit, "--continue": token}
    if not archived and (named := [name for name, value in given.items() if value is not None]):
        raise Refused(f"{named[0]} is for the archive: give --archived too, or leave it out.")
    return Slice(
        since=_since(since, now) if since is not None else None,
        limit=PAGE if limit is None else limit,
        after=_place(token) if token is not None else None,
    )


async def archived_page(
    connection: AsyncConnection,
    chosen: Chosen,
    part: Slice,
    matches: Callable[[Mapping[str, Any]], bool],
) -> tuple[list[Mapping[str, Any]], str | None]:
    """Return Attempts and where to go on, None at the end; `matches` chooses by the document."""
    found: list[Mapping[str, Any]] = []
    after, shown = part.after, None
    while True:
        rows = await read_archived(connection, chosen, since=part.since, after=after, limit=PAGE)
        for row in rows:
            one = json.loads(splice(row.doc, row.rev))
            if not matches(one):
                continue
            if part.limit and len(found) == part.limit:
                return found, shown
            found.append(one)
            shown = _token(row)
        if len(rows) < PAGE:
            return found, None
        after = rows[-1].place


def _token(row: Archived) -> str:
    return f"{format_time(row.finished)}/{row.uid}"


def _place(token: str) -> Place:
    moment, _, uid = token.partition("/")
    try:
        return _moment(moment), UUID(uid)
    except ValueError:
        raise Refused(
            f"--continue {token!r} is no place in the archive: give what the last answer said."
        ) from None


def _since(text: str, now: datetime) -> datetime:
    try:
        return _moment(text)
    except ValueError:
        pass
    try:
        return now - parse_duration(text)
    except (ValueError, OverflowError):
        raise Refused(
            f"--since {text!r} is no duration and no moment: write 90m, 72h, P7D or"
            " 2026-01-31T00:00:00Z."
        ) from None


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("a moment without its zone")
    return found.astimezone(UTC)
