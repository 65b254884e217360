"""Walks that begin with a race: Attempts that are late to run, and have a second machine (P-25)."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize
from tests.scheduler.walk.drawing import NAMES, laggards, raced
from tests.scheduler.walk.machine import SchedulerWalk

from nodus_api.suppliers.supplier import SupplierCaps

LATE_SECONDS = 245


class RaceWalk(SchedulerWalk):
    """Everything that can happen to one scheduler, from the moment of a hedge on (SC-340)."""

    @initialize(
        slots=st.sampled_from((8, 4, 6, 3)),
        sync=st.booleans(),
        delay=st.sampled_from((0, 20)),
        create=st.sampled_from((None, None, "pending", "full", "unanswered", "lost", "late")),
        silent=st.booleans(),
        spec=raced,
        going=st.sampled_from((0, 1, 2, 3)),
        lags=laggards,
    )
    def begins(
        self,
        slots: int,
        sync: bool,
        delay: int,
        create: str | None,
        silent: bool,
        spec: dict[str, Any],
        going: int,
        lags: int | None,
    ) -> None:
        supplier = self.walk.supplier
        supplier.slots = slots
        supplier.caps = SupplierCaps(
            sync_delete=sync,
            visibility_delay=timedelta(seconds=delay),
            notices=True,
            warm=True,
            inject=True,
        )
        self.begun = True
        self._run(self.walk.lead())
        self._run(self.walk.submit(NAMES[0], spec))
        self._run(self._becomes_late(create, silent=silent))
        self._goes_on(going, lags=lags)

    async def _becomes_late(self, create: str | None, *, silent: bool) -> None:
        for _ in range(3):
            await self.walk.make_pass()
        if not silent:
            for runner in self.walk.meet_runners():
                await self.walk.goes_on(runner)
        await self.walk.pass_time(LATE_SECONDS)
        if create is not None:
            self.walk.supplier.faults.setdefault("create", []).append(create)
        await self.walk.make_pass()
