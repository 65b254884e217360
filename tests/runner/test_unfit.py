"""A machine that is found unfit while its start is being granted starts nothing (SC-341)."""

import signal
import threading
from pathlib import Path
from typing import Any

from tests.cli.live import eventually

from nodus_api.runner.client import Answer
from nodus_api.runner.files import UNFIT, read_json, write_json
from nodus_api.runner.intent import RunnerIntent
from nodus_api.runner.life import Life


def test_a_start_that_is_granted_to_an_unfit_machine_is_not_made(tmp_path: Path) -> None:
    started = tmp_path / "started"
    intent = RunnerIntent(
        installation="i",
        machine="m",
        attempt="a",
        epoch=1,
        fence=1,
        command=("/bin/sh", "-c", f"touch {started}"),
        report_to="unix:/nowhere",
        heartbeat=3600,
    )
    asked, found_unfit, told = threading.Event(), threading.Event(), threading.Event()
    reports: list[dict[str, Any]] = []

    def post(report: dict[str, Any]) -> Answer:
        reports.append(report)
        if report["kind"] == "canStart":
            asked.set()
            assert found_unfit.wait(30)
            return Answer(200, {"orders": [], "granted": True, "lastSeq": 0})
        if report.get("checks", {}).get("failed"):
            told.set()
        return Answer(200, {"orders": []})

    life = Life(tmp_path, intent, post)
    thread = threading.Thread(target=life.run, daemon=True)
    thread.start()
    assert asked.wait(30)
    write_json(tmp_path / UNFIT, {"failed": ["no disk"]})
    life.signalled(signal.SIGUSR1)
    eventually(lambda: life._unfit)
    found_unfit.set()
    assert told.wait(30)  # after the answer to the question, which came before it
    life.signalled(signal.SIGTERM)
    thread.join(30)

    assert not thread.is_alive()
    assert not started.exists()
    kinds = [report["kind"] for report in reports if report["kind"] != "heartbeat"]
    assert kinds == ["registered", "canStart", "registered", "exited"]
    ending = read_json(tmp_path / "exit.json") or {}
    assert ending["exitCode"] is None
