"""A real memory limit: who is killed by it, what is told of that, and what stays (SC-713, SC-009).

What Kubernetes does with a killed child, which we do not follow: containerd marks the container
OOMKilled on any out-of-memory event in it, whatever its exit code; since 1.28, on cgroup v2, the
kubelet has the kernel kill the whole container then. Here only the program's own death by the
limit is OutOfMemory (SC-010: "killed by the container memory limit"); a program that outlives its
child says by its exit code how it ended, and the final report's message tells of the child.
"""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runner.conftest import SOURCE
from tests.suppliers.conformance import INSTALLATION, an_intent, eventually, exit_of, view_when
from tests.suppliers.conftest import LocalFleet
from tests.suppliers.test_local import content, dead, whole

from nodus_api.runner import files
from nodus_api.runner.cgroup import PROGRAM
from nodus_api.runner.identity import read_identity
from nodus_api.runner.intent import RunnerIntent
from nodus_api.runner.program import ADDRESS_SPACE, CGROUP_V1, NO_LIMIT, memory_limit
from nodus_api.suppliers.local import cgroups, memory_groups
from nodus_api.suppliers.local.spawning import make_memory_group, runner_intent
from nodus_api.suppliers.local.workdir import WorkDirectories
from nodus_api.suppliers.supplier import ExitRecord, MachineCondition, MachineIntent, Verdict

MIB = 1024**2
LIMIT = 48 * MIB

limited = pytest.mark.skipif(
    memory_groups.base() is None, reason="no writable cgroup v1 memory group on this machine"
)


def asks_for(mib: int) -> str:
    """Return a Python program that touches so much memory."""
    return f"held = bytearray({mib} << 20)"


def a_limited_intent(key: str, *command: str, limit: int = LIMIT) -> MachineIntent:
    intent = an_intent(key, *command)
    return replace(intent, program=replace(intent.program, memory_bytes=limit))


async def ending_of(fleet: LocalFleet, key: str, *command: str) -> ExitRecord:
    await fleet.supplier.create(a_limited_intent(key, *command))
    view = await view_when(fleet.supplier, key, lambda view: view.exit is not None)
    assert view.exit is not None
    return view.exit


def group_of(fleet: LocalFleet, key: str) -> Path:
    intent = json.loads((fleet.root / "machines" / key / files.INTENT).read_text())
    return Path(intent["memory_group"])


@limited
async def test_a_program_beyond_its_limit_is_killed(fleet: LocalFleet) -> None:
    ending = await ending_of(fleet, "big", sys.executable, "-c", asks_for(200))

    assert (ending.signal, ending.exit_code, ending.oom) == (9, 137, True)  # scenario 17


@limited
@pytest.mark.parametrize("code", [0, 3, 137])
async def test_a_killed_child_leaves_the_last_word_to_the_program(
    fleet: LocalFleet, code: int
) -> None:  # SC-009
    child = f"{sys.executable} -c '{asks_for(200)}'"
    script = f"{child}; [ $? = 137 ] && exit {code}; exit 99"
    ending = await ending_of(fleet, f"child-{code}", "/bin/sh", "-c", script)

    assert (ending.signal, ending.exit_code, ending.oom) == (None, code, False)
    assert ending.message == "the memory limit killed 1 of the program's processes"


@limited
async def test_a_program_that_exits_137_ran_out_of_nothing(fleet: LocalFleet) -> None:  # SC-009
    ending = await ending_of(fleet, "exits", "/bin/sh", "-c", "exit 137")

    assert (ending.signal, ending.exit_code, ending.oom) == (None, 137, False)
    assert ending.message == ""


@limited
async def test_a_program_may_map_more_than_it_touches(fleet: LocalFleet) -> None:
    program = "import mmap; mmap.mmap(-1, 4 << 30); print('mapped')"
    ending = await ending_of(fleet, "maps", sys.executable, "-c", program)

    assert ending.exit_code == 0


@limited
async def test_a_limit_below_any_program_is_the_programs_end(fleet: LocalFleet) -> None:
    await fleet.supplier.create(a_limited_intent("tiny", "/bin/true", limit=4096))
    view = await view_when(fleet.supplier, "tiny", lambda view: view.exit is not None)

    assert view.exit is not None
    told = (view.exit.error, view.exit.oom)
    assert told in (("StartFailed", False), (None, True))  # at exec, or a moment after it


@limited
async def test_the_group_holds_the_program_alone_and_goes_with_it(fleet: LocalFleet) -> None:
    pid_file = fleet.root / "pid"  # SC-712
    child = f"echo \\$\\$ > {pid_file}; exec sleep 60"
    script = f'setsid /bin/sh -c "{child}" & exec sleep 60'
    await fleet.supplier.create(a_limited_intent("h", "/bin/sh", "-c", script))
    escaped = int(await whole(pid_file))
    group = group_of(fleet, "h")
    runner = read_identity(fleet.root / "machines" / "h")
    held = [stat.pid for stat in memory_groups.members(group)]

    async def told() -> bool:
        log = content(fleet.root / "machines" / "h" / files.LOG)
        return b"its memory limit: cgroup v1" in log

    await eventually(told)
    assert memory_limit(RunnerIntent.read(fleet.root / "machines" / "h")) == CGROUP_V1
    assert escaped in held
    assert runner is not None
    assert runner.pid not in held
    assert int(content(group / "memory.limit_in_bytes")) == LIMIT

    await fleet.supplier.delete("h")

    assert dead(escaped)
    assert not group.exists()
    assert (await fleet.supplier.prove_deleted("h")).verdict is Verdict.GONE


@limited
async def test_a_machine_that_lost_its_runner_leaves_no_group(fleet: LocalFleet) -> None:
    pid_file = fleet.root / "pid"  # SC-712
    script = f"echo $$ > {pid_file}; exec sleep 60"
    await fleet.supplier.create(a_limited_intent("headless", "/bin/sh", "-c", script))
    program = int(await whole(pid_file))
    group = group_of(fleet, "headless")
    runner = read_identity(fleet.root / "machines" / "headless")
    assert runner is not None
    os.kill(runner.pid, signal.SIGKILL)

    await fleet.restarted().delete("headless")

    assert dead(program)
    assert not group.exists()
    assert (await fleet.supplier.prove_deleted("headless")).verdict is Verdict.GONE


@limited
async def test_a_group_whose_runner_never_came_goes_with_its_directory(fleet: LocalFleet) -> None:
    half_made(fleet, a_limited_intent("bare", "/bin/true"))
    group = group_of(fleet, "bare")
    assert make_memory_group(fleet.root / "machines" / "bare") == CGROUP_V1

    await fleet.restarted().delete("bare")

    assert not group.exists()
    assert (await fleet.supplier.prove_deleted("bare")).verdict is Verdict.GONE


@limited
async def test_a_spoilt_intent_hides_no_group(fleet: LocalFleet) -> None:  # SC-611
    await fleet.supplier.create(a_limited_intent("spoils", "/bin/sh", "-c", "exec sleep 60"))
    directory = fleet.root / "machines" / "spoils"
    group = group_of(fleet, "spoils")
    await whole(directory / files.IDENTITY)
    intent = json.loads((directory / files.INTENT).read_text())
    innocent = group.with_name(f"{group.name}-innocent")
    files.write_json(directory / files.INTENT, intent | {"memory_group": str(innocent)})

    await fleet.supplier.delete("spoils")

    assert not group.exists()
    assert (await fleet.supplier.prove_deleted("spoils")).verdict is Verdict.GONE


@limited
async def test_a_crash_before_the_group_is_made_good(fleet: LocalFleet) -> None:  # SC-609
    intent = a_limited_intent("half", sys.executable, "-c", asks_for(200))
    half_made(fleet, intent)

    found = await fleet.restarted().find("half")

    assert found is not None
    assert found.condition is MachineCondition.RUNNING
    view = await view_when(fleet.supplier, "half", lambda view: view.exit is not None)
    assert view.exit is not None
    assert view.exit.oom


@limited
async def test_a_group_without_its_directory_is_swept(fleet: LocalFleet) -> None:  # SC-611
    intent = a_limited_intent("lost", "/bin/sh", "-c", "exec sleep 60")
    half_made(fleet, intent)
    directory = fleet.root / "machines" / "lost"
    group = group_of(fleet, "lost")
    assert make_memory_group(directory) == CGROUP_V1
    directory.rename(fleet.root / "taken-away")

    listed = [view.key async for view in fleet.restarted().list_owned(INSTALLATION)]
    before = await fleet.supplier.prove_deleted("lost")
    await fleet.restarted().delete("lost")

    assert listed == ["lost"]
    assert before.verdict is Verdict.PRESENT
    assert not group.exists()
    assert (await fleet.supplier.prove_deleted("lost")).verdict is Verdict.GONE
    assert [view async for view in fleet.supplier.list_owned(INSTALLATION)] == []


async def test_without_a_group_the_address_space_is_limited(fleet: LocalFleet) -> None:
    intent = a_limited_intent("stands-in", "/bin/sh", "-c", "ulimit -v", limit=2048 * MIB)
    half_made(fleet, intent, memory_group=fleet.root / "nowhere" / f"nodus-{'0' * 32}-stands-in")

    await fleet.supplier.find("stands-in")

    assert await exit_of(fleet.supplier, "stands-in") == (0, None)
    directory = fleet.root / "machines" / "stands-in"
    assert memory_limit(RunnerIntent.read(directory)) == ADDRESS_SPACE
    assert "its memory limit: address space" in (directory / files.LOG).read_text()


async def test_without_a_limit_there_is_no_group(fleet: LocalFleet) -> None:
    await fleet.supplier.create(an_intent("free", "/bin/true"))
    intent = RunnerIntent.read(fleet.root / "machines" / "free")

    assert (intent.memory_group, memory_limit(intent)) == (None, NO_LIMIT)


def test_a_group_is_known_by_its_name() -> None:
    owner = memory_groups.owner_of(INSTALLATION, Path("/srv/machines"))
    group = memory_groups.place(Path("/groups"), owner, "a-b")
    elsewhere = memory_groups.owner_of(INSTALLATION, Path("/srv/other"))

    assert memory_groups.key_of(group) == "a-b"
    assert memory_groups.key_of(group, owner) == "a-b"
    assert memory_groups.key_of(group, elsewhere) is None
    assert memory_groups.key_of(Path("/groups/nodus-a-b")) is None
    assert memory_groups.found(Path("/nowhere")) == {}


@pytest.mark.parametrize(
    ("root", "own", "folder"),
    [
        ("/", "/", "/sys/fs/cgroup/memory"),
        ("/", "/user/7", "/sys/fs/cgroup/memory/user/7"),
        ("/docker/5", "/docker/5", "/sys/fs/cgroup/memory"),
        ("/docker/5", "/docker/5/inner", "/sys/fs/cgroup/memory/inner"),
        ("/docker/5", "/", "/sys/fs/cgroup/memory"),
    ],
)
def test_our_own_group_is_found_through_its_mount(root: str, own: str, folder: str) -> None:
    mounts = [
        "23 1 0:5 / /proc rw - proc proc rw",
        "35 31 0:32 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu",
        f"36 31 0:33 {root} /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory",
        "37 31 0:34 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
    ]

    assert memory_groups.folder_of(mounts, own) == Path(folder)
    assert memory_groups.folder_of(mounts[:2], own) is None


@pytest.mark.skipif(
    cgroups.memory_base() is None, reason="cgroup v2 delegates no memory controller here"
)
async def test_cgroup_v2_comes_first_where_it_limits_memory(fleet: LocalFleet) -> None:
    ending = await ending_of(fleet, "v2", sys.executable, "-c", asks_for(200))
    intent = RunnerIntent.read(fleet.root / "machines" / "v2")

    assert (ending.signal, ending.exit_code, ending.oom) == (9, 137, True)
    assert intent.memory_group is None
    assert intent.cgroup is not None
    assert (Path(intent.cgroup) / PROGRAM / "memory.max").exists()


def half_made(fleet: LocalFleet, intent: MachineIntent, memory_group: Path | None = None) -> None:
    """Leave what a loop leaves that dies right after the directory."""
    base = memory_groups.base()
    if memory_group is None and base is not None:
        owner = memory_groups.owner_of(INSTALLATION, fleet.root / "machines")
        memory_group = memory_groups.place(base, owner, intent.key)
    asked = runner_intent(
        intent,
        runner_socket=fleet.server.path,
        environment={"PATH": os.environ["PATH"], "PYTHONPATH": SOURCE},
        heartbeat=10.0,
        cgroup=None,
        memory_group=memory_group,
        checkpoints=fleet.root / "machines" / "checkpoints",
    )
    WorkDirectories(fleet.root / "machines").make(intent.key, asked.to_json(), intent.token)
