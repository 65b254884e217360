"""What only the local supplier does: slots, sessions, cgroups, records (SC-710 to SC-714)."""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import sysconfig
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest
from tests.runner.conftest import SOURCE
from tests.suppliers.conformance import (
    INSTALLATION,
    WORKLOAD,
    an_intent,
    eventually,
    exit_of,
    view_when,
)
from tests.suppliers.conftest import LocalFleet, a_supplier

from nodus_api.runner import files
from nodus_api.runner.identity import identity_of, read_identity, write_identity
from nodus_api.runner.intent import Restore
from nodus_api.runner.session import members, process_stat
from nodus_api.suppliers.local import cgroups, workdir
from nodus_api.suppliers.local.host import base_environment, default_slots
from nodus_api.suppliers.local.spawning import runner_intent
from nodus_api.suppliers.local.view import exit_record
from nodus_api.suppliers.local.workdir import WorkDirectories
from nodus_api.suppliers.supplier import (
    Ambiguous,
    FaultInjection,
    GangSeat,
    Incarnation,
    Invalid,
    MachineCondition,
    MachineIntent,
    NoCapacity,
    Order,
    RestorePoint,
    Supplier,
    Verdict,
)
from nodus_api.tasks import spawn


def shell(script: str) -> tuple[str, str, str]:
    return ("/bin/sh", "-c", script)


def content(path: Path) -> bytes:
    """Return what a file holds, nothing if it is not there."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


async def whole(path: Path) -> bytes:
    """Return what a file holds once it holds something that ends a line or an object."""

    async def look() -> bool:
        return content(path).endswith((b"\n", b"}"))

    await eventually(look)
    return content(path)


def dead(pid: int) -> bool:
    stat = process_stat(pid)
    return stat is None or not stat.alive


def test_the_local_supplier_speaks_the_protocol(fleet: LocalFleet) -> None:
    assert isinstance(fleet.supplier, Supplier)
    assert fleet.supplier.caps.sync_delete
    assert fleet.supplier.caps.warm


async def test_the_host_is_offered_in_slots(fleet: LocalFleet) -> None:  # SC-710, SC-714
    (offer,) = await fleet.supplier.offers()
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024**3 // 2

    assert offer.offered_class.name == f"cpu-1c-{max(1, memory_gib)}g-other"
    assert offer.offered_class.rate_on_demand == Decimal("0.06")
    assert (offer.offered_class.vcpus, offer.offered_class.region_class) == (Decimal(1), "other")
    assert (offer.available, offer.increment) == (2, timedelta(seconds=1))
    assert default_slots() == max(4, os.cpu_count() or 1)


async def test_a_full_host_refuses_until_a_machine_is_deleted(fleet: LocalFleet) -> None:
    for key in ("one", "two"):
        await fleet.supplier.create(an_intent(key, *shell("exec sleep 60")))
    with pytest.raises(NoCapacity, match="all 2 slots"):
        await fleet.supplier.create(an_intent("three", *shell("exec sleep 60")))
    (full,) = await fleet.supplier.offers()

    await fleet.supplier.delete("one")
    third = await fleet.supplier.create(an_intent("three", *shell("exec sleep 60")))

    assert full.available == 0
    assert third.key == "three"


@pytest.mark.parametrize("key", ["", ".", "..", "a/b", "../a", ".gone", "a" * 129, "a\n"])
async def test_a_key_that_is_no_file_name_reaches_no_file(fleet: LocalFleet, key: str) -> None:
    with pytest.raises(Invalid):
        await fleet.supplier.create(an_intent(key, "/bin/true"))

    await fleet.supplier.delete(key)
    await fleet.supplier.signal(key, Order(kind="stop"))
    assert await fleet.supplier.find(key) is None
    assert await fleet.supplier.observe([key]) == {}
    assert (await fleet.supplier.prove_deleted(key)).verdict is Verdict.GONE


async def test_an_intent_of_another_installation_is_refused(fleet: LocalFleet) -> None:
    foreign = replace(an_intent("f", "/bin/true"), installation=an_intent("x", "y").attempt_uid)

    with pytest.raises(Invalid):
        await fleet.supplier.create(foreign)


async def test_a_crash_between_directory_and_spawn_is_made_good(fleet: LocalFleet) -> None:
    intent = an_intent("half", *shell("exit 0"))  # SC-609
    half_made(fleet, intent)

    found = await fleet.restarted().find("half")
    created = await fleet.supplier.create(intent)

    assert found is not None
    assert found.condition is MachineCondition.RUNNING
    assert created.handle == found.handle
    assert await exit_of(fleet.supplier, "half") == (0, None)


async def test_a_crash_between_spawn_and_record_loses_no_runner(fleet: LocalFleet) -> None:
    half_made(fleet, an_intent("unseen", *shell("exec sleep 60")))  # SC-710
    directory = fleet.root / "machines" / "unseen"
    runner = await a_runner(directory)

    found = await fleet.supplier.find("unseen")
    await view_when(fleet.supplier, "unseen", lambda _: read_identity(directory) is not None)
    await fleet.supplier.delete("unseen")

    assert found is not None
    assert found.condition is MachineCondition.RUNNING
    assert (await fleet.supplier.prove_deleted("unseen")).verdict is Verdict.GONE
    runner.wait()


async def test_a_deletion_meets_a_runner_that_is_only_starting(fleet: LocalFleet) -> None:
    marker = fleet.root / "marker"  # SC-712
    half_made(fleet, an_intent("early", *shell(f"touch {marker}; exec sleep 60")))
    runner = await a_runner(fleet.root / "machines" / "early")

    await fleet.supplier.delete("early")
    proof = await fleet.supplier.prove_deleted("early")
    left = members(runner.pid)

    assert proof.verdict is Verdict.GONE
    assert left == []
    runner.wait()


async def test_a_runner_that_dies_at_once_is_a_lost_machine(fleet: LocalFleet) -> None:
    created = await fleet.supplier.create(an_intent("dies", *shell("exec sleep 60")))
    spawned = await pid_of_runner(fleet, "dies")
    os.kill(spawned, signal.SIGKILL)

    view = await view_when(
        fleet.supplier, created.handle, lambda v: v.condition is MachineCondition.FAILED
    )

    assert view.exit is None  # SC-711
    assert process_stat(spawned) is None  # reaped, since it was our child


async def test_a_node_loss_leaves_no_last_word(fleet: LocalFleet) -> None:  # SC-630, SC-711
    pid_file = fleet.root / "pid"
    await fleet.supplier.create(an_intent("n", *shell(f"echo $$ > {pid_file}; exec sleep 60")))
    program = int(await whole(pid_file))

    await fleet.supplier.inject("n", FaultInjection(kind="node-loss"))

    view = await view_when(
        fleet.supplier, "n", lambda v: v.condition is not MachineCondition.RUNNING
    )
    assert (view.condition, view.exit) == (MachineCondition.FAILED, None)
    assert dead(program)


@pytest.mark.parametrize("name", [files.EXIT, files.INTENT, files.IDENTITY, files.SPAWNED])
@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"exitCode": "x"}', '{"pid": 0, "at": 3, "installation": 1}']
)
async def test_what_a_program_writes_over_its_machine_harms_no_other(
    fleet: LocalFleet, name: str, text: str
) -> None:  # SC-701, SC-711
    for key in ("spoilt", "sound"):
        await fleet.supplier.create(an_intent(key, *shell("exec sleep 600")))
    path = fleet.root / "machines" / "spoilt" / name
    await whole(path.with_name(files.IDENTITY))
    before = content(path)
    path.write_text(text)
    seen = await fleet.supplier.observe(["spoilt", "sound"])
    assert seen["sound"].condition is MachineCondition.RUNNING
    listed = [view.key async for view in fleet.supplier.list_owned(INSTALLATION)]
    assert "sound" in listed
    if before:
        path.write_bytes(before)


def test_a_final_report_that_cannot_be_is_none() -> None:  # SC-009, SC-644
    whole = {
        "at": "2026-01-01T00:00:00+00:00",
        "exitCode": 139,
        "signal": 11,
        "oom": False,
        "exitAgeMs": 10,
        "startAgeMs": 20,
        "message": "",
        "error": None,
    }
    record = exit_record(whole)
    assert record is not None
    assert (record.exit_code, record.signal, record.started_age) == (139, 11, 0.02)
    resumed = exit_record(whole | {"restoreBytes": 7})
    assert resumed is not None
    assert (record.restored_bytes, resumed.restored_bytes) == (None, 7)
    for spoilt in (
        {"exitCode": 256},
        {"exitCode": True},
        {"signal": 0},
        {"signal": 65},
        {"exitAgeMs": -1},
        {"startAgeMs": 1e300},
        {"restoreBytes": -1},
        {"at": "2026-01-01T00:00:00"},
        {"at": "yesterday"},
    ):
        assert exit_record(whole | spoilt) is None


async def test_stubborn_children_of_other_groups_die(fleet: LocalFleet) -> None:  # SC-712
    pid_file = fleet.root / "pid"
    child = f"trap '' TERM; echo \\$\\$ > {pid_file}; while :; do sleep 0.05; done"
    script = f'set -m; /bin/sh -c "{child}" & exec sleep 60'
    await fleet.supplier.create(an_intent("o", *shell(script)))
    orphan = int(await whole(pid_file))

    await fleet.supplier.delete("o")

    assert dead(orphan)
    assert (await fleet.supplier.prove_deleted("o")).verdict is Verdict.GONE


async def test_no_proof_while_a_stubborn_program_lives(fleet: LocalFleet) -> None:  # P-10
    pid_file = fleet.root / "pid"
    script = f"trap '' TERM; echo $$ > {pid_file}; while :; do sleep 0.05; done"
    await fleet.supplier.create(an_intent("s", *shell(script)))
    program = int(await whole(pid_file))
    deletion = spawn("deletion", fleet.supplier.delete("s"))

    looks: list[tuple[Verdict, bool]] = []
    while not deletion.done():  # a look each pass of the event loop, all through the deletion
        lived = not dead(program)
        looks.append(((await fleet.supplier.prove_deleted("s")).verdict, lived))
        await asyncio.sleep(0.005)
    await deletion

    assert (Verdict.PRESENT, True) in looks
    assert (Verdict.GONE, True) not in looks
    assert (await fleet.supplier.prove_deleted("s")).verdict is Verdict.GONE


@pytest.mark.skipif(cgroups.base() is None, reason="cgroup v2 is not writable here")
async def test_a_process_that_left_the_session_dies_with_its_cgroup(fleet: LocalFleet) -> None:
    pid_file = fleet.root / "pid"  # SC-712
    child = f"echo \\$\\$ > {pid_file}; exec sleep 60"
    script = f'setsid /bin/sh -c "{child}" & exec sleep 60'
    await fleet.supplier.create(an_intent("e", *shell(script)))
    escaped = int(await whole(pid_file))
    group = Path(json.loads(intent_file(fleet, "e").read_text())["cgroup"])

    await fleet.supplier.delete("e")

    assert dead(escaped)
    assert content(group / "cgroup.events") == b""


async def test_a_zombie_does_not_hold_up_the_proof(fleet: LocalFleet) -> None:  # SC-712
    loop = await a_loop_that_never_reaps(fleet, "z", "exec sleep 60")
    runner = await pid_of_runner(fleet, "z")

    await fleet.supplier.delete("z")
    proof = await fleet.supplier.prove_deleted("z")
    stat = process_stat(runner)

    assert proof.verdict is Verdict.GONE
    assert stat is not None
    assert stat.state == "Z"
    loop.kill()
    await loop.wait()


async def test_a_machine_outlives_the_loop_that_made_it(fleet: LocalFleet) -> None:  # SC-710
    go = fleet.root / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.02; done; exit 5"
    loop = await a_loop_that_never_reaps(fleet, "k", script)

    loop.kill()
    await loop.wait()
    created = await fleet.supplier.create(an_intent("k", *shell(script)))
    go.touch()

    assert created.condition is MachineCondition.RUNNING
    assert await exit_of(fleet.supplier, "k") == (5, None)
    exited = await fleet.server.wait_for("exited", machine="k")
    assert exited["exitCode"] == 5
    assert [r["kind"] for r in fleet.server.reports].count("started") == 1


async def test_a_process_with_the_same_number_is_never_touched(fleet: LocalFleet) -> None:
    await fleet.supplier.create(an_intent("reuse", *shell("exec sleep 60")))  # SC-710
    runner = await pid_of_runner(fleet, "reuse")
    os.kill(runner, signal.SIGKILL)
    await view_when(fleet.supplier, "reuse", lambda v: v.condition is MachineCondition.FAILED)
    innocent = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
    identity = identity_of(innocent.pid)
    record = fleet.root / "machines" / "reuse" / files.IDENTITY
    write_identity(record, replace(identity, start_ticks=identity.start_ticks - 1))

    await fleet.supplier.signal("reuse", Order(kind="stop"))
    await fleet.supplier.delete("reuse")

    assert not dead(innocent.pid)
    assert (await fleet.supplier.prove_deleted("reuse")).verdict is Verdict.GONE
    innocent.kill()
    await innocent.wait()


async def test_a_reboot_is_a_loss_and_an_exit_survives_it(fleet: LocalFleet) -> None:
    conditions: list[MachineCondition | None] = []  # SC-710, SC-711
    for key, script in (("live", "exec sleep 60"), ("over", "exit 3")):
        await fleet.supplier.create(an_intent(key, *shell(script)))
        pid = await pid_of_runner(fleet, key)
        if key == "over":
            await exit_of(fleet.supplier, key)
        record = fleet.root / "machines" / key / files.IDENTITY
        whole = record.read_text()
        record.write_text(json.dumps({**json.loads(whole), "bootId": "an earlier boot"}))
        view = await fleet.supplier.find(key)
        conditions.append(view.condition if view else None)
        record.write_text(whole)
        assert pid > 0

    assert conditions == [MachineCondition.FAILED, MachineCondition.GONE]


async def test_programs_start_from_a_clean_environment(fleet: LocalFleet) -> None:
    own = {"PATH": os.environ["PATH"], "PGPASSWORD": "x", "NODUS_DATABASE_URL": "y", "LANG": "C"}
    supplier = a_supplier(fleet.root, fleet.server, environment=own)
    await supplier.create(an_intent("env", "env"))
    await exit_of(supplier, "env")

    lines = (fleet.root / "machines" / "env" / files.STDOUT).read_text().splitlines()
    assert sorted(lines) == [
        "LANG=C",
        "NODUS_ATTEMPT=train-0-e1-abcde",
        "NODUS_EPOCH=1",
        f"NODUS_PROGRESS={fleet.root / 'machines' / 'env' / files.CHANNEL / 'progress'}",
        "NODUS_PROJECT=demo",
        "NODUS_SLOT=0",
        f"PATH={base_environment(own)['PATH']}",
    ]
    bare = base_environment({"NODUS_TOKEN": "t", "HOME": "/h"})
    assert bare == {"HOME": "/h", "PATH": f"{os.defpath}:{sysconfig.get_path('scripts')}"}


async def test_programs_find_nodus_but_their_own_python_first(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    # SC-642: `nodus up` need not have been started from a shell that knows where nodus is
    own = tmp_path / "bin"
    own.mkdir()
    for name in ("python", "python3"):
        (own / name).write_text("#!/bin/sh\n")
        (own / name).chmod(0o755)
    scripts = sysconfig.get_path("scripts")
    path = f"{own}:/usr/bin:/bin"
    supplier = a_supplier(fleet.root, fleet.server, environment={"PATH": path})
    look = "for one in nodus python python3; do command -v $one; done; echo $PATH"
    await supplier.create(an_intent("path", *shell(look)))
    await exit_of(supplier, "path")

    lines = (fleet.root / "machines" / "path" / files.STDOUT).read_text().splitlines()
    assert lines == [
        f"{scripts}/nodus",
        f"{own}/python",
        f"{own}/python3",
        f"{path}:{scripts}",
    ]
    known = f"{scripts}:/usr/bin"
    assert base_environment({"PATH": known})["PATH"] == known


async def test_the_token_stays_in_its_file(fleet: LocalFleet) -> None:  # SC-125
    intent = an_intent("secret", *shell("exec sleep 60"))
    await fleet.supplier.create(intent)
    directory = fleet.root / "machines" / "secret"
    pid = await pid_of_runner(fleet, "secret")

    assert stat_mode(directory) == 0o700
    assert {stat_mode(directory / name) for name in (files.INTENT, files.TOKEN)} == {0o600}
    assert intent.token not in (directory / files.INTENT).read_text()
    assert intent.token.encode() not in content(Path(f"/proc/{pid}/environ"))
    assert intent.token.encode() not in content(Path(f"/proc/{pid}/cmdline"))
    assert intent.token not in repr(intent)


def test_a_resuming_rank_is_told_where_it_stands(tmp_path: Path) -> None:  # SC-143, SC-144
    incarnation = Incarnation(
        project="demo",
        workload=WORKLOAD,
        attempt_name="train-3-e2-abcde",
        slot="3",
        restore=RestorePoint(seq=4, completed=400, total=600, uri="file:///c/4", sha256="aa"),
        gang=GangSeat(id="2b1f-workers", rank=3, size=4, epoch=2),
        checkpoint_interval=timedelta(seconds=849),
    )
    intent = replace(an_intent("g", "x"), incarnation=incarnation, epoch=2)

    asked = runner_intent(
        intent,
        runner_socket=tmp_path / "s",
        environment={},
        heartbeat=10.0,
        cgroup=None,
        checkpoints=tmp_path / "checkpoints",
        rendezvous="127.0.0.1:29500",
    )

    assert asked.restore == Restore(uri="file:///c/4", sha256="aa")
    assert asked.checkpoints == str(tmp_path / "checkpoints" / str(WORKLOAD) / "3")
    assert asked.copies == str(tmp_path / "checkpoints" / ".unplaced" / "g")

    assert asked.context == {
        "NODUS_PROJECT": "demo",
        "NODUS_ATTEMPT": "train-3-e2-abcde",
        "NODUS_SLOT": "3",
        "NODUS_EPOCH": "2",
        "NODUS_RESTORE_SEQ": "4",
        "NODUS_CURSOR_COMPLETED": "400",
        "NODUS_CURSOR_TOTAL": "600",
        "NODUS_RANK": "3",
        "NODUS_SIZE": "4",
        "NODUS_GANG_EPOCH": "2",
        "NODUS_RENDEZVOUS": "127.0.0.1:29500",
        "NODUS_CHECKPOINT_INTERVAL": "849",
    }


async def test_a_machine_whose_folders_were_closed_is_removed(fleet: LocalFleet) -> None:
    script = "mkdir -p a/b; touch a/b/c; chmod 000 a/b a; exit 0"
    await fleet.supplier.create(an_intent("closed", *shell(script)))
    await exit_of(fleet.supplier, "closed")

    await fleet.supplier.delete("closed")

    assert (await fleet.supplier.prove_deleted("closed")).verdict is Verdict.GONE


async def test_tombstones_are_kept_for_a_day(fleet: LocalFleet) -> None:
    directories = WorkDirectories(fleet.root / "machines")
    now = fleet.clock.now()
    directories.bury("old", now)

    directories.forget(now + timedelta(hours=23))
    kept = directories.tombstone("old")
    directories.forget(now + timedelta(hours=25))

    assert kept is not None
    assert kept.gone_at == now
    assert directories.tombstone("old") is None


async def test_an_unreadable_root_proves_nothing(fleet: LocalFleet) -> None:  # SC-610
    machines = fleet.root / "machines"
    away = fleet.root / "away"
    machines.rename(away)

    proof = await fleet.supplier.prove_deleted("any")

    away.rename(machines)
    assert proof.verdict is Verdict.UNKNOWN


async def test_too_many_open_files_never_look_like_absence(fleet: LocalFleet) -> None:  # SC-610
    await fleet.supplier.create(an_intent("fds", *shell("exec sleep 60")))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(Ambiguous):
            await fleet.supplier.find("fds")
        with pytest.raises(Ambiguous):
            await fleet.supplier.delete("fds")
        gone = await fleet.supplier.prove_deleted("never-there")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert gone.verdict is Verdict.UNKNOWN
    assert await fleet.supplier.find("fds") is not None


async def test_deletions_of_one_machine_may_overlap(fleet: LocalFleet) -> None:  # SC-701
    script = "for i in 1 2 3 4 5 6 7 8 9; do mkdir -p a$i/b; : > a$i/b/c; done; exec sleep 60"
    await fleet.supplier.create(an_intent("twice", *shell(script)))

    await asyncio.gather(*(fleet.restarted().delete("twice") for _ in range(4)))

    assert (await fleet.supplier.prove_deleted("twice")).verdict is Verdict.GONE


def half_made(fleet: LocalFleet, intent: MachineIntent) -> None:
    """Leave what a loop leaves that dies right before the spawn."""
    asked = runner_intent(
        intent,
        runner_socket=fleet.server.path,
        environment={"PATH": os.environ["PATH"]},
        heartbeat=10.0,
        cgroup=None,
        checkpoints=fleet.root / "machines" / "checkpoints",
    )
    WorkDirectories(fleet.root / "machines").make(intent.key, asked.to_json(), intent.token)


def spawned(directory: Path) -> "subprocess.Popen[bytes]":
    """Start a runner without the event loop, which would wait for a child that others reap."""
    return subprocess.Popen(  # noqa: S603 -- ours
        [sys.executable, "-P", "-S", "-m", "nodus_api.runner", str(directory)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": SOURCE},
        start_new_session=True,
    )


async def a_runner(directory: Path) -> "subprocess.Popen[bytes]":
    """Spawn a runner that nobody has recorded; it can be found by its arguments."""
    runner = spawned(directory)

    async def named() -> bool:  # the kernel shows them a moment after the exec is known
        return b"nodus_api.runner" in content(Path(f"/proc/{runner.pid}/cmdline"))

    await eventually(named)
    return runner


_LOOP = """
import asyncio, pathlib, sys
from tests.suppliers.conformance import an_intent
from tests.suppliers.conftest import a_supplier
from tests.runner.report_server import ReportServer
root = pathlib.Path(sys.argv[1])
supplier = a_supplier(root, ReportServer(root / "runner.sock"))
asyncio.run(supplier.create(an_intent(sys.argv[2], "/bin/sh", "-c", sys.argv[3])))
print("made", flush=True)
sys.stdin.read()
"""


async def a_loop_that_never_reaps(
    fleet: LocalFleet, key: str, script: str
) -> asyncio.subprocess.Process:
    """Start another process that makes a machine and then does nothing."""
    tests = str(Path(__file__).parent.parent.parent)
    loop = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _LOOP, str(fleet.root), key, script),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join((SOURCE, tests))},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert loop.stdout is not None
    assert await loop.stdout.readline() == b"made\n"
    return loop


async def pid_of_runner(fleet: LocalFleet, key: str) -> int:
    await whole(fleet.root / "machines" / key / files.IDENTITY)
    identity = read_identity(fleet.root / "machines" / key)
    assert identity is not None
    return identity.pid


def intent_file(fleet: LocalFleet, key: str) -> Path:
    return fleet.root / "machines" / key / files.INTENT


def stat_mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_checkpoints_outlive_their_machine_and_half_copies_do_not(  # SC-126
    fleet: LocalFleet,
) -> None:
    await fleet.supplier.create(an_intent("saver", *shell("exec sleep 60")))
    root = fleet.root / "machines" / "checkpoints"
    for name in (f"{WORKLOAD}/0/1/1", ".unplaced/saver/2", ".unplaced/other/1"):
        (root / name / "inner").mkdir(parents=True)

    await fleet.supplier.delete("saver")

    assert (await fleet.supplier.prove_deleted("saver")).verdict is Verdict.GONE
    left = sorted(str(path.parent.relative_to(root)) for path in root.rglob("inner"))
    assert left == [".unplaced/other/1", f"{WORKLOAD}/0/1/1"]
    assert [view async for view in fleet.supplier.list_owned(INSTALLATION)] == []


async def test_no_machine_can_take_the_place_of_the_checkpoints(fleet: LocalFleet) -> None:
    with pytest.raises(Invalid):
        await fleet.supplier.create(an_intent("checkpoints", "true"))
    await fleet.supplier.delete("checkpoints")
    assert (await fleet.supplier.prove_deleted("checkpoints")).verdict is Verdict.GONE
    assert (fleet.root / "machines" / "checkpoints").parent.is_dir()


async def test_the_checkpoints_of_one_workload_are_dropped(fleet: LocalFleet) -> None:  # SC-126
    root = fleet.root / "machines" / "checkpoints"
    other = UUID(int=7)
    for place in (f"{WORKLOAD}/0/1/1", f"{other}/0/1/1", ".unplaced/key/1", "no-workload/0"):
        (root / place).mkdir(parents=True)
        (root / place / "data").write_text("saved")

    assert await fleet.supplier.kept_checkpoints() == sorted([WORKLOAD, other])
    for _ in range(2):
        await fleet.supplier.drop_checkpoints(WORKLOAD)
    assert await fleet.supplier.kept_checkpoints() == [other]
    assert sorted(path.name for path in root.iterdir()) == [
        *(".unplaced", str(other), "no-workload")
    ]


async def test_checkpoints_that_stay_are_not_said_to_be_gone(
    fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fleet.root / "machines" / "checkpoints" / str(WORKLOAD)).mkdir(parents=True)
    monkeypatch.setattr(workdir, "remove_tree", lambda _: None)  # as on a disk that fails

    with pytest.raises(Ambiguous):
        await fleet.supplier.drop_checkpoints(WORKLOAD)
