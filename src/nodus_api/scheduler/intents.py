"""What is asked of a supplier for one Attempt: key, token and intent (SC-608, SC-125)."""

import hashlib
import hmac
from datetime import datetime, timedelta
from decimal import Decimal

from nodus_api.kernel.spec import WorkloadSpec
from nodus_api.kernel.vocabulary import LeaseRole, Market
from nodus_api.scheduler.checkpointing import interval_of
from nodus_api.storage.checkpoint_store import Stored
from nodus_api.storage.leader_store import Reign
from nodus_api.storage.machine_store import OfferAddress
from nodus_api.storage.records import AttemptRecord, Lease, Machine, Tenancy
from nodus_api.suppliers.supplier import (
    GangSeat,
    Incarnation,
    MachineIntent,
    Program,
    RestorePoint,
)

GIB = 1 << 30


def intended(
    record: AttemptRecord,
    reign: Reign,
    *,
    offer: int,
    offering: str,
    market: Market,
    rate: Decimal,
    now: datetime,
    role: LeaseRole = LeaseRole.FIRST,
) -> Tenancy:
    """Return the machine to ask for, Requested, and the lease by which the Attempt will hold it."""
    key = machine_key(record, role)
    return Tenancy(
        machine=Machine(
            key=key,
            organization=record.workload.organization,
            offer=offer,
            offering=offering,
            market=market,
            requested=now,
        ),
        lease=Lease(
            role=role,
            held=now,
            rate_usd_per_hour=rate,
            token_sha256=token_hash(runner_token(reign.runner_key, key, fence=1)),
        ),
    )


def machine_key(record: AttemptRecord, role: LeaseRole) -> str:
    """Return sha256("{uid}:{epoch}:{role}:{try}"), the try counted from 1 (SC-608)."""
    tries = sum(one.lease.role is role for one in record.tenancies) + 1
    attempt = record.attempt
    return hashlib.sha256(f"{attempt.uid}:{attempt.epoch}:{role}:{tries}".encode()).hexdigest()


def runner_token(secret: bytes, key: str, *, fence: int) -> str:
    """Return the runner's token: a create repeated after a crash hands out the same (SC-125)."""
    return hmac.new(secret, f"{key}:{fence}".encode(), hashlib.sha256).hexdigest()


def token_hash(token: str) -> bytes:
    """Return what a lease stores of a token."""
    return hashlib.sha256(token.encode()).digest()


def intent_of(
    record: AttemptRecord,
    tenancy: Tenancy,
    address: OfferAddress,
    reign: Reign,
    stored: Stored | None,
) -> MachineIntent:
    """Return the whole intent, the same at every call.

    `stored` is where the checkpoint to go on from lies; without it the runner finds that
    checkpoint unavailable.
    """
    attempt, machine = record.attempt, tenancy.machine
    spec = WorkloadSpec.from_json(record.workload.kind, record.workload.spec)
    kind, owner = record.view.owner.kind, record.view.owner.name
    return MachineIntent(
        key=machine.key,
        installation=reign.installation,
        attempt_uid=attempt.uid,
        epoch=attempt.epoch,
        fence=tenancy.lease.fence,
        offering=machine.offering,
        instance_type=address.instance_type,
        region=address.region,
        zone=address.zone,
        spot=machine.market is Market.SPOT,
        token=runner_token(reign.runner_key, machine.key, fence=tenancy.lease.fence),
        program=_program(spec),
        incarnation=_incarnation(record, spec, stored),
        tags={"project": attempt.project, kind.label: owner},
    )


def _program(spec: WorkloadSpec) -> Program:
    asked = spec.resources
    return Program(
        command=spec.template.command,
        environment=spec.template.env,
        image=spec.template.image,
        working_directory=spec.template.working_dir,
        stop_grace=timedelta(seconds=spec.stop_grace_seconds),
        memory_bytes=_bytes(asked.memory_gib),
        disk_bytes=_bytes(asked.disk_gib),
    )


def _bytes(gib: Decimal | None) -> int | None:
    return None if gib is None else int(gib * GIB)


def _incarnation(record: AttemptRecord, spec: WorkloadSpec, stored: Stored | None) -> Incarnation:
    attempt = record.attempt
    return Incarnation(
        project=attempt.project,
        workload=attempt.workload,
        attempt_name=attempt.name,
        slot=attempt.slot,
        restore=_restore(record, stored),
        gang=_seat(record),
        checkpoint_interval=interval_of(record, spec),
    )


def _restore(record: AttemptRecord, stored: Stored | None) -> RestorePoint | None:
    point = record.attempt.restore
    if point is None:
        return None
    cursor = point.cursor
    return RestorePoint(
        seq=point.seq,
        completed=cursor.completed if cursor else None,
        total=cursor.total if cursor else None,
        uri=stored.uri if stored else "",
        sha256=stored.sha256 if stored else "",
    )


def _seat(record: AttemptRecord) -> GangSeat | None:
    gang = record.attempt.gang
    if gang is None:
        return None
    return GangSeat(id=gang.id, rank=gang.rank, size=gang.size, epoch=gang.epoch)
