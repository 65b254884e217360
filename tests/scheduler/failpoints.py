"""Failpoints at the two seams of a scheduler process: its SQL, and its supplier's calls (G3).

Every statement, every commit and every supplier call is a *site*. A process counts its sites and at
one of them does what the plan says: it dies before or after the effect, gets an error with or
without the effect, or is cancelled there. No business code knows of this: the database and the
supplier that the process is given are wrapped.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar, cast
from uuid import UUID

import asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection

from nodus_api.storage.driver import Deadline, DriverConnection, ShortRead
from nodus_api.storage.engine import Database, Role
from nodus_api.storage.errors import StorageContention, StorageUnavailable
from nodus_api.suppliers.supplier import (
    Ambiguous,
    DeletionObservation,
    FaultInjection,
    MachineIntent,
    MachineView,
    NoCapacity,
    Notice,
    Order,
    RateLimited,
    Supplier,
    SupplierOffer,
)

T = TypeVar("T")


class Killed(BaseException):
    """The process died here: no handler of the product may catch it."""


class Kind(StrEnum):
    """What is done at a site."""

    STATEMENT = "statement"
    COMMIT = "commit"
    CALL = "call"


class Fault(StrEnum):
    """What happens at a site instead."""

    KILL_BEFORE = "killed before"
    KILL_AFTER = "killed after the effect"
    LOST_BEFORE = "error without effect"
    LOST_AFTER = "error after the effect"
    REFUSED = "refused"
    """Contention for SQL; NoCapacity or RateLimited from a supplier. No effect."""
    CANCEL = "cancelled"
    CANCEL_AFTER = "cancelled after the effect"


FAULTS: Mapping[Kind, Sequence[Fault]] = {
    Kind.STATEMENT: tuple(one for one in Fault if one is not Fault.CANCEL_AFTER),
    Kind.COMMIT: tuple(one for one in Fault if one is not Fault.CANCEL_AFTER),
    Kind.CALL: tuple(Fault),
}


@dataclass(frozen=True, slots=True)
class Site:
    """A place where a process may die: which step reached it, and what it did there."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The fault that comes at the site of this number, counted from 0 over a whole life."""

    number: int
    fault: Fault


@dataclass
class Failpoints:
    """Counts the sites of a life, through all its processes, and knows the one fault of it."""

    plan: Plan | None = None
    sites: list[Site] = field(default_factory=list)
    watch: Callable[[int, Site, Fault], None] | None = None
    """Told at each site of a life without a fault, before and after it, what death there would be.
    It never lets others run, so that a watched life is the same as an unwatched one.
    """

    @property
    def hit(self) -> Site | None:
        """The site at which the fault came, None if it has not yet."""
        if self.plan is None or self.plan.number >= len(self.sites):
            return None
        return self.sites[self.plan.number]

    @property
    def undisturbed(self) -> bool:
        """Whether a fault is still to come: until then all is as in the life without one."""
        return self.plan is not None and self.hit is None

    def reach(self, site: Site) -> Fault | None:
        number = len(self.sites)
        self.sites.append(site)
        if self.plan is None or self.plan.number != number:
            return None
        return self.plan.fault


class Process:
    """One scheduler process: its database, its supplier, and whether it lives.

    Once it is dead, whatever of it still runs dies at its next site. A transaction that was open
    is rolled back, as the server does when a connection drops.
    """

    def __init__(self, points: Failpoints, database: Database, supplier: Supplier) -> None:
        self.points = points
        self.dead = False
        self.main: asyncio.Task[Any] | None = None
        self.database = FaultyDatabase(self, database)
        self.supplier: Supplier = FaultySupplier(self, supplier)

    def die(self) -> None:
        self.dead = True
        raise Killed

    def alive(self) -> None:
        if self.dead:
            raise Killed

    async def at(self, site: Site, work: Callable[[], Awaitable[T]]) -> T:
        """Do what is done at a site, or what the plan has for it."""
        self.alive()
        fault, number = self.points.reach(site), len(self.points.sites) - 1
        if fault is None:
            self._watched(number, site, Fault.KILL_BEFORE)
            answer = await work()
            self.alive()
            if site.kind is not Kind.STATEMENT:
                self._watched(number, site, Fault.KILL_AFTER)
            return answer
        if fault in (Fault.KILL_BEFORE, Fault.LOST_BEFORE, Fault.REFUSED):
            self._fail(site, fault)
        if fault is Fault.CANCEL:
            return await self._cancelled(site, work)
        await work()
        if fault is Fault.CANCEL_AFTER:
            self._step_down()
            await asyncio.Event().wait()
        self._fail(site, fault)
        raise AssertionError(fault)

    def _watched(self, number: int, site: Site, death: Fault) -> None:
        if self.points.watch is not None:
            self.points.watch(number, site, death)

    def _fail(self, site: Site, fault: Fault) -> None:
        if fault in (Fault.KILL_BEFORE, Fault.KILL_AFTER):
            self.die()
        raise _error(site, fault)

    async def _cancelled(self, site: Site, work: Callable[[], Awaitable[T]]) -> T:
        """Cancel the reign while the work waits for its answer (SQL), or before it is sent."""
        if site.kind is Kind.CALL:
            self._step_down()
            await asyncio.Event().wait()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return await work()

    def _step_down(self) -> None:
        """Cancel the passes, as a lost lead does; the call under way is cancelled with them."""
        assert self.main is not None
        self.main.cancel()


def _error(site: Site, fault: Fault) -> Exception:
    if site.kind is not Kind.CALL:
        if fault is Fault.REFUSED:
            return StorageContention("deadlock detected (failpoint)")
        return StorageUnavailable("the failpoint", "the connection was lost")
    if fault is Fault.REFUSED:
        if site.name.endswith("create"):
            return NoCapacity("nothing is free (failpoint)")
        return RateLimited("slow down (failpoint)", timedelta(seconds=3))
    if fault is Fault.LOST_AFTER:
        return Ambiguous("the answer was lost (failpoint)")
    return ConnectionError("the call was not sent (failpoint)")


class FaultyDatabase(Database):
    """The database of one process, over a pool that outlives it."""

    def __init__(self, process: Process, pool: Database) -> None:
        self._process = process
        self._pool = pool
        self._role = Role.SCHEDULER
        self.where = pool.where

    @property
    def written(self) -> int:
        return self._pool.written

    @contextlib.asynccontextmanager
    async def transaction(
        self, read_only: bool = False, *, deadline: Deadline | None = None
    ) -> AsyncIterator[AsyncConnection]:
        process, site = self._process, Site(Kind.COMMIT, _where())
        process.alive()
        entered = self._pool.transaction(read_only, deadline=deadline)
        connection = await entered.__aenter__()
        try:
            yield _watched(process, connection)
        except BaseException as error:
            if not await entered.__aexit__(type(error), error, error.__traceback__):
                raise
        else:
            await _commit(process, None if read_only else site, entered)

    @contextlib.asynccontextmanager
    async def snapshot(self, *, deadline: Deadline | None = None) -> AsyncIterator[AsyncConnection]:
        async with self._pool.snapshot(deadline=deadline) as connection:
            yield _watched(self._process, connection)

    @contextlib.asynccontextmanager
    async def single_reads(
        self, *, deadline: Deadline | None = None
    ) -> AsyncIterator[AsyncConnection]:
        async with self._pool.single_reads(deadline=deadline) as connection:
            yield _watched(self._process, connection)

    async def read(
        self, short: ShortRead, *, deadline: Deadline | None = None, **given: Any
    ) -> list[asyncpg.Record]:
        site = Site(Kind.STATEMENT, f"{_where()}: short read")
        return await self._process.at(
            site, lambda: self._pool.read(short, deadline=deadline, **given)
        )

    @contextlib.asynccontextmanager
    async def dedicated(self) -> AsyncIterator[DriverConnection]:
        async with self._pool.dedicated() as connection:
            yield connection

    async def close(self) -> None:
        """Leave the pool to the processes that come."""


async def _commit(
    process: Process, site: Site | None, entered: contextlib.AbstractAsyncContextManager[Any]
) -> None:
    """Commit, or roll back when the process does not come to it; without a site, just end."""
    ended = False

    async def end() -> None:
        nonlocal ended
        ended = True
        await entered.__aexit__(None, None, None)

    try:
        await (end() if site is None else process.at(site, end))
    except BaseException as error:
        if not ended:
            await entered.__aexit__(type(error), error, error.__traceback__)
        raise


class _Watched:
    """A connection whose statements are sites."""

    def __init__(self, process: Process, connection: AsyncConnection) -> None:
        self._process = process
        self._connection = connection

    async def execute(self, statement: Any, *given: Any, **options: Any) -> Any:
        site = Site(Kind.STATEMENT, f"{_where()}: {_word(statement)}")
        return await self._process.at(
            site, lambda: self._connection.execute(statement, *given, **options)
        )


def _watched(process: Process, connection: AsyncConnection) -> AsyncConnection:
    process.alive()
    return cast(AsyncConnection, _Watched(process, connection))


def _word(statement: Any) -> str:
    table = getattr(statement, "table", None)
    name = getattr(table, "name", None)
    verb = getattr(statement, "__visit_name__", "statement")
    return f"{verb} {name}" if name else str(verb)


def _where() -> str:
    """Return the step that runs, and the product's innermost function: what a finding names."""
    frame, inner, outer = sys._getframe(1), "", ""
    current: Any = frame
    while current is not None:
        module = current.f_globals.get("__name__", "")
        if module.startswith("nodus_api."):
            name = f"{module.rpartition('.')[2]}.{current.f_code.co_name}"
            inner = inner or name
            if module.startswith("nodus_api.scheduler.") and not module.endswith(
                (".loop", ".context", ".lease")
            ):
                outer = name
        current = current.f_back
    return f"{outer} > {inner}" if outer and outer != inner else inner


class FaultySupplier:
    """The supplier as one process reaches it: every call is a site."""

    def __init__(self, process: Process, supplier: Supplier) -> None:
        self._process = process
        self._supplier = supplier
        self.name = supplier.name
        self.caps = supplier.caps

    async def _call(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self._process.at(Site(Kind.CALL, f"{_where()} > {name}"), work)

    async def offers(self) -> Sequence[SupplierOffer]:
        return await self._call("offers", self._supplier.offers)

    async def create(self, intent: MachineIntent) -> MachineView:
        return await self._call("create", lambda: self._supplier.create(intent))

    async def find(self, key: str) -> MachineView | None:
        return await self._call("find", lambda: self._supplier.find(key))

    async def observe(self, handles: Sequence[str]) -> Mapping[str, MachineView]:
        return await self._call("observe", lambda: self._supplier.observe(handles))

    async def list_owned(self, installation: UUID) -> AsyncIterator[MachineView]:
        async def owned() -> list[MachineView]:
            return [one async for one in self._supplier.list_owned(installation)]

        for one in await self._call("list", owned):
            yield one

    async def signal(self, handle: str, order: Order) -> None:
        await self._call("signal", lambda: self._supplier.signal(handle, order))

    async def delete(self, handle: str) -> None:
        await self._call("delete", lambda: self._supplier.delete(handle))

    async def prove_deleted(self, handle: str) -> DeletionObservation:
        return await self._call("prove", lambda: self._supplier.prove_deleted(handle))

    async def notices(self) -> AsyncIterator[Notice]:
        async def announced() -> list[Notice]:
            return [one async for one in self._supplier.notices()]

        for one in await self._call("notices", announced):
            yield one

    async def kept_checkpoints(self) -> Sequence[UUID]:
        return await self._call("kept_checkpoints", self._supplier.kept_checkpoints)

    async def drop_checkpoints(self, workload: UUID) -> None:
        await self._call("drop_checkpoints", lambda: self._supplier.drop_checkpoints(workload))

    async def inject(self, handle: str, fault: FaultInjection) -> None:
        await self._call("inject", lambda: self._supplier.inject(handle, fault))

    async def wipe(self, handle: str) -> None:
        await self._call("wipe", lambda: self._supplier.wipe(handle))

    async def assign(self, handle: str, intent: MachineIntent, token: str) -> None:
        await self._call("assign", lambda: self._supplier.assign(handle, intent, token))
