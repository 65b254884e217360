"""The suite that every supplier passes (SC-702); its tests subclass it and give a fleet."""

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
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

WORKLOAD = UUID("0d3f9a6b-2f10-4c0e-9a70-6f1c3a521f1c")


class Fleet(Protocol):
    """A supplier under test, and how to come back to its machines as a restarted loop does."""

    supplier: Supplier

    def restarted(self) -> Supplier:
        """Return a new supplier object that knows nothing but what the old one left."""
        ...


def an_intent(key: str, *command: str, grace: timedelta = timedelta(seconds=30)) -> MachineIntent:
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
        program=Program(command=command, stop_grace=grace),
        incarnation=Incarnation(
            project="demo", workload=WORKLOAD, attempt_name="train-0-e1-abcde", slot="0"
        ),
    )


async def eventually(look: Callable[[], Awaitable[bool]], *, seconds: float = 20) -> None:
    """Wait until a look succeeds; fails at the deadline."""
    async with asyncio.timeout(seconds):
        while not await look():  # noqa: ASYNC110 - other processes set no event of ours
            await asyncio.sleep(0.01)


async def view_when(
    supplier: Supplier, handle: str, ready: Callable[[MachineView], bool]
) -> MachineView:
    """Return the machine's view as soon as it is as wanted."""
    last: list[MachineView] = []

    async def look() -> bool:
        last[:] = (await supplier.observe([handle])).values()
        return bool(last) and ready(last[0])

    await eventually(look)
    return last[0]


async def exit_of(supplier: Supplier, handle: str) -> tuple[int | None, int | None]:
    """Return exit code and signal once the supplier tells them."""
    view = await view_when(supplier, handle, lambda view: view.exit is not None)
    assert view.exit is not None
    return view.exit.exit_code, view.exit.signal


class Conformance:
    """Each test gets a fleet of at least two slots whose programs may start at once."""

    @abstractmethod
    def shell(self, script: str) -> tuple[str, ...]:
        """Return a command that runs a POSIX shell script on a machine."""

    async def test_a_created_machine_is_found_and_runs(self, fleet: Fleet) -> None:  # SC-701
        created = await fleet.supplier.create(an_intent("a", *self.shell("exec sleep 60")))

        running = await view_when(
            fleet.supplier, created.handle, lambda v: v.condition is MachineCondition.RUNNING
        )
        found = await fleet.supplier.find("a")

        assert found is not None
        assert (found.handle, found.key) == (created.handle, "a")
        assert running.billing_start is not None
        assert running.installation == INSTALLATION

    async def test_a_machine_that_was_never_created_is_not_found(self, fleet: Fleet) -> None:
        assert await fleet.supplier.find("nothing") is None
        assert await fleet.supplier.observe(["nothing"]) == {}

    async def test_creating_twice_gives_one_machine(
        self, fleet: Fleet, tmp_path: Path
    ) -> None:  # SC-701
        starts = tmp_path / "starts"
        intent = an_intent("twice", *self.shell(f"echo started >> {starts}; exec sleep 60"))

        first, second = await asyncio.gather(
            fleet.supplier.create(intent), fleet.supplier.create(intent)
        )
        again = await fleet.restarted().create(intent)

        assert first.handle == second.handle == again.handle
        await eventually(lambda: _is(starts.exists))
        owned = [view.key async for view in fleet.supplier.list_owned(INSTALLATION)]
        assert owned == ["twice"]
        await fleet.supplier.delete(first.handle)
        assert starts.read_text() == "started\n"

    async def test_a_machine_is_found_by_its_key_after_a_crash_of_the_loop(
        self, fleet: Fleet
    ) -> None:  # SC-609
        created = await fleet.supplier.create(an_intent("lost", *self.shell("exec sleep 60")))

        found = await fleet.restarted().find("lost")

        assert found is not None
        assert found.handle == created.handle

    async def test_the_list_is_complete_and_only_of_this_installation(self, fleet: Fleet) -> None:
        for key in ("one", "two"):  # SC-611
            await fleet.supplier.create(an_intent(key, *self.shell("exec sleep 60")))

        mine = {view.key async for view in fleet.supplier.list_owned(INSTALLATION)}
        other = UUID("00000000-0000-4000-8000-000000000000")
        others = [view async for view in fleet.supplier.list_owned(other)]

        assert mine == {"one", "two"}
        assert others == []

    async def test_exit_codes_are_told_as_they_are(self, fleet: Fleet) -> None:  # SC-009
        for code in (0, 3, 137):
            view = await fleet.supplier.create(an_intent(f"x{code}", *self.shell(f"exit {code}")))
            assert await exit_of(fleet.supplier, view.handle) == (code, None)
            await fleet.supplier.delete(view.handle)

    async def test_signals_are_told_apart_from_exit_codes(self, fleet: Fleet) -> None:  # SC-009
        for number in (9, 11, 15):
            script = self.shell(f"kill -{number} $$")
            view = await fleet.supplier.create(an_intent(f"s{number}", *script))
            assert await exit_of(fleet.supplier, view.handle) == (128 + number, number)
            await fleet.supplier.delete(view.handle)

    async def test_an_exit_is_told_with_its_times(self, fleet: Fleet) -> None:  # SC-644
        created = await fleet.supplier.create(an_intent("t", *self.shell("exit 0")))

        view = await view_when(fleet.supplier, created.handle, lambda v: v.exit is not None)

        assert view.exit is not None
        assert view.exit.started_age is not None
        assert view.exit.started_age >= view.exit.exit_age >= 0
        assert view.exit.stop_age is None
        assert view.billing_start is not None
        assert view.ended_at is not None
        assert view.ended_at >= view.billing_start

    async def test_a_program_that_cannot_start_is_told(self, fleet: Fleet) -> None:  # SC-010
        created = await fleet.supplier.create(an_intent("no", "/no/such/program"))

        view = await view_when(fleet.supplier, created.handle, lambda v: v.exit is not None)

        assert view.exit is not None
        assert (view.exit.error, view.exit.exit_code) == ("StartFailed", None)
        assert view.exit.message == "command not found: /no/such/program"
        assert view.exit.started_age is None

    async def test_a_stop_is_passed_on_and_told(self, fleet: Fleet, tmp_path: Path) -> None:
        ready = tmp_path / "ready"
        script = f"trap 'exit 7' TERM; touch {ready}; while :; do sleep 0.05; done"
        created = await fleet.supplier.create(an_intent("stop", *self.shell(script)))
        await eventually(lambda: _is(ready.exists))

        order = Order(kind="stop", grace=timedelta(seconds=20))
        await fleet.supplier.signal(created.handle, order)

        view = await view_when(fleet.supplier, created.handle, lambda v: v.exit is not None)
        assert view.exit is not None  # SC-013: a stop age tells it from an exit of its own
        assert view.exit.exit_code == 7
        assert view.exit.stop_age is not None
        assert view.exit.stop_age >= view.exit.exit_age

    async def test_deleting_is_idempotent_and_takes_unknown_handles(self, fleet: Fleet) -> None:
        created = await fleet.supplier.create(an_intent("d", *self.shell("exec sleep 60")))

        await fleet.supplier.delete(created.handle)  # SC-701
        await fleet.supplier.delete(created.handle)
        await fleet.supplier.delete("never-there")

        assert await fleet.supplier.find("d") is None
        assert [view async for view in fleet.supplier.list_owned(INSTALLATION)] == []

    async def test_a_deletion_is_never_proven_early(self, fleet: Fleet) -> None:  # SC-610, P-10
        created = await fleet.supplier.create(an_intent("p", *self.shell("exec sleep 60")))
        before = await fleet.supplier.prove_deleted(created.handle)

        await fleet.supplier.delete(created.handle)

        proofs = [await fleet.restarted().prove_deleted(created.handle) for _ in range(2)]
        assert before.verdict is Verdict.PRESENT
        assert [proof.verdict for proof in proofs] == [Verdict.GONE, Verdict.GONE]
        assert proofs[0].at is not None
        assert proofs[0].at == proofs[1].at
        assert created.billing_start is not None
        assert proofs[0].at >= created.billing_start

    async def test_a_deletion_that_was_cancelled_is_continued(
        self, fleet: Fleet, tmp_path: Path
    ) -> None:  # SC-701
        ready = tmp_path / "ready"
        script = f"trap '' TERM; touch {ready}; while :; do sleep 0.05; done"
        created = await fleet.supplier.create(an_intent("c", *self.shell(script)))
        await eventually(lambda: _is(ready.exists))

        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(fleet.supplier.delete(created.handle), 0.1)
        between = await fleet.supplier.prove_deleted(created.handle)
        await fleet.restarted().delete(created.handle)

        assert between.verdict is Verdict.PRESENT
        assert (await fleet.supplier.prove_deleted(created.handle)).verdict is Verdict.GONE

    async def test_a_restarted_loop_finds_a_running_machine_and_its_exit(
        self, fleet: Fleet, tmp_path: Path
    ) -> None:  # SC-702
        go = tmp_path / "go"
        script = f"while [ ! -e {go} ]; do sleep 0.02; done; exit 5"
        created = await fleet.supplier.create(an_intent("r", *self.shell(script)))

        again = fleet.restarted()
        running = await view_when(
            again, created.handle, lambda v: v.condition is MachineCondition.RUNNING
        )
        go.touch()

        assert running.exit is None
        assert await exit_of(again, created.handle) == (5, None)

    async def test_a_deleted_key_is_not_created_again(self, fleet: Fleet) -> None:  # SC-603
        intent = an_intent("late", *self.shell("exec sleep 60"))
        created = await fleet.supplier.create(intent)
        await fleet.supplier.delete(created.handle)

        repeated = await fleet.restarted().create(intent)

        assert repeated.condition is MachineCondition.GONE
        assert await fleet.supplier.find("late") is None

    async def test_a_reclaim_is_announced_once(self, fleet: Fleet) -> None:  # SC-702, SC-630
        if not fleet.supplier.caps.notices or not fleet.supplier.caps.inject:
            return
        created = await fleet.supplier.create(an_intent("noticed", *self.shell("exec sleep 60")))
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
        created = await fleet.supplier.create(an_intent("reclaimed", *self.shell("exec sleep 60")))
        running = await view_when(
            fleet.supplier, created.handle, lambda v: v.condition is MachineCondition.RUNNING
        )
        fault = FaultInjection(kind="preemption", notice=timedelta(seconds=1))
        await fleet.supplier.inject(created.handle, fault)

        view = await view_when(
            fleet.restarted(), created.handle, lambda v: v.condition is MachineCondition.FAILED
        )

        assert (view.reclaimed, view.exit) == (True, None)
        assert view.ended_at is not None
        assert running.billing_start is not None
        assert view.ended_at >= running.billing_start + timedelta(seconds=1)
        assert [one async for one in fleet.supplier.notices()] == []

    async def test_an_exit_before_the_reclaim_is_told(self, fleet: Fleet, tmp_path: Path) -> None:
        if not fleet.supplier.caps.notices or not fleet.supplier.caps.inject:
            return
        ready = tmp_path / "ready"
        script = f"trap 'exit 143' TERM; touch {ready}; while :; do sleep 0.05; done"
        created = await fleet.supplier.create(an_intent("leaves", *self.shell(script)))
        await eventually(lambda: _is(ready.exists))
        fault = FaultInjection(kind="preemption", notice=timedelta(seconds=30))
        await fleet.supplier.inject(created.handle, fault)

        await fleet.supplier.signal(created.handle, Order(kind="stop", grace=timedelta(seconds=20)))

        view = await view_when(fleet.supplier, created.handle, lambda v: v.exit is not None)
        assert view.exit is not None  # scenario 20
        assert (view.exit.exit_code, view.exit.stop_age is not None) == (143, True)
        assert not view.reclaimed

    async def test_a_machine_can_be_made_to_fail(self, fleet: Fleet) -> None:  # SC-630
        if not fleet.supplier.caps.inject:
            return
        created = await fleet.supplier.create(an_intent("fails", *self.shell("exec sleep 60")))

        for supplier in (fleet.supplier, fleet.restarted()):  # a repeat changes nothing
            await supplier.inject(created.handle, FaultInjection(kind="node-loss"))

        view = await view_when(
            fleet.supplier, created.handle, lambda v: v.condition is MachineCondition.FAILED
        )
        assert (view.exit, view.reclaimed) == (None, False)

    async def test_a_reclaim_without_a_notice_is_done_at_once(self, fleet: Fleet) -> None:
        if not fleet.supplier.caps.inject:
            return
        created = await fleet.supplier.create(an_intent("taken", *self.shell("exec sleep 60")))

        await fleet.supplier.inject(created.handle, FaultInjection(kind="preemption"))

        view = await view_when(
            fleet.supplier, created.handle, lambda v: v.condition is MachineCondition.FAILED
        )
        assert view.reclaimed  # scenario 21

    async def test_faults_that_cannot_be_made_are_refused(self, fleet: Fleet) -> None:
        if not fleet.supplier.caps.inject:
            return
        created = await fleet.supplier.create(an_intent("sound", *self.shell("exec sleep 60")))
        for handle, kind in ((created.handle, "flood"), ("never-there", "node-loss")):
            with pytest.raises(Invalid):
                await fleet.supplier.inject(handle, FaultInjection(kind=kind))
        await fleet.supplier.delete(created.handle)
        with pytest.raises(Invalid):
            await fleet.supplier.inject(created.handle, FaultInjection(kind="node-loss"))


async def _is(fact: Callable[[], bool]) -> bool:
    return fact()
