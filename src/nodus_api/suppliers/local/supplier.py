"""The local supplier: the protocol over work directories and processes (SC-710 to SC-714)."""

import asyncio
import fcntl
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from nodus_api.clock import Clock
from nodus_api.runner.cgroup import PROGRAM
from nodus_api.runner.files import EXIT, ORDER, write_json
from nodus_api.runner.identity import read_identity
from nodus_api.suppliers.local import cgroups, memory_groups
from nodus_api.suppliers.local.deletion import condemn, delete_machine, empty_trash
from nodus_api.suppliers.local.faults import make_fault, take_if_due
from nodus_api.suppliers.local.host import base_environment, default_slots, slot_offer
from nodus_api.suppliers.local.processes import Processes
from nodus_api.suppliers.local.rendezvous import rendezvous
from nodus_api.suppliers.local.spawning import make_memory_group, runner_intent, spawn_runner
from nodus_api.suppliers.local.view import machine_view
from nodus_api.suppliers.local.warmth import may_assign, warm_view, wipe_machine
from nodus_api.suppliers.local.workdir import WorkDirectories
from nodus_api.suppliers.supplier import (
    Ambiguous,
    DeletionObservation,
    FaultInjection,
    Invalid,
    MachineCondition,
    MachineIntent,
    MachineView,
    NoCapacity,
    Notice,
    Order,
    SupplierCaps,
    SupplierOffer,
    Verdict,
)

logger = logging.getLogger(__name__)

_LOCK = ".lock"
_LOCK_PAUSE_SECONDS = 0.01
_LOCK_SECONDS = 5.0


class LocalSupplier:
    """Machines that are process sessions on this host.

    `root` holds a directory a machine; `slots` machines fit at once, None for max(4, CPUs); `rate`
    is USD an hour; `environment` is what programs start from, None for the names of where things
    are from our own. Two processes may use one root at once, a deposed leader and its successor.
    """

    name = "local"
    caps = SupplierCaps(
        sync_delete=True, notices=True, warm=True, inject=True, increment=timedelta(seconds=1)
    )

    def __init__(
        self,
        root: Path,
        *,
        installation: UUID,
        runner_socket: Path,
        slots: int | None,
        rate: Decimal,
        clock: Clock,
        environment: Mapping[str, str] | None = None,
        heartbeat: timedelta = timedelta(seconds=10),
        delete_grace: timedelta = timedelta(seconds=10),
    ) -> None:
        self._directories = WorkDirectories(root.absolute())
        self._installation = installation
        self._runner_socket = runner_socket.absolute()
        self._slots = default_slots() if slots is None else slots
        self._rate = rate
        self._clock = clock
        self._environment = base_environment(os.environ if environment is None else environment)
        self._heartbeat = heartbeat.total_seconds()
        self._delete_grace = delete_grace
        self._cgroup_base = cgroups.base()
        self._memory_base = memory_groups.base()
        self._owner = memory_groups.owner_of(installation, self._directories.root)

    async def offers(self) -> Sequence[SupplierOffer]:
        """Return the one class of this host and how many of its slots are free."""
        with _translated():
            free = max(0, self._slots - len(self._directories.machines()))
            root = self._directories.root
            return [slot_offer(root, slots=self._slots, rate=self._rate, available=free)]

    async def create(self, intent: MachineIntent) -> MachineView:
        """Start the machine of `intent.key`, or return it if it exists (SC-710).

        A key that was deleted stays deleted: its view is GONE. Raises NoCapacity if every slot is
        taken, Invalid for a key that is no file name, Ambiguous if it is not known what happened.
        """
        if not self._directories.valid(intent.key):
            raise Invalid(f"machine key {intent.key!r} cannot name a directory")
        if intent.installation != self._installation:
            raise Invalid("the intent is of another installation")
        with _translated():
            async with self._locked():
                return self._create(intent)

    async def find(self, key: str) -> MachineView | None:
        """Return the machine of a key, or None if there is none.

        A look completes a create that was cut short between directory and spawn: the intent is
        there, and nothing else would ever start it. And it takes away what is to be reclaimed.
        """
        if not self._directories.valid(key):
            return None
        directory = self._directories.path(key)
        with _translated():
            if not self._directories.exists(key):
                return None
            if (warm := warm_view(self._directories, key)) is not None:
                return warm
            try:
                take_if_due(directory, self._clock.now())
                view = machine_view(directory, self._clock.now())
            except PermissionError:
                self._directories.open_up(key)
                take_if_due(directory, self._clock.now())
                view = machine_view(directory, self._clock.now())
            if view is not None and view.condition is MachineCondition.PENDING:
                self._spawn_if_needed(key)
                view = machine_view(directory, self._clock.now())
        return view

    async def observe(self, handles: Sequence[str]) -> Mapping[str, MachineView]:
        """Return the machines that exist, by handle; a handle here is the key."""
        found: dict[str, MachineView] = {}
        for handle in handles:
            view = await self.find(handle)
            if view is not None:
                found[handle] = view
            await self._clock.sleep(0)  # many machines are many reads: let others work between
        return found

    async def list_owned(self, installation: UUID) -> AsyncIterator[MachineView]:
        """Yield every machine of this installation under the root.

        A memory group without a directory is what is left of one: it ends as machines do.
        """
        with _translated():
            keys = self._directories.machines()
        for key in keys:
            view = await self.find(key)
            if view is not None and view.installation == installation:
                yield view
            await self._clock.sleep(0)
        for key in self._left_behind() if installation == self._installation else ():
            yield MachineView(
                handle=key, key=key, condition=MachineCondition.FAILED, installation=installation
            )

    async def signal(self, handle: str, order: Order) -> None:
        """Hand an order to the runner, which also asks the server at once; best effort."""
        if not self._directories.valid(handle):
            return
        directory = self._directories.path(handle)
        with _translated():
            runner = Processes(directory).runner() if self._directories.exists(handle) else None
            if runner is None or read_identity(directory) is None:
                return  # before its claim it does not listen: a signal would kill it
        grace = None if order.grace is None else round(order.grace.total_seconds() * 1000)
        with suppress(OSError):
            write_json(directory / ORDER, {"kind": order.kind, "graceMs": grace})
            os.kill(runner.pid, signal.SIGUSR1)

    async def delete(self, handle: str) -> None:
        """End the machine and remove it (SC-712): SIGTERM, `delete_grace` at most, SIGKILL.

        Idempotent; a call that was cancelled or lost is continued by the next.
        """
        if not self._directories.valid(handle):
            return
        with _translated():
            async with self._locked():  # so that no create comes between look and mark
                self._clear_abandoned()
                since = condemn(self._directories, handle, self._clock.now())
            if since is None:
                await empty_trash(self._directories, handle)
            else:
                end_by = since + self._delete_grace
                await delete_machine(self._directories, handle, self._clock, end_by=end_by)

    async def prove_deleted(self, handle: str) -> DeletionObservation:
        """Look once: no live process in the session, and the directory gone (SC-712)."""
        if not self._directories.valid(handle):
            return DeletionObservation(verdict=Verdict.GONE, at=self._clock.now())
        try:
            if self._directories.remains(handle):
                return DeletionObservation(verdict=Verdict.PRESENT)
            processes = Processes(self._directories.path(handle))
            if processes.memory_group is not None and processes.memory_group.exists():
                return DeletionObservation(verdict=Verdict.PRESENT)
            if not processes.empty():
                return DeletionObservation(verdict=Verdict.PRESENT)
            if not self._directories.root.is_dir():
                return DeletionObservation(verdict=Verdict.UNKNOWN)
        except OSError:
            return DeletionObservation(verdict=Verdict.UNKNOWN)
        tombstone = self._directories.tombstone(handle)
        gone_at = tombstone.gone_at if tombstone else None
        return DeletionObservation(verdict=Verdict.GONE, at=gone_at or self._clock.now())

    async def kept_checkpoints(self) -> Sequence[UUID]:
        """Return the workloads that have a folder of checkpoints under the root (SC-126)."""
        with _translated():
            return self._directories.kept()

    async def drop_checkpoints(self, workload: UUID) -> None:
        """Delete the folder of a workload's checkpoints. Raises Ambiguous if some of it is left."""
        with _translated():
            if not await asyncio.to_thread(self._directories.drop, workload):
                raise Ambiguous(f"some checkpoints of workload {workload} could not be deleted")

    async def notices(self) -> AsyncIterator[Notice]:
        """Yield the reclaims that are announced and not done; those that are due are done first."""
        with _translated():
            keys = self._directories.machines()
        for key in keys:
            with _translated():
                reclaim = take_if_due(self._directories.path(key), self._clock.now())
            if reclaim is not None and reclaim.done is None:
                yield Notice(handle=key, deadline=reclaim.deadline)
            await self._clock.sleep(0)

    async def inject(self, handle: str, fault: FaultInjection) -> None:
        """Make a fault of a machine, once: a repeat changes nothing (SC-630). Raises Invalid.

        `preemption` takes the machine away after its notice, `node-loss` kills the session with no
        last word, `heartbeat` freezes the runner alone, `readiness` lets its checks fail.
        """
        with _translated():
            async with self._locked():
                if not self._directories.exists(handle):
                    raise Invalid(f"no machine {handle!r}")
                self._directories.open_up(handle)
                make_fault(self._directories.path(handle), fault, self._clock.now())

    async def wipe(self, handle: str) -> None:
        """End the tenant of a machine and leave its slot empty (SC-343).

        Processes, groups, files, logs, token and unfinished copies are gone when it returns; the
        machine is RUNNING then, without a program. Idempotent; a call that was cut short is
        continued by the next. Raises Invalid if there is no machine, Ambiguous if something is
        left.
        """
        if not self._directories.valid(handle):
            raise Invalid(f"no machine {handle!r}")
        with _translated():
            view = await self.find(handle)
            await wipe_machine(self._directories, handle, view, self._clock, self._locked)

    async def assign(self, handle: str, intent: MachineIntent, token: str) -> None:
        """Give a wiped machine its next program, once a fence (SC-343).

        Raises Invalid if the machine is not there, not wiped, or past this fence.
        """
        if handle != intent.key or not self._directories.valid(handle):
            raise Invalid(f"machine {handle!r} is not the one of the intent")
        if intent.installation != self._installation:
            raise Invalid("the intent is of another installation")
        with _translated():
            async with self._locked():
                if may_assign(self._directories, handle, intent.fence):
                    self._make(replace(intent, token=token))
                self._spawn_if_needed(handle)

    def _create(self, intent: MachineIntent) -> MachineView:
        key = intent.key
        now = self._clock.now()
        directories = self._directories
        if directories.tombstone(key) is not None and not directories.exists(key):
            return MachineView(
                handle=key,
                key=key,
                condition=MachineCondition.GONE,
                installation=intent.installation,
            )
        if (warm := warm_view(directories, key)) is not None:
            return warm  # a create that comes late: this machine was made, and is kept by now
        self._clear_abandoned()
        if not directories.exists(key):
            taken = len(directories.machines())
            if taken >= self._slots:
                raise NoCapacity(f"all {self._slots} slots of this host are taken")
            self._make(intent)
            directories.forget(now)
        self._spawn_if_needed(key)
        view = machine_view(directories.path(key), now)
        if view is None:
            raise Ambiguous("the machine's directory vanished while it was made")
        return view

    def _make(self, intent: MachineIntent) -> None:
        memory = intent.program.memory_bytes
        base = self._cgroup_base
        seat = intent.incarnation.gang
        meeting = rendezvous(self._directories, intent.key, seat) if seat else None
        self._directories.stage(intent.key)
        group = cgroups.make(base, intent.key, memory) if base else None
        asked = runner_intent(
            intent,
            runner_socket=self._runner_socket,
            environment=self._environment,
            heartbeat=self._heartbeat,
            cgroup=group,
            memory_group=self._memory_group(intent, group),
            checkpoints=self._directories.checkpoints,
            rendezvous=meeting,
        )
        self._directories.make(intent.key, asked.to_json(), intent.token)

    def _memory_group(self, intent: MachineIntent, cgroup: Path | None) -> Path | None:
        """Return where the machine's memory group will be; None if it needs none, or can have none.

        Cgroup v2 comes first, where its memory controller was delegated to us (SC-713).
        """
        memory = intent.program.memory_bytes
        if memory is None or self._memory_base is None:
            return None
        if cgroup is not None and (cgroup / PROGRAM / "memory.max").exists():
            return None
        return memory_groups.place(self._memory_base, self._owner, intent.key)

    def _left_behind(self) -> list[str]:
        """Return the keys of the memory groups whose directory is gone."""
        if self._memory_base is None:
            return []
        groups = memory_groups.found(self._memory_base, self._owner)
        with _translated():
            return [key for key in groups if not self._directories.remains(key)]

    def _clear_abandoned(self) -> None:
        """Remove what a create left that died before its machine was there to be found.

        No intent names it and no look shows it, so no deletion would ever come for it.
        """
        for key in self._directories.abandoned():
            if self._cgroup_base is not None:
                cgroups.remove(cgroups.group_of(self._cgroup_base, key))
            self._directories.unstage(key)

    def _spawn_if_needed(self, key: str) -> None:
        directory = self._directories.path(key)
        if self._directories.condemned(key) or (directory / EXIT).exists():
            return
        processes = Processes(directory)
        if processes.runner() is None and read_identity(directory) is None:
            limit = make_memory_group(directory)
            pid = spawn_runner(directory, self._environment)
            extra = {"machine": key, "pid": pid, "memory_limit": limit}
            logger.info("runner spawned", extra=extra)

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """Hold the root's lock, against another loop on this root and against ourselves."""
        descriptor = os.open(self._directories.root / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            deadline = self._clock.monotonic() + _LOCK_SECONDS
            while not _try_lock(descriptor):
                if self._clock.monotonic() > deadline:
                    raise Ambiguous("another process holds the lock of the machines' directory")
                await self._clock.sleep(_LOCK_PAUSE_SECONDS)
            yield
        finally:
            os.close(descriptor)


@contextmanager
def _translated() -> Iterator[None]:
    """Say of what the system refused that it is not known; nothing here proves absence."""
    try:
        yield
    except OSError as error:
        raise Ambiguous(f"this host could not answer: {error}") from error


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
