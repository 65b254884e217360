"""The warm machines that nobody has, as placement may use them (SC-343).

Of the Attempt's own organization alone, of the class, market and image family that it asks for.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from nodus_api.kernel.offering import CandidateKey
from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import LeaseRole, MachineState
from nodus_api.kernel.warmth import WARM_BOOT_SECONDS, WarmRoom
from nodus_api.scheduler.catalog import Catalog
from nodus_api.scheduler.intents import runner_token, token_hash
from nodus_api.scheduler.keeping import image_family
from nodus_api.storage.catalog_store import Offer
from nodus_api.storage.leader_store import Reign
from nodus_api.storage.machine_store import IdleMachine
from nodus_api.storage.records import AttemptRecord, Lease, Tenancy


def warm_rooms(
    catalog: Catalog, record: AttemptRecord, spec: WorkloadSpec
) -> Mapping[CandidateKey, WarmRoom]:
    """Return what warm machines add to each candidate for an Attempt, or for its whole gang."""
    fitting: dict[CandidateKey, list[IdleMachine]] = {}
    for idle in _of_tenant(catalog, record, spec):
        fitting.setdefault((idle.machine.offering, idle.machine.market), []).append(idle)
    return {
        key: WarmRoom(
            count=len(several),
            largest=_largest(catalog, key, several),
            boot_p50=_boot(several),
        )
        for key, several in fitting.items()
    }


def pick(
    catalog: Catalog,
    record: AttemptRecord,
    spec: WorkloadSpec,
    key: CandidateKey,
    now: datetime,
    *,
    machines: int,
) -> tuple[list[IdleMachine], Offer | None]:
    """Return the warm machines to take for a choice, and the offer of all its machines (SC-131).

    The offer is the one with the most of them that has room for the rest; without one, whatever
    the catalog chooses.
    """
    by_offer: dict[int, list[IdleMachine]] = {}
    for idle in _of_tenant(catalog, record, spec):
        if (idle.machine.offering, idle.machine.market) == key:
            by_offer.setdefault(idle.machine.offer, []).append(idle)
    offers = {one.no: one for one in catalog.offers.get(key[0], ())}
    for number, several in sorted(by_offer.items(), key=lambda one: (-len(one[1]), one[0])):
        offer = offers.get(number)
        rest = machines - len(several)
        if offer is not None and (rest <= 0 or catalog.has_room(offer, key[1], rest, now)):
            return several[:machines], offer
    return [], catalog.choose(key, now, machines=machines)


def reassigned(reign: Reign, idle: IdleMachine, now: datetime, intent: Tenancy) -> Tenancy:
    """Return a warm machine with its next lease, at the rate of what was intended."""
    machine, fence = idle.machine, idle.fence + 1
    token = runner_token(reign.runner_key, machine.key, fence=fence)
    return Tenancy(
        machine=replace(
            machine,
            state=MachineState.GRANTED,
            registered=None,
            warm_until=None,
            gone_seen=None,
            tries=0,
            next_try=None,
        ),
        lease=Lease(
            fence=fence,
            role=LeaseRole.FIRST,
            held=now,
            rate_usd_per_hour=intent.lease.rate_usd_per_hour,
            token_sha256=token_hash(token),
        ),
    )


def _of_tenant(catalog: Catalog, record: AttemptRecord, spec: WorkloadSpec) -> list[IdleMachine]:
    organization, family = record.workload.organization, image_family(spec)
    return [
        one
        for one in catalog.warm
        if one.machine.organization == organization and one.machine.image_family == family
    ]


def _largest(catalog: Catalog, key: CandidateKey, several: list[IdleMachine]) -> int | None:
    """Return the machines that the best offer has, warm ones included; None if not known."""
    offering, market = key
    most = 0
    for offer in catalog.offers.get(offering, ()):
        room = catalog.room(offer, market)
        if room is None:
            return None
        most = max(most, room + sum(one.machine.offer == offer.no for one in several))
    return most + catalog.snapshot.taken.get(offering, 0)  # which `room` has left out already


def _boot(several: list[IdleMachine]) -> float:
    known = [one.boot_p50 for one in several if one.boot_p50 is not None]
    return known[0] if known else WARM_BOOT_SECONDS
