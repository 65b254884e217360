"""How a runner stops its program: by order, by signal, by a newer epoch; and who runs what once."""

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tests.runner.conftest import Bench
from tests.runner.report_server import STALE, Policy, Reply, Report, granting

from nodus_api.runner import files
from nodus_api.runner.files import read_json
from nodus_api.runner.identity import Identity, identity_of, read_identity
from nodus_api.runner.intent import RunnerIntent
from nodus_api.runner.program import start
from nodus_api.runner.session import kill_members, members, process_stat

STUBBORN = "trap '' TERM; touch {ready}; while :; do sleep 0.05; done"
COUNTING = "trap 'echo term' TERM; touch {ready}; while [ ! -e {go} ]; do sleep 0.02; done; exit 9"


def ordering(kind: str, after: Path, **details: object) -> Policy:
    """Return a policy that repeats an order in every answer once the file `after` is there."""

    def policy(report: Report) -> Reply:
        status, body = granting(report)
        orders = [{"kind": kind, **details}] if after.exists() else []
        return status, {**body, "orders": orders}

    return policy


async def test_a_stop_asks_waits_and_kills(bench: Bench) -> None:  # SC-013
    ready = bench.root / "ready"
    bench.server.policy = ordering("stop", ready, graceMs=200)
    bench.prepare("/bin/sh", "-c", STUBBORN.format(ready=ready), heartbeat=0.02)
    await bench.run()

    exited = await bench.server.wait_for("exited")

    assert (exited["exitCode"], exited["signal"]) == (137, 9)
    assert exited["stopAgeMs"] - exited["ageMs"] >= 200
    assert bench.exit_json()["signal"] == 9


async def test_a_stop_is_sent_once_however_often_it_is_ordered(bench: Bench) -> None:
    ready, go = bench.root / "ready", bench.root / "go"
    bench.server.policy = ordering("stop", ready, graceMs=20_000)
    bench.prepare("/bin/sh", "-c", COUNTING.format(ready=ready, go=go), heartbeat=0.02)
    await bench.run()
    await bench.until(ready.exists)
    await bench.server.wait_for("heartbeat", count=len(bench.server.reports) + 10)

    go.touch()
    exited = await bench.server.wait_for("exited")

    assert exited["exitCode"] == 9
    assert exited["stopAgeMs"] >= exited["ageMs"]
    assert (bench.directory / files.STDOUT).read_text() == "term\n"


async def test_a_stop_before_the_start_means_it_never_starts(bench: Bench) -> None:  # T17
    marker = bench.root / "marker"

    def stop_first(report: Report) -> Reply:
        status, body = granting(report)
        return status, {**body, "orders": [{"kind": "stop", "graceMs": 1000}]}

    bench.server.policy = stop_first
    bench.prepare("/usr/bin/touch", str(marker))
    await bench.run()

    exited = await bench.server.wait_for("exited")

    assert await bench.finished() == 0
    assert (exited["exitCode"], exited["error"]) == (None, None)
    assert "stopAgeMs" in exited
    assert "startAgeMs" not in exited
    assert not marker.exists()


async def test_die_kills_at_once(bench: Bench) -> None:  # SC-641
    ready = bench.root / "ready"
    bench.server.policy = ordering("die", ready)
    bench.prepare("/bin/sh", "-c", STUBBORN.format(ready=ready), heartbeat=0.02)
    await bench.run()

    assert await bench.finished() == 0

    assert bench.exit_json()["signal"] == 9
    assert "stopAgeMs" in bench.exit_json()


async def test_a_stale_epoch_kills_everything_and_leaves(bench: Bench) -> None:  # SC-125
    ready = bench.root / "ready"
    child = STUBBORN.format(ready=ready)
    script = f"(set -m; /bin/sh -c \"{child}\" &) ; trap '' TERM; while :; do sleep 0.05; done"

    def stale_once_ready(report: Report) -> Reply:
        return STALE if ready.exists() else granting(report)

    bench.server.policy = stale_once_ready
    bench.prepare("/bin/sh", "-c", script, heartbeat=0.02)
    await bench.run()

    assert await bench.finished() == 0

    assert bench.live() == []
    assert bench.exit_json()["signal"] == 9


async def test_unknown_orders_and_nonsense_are_passed_over(bench: Bench) -> None:

    def odd(report: Report) -> Reply:
        body = {"granted": report["kind"] == "canStart", "orders": ["x", {"kind": "checkpointNow"}]}
        return (200, body) if report["kind"] != "registered" else (200, {"orders": 7})

    bench.server.policy = odd
    bench.prepare("/bin/true")
    await bench.run()

    assert (await bench.server.wait_for("exited"))["exitCode"] == 0


async def test_sigterm_to_the_runner_stops_the_program(bench: Bench) -> None:
    ready = bench.root / "ready"
    script = f"trap 'exit 143' TERM; touch {ready}; while :; do sleep 0.02; done"
    bench.prepare("/bin/sh", "-c", script)
    runner = await bench.run()
    await bench.until(ready.exists)

    runner.terminate()

    exited = await bench.server.wait_for("exited")
    assert (exited["exitCode"], exited["signal"]) == (143, None)
    assert "stopAgeMs" in exited


async def test_while_deleting_the_runner_does_not_signal_a_second_time(bench: Bench) -> None:
    ready, go = bench.root / "ready", bench.root / "go"
    bench.prepare("/bin/sh", "-c", COUNTING.format(ready=ready, go=go))
    runner = await bench.run()
    await bench.until(ready.exists)
    (bench.directory / files.DELETING).touch()

    runner.terminate()
    await bench.until(lambda: _handled_term(runner.pid))
    go.touch()

    await bench.until((bench.directory / files.EXIT).exists)
    assert (bench.directory / files.STDOUT).read_text() == ""
    assert "stopAgeMs" in bench.exit_json()


async def test_a_runner_that_was_told_to_end_does_not_wait_for_the_server(bench: Bench) -> None:
    go = bench.root / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.02; done"
    bench.prepare("/bin/sh", "-c", script)
    runner = await bench.run()
    await bench.server.wait_for("started")
    await bench.server.stop()
    go.touch()
    await bench.until((bench.directory / files.EXIT).exists)

    runner.terminate()

    assert await bench.finished(seconds=10) == 0


async def test_a_second_runner_leaves_the_first_alone(bench: Bench) -> None:  # SC-710
    starts = bench.root / "starts"
    bench.prepare("/bin/sh", "-c", f"echo started >> {starts}; exec sleep 60")
    first = await bench.run()
    await bench.until(starts.exists)
    second = await bench.run()

    assert await second.wait() == 0

    identity = read_identity(bench.directory)
    assert identity is not None
    assert identity.pid == first.pid
    assert starts.read_text() == "started\n"


async def test_a_runner_of_a_machine_that_is_being_deleted_leaves(bench: Bench) -> None:
    bench.prepare("/bin/true")  # SC-712
    (bench.directory / files.DELETING).touch()
    await bench.run()

    assert await bench.finished() == 0
    assert bench.server.reports == []


async def test_what_the_program_left_behind_dies_with_it(bench: Bench) -> None:
    ready = bench.root / "ready"
    child = STUBBORN.format(ready=ready)
    script = f'(set -m; /bin/sh -c "{child}" &) ; while [ ! -e {ready} ]; do sleep 0.02; done'
    bench.prepare("/bin/sh", "-c", script)
    await bench.run()

    await bench.server.wait_for("exited")

    assert await bench.finished() == 0
    assert bench.live() == []


async def test_a_memory_limit_holds_without_a_cgroup(bench: Bench) -> None:  # SC-713
    script = "while [ ! -e {go} ]; do sleep 0.02; done; ulimit -v"
    go = bench.root / "go"
    bench.prepare("/bin/sh", "-c", script.format(go=go), memory_bytes=512 * 1024**2)
    await bench.run()
    await bench.server.wait_for("started")
    go.touch()
    await bench.server.wait_for("exited")

    assert (bench.directory / files.STDOUT).read_text() == f"{512 * 1024}\n"


def test_a_program_that_has_ended_takes_no_signal(tmp_path: Path) -> None:  # SC-013
    intent = RunnerIntent(
        installation="i",
        machine="m",
        attempt="a",
        epoch=1,
        fence=1,
        command=("/bin/sh", "-c", "exit 5"),
        report_to="unix:/none",
    )
    ended = threading.Event()
    program = start(intent, tmp_path, {})
    program.notify(lambda _: ended.set())

    assert ended.wait(20)
    assert program.signal(signal.SIGTERM) is False
    assert program.finish() == (5, None, False)


def test_a_zombie_is_no_live_process() -> None:  # SC-712
    pid = os.posix_spawn("/bin/true", ["true"], {}, setsid=True)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    stat = process_stat(pid)

    assert stat is not None
    assert (stat.state, stat.alive) == ("Z", False)
    assert members(pid) == []
    os.kill(pid, 0)  # succeeds: which is why it proves nothing
    os.waitpid(pid, 0)
    assert process_stat(pid) is None


def test_an_identity_is_not_fooled_by_pid_reuse_or_a_reboot() -> None:  # SC-710
    own = identity_of(os.getpid())
    reused = Identity(
        pid=own.pid,
        start_ticks=own.start_ticks - 1,
        boot_id=own.boot_id,
        started_at=own.started_at,
    )
    before_boot = Identity(
        pid=own.pid, start_ticks=own.start_ticks, boot_id="other", started_at=own.started_at
    )

    assert own.process() is not None
    assert (reused.process(), reused.session()) == (None, None)
    assert (before_boot.process(), before_boot.session()) == (None, None)


async def test_a_session_is_killed_but_for_the_spared(bench: Bench) -> None:
    bench.prepare("/bin/sh", "-c", "sleep 60 & sleep 60")
    runner = await bench.run()
    await bench.until(lambda: len(bench.live()) >= 4)

    kill_members(runner.pid, spare=runner.pid)

    exited = await bench.server.wait_for("exited")
    assert exited["signal"] == 9


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff", b"{" * 5000])
def test_a_file_that_holds_no_object_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)

    assert read_json(tmp_path / "x") is None
    assert read_json(tmp_path / "y") is None


def _handled_term(pid: int) -> bool:
    """Whether no SIGTERM is pending for a process, so that its handler has run."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/status").read_text()
        pending = [int(line.split()[1], 16) for line in text.splitlines() if "Pnd:" in line]
        return not any(mask >> (signal.SIGTERM - 1) & 1 for mask in pending)
    return True
