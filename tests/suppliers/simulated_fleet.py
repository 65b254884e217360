"""A simulated fleet on a clock that tests move, with a desk that lets programs start."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from tests.conftest import START
from tests.suppliers.conformance import Does

from nodus_api.clock import ManualClock
from nodus_api.suppliers.simulated import ClassModel, Fleet, FleetModel, SimulatedSupplier, Trace
from nodus_api.suppliers.simulated.reports import Answer
from nodus_api.suppliers.supplier import OfferedClass, Program, SupplierCaps

CLASS = "cpu-1c-1g-other"


def a_class(name: str = CLASS, **changes: Any) -> ClassModel:
    """A class of two machines, of which none is lost."""
    one = ClassModel(
        offered=OfferedClass(
            name=name,
            accelerator=None,
            form=None,
            count=0,
            accelerator_memory_gib=None,
            vcpus=Decimal(1),
            memory_gib=Decimal(4),
            disk_gib=Decimal(10),
            arch="amd64",
            region_class="other",
            gang_capable=True,
            rate_on_demand=Decimal("0.06"),
            rate_spot=Decimal("0.02"),
            speed=Decimal(1),
            reference_rate=Decimal("0.06"),
        ),
        region="here",
        capacity=Trace.always(2),
    )
    return replace(one, **changes)


def a_model(*classes: ClassModel, **changes: Any) -> FleetModel:
    caps = SupplierCaps(notices=True, inject=True, warm=True)
    return replace(FleetModel(classes=classes or (a_class(),), caps=caps), **changes)


def a_fleet(model: FleetModel | None = None, *, seed: int = 1) -> Fleet:
    return Fleet(model=model or a_model(), clock=ManualClock(START), seed=seed, start=START)


@dataclass
class OpenDesk:
    """Takes every report and grants every start; keeps what it was told, in order."""

    heard: list[Mapping[str, Any]] = field(default_factory=list)
    orders: list[dict[str, Any]] = field(default_factory=list)
    grants: bool = True
    status: int = 200
    body: dict[str, Any] = field(default_factory=dict)

    async def report(self, token: str, body: bytes) -> Answer:
        said = json.loads(body)
        self.heard.append({"token": token, **said})
        answer: dict[str, Any] = {"orders": self.orders, "granted": self.grants, "lastSeq": 0}
        if said["kind"] == "checkpoint":
            answer["committed"] = said["seq"]
        return Answer(status=self.status, body=self.body or answer)


@dataclass
class SimulatedFleet:
    """What the suite of all suppliers wants of a fleet; half a second passes at each look."""

    fleet: Fleet = field(default_factory=a_fleet)
    desk: OpenDesk = field(default_factory=OpenDesk)

    def __post_init__(self) -> None:
        self.supplier = SimulatedSupplier(self.fleet)

    def restarted(self) -> SimulatedSupplier:
        return SimulatedSupplier(self.fleet)

    def program(self, name: str, does: Does) -> Program:
        """Return an environment that says it; who waits to be told ends after 10 minutes."""
        said = {"NAME": name, "SECONDS": "600" if does.waits else "1"}
        said["EXIT_CODE"] = str(does.exit_code)
        if does.signal is not None:
            said["SIGNAL"] = str(does.signal)
        if does.on_stop is not None:
            said["ON_STOP"] = str(does.on_stop)
        if does.ignores_stop:
            said["ON_STOP"] = "ignore"
        environment = {f"SIMULATED_{name}": text for name, text in said.items()}
        return Program(command=("simulated",), environment=environment)

    def unstartable(self) -> Program:
        said = {
            "SIMULATED_START_ERROR": "StartFailed",
            "SIMULATED_START_MESSAGE": "command not found: /no/such/program",
        }
        return Program(command=("/no/such/program",), environment=said)

    def starts(self, name: str) -> int:
        runners = [one for machine in self.fleet.machines.values() for one in machine.runners]
        named = [
            one
            for one in runners
            if one.intent.program.environment.get("SIMULATED_NAME") == name and one.begun
        ]
        return len(named)

    def tell_to_end(self, name: str) -> None:
        """Nothing: it ends by itself."""

    async def pause(self) -> None:
        await self.pass_time(0.5)

    async def pass_time(self, seconds: float) -> None:
        clock = self.fleet.clock
        assert isinstance(clock, ManualClock)
        await clock.advance(seconds)
        self.fleet.catch_up()
        await self.fleet.mail.deliver(self.desk)

    async def pass_each(self, until: timedelta) -> None:
        """Let time pass from event to event, so that every answer comes at its moment."""
        end = self.fleet.clock.now() + until
        while (at := self.fleet.next_event()) is not None and at <= end:
            await self.pass_time(max(0.0, (at - self.fleet.clock.now()).total_seconds()))
        await self.pass_time((end - self.fleet.clock.now()).total_seconds())
