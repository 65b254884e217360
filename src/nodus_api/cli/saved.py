"""How far an Attempt's program is, as its last checkpoint tells (SC-142, SC-641).

The API reference has no field for it before an Attempt resumes (`spec.restoreFrom.cursor`). Pure.
"""

from collections.abc import Mapping
from typing import Any

from nodus_api.metav1.times import format_time
from nodus_api.storage.lives import Life

Facts = dict[str, Any]


def last_checkpoint(life: Life) -> Facts:
    """Return as `lastCheckpoint` the latest that the Attempt committed, its cursor if known."""
    if not life.checkpoints:
        return {}
    point = max(life.checkpoints, key=lambda one: one.seq)
    saved: Facts = {"seq": point.seq, "committedTime": format_time(point.committed)}
    if point.cursor is not None:
        saved["cursor"] = {"completed": point.cursor.completed, "total": point.cursor.total}
    return {"lastCheckpoint": saved}


def saved_line(saved: Mapping[str, Any] | None, stage: str) -> str:
    """Return the line about the last checkpoint of a program that runs, else nothing."""
    if saved is None or stage != "Running":
        return ""
    where = f",{at_cursor(saved['cursor'])}" if "cursor" in saved else ""
    return f"Its last checkpoint is {saved['seq']}{where}, committed at {saved['committedTime']}.\n"


def at_cursor(cursor: Mapping[str, int] | None) -> str:
    """Return ` at 30 of 60`; nothing where no cursor is known."""
    return "" if cursor is None else f" at {cursor['completed']} of {cursor['total']}"
