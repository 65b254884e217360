"""The suite that every supplier passes (SC-702); its tests subclass it and give a fleet."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol
from uuid import UUID, uuid5

import pytest

from nodus_api.suppliers.supplier import (
    FaultInjection,
    Incarnation,
    Invalid,
    MachineCondition,
    MachineIntent,
    MachineView,
    Order,
    Program,
    Supplier,
    Verdict,
)

INSTALLATION = UUID("6f1c3a52-1f1c-4c0e-9a70-0d3f9a6b2f10")

GRACE = timedelta(seconds=30)

WORKLOAD = UUID("0d3f9a6b-2f10-4c0e-9a70-6f1c3a521f1c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Does:
    """What a program does, in terms that a shell and a simulation both know."""

    waits: bool = True
    """Whether it runs until it is stopped, or told to end; else it ends at once."""
    exit_code: int = 0
    signal: int | None = None
    on_stop: int | None = None
    """Its exit code after a stop signal; None: that signal ends it."""
    ignores_stop: bool = False


class Fleet(Protocol):
    """A supplier under test, and how to come back to its machines as a restarted loop does."""

    supplier: Supplier

    def restarted(self) -> Supplier:
        """Return a new supplier object that knows nothing but what the old one left."""
        ...

    def program(self, name: str, does: Does) -> Program:
        """Return a program that does this, by a name of its own."""
        ...

    def unstartable(self) -> Program:
        """Return a program that is the command `/no/such/program`."""
        ...

    def starts(self, name: str) -> int:
        """Return how often a program has started."""
        ...

    def tell_to_end(self, name: str) -> None:
        """Tell a program that waits to end."""
        ...

    async def pause(self) -> None:
        """Let a little time pass."""
        ...


def an_intent(
    key: str, *command: str, program: Program | None = None, grace: timedelta = GRACE
) -> MachineIntent:
    return MachineIntent(
        key=key,
        installation=INSTALLATION,
        attempt_uid=uuid5(INSTALLATION, key),
        epoch=1,
        fence=1,
        offering="cpu-1c-1g-other",
        instance_type="any",
        region="any",
        zone="",
        spot=False,
        token=f"token-of-{key}",
        program=program or Program(command=command, stop_grace=grace),
        incarnation=Incarnation(
            project="demo", workload=WORKLOAD, attempt_name="train-0-e1-abcde", slot="0"
        ),
    )


async def eventually(
    look: Callable[[], Awaitable[bool]],
    *,
    seconds: float = 20,
    pause: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Wait until a look succeeds; fails at the deadline, which is of real time."""
    async with asyncio.timeout(seconds):
        while not await look():
            await (pause or a_moment)()


async def a_moment() -> None:
    await asyncio.sleep(0.01)  # other processes set no event of ours


async def view_when(
    supplier: Supplier,
    handle: str,
    ready: Callable[[MachineView], bool],
    *,
    pause: Callable[[], Awaitable[None]] | None = None,
) -> MachineView:
    """Return the machine's view as soon as it is as wanted."""
    last: list[MachineView] = []

    async def look() -> bool:
        last[:] = (await supplier.observe([handle])).values()
        return bool(last) and ready(last[0])

    await eventually(look, pause=pause)
    return last[0]


async def exit_of(
    supplier: Supplier, handle: str, *, pause: Callable[[], Awaitable[None]] | None = None
) -> tuple[int | None, int | None]:
    """Return exit code and signal once the supplier tells them."""
    view = await view_when(supplier, handle, lambda view: view.exit is not None, pause=pause)
    assert view.exit is not None
    return view.exit.exit_code, view.exit.signal


async def seen_when(
    fleet: Fleet,
    handle: str,
    ready: Callable[[MachineView], bool],
    *,
    by: Supplier | None = None,
) -> MachineView:
    """The same on a fleet whose time passes as it says; looked at `by` another supplier."""
    return await view_when(by or fleet.supplier, handle, ready, pause=fleet.pause)


async def ending_of(
    fleet: Fleet, handle: str, *, by: Supplier | None = None
) -> tuple[int | None, int | None]:
    """The same of an exit."""
    return await exit_of(by or fleet.supplier, handle, pause=fleet.pause)


async def begin(fleet: Fleet, key: str, does: Does | None = None) -> MachineView:
    """Create a machine and wait until its program has started."""
    created = await fleet.supplier.create(intent_for(fleet, key, does))
    await eventually(lambda: _is(lambda: fleet.starts(key) > 0), pause=fleet.pause)
    return (await fleet.supplier.observe([created.handle]))[created.handle]


def intent_for(fleet: Fleet, key: str, does: Does | None = None) -> MachineIntent:
    return an_intent(key, program=fleet.program(key, does or Does()))


async def removed(fleet: Fleet, handle: str) -> None:
    """Delete a machine and wait until nothing of it is left."""
    await fleet.supplier.delete(handle)

    async def gone() -> bool:
        return (await fleet.supplier.prove_deleted(handle)).verdict is Verdict.GONE

    await eventually(gone, pause=fleet.pause)


class Conformance:
    """Each test gets a fleet of at least two slots whose programs may start at once."""

    async def test_a_created_machine_is_found_and_runs(self, fleet: Fleet) -> None:  # SC-701
        created = await fleet.supplier.create(intent_for(fleet, "a"))

        running = await seen_when(
            fleet, created.handle, lambda v: v.condition is MachineCondition.RUNNING
        )
        found = await fleet.supplier.find("a")

        assert found is not None
        assert (found.handle, found.key) == (created.handle, "a")
        assert running.billing_start is not None
        assert running.installation == INSTALLATION

    async def test_a_machine_that_was_never_created_is_not_found(self, fleet: Fleet) -> None:
        assert await fleet.supplier.find("nothing") is None
        assert await fleet.supplier.observe(["nothing"]) == {}

    async def test_creating_twice_gives_one_machine(self, fleet: Fleet) -> None:  # SC-701
        intent = intent_for(fleet, "twice")

        first, second = await asyncio.gather(
            fleet.supplier.create(intent), fleet.supplier.create(intent)
        )
        again = await fleet.restarted().create(intent)

        assert first.handle == second.handle == again.handle
        await eventually(lambda: _is(lambda: fleet.starts("twice") > 0), pause=fleet.pause)
        owned = [view.key async for view in fleet.supplier.list_owned(INSTALLATION)]
        assert owned == ["twice"]
        await removed(fleet, first.handle)
        assert fleet.starts("twice") == 1

    async def test_a_machine_is_found_by_its_key_after_a_crash_of_the_loop(
        self, fleet: Fleet
    ) -> None:  # SC-609
        created = await fleet.supplier.create(intent_for(fleet, "lost"))

        found = await fleet.restarted().find("lost")

        assert found is not None
        assert found.handle == created.handle

    async def test_the_list_is_complete_and_only_of_this_installation(self, fleet: Fleet) -> None:
        for key in ("one", "two"):  # SC-611
            await fleet.supplier.create(intent_for(fleet, key))

        mine = {view.key async for view in fleet.supplier.list_owned(INSTALLATION)}
        other = UUID("00000000-0000-4000-8000-000000000000")
        others = [view async for view in fleet.supplier.list_owned(other)]

        assert mine == {"one", "two"}
        assert others == []

    async def test_exit_codes_are_told_as_they_are(self, fleet: Fleet) -> None:  # SC-009
        for code in (0, 3, 137):
            does = Does(waits=False, exit_code=code)
            view = await fleet.supplier.create(intent_for(fleet, f"x{code}", does))
            assert await ending_of(fleet, view.handle) == (code, None)
            await removed(fleet, view.handle)

    async def test_signals_are_told_apart_from_exit_codes(self, fleet: Fleet) -> None:  # SC-009
        for number in (9, 11, 15):
            does = Does(waits=False, signal=number)
            view = await fleet.supplier.create(intent_for(fleet, f"s{number}", does))
            assert await ending_of(fleet, view.handle) == (128 + number, number)
            await removed(fleet, view.handle)

    async def test_an_exit_is_told_with_its_times(self, fleet: Fleet) -> None:  # SC-644
        created = await fleet.supplier.create(intent_for(fleet, "t", Does(waits=False)))

        view = await seen_when(fleet, created.handle, lambda v: v.exit is not None)

        assert view.exit is not None
        assert view.exit.started_age is not None
        assert view.exit.started_age >= view.exit.exit_age >= 0
        assert view.exit.stop_age is None
        assert view.billing_start is not None
        assert view.ended_at is not None
        assert view.ended_at >= view.billing_start

    async def test_a_program_that_cannot_start_is_told(self, fleet: Fleet) -> None:  # SC-010
        created = await fleet.supplier.create(an_intent("no", program=fleet.unstartable()))

        view = await seen_when(fleet, created.handle, lambda v: v.exit is not None)

        assert view.exit is not None
        assert (view.exit.error, view.exit.exit_code) == ("StartFailed", None)
        assert view.exit.message == "command not found: /no/such/program"
        assert view.exit.started_age is None

    async def test_a_stop_is_passed_on_and_told(self, fleet: Fleet) -> None:
        created = await begin(fleet, "stop", Does(on_stop=7))

        order = Order(kind="stop", grace=timedelta(seconds=20))
        await fleet.supplier.signal(created.handle, order)

        view = await seen_when(fleet, created.handle, lambda v: v.exit is not None)
        assert view.exit is not None  # SC-013: a stop age tells it from an exit of its own
        assert view.exit.exit_code == 7
        assert view.exit.stop_age is not None
        assert view.exit.stop_age >= view.exit.exit_age

    async def test_deleting_is_idempotent_and_takes_unknown_handles(self, fleet: Fleet) -> None:
        created = await fleet.supplier.create(intent_for(fleet, "d"))

        await fleet.supplier.delete(created.handle)  # SC-701
        await fleet.supplier.delete(created.handle)
        await fleet.supplier.delete("never-there")

        await removed(fleet, created.handle)
        assert await fleet.supplier.find("d") is None
        assert [view async for view in fleet.supplier.list_owned(INSTALLATION)] == []

    async def test_a_deletion_is_never_proven_early(self, fleet: Fleet) -> None:  # SC-610, P-10
        created = await begin(fleet, "p")
        before = await fleet.supplier.prove_deleted(created.handle)

        await fleet.supplier.delete(created.handle)
        if fleet.supplier.caps.sync_delete:
            assert (await fleet.restarted().prove_deleted(created.handle)).verdict is Verdict.GONE
        await removed(fleet, created.handle)

        proofs = [await fleet.restarted().prove_deleted(created.handle) for _ in range(2)]
        assert before.verdict is Verdict.PRESENT
        assert [proof.verdict for proof in proofs] == [Verdict.GONE, Verdict.GONE]
        assert proofs[0].at is not None
        assert proofs[0].at == proofs[1].at
        assert created.billing_start is not None
        assert proofs[0].at >= created.billing_start

    async def test_a_deletion_that_was_cancelled_is_continued(self, fleet: Fleet) -> None:  # SC-701
        created = await begin(fleet, "c", Does(ignores_stop=True))

        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(fleet.supplier.delete(created.handle), 0.1)
        between = await fleet.supplier.prove_deleted(created.handle)
        await fleet.restarted().delete(created.handle)

        assert between.verdict is Verdict.PRESENT
        await removed(fleet, created.handle)

    async def test_a_restarted_loop_finds_a_running_machine_and_its_exit(
        self, fleet: Fleet
    ) -> None:  # SC-702
        created = await fleet.supplier.create(intent_for(fleet, "r", Does(exit_code=5)))

        again = fleet.restarted()
        running = await seen_when(
            fleet, created.handle, lambda v: v.condition is MachineCondition.RUNNING, by=again
        )
        fleet.tell_to_end("r")

        assert running.exit is None
        assert await ending_of(fleet, created.handle, by=again) == (5, None)

    async def test_a_deleted_key_is_not_created_again(self, fleet: Fleet) -> None:  # SC-603
        intent = intent_for(fleet, "late")
        created = await fleet.supplier.create(intent)
        await removed(fleet, created.handle)

        repeated = await fleet.restarted().create(intent)

        assert repeated.condition is MachineCondition.GONE
        assert await fleet.supplier.find("late") is None

    async def test_a_reclaim_is_announced_once(self, fleet: Fleet) -> None:  # SC-702, SC-630
        if not fleet.supplier.caps.notices or not fleet.supplier.caps.inject:
            return
        created = await begin(fleet, "noticed")
        fault = FaultInjection(kind="preemption", notice=timedelta(hours=1))
        before = [one async for one in fleet.supplier.notices()]

        await fleet.supplier.inject(created.handle, fault)
        told = [one async for one in fleet.supplier.notices()]
        await fleet.restarted().inject(created.handle, replace(fault, notice=timedelta(0)))
        again = [one async for one in fleet.restarted().notices()]  # the first deadline stands

        assert before == []
        assert [one.handle for one in told] == [created.handle]
        assert created.billing_start is not None
        assert told[0].deadline > created.billing_start + timedelta(minutes=59)
        assert again == told
        view = (await fleet.supplier.observe([created.handle]))[created.handle]
        assert view.condition is MachineCondition.RUNNING

    async def test_a_reclaim_is_done_at_its_deadline(self, fleet: Fleet) -> None:  # SC-702
        if not fleet.supplier.caps.notices or not fleet.supplier.caps.inject:
            return
        running = await begin(fleet, "reclaimed")
        fault = FaultInjection(kind="preemption", notice=timedelta(seconds=1))
        await fleet.supplier.inject(running.handle, fault)

        view = await seen_when(
            fleet,
            running.handle,
            lambda v: v.condition is MachineCondition.FAILED,
            by=fleet.restarted(),
        )

        assert (view.reclaimed, view.exit) == (True, None)
        assert view.ended_at is not None
        assert running.billing_start is not None
        assert view.ended_at >= running.billing_start + timedelta(seconds=1)
        assert [one async for one in fleet.supplier.notices()] == []

    async def test_an_exit_before_the_reclaim_is_told(self, fleet: Fleet) -> None:
        if not fleet.supplier.caps.notices or not fleet.supplier.caps.inject:
            return
        created = await begin(fleet, "leaves", Does(on_stop=143))
        fault = FaultInjection(kind="preemption", notice=timedelta(seconds=30))
        await fleet.supplier.inject(created.handle, fault)

        await fleet.supplier.signal(created.handle, Order(kind="stop", grace=timedelta(seconds=20)))

        view = await seen_when(fleet, created.handle, lambda v: v.exit is not None)
        assert view.exit is not None  # scenario 20
        assert (view.exit.exit_code, view.exit.stop_age is not None) == (143, True)
        assert not view.reclaimed

    async def test_a_machine_can_be_made_to_fail(self, fleet: Fleet) -> None:  # SC-630
        if not fleet.supplier.caps.inject:
            return
        created = await begin(fleet, "fails")

        for supplier in (fleet.supplier, fleet.restarted()):  # a repeat changes nothing
            await supplier.inject(created.handle, FaultInjection(kind="node-loss"))

        view = await seen_when(
            fleet, created.handle, lambda v: v.condition is MachineCondition.FAILED
        )
        assert (view.exit, view.reclaimed) == (None, False)

    async def test_a_reclaim_without_a_notice_is_done_at_once(self, fleet: Fleet) -> None:
        if not fleet.supplier.caps.inject:
            return
        created = await begin(fleet, "taken")

        await fleet.supplier.inject(created.handle, FaultInjection(kind="preemption"))

        view = await seen_when(
            fleet, created.handle, lambda v: v.condition is MachineCondition.FAILED
        )
        assert view.reclaimed  # scenario 21

    async def test_faults_that_cannot_be_made_are_refused(self, fleet: Fleet) -> None:
        if not fleet.supplier.caps.inject:
            return
        created = await begin(fleet, "sound")
        for handle, kind in ((created.handle, "flood"), ("never-there", "node-loss")):
            with pytest.raises(Invalid):
                await fleet.supplier.inject(handle, FaultInjection(kind=kind))
        await removed(fleet, created.handle)
        with pytest.raises(Invalid):
            await fleet.supplier.inject(created.handle, FaultInjection(kind="node-loss"))

    async def test_a_wiped_machine_takes_its_next_program_once(self, fleet: Fleet) -> None:
        if not fleet.supplier.caps.warm:
            with pytest.raises(Invalid):
                await fleet.supplier.wipe("any")
            return
        created = await begin(fleet, "first", Does(waits=False))
        await ending_of(fleet, created.handle)
        following = replace(intent_for(fleet, "second"), key="first", fence=2)

        await fleet.supplier.wipe(created.handle)  # SC-343
        for supplier in (fleet.supplier, fleet.restarted()):
            await supplier.assign(created.handle, following, following.token)
        await eventually(lambda: _is(lambda: fleet.starts("second") > 0), pause=fleet.pause)

        view = (await fleet.supplier.observe([created.handle]))[created.handle]
        assert (view.condition, view.exit) == (MachineCondition.RUNNING, None)
        assert (fleet.starts("first"), fleet.starts("second")) == (1, 1)


async def _is(fact: Callable[[], bool]) -> bool:
    return fact()
