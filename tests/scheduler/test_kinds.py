"""The seven kinds of owner on the real loop: slots, labels, what follows each end (SC-101, SC-807).

One table says what SC-101 says; every test walks it, so that a kind that differs is seen by name.
"""

from dataclasses import dataclass
from typing import Any

import pytest
from tests.scheduler.fake_supplier import an_offer
from tests.scheduler.invariants import check, check_quiet
from tests.scheduler.world import Runner, World

from nodus_api.clock import ManualClock
from nodus_api.kernel.naming import attempt_name
from nodus_api.kernel.vocabulary import OwnerKind
from nodus_api.suppliers.supplier import MachineCondition

SAVED: dict[str, Any] = {"seq": 1, "bytes": 4, "uri": "file:///1", "sha256": "0" * 64}
CURSOR = {"completed": 1, "total": 4}


@dataclass(frozen=True)
class Way:
    """A row of SC-101: the slot looked at, and the workload's state after each end of it."""

    kind: OwnerKind
    label: str
    slots: tuple[str, ...]
    after_success: str
    after_failure: str
    spec: dict[str, Any]

    @property
    def slot(self) -> str:
        return self.slots[0]

    @property
    def worker(self) -> bool:
        return self.after_success == "Active"

    def at(self, epoch: int) -> str:
        return f"{self.slot}/{epoch}"


WARM_FOR_NOBODY = {"idleSeconds": 0}
WAYS = [
    Way(OwnerKind.JOB, "nodus.dev/job", ("0", "1"), "Succeeded", "Failed", {"completions": 2}),
    Way(OwnerKind.SANDBOX, "nodus.dev/sandbox", ("0",), "Succeeded", "Failed", {}),
    Way(OwnerKind.WORKSPACE, "nodus.dev/workspace", ("0",), "Succeeded", "Suspended", {}),
    Way(OwnerKind.FUNCTION, "nodus.dev/function", ("0", "1"), "Active", "Active", {"workers": 2}),
    Way(OwnerKind.AGENT, "nodus.dev/agent", ("0", "1"), "Active", "Active", {"workers": 2}),
    Way(OwnerKind.BUILD, "nodus.dev/build", ("build",), "Succeeded", "Failed", {}),
    Way(OwnerKind.IMPORT, "nodus.dev/import", ("import",), "Succeeded", "Failed", {}),
]
SESSIONS = [OwnerKind.SANDBOX, OwnerKind.WORKSPACE]
WORKERS = [OwnerKind.FUNCTION, OwnerKind.AGENT]
each_kind = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.kind.value)


async def begin(world: World, way: Way, **spec: Any) -> Runner:
    """Submit a workload of a kind, and bring its first slot to Running."""
    await world.submit("it", kind=way.kind, **way.spec | WARM_FOR_NOBODY | spec)
    await world.settle()
    return await world.start(way.at(1))


async def begin_alone(world: World, way: Way) -> Runner:
    """Begin with one slot, so that its end is the workload's where the kind has one."""
    one = dict.fromkeys(way.spec, 1)
    return await begin(world, way, **one)


async def exits(world: World, runner: Runner, code: int = 0, *, stopped: bool = False) -> None:
    stop = {"stopAgeMs": 1} if stopped else {}
    await runner.report("exited", exitCode=code, signal=None, oom=False, **stop)
    await world.settle()


async def state(world: World) -> str:
    return str((await world.workload())["state"])


@each_kind
async def test_slots_labels_and_owners(world: World, way: Way) -> None:  # SC-101, SC-102, SC-103
    await begin(world, way)
    workload, documents = await world.workload(), await world.documents()
    assert set(documents) == {f"{slot}/1" for slot in way.slots}
    for slot in way.slots:
        metadata = documents[f"{slot}/1"]["metadata"]
        assert metadata["labels"] == {way.label: "it"}
        assert metadata["ownerReferences"] == [
            {
                "apiVersion": "nodus.dev/v1",
                "kind": way.kind.value,
                "name": "it",
                "uid": str(workload["uid"]),
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ]
        assert metadata["name"] == attempt_name("it", slot, 1, workload["uid"])
    await check(world)


@each_kind
async def test_a_loss_is_replaced(world: World, way: Way) -> None:  # SC-101, SC-120 rule 3
    runner = await begin(world, way)
    await runner.report("checkpoint", **SAVED, cursor=CURSOR)
    await world.settle(1)
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)
    await world.settle(5)

    lost = await world.status(way.at(1))
    assert (lost["phase"], lost["reason"]) == ("Failed", "NodeLost")
    successor = (await world.documents())[way.at(2)]
    assert lost["supersededBy"] == successor["metadata"]["name"]
    assert successor["spec"]["restoreFrom"] == {"seq": 1}  # from the last snapshot: SC-141, SC-142
    again = await world.start(way.at(2))
    restored = await world.status(way.at(2))
    assert restored["timings"]["restoreSeconds"] == restored["timings"]["bootSeconds"]
    assert await state(world) == "Active"
    assert again.intent.epoch == 2
    await check(world)


@each_kind
async def test_an_exit_0_ends_it_or_is_a_workers_turn(world: World, way: Way) -> None:  # SC-101
    runner = await begin_alone(world, way)
    await world.clock.advance(10)
    await exits(world, runner)
    assert (await world.status(way.at(1)))["phase"] == "Succeeded"
    assert await state(world) == way.after_success
    assert (way.at(2) in await world.documents()) is way.worker
    if way.worker:
        assert await world.stage(way.at(2)) == "Starting"  # no delay: it is wanted still
        await check(world)
    else:
        await check_quiet(world)


@each_kind
async def test_an_exit_not_0_fails_it_or_backs_off(world: World, way: Way) -> None:  # SC-101
    runner = await begin_alone(world, way)
    await world.clock.advance(10)
    await exits(world, runner, 3)
    assert (await world.status(way.at(1)))["reason"] == "CustomerExit"
    assert await state(world) == way.after_failure
    assert (way.at(2) in await world.documents()) is way.worker
    if way.worker:
        waits = (await world.documents())[way.at(2)]["metadata"]["annotations"]
        assert waits["nodus.dev/waiting-for"] == "Backoff"  # SC-121
        await world.settle(13)
        assert await world.stage(way.at(2)) == "Starting"
    elif way.after_failure == "Suspended":  # on the next open
        await world.ask("resume", "it", way.kind.value)
        await world.settle()
        assert await world.stage(way.at(2)) == "Starting"
    await check(world)


@each_kind
async def test_suspend_and_resume(world: World, way: Way) -> None:  # SC-806
    runner = await begin_alone(world, way)
    await runner.report("checkpoint", **SAVED)
    await world.settle(1)
    command = await world.ask("suspend", "it", way.kind.value)
    await world.settle(1)
    await exits(world, runner, 143, stopped=True)
    assert await world.outcome(command) == "Applied"
    status = await world.status(way.at(1))
    assert (status["phase"], status["reason"]) == ("Cancelled", "Suspended")
    assert status["interruption"]["trigger"] == "User"
    await world.settle(600)
    assert set(await world.documents()) == {way.at(1)}

    await world.ask("resume", "it", way.kind.value)
    await world.settle()
    await world.start(way.at(2))
    assert (await world.documents())[way.at(2)]["spec"]["restoreFrom"]["seq"] == 1
    assert await state(world) == "Active"
    await check(world)


@each_kind
async def test_stop_is_the_end(world: World, way: Way) -> None:  # SC-806
    runner = await begin_alone(world, way)
    await world.ask("stop", "it", way.kind.value)
    await world.settle(1)
    await exits(world, runner, 143, stopped=True)
    status = await world.status(way.at(1))
    assert (status["phase"], status["reason"]) == ("Cancelled", "Stopped")
    assert await state(world) == "Stopped"
    await world.settle(600)
    assert set(await world.documents()) == {way.at(1)}
    refused = await world.ask("resume", "it", way.kind.value)
    await world.settle()
    assert await world.outcome(refused) == "Refused"
    await check_quiet(world)


@each_kind
async def test_delete_takes_it_from_the_api_when_its_machine_is_gone(
    world: World, way: Way
) -> None:  # SC-806
    runner = await begin_alone(world, way)
    world.fake.deaf_deletes = 1
    await world.ask("delete", "it", way.kind.value)
    await world.settle(1)
    await exits(world, runner, 143, stopped=True)
    assert (await world.status(way.at(1)))["reason"] == "Stopped"
    for _ in range(3):
        await world.settle(10)
    assert await world.documents() == {}
    assert world.fake.machines == {}


@pytest.mark.parametrize("kind", WORKERS)
async def test_scale_moves_workers(world: World, kind: OwnerKind) -> None:  # SC-807, SC-802
    way = next(one for one in WAYS if one.kind is kind)
    await begin(world, way)
    second = await world.start("1/1")
    await world.ask("scale", "it", kind.value, count=1)
    await world.settle(1)
    assert [key for key, _ in world.fake.signals] == [f"h-{second.intent.key[:12]}"]
    await exits(world, second, 143, stopped=True)
    released = await world.status("1/1")
    assert (released["phase"], released["reason"]) == ("Cancelled", "Released")
    assert "interruption" not in released  # SC-003
    assert "coveredByNodus" not in released["actual"]["segments"]  # SC-520: scale-down
    await world.settle(60)
    assert set(await world.documents()) == {"0/1", "1/1"}

    await world.ask("scale", "it", kind.value, count=3)
    await world.settle()
    assert set(await world.documents()) == {"0/1", "1/1", "1/2", "2/1"}
    await world.ask("scale", "it", kind.value, count=0)
    await world.settle()
    first = await world.runner("0/1")
    await exits(world, first, 143, stopped=True)
    phases = {key: one["status"]["phase"] for key, one in (await world.documents()).items()}
    assert set(phases.values()) == {"Cancelled"}
    assert await state(world) == "Active"  # it waits to be scaled
    await check_quiet(world)


@pytest.mark.parametrize("kind", [*SESSIONS, OwnerKind.BUILD, OwnerKind.IMPORT])
async def test_what_has_one_slot_is_not_scaled(world: World, kind: OwnerKind) -> None:  # SC-807
    way = next(one for one in WAYS if one.kind is kind)
    await begin(world, way)
    before = await world.documents()
    command = await world.ask("scale", "it", kind.value, count=3)
    await world.settle()
    assert await world.outcome(command) == "Refused"
    assert await world.documents() == before


# -- sessions that nobody uses (SC-010 Released, SC-807) -------------------------------------------


async def session(world: World, kind: OwnerKind, **spec: Any) -> Runner:
    way = next(one for one in WAYS if one.kind is kind)
    return await begin(world, way, idleTimeoutSeconds=120, **spec)


async def beats(world: World, runner: Runner, seconds: int, **body: Any) -> None:
    """Let a runner beat every ten seconds, with no word of its program."""
    for _ in range(seconds // 10):
        await world.clock.advance(10)
        await runner.report("heartbeat", **body)
        await world.settle()


@pytest.mark.parametrize(
    ("kind", "after"), [(OwnerKind.SANDBOX, "Stopped"), (OwnerKind.WORKSPACE, "Suspended")]
)
async def test_an_idle_session_is_released(world: World, kind: OwnerKind, after: str) -> None:
    runner = await session(world, kind)
    await beats(world, runner, 110)
    assert world.fake.signals == []
    await beats(world, runner, 10)
    ((_, order),) = world.fake.signals
    assert order.kind == "stop"
    assert await world.stage() == "Running"  # SC-013: it drains
    await exits(world, runner, 0, stopped=True)

    status = await world.status()
    assert (status["phase"], status["reason"]) == ("Cancelled", "Released")
    assert "interruption" not in status  # SC-003
    assert "coveredByNodus" not in status["actual"]["segments"]  # SC-520: idle
    assert await state(world) == after
    await world.settle(600)
    assert set(await world.documents()) == {"0/1"}
    await check_quiet(world)
    if after == "Suspended":  # a Workspace waits for its next open
        await world.ask("resume", "it", kind.value)
        await world.settle()
        assert await world.stage("0/2") == "Starting"


@pytest.mark.parametrize("kind", SESSIONS)
@pytest.mark.parametrize("use", ["heartbeat", "checkpoint"])
async def test_a_session_that_is_used_goes_on(world: World, kind: OwnerKind, use: str) -> None:
    runner = await session(world, kind)
    for turn in range(4):
        await beats(world, runner, 100)
        if use == "heartbeat":
            await runner.report("heartbeat", activeAgeMs=0)
        else:
            await runner.report("checkpoint", **SAVED | {"seq": turn + 1})
        await world.settle()
    assert world.fake.signals == []
    await beats(world, runner, 120)
    assert len(world.fake.signals) == 1


async def test_an_old_word_gives_no_time_again(world: World) -> None:
    """The runner repeats when its program last spoke: that is one use, not one a heartbeat."""
    runner = await session(world, OwnerKind.SANDBOX)
    for seconds in range(10, 121, 10):
        await world.clock.advance(10)
        await runner.report("heartbeat", activeAgeMs=1000 * seconds)
        await world.settle()
    assert len(world.fake.signals) == 1


async def test_what_is_told_late_takes_no_time_away(world: World) -> None:
    runner = await session(world, OwnerKind.SANDBOX)
    await beats(world, runner, 60)
    await runner.report("heartbeat", activeAgeMs=0)
    await runner.report("heartbeat", activeAgeMs=50_000)
    await world.settle()
    await beats(world, runner, 110)
    assert world.fake.signals == []


async def test_without_the_field_a_session_runs_until_it_is_stopped(world: World) -> None:
    way = WAYS[1]
    runner = await begin(world, way)
    await beats(world, runner, 300)
    assert world.fake.signals == []
    assert await world.stage() == "Running"


async def test_the_longest_duration_of_a_session_is_its_own_limit(world: World) -> None:  # T14
    runner = await session(world, OwnerKind.SANDBOX, limits={"maxDurationSeconds": 200})
    await beats(world, runner, 190, activeAgeMs=0)
    assert await world.stage() == "Running"
    await beats(world, runner, 20, activeAgeMs=0)
    assert (await world.status())["reason"] == "DeadlineExceeded"
    await check_quiet(world)


@pytest.mark.parametrize("longest", [300, None])
async def test_a_limit_that_rises_leaves_the_idle_time(
    world: World, longest: int | None
) -> None:  # SC-802
    limits = {"maxDurationSeconds": 200}
    runner = await session(world, OwnerKind.SANDBOX, limits=limits)
    await beats(world, runner, 100)
    raised = {} if longest is None else {"maxDurationSeconds": longest}
    given: dict[str, Any] = WARM_FOR_NOBODY | {"idleTimeoutSeconds": 120, "limits": raised}
    command = await world.submit("it", kind=OwnerKind.SANDBOX, **given)
    await world.settle()
    assert await world.outcome(command) == "Applied"
    await beats(world, runner, 110)
    assert world.fake.signals == []
    await beats(world, runner, 10)
    assert len(world.fake.signals) == 1
    assert await world.stage() == "Running"  # it drains: not DeadlineExceeded


async def test_a_leader_that_was_away_gives_a_session_the_time_back(world: World) -> None:
    """SC-614: at a take-over after a gap open limits move, that of a session among them."""
    runner = await session(world, OwnerKind.SANDBOX)
    await beats(world, runner, 100)
    clock = world.clock
    assert isinstance(clock, ManualClock)
    await clock.advance(300)
    await world.lead("next")
    await runner.report("heartbeat")
    await world.settle()
    assert world.fake.signals == []
    await beats(world, runner, 80)
    assert len(world.fake.signals) == 1


async def test_a_loss_comes_before_the_idle_time(world: World) -> None:
    """What replaces a lost session begins with all its idle time."""
    world.fake.offered = [an_offer()]
    runner = await session(world, OwnerKind.WORKSPACE)
    await beats(world, runner, 100)
    world.fake.become(runner.intent.key, condition=MachineCondition.FAILED)
    await world.settle(5)
    again = await world.start("0/2")
    await beats(world, again, 110)
    assert world.fake.signals == []
