"""What a transaction teaches of the offers behind its machines (SC-205, SC-352, SC-361).

The facts are read off what the decisions of a batch changed, whichever step made them, and written
in the same transaction: what was learnt is as true as the rows that it was learnt from. Refused
creates and machines that never become ready are failures to deliver, which `catalog` notes.
"""

from collections.abc import Iterator
from datetime import datetime

from nodus_api.kernel.experience import Outcome
from nodus_api.kernel.vocabulary import Market, Reason, Trigger
from nodus_api.storage.batch import Batch
from nodus_api.storage.offer_stats import OfferStats, read_stats, write_stats
from nodus_api.storage.records import AttemptRecord, Tenancy

_NOT_COUNTED = (Trigger.DRILL, Trigger.FUNDING, Trigger.USER)
"""Interruptions that say nothing of the capacity (SC-352)."""


async def learn(batch: Batch) -> set[int]:
    """Write what the batch teaches; return the offers that are known better now."""
    outcomes: dict[int, list[tuple[Market, Outcome]]] = {}
    for no, record in batch.records.items():
        before = batch.loaded[no]
        if before.attempt is record.attempt and before.tenancies is record.tenancies:
            continue  # whatever else changed, it teaches nothing
        for tenancy in record.tenancies:
            for outcome in _taught(before, record, tenancy):
                machine = tenancy.machine
                outcomes.setdefault(machine.offer, []).append((machine.market, outcome))
    if not outcomes:
        return set()
    known = await read_stats(batch.connection, sorted(outcomes))
    changed: dict[int, dict[Market, OfferStats]] = {}
    for offer, several in outcomes.items():
        of_offer = changed.setdefault(offer, {})
        for market, outcome in several:
            stats = of_offer.get(market) or known.get((offer, market))
            if stats is None:
                stats = OfferStats(market=market, updated=batch.now)
            of_offer[market] = stats.with_experience(stats.experience.after(outcome, batch.now))
    await write_stats(
        batch.connection, {no: list(several.values()) for no, several in changed.items()}
    )
    return set(changed)


def _taught(before: AttemptRecord, after: AttemptRecord, tenancy: Tenancy) -> Iterator[Outcome]:
    """Yield what one machine's part in the change of its Attempt teaches."""
    machine, attempt = tenancy.machine, after.attempt
    was = next((one for one in before.tenancies if one.machine.key == machine.key), None)
    if was is None or not was.open or machine.granted is None:
        return  # it has only been intended, or its part was over before
    if was.machine.granted is None:
        yield Outcome(grant_seconds=_seconds(machine.requested, machine.granted))
    if attempt.command_started and not before.attempt.command_started and tenancy.lease.won:
        boot = None if attempt.resumes else _seconds(machine.granted, attempt.command_started)
        yield Outcome(successes=1, boot_seconds=boot)  # a restore's time is R, not b (SC-320)
    if before.attempt.live and attempt.finished is not None and not attempt.live:
        yield Outcome(
            exposure_hours=_seconds(machine.granted, attempt.finished) / 3600.0,
            interruptions=1 if _interrupted(after, tenancy) else 0,
        )
    stops = [at for at in (machine.releasing, attempt.finished) if at is not None]
    if machine.gone is not None and was.machine.gone is None and stops:
        yield Outcome(teardown_seconds=_seconds(min(stops), machine.gone))


def _interrupted(record: AttemptRecord, tenancy: Tenancy) -> bool:
    """Whether this machine's capacity was lost (SC-352).

    A Released rank copies the trigger of the peer that was (SC-003); of two machines of a hedge
    the one that had won is it, or the only one.
    """
    interruption = record.attempt.interruption
    if interruption is None or interruption.trigger in _NOT_COUNTED:
        return False
    if record.attempt.reason is Reason.RELEASED:
        return False
    return tenancy.lease.won or not any(one.lease.won for one in record.tenancies if one.open)


def _seconds(start: datetime, end: datetime) -> float:
    return max(0.0, (end - start).total_seconds())
