"""Faults of local machines: what they do to the processes, and what a repeat does (SC-630)."""

import os
import signal
from datetime import UTC, datetime, timedelta

import pytest
from tests.runner.report_server import GRANT, OK, Reply, Report
from tests.suppliers.conformance import an_intent, eventually, view_when
from tests.suppliers.conftest import LocalFleet

from nodus_api.runner import files
from nodus_api.runner.identity import read_identity
from nodus_api.runner.session import process_stat
from nodus_api.suppliers.local.faults import Reclaim, reclaim_of, take_if_due
from nodus_api.suppliers.supplier import FaultInjection, Invalid, MachineCondition

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def shell(script: str) -> tuple[str, str, str]:
    return ("/bin/sh", "-c", script)


def refusing(report: Report) -> Reply:
    """Let no program start."""
    waits = (200, {"orders": [], "granted": False, "retryMs": 50})
    return waits if report["kind"] == "canStart" else OK


async def a_running_program(fleet: LocalFleet, key: str) -> tuple[int, int]:
    """Return the pids of runner and program, of a machine whose program sleeps."""
    file = fleet.root / f"pid-{key}"
    await fleet.supplier.create(an_intent(key, *shell(f"echo $$ > {file}; exec sleep 600")))

    async def told() -> bool:
        return file.exists() and file.read_text().endswith("\n")

    await eventually(told)
    runner = read_identity(fleet.root / "machines" / key)
    assert runner is not None
    return runner.pid, int(file.read_text())


def state(pid: int) -> str | None:
    """Return a process's state; None once it is gone."""
    stat = process_stat(pid)
    return None if stat is None or not stat.alive else stat.state


async def test_a_silent_runner_is_frozen_and_its_program_goes_on(fleet: LocalFleet) -> None:
    runner, program = await a_running_program(fleet, "f")
    for supplier in (fleet.supplier, fleet.restarted()):  # a repeat changes nothing
        await supplier.inject("f", FaultInjection(kind="heartbeat"))

    async def frozen() -> bool:
        return state(runner) == "T"

    await eventually(frozen)
    assert state(program) not in (None, "T")
    (view,) = (await fleet.supplier.observe(["f"])).values()
    assert view.condition is MachineCondition.RUNNING  # SC-614: the supplier vouches for it


async def test_a_frozen_machine_is_deleted(fleet: LocalFleet) -> None:  # SC-712
    runner, program = await a_running_program(fleet, "f")
    await fleet.supplier.inject("f", FaultInjection(kind="heartbeat"))

    await fleet.supplier.delete("f")  # SIGTERM does not arrive at a stopped process

    assert (state(runner), state(program)) == (None, None)
    assert await fleet.supplier.find("f") is None


async def test_an_unfit_machine_is_told_and_starts_nothing(fleet: LocalFleet) -> None:
    fleet.server.policy = refusing
    started = fleet.root / "started"
    await fleet.supplier.create(an_intent("u", *shell(f"touch {started}")))
    first = await fleet.server.wait_for("registered")
    assert "failed" not in first["checks"]
    await fleet.server.wait_for("canStart")

    for supplier in (fleet.supplier, fleet.restarted()):
        await supplier.inject("u", FaultInjection(kind="readiness"))
    again = await fleet.server.wait_for("registered", count=2)
    assert again["checks"]["failed"] == ["the host found this machine unfit (drill)"]

    fleet.server.policy = lambda report: GRANT  # even a start that is granted is not made
    beats = len(fleet.server.reports)
    os.kill(_runner(fleet, "u"), signal.SIGUSR1)  # a sign of life, at once

    async def beaten() -> bool:
        return any(one["kind"] == "heartbeat" for one in fleet.server.reports[beats:])

    await eventually(beaten)
    assert not started.exists()
    assert fleet.server.kinds().count("registered") == 2
    await fleet.supplier.delete("u")
    assert not started.exists()


async def test_a_machine_found_unfit_before_it_registered_says_so_at_once(
    fleet: LocalFleet,
) -> None:
    await fleet.server.stop()  # it has claimed its machine, and nobody hears it yet
    await fleet.supplier.create(an_intent("e", *shell("exit 0")))
    await fleet.supplier.inject("e", FaultInjection(kind="readiness"))
    fleet.server.policy = refusing
    await fleet.server.start()

    async def told() -> bool:
        return any("failed" in one.get("checks", {}) for one in fleet.server.reports)

    await eventually(told)
    assert "started" not in fleet.server.kinds()


async def test_a_program_that_runs_is_not_found_unfit(fleet: LocalFleet) -> None:
    _, program = await a_running_program(fleet, "r")
    await fleet.supplier.inject("r", FaultInjection(kind="readiness"))
    await fleet.server.wait_for("heartbeat")  # it has looked
    assert fleet.server.kinds().count("registered") == 1
    assert state(program) is not None


async def test_a_dead_runner_cannot_be_frozen(fleet: LocalFleet) -> None:
    await a_running_program(fleet, "d")
    await fleet.supplier.inject("d", FaultInjection(kind="node-loss"))
    with pytest.raises(Invalid, match="does not run"):
        await fleet.supplier.inject("d", FaultInjection(kind="heartbeat"))


async def test_a_reclaim_kills_runner_and_program(fleet: LocalFleet) -> None:
    runner, program = await a_running_program(fleet, "p")
    await fleet.supplier.inject("p", FaultInjection(kind="preemption", notice=timedelta(hours=1)))
    (notice,) = [one async for one in fleet.supplier.notices()]
    directory = fleet.root / "machines" / "p"
    early = take_if_due(directory, notice.deadline - timedelta(microseconds=1))
    assert early == Reclaim(deadline=notice.deadline)
    assert state(program) is not None

    done = take_if_due(directory, notice.deadline)

    assert done == Reclaim(deadline=notice.deadline, done=notice.deadline)

    async def gone() -> bool:
        return (state(runner), state(program)) == (None, None)

    await eventually(gone)
    assert take_if_due(directory, notice.deadline + timedelta(hours=1)) == done
    view = await view_when(
        fleet.restarted(), "p", lambda view: view.condition is MachineCondition.FAILED
    )
    assert (view.reclaimed, view.ended_at) == (True, notice.deadline)


async def test_a_reclaim_that_was_cut_short_is_repeated(fleet: LocalFleet) -> None:
    runner, program = await a_running_program(fleet, "c")
    directory = fleet.root / "machines" / "c"
    record = {"deadline": T0.isoformat(), "done": (T0 + timedelta(seconds=1)).isoformat()}
    files.write_json(directory / files.RECLAIM, record)  # noted, and then we died

    done = take_if_due(directory, T0 + timedelta(hours=1))

    assert done == Reclaim(deadline=T0, done=T0 + timedelta(seconds=1))

    async def gone() -> bool:
        return (state(runner), state(program)) == (None, None)

    await eventually(gone)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"deadline": 3}', '{"deadline": "2026-01-01"}'])
async def test_what_a_program_writes_there_is_no_reclaim(fleet: LocalFleet, text: str) -> None:
    await a_running_program(fleet, "w")
    directory = fleet.root / "machines" / "w"
    (directory / files.RECLAIM).write_text(text)
    (directory / files.UNFIT).write_text(text)
    assert reclaim_of(directory) is None
    (view,) = (await fleet.supplier.observe(["w"])).values()
    assert view.condition is MachineCondition.RUNNING


def _runner(fleet: LocalFleet, key: str) -> int:
    identity = read_identity(fleet.root / "machines" / key)
    assert identity is not None
    return identity.pid
