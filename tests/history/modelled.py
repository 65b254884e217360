"""The log of the in-process model as the log of a history."""

from datetime import datetime

from tests.history.facts import Row
from tests.watchcache.feed_log import FeedLog


def log_of(model: FeedLog, at: datetime) -> tuple[Row, ...]:
    """Return the model's rows; they have no moments of their own, so all are of `at`."""
    return tuple(
        Row(
            rev=row.rev,
            kind=row.kind,
            tx=row.tx,
            at=at,
            uid=str(row.uid or ""),
            project=row.project or "",
            name=row.name or "",
            doc=row.doc or b"",
        )
        for row in model.rows
    )
