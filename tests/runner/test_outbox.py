"""The queue of reports by itself: what is replaced, kept, and in which order it goes (SC-641)."""

import os
import queue
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodus_api.runner.client import Answer, ServerAway
from nodus_api.runner.outbox import HEARTBEAT, Outbox, Report
from nodus_api.runner.session import process_stat

SECONDS = 20


class Line:
    """A line to a server whose every answer the test gives by hand."""

    def __init__(self) -> None:
        self.sent: queue.Queue[dict[str, Any]] = queue.Queue()
        self.replies: queue.Queue[Answer | None] = queue.Queue()
        self.answered: queue.Queue[tuple[str, int]] = queue.Queue()
        self.outbox = Outbox(self.post, envelope={"machine": "m"}, answered=self.note)

    def post(self, body: dict[str, Any]) -> Answer:
        self.sent.put(body)
        reply = self.replies.get(timeout=SECONDS)
        if reply is None:
            raise ServerAway("away")
        return reply

    def note(self, report: Report, answer: Answer) -> None:
        self.answered.put((report.kind, answer.status))


def test_only_the_latest_waiting_heartbeat_is_sent() -> None:
    line = Line()
    line.outbox.put(Report(kind="registered", at=0.0))
    line.outbox.start()
    first = line.sent.get(timeout=SECONDS)
    for mark in range(5):  # while the first is in flight
        line.outbox.put(Report(kind=HEARTBEAT, at=0.0, fields={"mark": mark}))
    line.outbox.put(Report(kind="exited", at=0.0))

    sent = [first]
    for _ in range(3):
        line.replies.put(Answer(200, {}))
        line.answered.get(timeout=SECONDS)
        if not line.outbox.empty:
            sent.append(line.sent.get(timeout=SECONDS))

    assert [(one["kind"], one["n"]) for one in sent] == [
        ("registered", 1),
        (HEARTBEAT, 2),
        ("exited", 3),
    ]
    assert sent[1]["mark"] == 4


def test_a_heartbeat_in_doubt_is_replaced_under_a_new_number() -> None:
    line = Line()
    line.outbox.put(Report(kind=HEARTBEAT, at=0.0))
    line.outbox.start()
    doubtful = line.sent.get(timeout=SECONDS)
    line.replies.put(None)  # it may have arrived
    again = line.sent.get(timeout=SECONDS)
    line.outbox.put(Report(kind=HEARTBEAT, at=0.0))
    line.replies.put(None)

    newer = line.sent.get(timeout=SECONDS)

    line.replies.put(Answer(200, {}))
    assert line.answered.get(timeout=SECONDS) == (HEARTBEAT, 200)
    assert [one["n"] for one in (doubtful, again, newer)] == [1, 1, 2]
    assert line.outbox.empty


@given(kinds=st.lists(st.sampled_from([HEARTBEAT, "started", "checkpoint", "exited"]), max_size=12))
def test_everything_but_heartbeats_is_sent_in_order(kinds: list[str]) -> None:
    line = Line()
    for index, kind in enumerate(kinds):
        line.outbox.put(Report(kind=kind, at=0.0, fields={"index": index}))
    line.outbox.start()

    sent: list[dict[str, Any]] = []
    while not line.outbox.empty:
        line.replies.put(Answer(200, {}))
        line.answered.get(timeout=SECONDS)
        sent.append(line.sent.get(timeout=SECONDS))

    beats = [index for index, kind in enumerate(kinds) if kind == HEARTBEAT][-1:]
    others = [index for index, kind in enumerate(kinds) if kind != HEARTBEAT]
    assert [one["index"] for one in sent] == sorted(others + beats)
    assert [one["n"] for one in sent] == list(range(1, len(sent) + 1))


def test_a_process_may_have_any_name(tmp_path: Path) -> None:
    strange = tmp_path / "a) Z 1 (b"
    shutil.copy(shutil.which("sleep") or "", strange)
    with subprocess.Popen([strange, "60"]) as process:  # noqa: S603 - a copy of sleep
        stat = process_stat(process.pid)
        process.send_signal(signal.SIGKILL)

    assert stat is not None
    assert (stat.alive, stat.parent) == (True, os.getpid())
    assert stat.session == os.getsid(0)
