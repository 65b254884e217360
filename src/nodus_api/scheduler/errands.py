"""Supplier calls under way, while the passes go on (SC-607).

A step sends calls and takes up what has come back since; it never waits. What is under way
lives in memory alone: after a crash the rows say what to ask again, and every call is safe to
repeat (SC-603). What there is no token for is not sent: its row stays due, and a later pass
sends it (SC-616).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

from nodus_api.clock import Clock
from nodus_api.scheduler.buckets import Bucket
from nodus_api.suppliers.supplier import (
    Ambiguous,
    CallRate,
    DeletionObservation,
    MachineView,
    Notice,
    RateLimited,
    SupplierOffer,
)
from nodus_api.tasks import end, spawn

Key = TypeVar("Key", int, str)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """What a supplier offered, and the database's time before it was asked."""

    asked: datetime
    offers: Sequence[SupplierOffer]


class HeldBack(RateLimited):
    """A call that was not made, since the supplier had just asked for a pause."""


class Errands(Generic[Key, Answer]):
    """Calls of one kind, a few at a time; each kind has limits of its own (SC-616).

    So a pile of creates never holds up a delete. `done` is called whenever one came back.
    A call that takes longer than `timeout` is given up as Ambiguous. Each takes a token of the
    `bucket`, and an answer of RateLimited empties it.
    """

    def __init__(
        self,
        kind: str,
        *,
        at_once: int,
        timeout: timedelta,
        done: Callable[[], None],
        bucket: Bucket,
        clock: Clock,
    ) -> None:
        self.kind = kind
        self._bucket = bucket
        self._clock = clock
        self._wanting = False
        self._turns = asyncio.Semaphore(at_once)
        self._timeout = timeout.total_seconds()
        self._done = done
        self._under_way: dict[Key, asyncio.Task[None]] = {}
        self._returned: dict[Key, Answer | Exception] = {}

    def grant(self, wanted: int) -> int:
        """Take tokens for calls that will be sent as `paid`; return how many there were."""
        taken = self._bucket.take(wanted, self._clock.monotonic())
        self._wanting = taken < wanted
        return taken

    def token_in(self) -> float | None:
        """Return the seconds until a call can be sent, if the last one was refused a token.

        Told once: the pass that is made then finds out whether the call is wanted still.
        """
        wanting, self._wanting = self._wanting, False
        return self._bucket.next_token(self._clock.monotonic()) if wanting else None

    def send(self, key: Key, call: Callable[[], Awaitable[Answer]], *, paid: bool = False) -> bool:
        """Start a call, if there is a token for it or it was `paid` for.

        Not if one with this key is under way or waits to be taken up.
        """
        if self.busy(key) or not (paid or self.grant(1)):
            return False
        self._under_way[key] = spawn(f"{self.kind} of {key}", self._run(key, call))
        return True

    def busy(self, key: Key) -> bool:
        """Whether a call with this key is under way, or its answer waits."""
        return key in self._under_way or key in self._returned

    def returned(self) -> dict[Key, Answer | Exception]:
        """Take up what came back since the last time: answers, or the errors raised."""
        returned, self._returned = self._returned, {}
        return returned

    @property
    def under_way(self) -> int:
        """How many calls have not come back."""
        return len(self._under_way)

    @property
    def answered(self) -> bool:
        """Whether an answer waits to be taken up."""
        return bool(self._returned)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way and nothing waits to be taken up."""
        return not self._under_way and not self._returned

    async def settled(self) -> None:
        """Wait until everything under way came back."""
        while self._under_way:
            await asyncio.wait(list(self._under_way.values()))

    async def close(self) -> None:
        """Cancel what is under way; whether it took effect is for the next leader to find."""
        for task in list(self._under_way.values()):
            await end(task)
        self._under_way.clear()

    async def _run(self, key: Key, call: Callable[[], Awaitable[Answer]]) -> None:
        answer: Answer | Exception
        try:
            async with self._turns, asyncio.timeout(self._timeout):
                answer = await self._call(call)
        except TimeoutError:
            answer = Ambiguous(f"no answer within {self._timeout:.0f} s")
        except Exception as error:  # noqa: BLE001 - whatever a supplier raises is its answer
            answer = error
        finally:
            self._under_way.pop(key, None)
        self._returned[key] = answer
        self._done()

    async def _call(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        pause = self._bucket.paused(self._clock.monotonic())
        if pause > 0:
            raise HeldBack(f"the supplier wants no {self.kind} yet", timedelta(seconds=pause))
        try:
            return await call()
        except RateLimited as limited:
            self._bucket.empty(self._clock.monotonic() + limited.after.total_seconds())
            raise


class Calls:
    """The supplier calls of one reign, by kind, each kind at most at the supplier's `rate`."""

    def __init__(
        self,
        *,
        at_once: int,
        timeout: timedelta,
        done: Callable[[], None],
        rate: CallRate,
        clock: Clock,
    ) -> None:
        def errands(
            kind: str, turns: int = at_once, *, bucket: Bucket | None = None
        ) -> Errands[Any, Any]:
            return Errands(
                kind,
                at_once=turns,
                timeout=timeout,
                done=done,
                bucket=bucket or Bucket(rate),
                clock=clock,
            )

        deletes = Bucket(rate)

        self.creates: Errands[int, MachineView] = errands("create")
        self.finds: Errands[int, MachineView | None] = errands("find")
        self.deletes: Errands[int, DeletionObservation] = errands("delete", bucket=deletes)
        self.signals: Errands[int, None] = errands("signal")
        self.injections: Errands[int, None] = errands("inject")
        self.wipes: Errands[int, None] = errands("wipe")
        self.assigns: Errands[int, None] = errands("assign")
        self.notices: Errands[str, Sequence[Notice]] = errands("notices", 1)
        self.observations: Errands[str, Mapping[str, MachineView]] = errands("observe", 1)
        self.offers: Errands[str, Offered] = errands("offers", 1)
        self.lists: Errands[str, Sequence[MachineView]] = errands("list", 1)
        self.orphans: Errands[str, DeletionObservation] = errands(
            "delete of an orphan", bucket=deletes
        )
        self.kept: Errands[str, Sequence[UUID]] = errands("list of checkpoints", 1)
        self.drops: Errands[str, None] = errands("drop of checkpoints", 1)

    def all(self) -> tuple[Errands[Any, Any], ...]:
        """Return every kind."""
        return (
            self.creates,
            self.finds,
            self.deletes,
            self.signals,
            self.injections,
            self.wipes,
            self.assigns,
            self.notices,
            self.observations,
            self.offers,
            self.lists,
            self.orphans,
            self.kept,
            self.drops,
        )

    def token_in(self) -> float | None:
        """Return the seconds until some call can be sent for which there was no token."""
        waits = [errands.token_in() for errands in self.all()]
        return min((wait for wait in waits if wait is not None), default=None)

    @property
    def under_way(self) -> int:
        """How many calls have not come back."""
        return sum(errands.under_way for errands in self.all())

    @property
    def answered(self) -> bool:
        """Whether an answer waits to be taken up."""
        return any(errands.answered for errands in self.all())

    @property
    def idle(self) -> bool:
        """Whether nothing is under way and nothing waits to be taken up."""
        return all(errands.idle for errands in self.all())

    async def settled(self) -> None:
        """Wait until everything under way came back."""
        for errands in self.all():
            await errands.settled()

    async def close(self) -> None:
        """Cancel what is under way."""
        for errands in self.all():
            await errands.close()
