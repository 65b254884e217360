"""A Running Attempt whose runner is not heard of: since when, and when it is given up (SC-614).

Pure, of what the loop keeps in rows. Whether the supplier vouches for the machine is known to the
loop alone, so before two minutes of silence both ends are told.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from nodus_api.kernel.deadlines import (
    LOST_AFTER,
    LOST_IF_VOUCHED_AFTER,
    SUSPECT_AFTER,
    TAKE_OVER_GAP,
)
from nodus_api.metav1.table import age
from nodus_api.metav1.times import format_time, parse_time
from nodus_api.storage.lives import Hearing, Life

Facts = dict[str, Any]


def silence_of(life: Life, now: datetime) -> Facts | None:
    """Return what is known of a silence of more than a minute; None if there is none."""
    hearing, status = life.hearing, life.document["status"]
    if hearing is None or status["progress"]["stage"] != "Running":
        return None
    started = parse_time(status["timings"]["commandStartedTime"])
    heard = max(hearing.last_heartbeat or started, started)
    if now - heard <= SUSPECT_AFTER:
        return None
    silence: Facts = {
        "lastHeardTime": format_time(heard),
        "seconds": (now - heard) // timedelta(seconds=1),
    }
    if now - hearing.leader_seen > TAKE_OVER_GAP:
        return silence | {"noSchedulerSinceTime": format_time(hearing.leader_seen)}
    since = _counted_from(hearing, heard)
    if since > heard:
        silence["countedFromTime"] = format_time(since)
    if now - since <= LOST_AFTER:
        silence["lostIfNotVouchedTime"] = format_time(since + LOST_AFTER)
    return silence | {"lostTime": format_time(since + LOST_IF_VOUCHED_AFTER)}


def silence_lines(silence: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that tell of a silence."""
    quiet = age(timedelta(seconds=silence["seconds"]))
    yield f"Nothing was heard of its runner since {silence['lastHeardTime']} ({quiet})."
    if "noSchedulerSinceTime" in silence:
        away = silence["noSchedulerSinceTime"]
        yield f"  no scheduler has been at work since {away}; silence counts from its return"
        return
    if "countedFromTime" in silence:
        since = silence["countedFromTime"]
        yield f"  silence counts from {since}, when a scheduler came back after a time without one"
    late = f"given up as lost at {silence['lostTime']}, after {_minutes(LOST_IF_VOUCHED_AFTER)}"
    if "lostIfNotVouchedTime" not in silence:
        yield f"  its machine is said to run, so it is {late} of silence"
        return
    soon, short = silence["lostIfNotVouchedTime"], _minutes(LOST_AFTER)
    yield f"  {late} of silence if its machine is said to run, else at {soon}, after {short}"


def _counted_from(hearing: Hearing, heard: datetime) -> datetime:
    """Return when the silence began to count: not before a take-over after a time without a leader.

    Such a take-over forgave it, so it is suspected again only a minute later, or not yet.
    """
    took_over = hearing.leader_since
    if took_over is None or took_over <= heard:
        return heard
    suspected = hearing.suspect_since
    forgiven = suspected is None or suspected - took_over > SUSPECT_AFTER
    return took_over if forgiven else heard


def _minutes(span: timedelta) -> str:
    return f"{span // timedelta(minutes=1)} minutes"
