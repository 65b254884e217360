"""Joins the parts of `nodus schedule`: which clock, which supplier, which listeners."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

from nodus_api.cli.compose import certificates, open_database, tell_where
from nodus_api.cli.data_directory import DataDirectory
from nodus_api.clock import Clock, SystemClock
from nodus_api.garbage import look_seldom
from nodus_api.out_of_memory import ends_the_process
from nodus_api.scheduler import Retention, Scheduler
from nodus_api.scheduler.health import HealthServer
from nodus_api.scheduler.listening import unix_socket
from nodus_api.scheduler.reports import ReportServer
from nodus_api.settings import Settings
from nodus_api.storage.engine import Role
from nodus_api.storage.feed import Feed
from nodus_api.storage.leader_store import LeaderStore
from nodus_api.storage.report_store import ReportStore
from nodus_api.suppliers.local import LocalSupplier
from nodus_api.suppliers.simulated import ASGIDesk, Fleet, SimulatedSupplier, drive, sample_fleet
from nodus_api.suppliers.supplier import Supplier
from nodus_api.tasks import spawn


async def run_scheduler(
    settings: Settings, *, health: socket.socket, reports: socket.socket | None
) -> None:
    """Run the loop, its report listeners and its health listener until SIGTERM or SIGINT.

    Runners report to the Unix socket in D/run, and over HTTPS to `reports` if it is given.
    """
    clock = SystemClock()
    directory = DataDirectory(settings.data_dir)
    async with (
        AsyncExitStack() as memory,
        open_database(settings, Role.SCHEDULER, plan_once=True) as database,
    ):
        look_seldom()
        directory.run.mkdir(mode=0o700, parents=True, exist_ok=True)
        installation = await Feed(database, clock=clock).installation()
        supplier = _supplier(settings, directory, installation, clock)
        scheduler = Scheduler(
            database,
            supplier,
            clock,
            holder=f"{socket.gethostname()}/{os.getpid()}",
            retention=Retention(
                finished=settings.retain_finished,
                count=settings.retain_finished_count,
                archive=settings.archive_retention,
                log=settings.feed_retention,
            ),
        )
        answers = ReportServer(
            ReportStore(database),
            wake=scheduler.wake,
            metrics=scheduler.metrics,
            new_id=uuid4,
        )
        watcher = HealthServer(LeaderStore(database), scheduler.metrics)
        local = unix_socket(directory.runner_socket)
        tell_where("health", health)
        if reports is not None:
            tell_where("runner reports", reports)
        async with _stopped_by_signals() as stop:
            memory.enter_context(ends_the_process())
            parts = {
                "scheduler": scheduler.run(stop),
                "health": watcher.serve([health], stop),
                "reports": answers.serve([local], stop),
            }
            if isinstance(supplier, SimulatedSupplier):
                parts["simulated machines"] = drive(supplier.fleet, ASGIDesk(answers), stop)
            if reports is None:
                await _together(stop, parts)
                return
            async with certificates(settings, settings.runner_bind, clock) as (context, _):
                parts["reports over HTTPS"] = answers.serve([reports], stop, ssl_context=context)
                await _together(stop, parts)


def _supplier(
    settings: Settings, directory: DataDirectory, installation: UUID, clock: Clock
) -> Supplier:
    match settings.supplier:
        case "local":
            return LocalSupplier(
                directory.machines,
                installation=installation,
                runner_socket=directory.runner_socket,
                slots=settings.local_slots,
                rate=settings.local_rate,
                clock=clock,
            )
        case "simulated":
            return SimulatedSupplier(
                Fleet(
                    model=sample_fleet().sped_up(settings.simulated_speed),
                    clock=clock,
                    seed=settings.simulated_seed,
                    start=clock.now(),
                )
            )


@asynccontextmanager
async def _stopped_by_signals() -> AsyncIterator[asyncio.Event]:
    """Yield an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _together(stop: asyncio.Event, parts: Mapping[str, Coroutine[Any, Any, None]]) -> None:
    """Run until `stop`, or until one part ends; then all end. Raises what a part raised."""
    tasks = [spawn(name, part) for name, part in parts.items()]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.set()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ends:
        if isinstance(error, BaseException):
            raise error
