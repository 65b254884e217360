"""The statements by which a batch writes: each function builds one and runs none.

Every docstring names the guard, the index and the locks. All writes stand in a
transaction that began with `fence`; a transaction locks attempts first, in rising
`no`, then their children, and calls `publish` once and last.

A statement is built once and kept: building them anew was a quarter of a pass's time. What
differs from call to call is a parameter, named in the docstring where it is not `rows`.
"""

from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from nodus_api.storage import tables as t
from nodus_api.storage.bulk import insert_rows, rows_of, update_rows, upsert_rows
from nodus_api.storage.conditions import machine_open
from nodus_api.storage.driver import ShortRead

ATTEMPT_IDENTITY = (
    "uid", "project", "name", "workload", "slot", "epoch", "queued",
    "gang", "gang_epoch", "gang_rank", "gang_size",
    "resumes", "restore_seq", "cursor_completed", "cursor_total",
)  # fmt: skip
ATTEMPT_STATE = (
    "stage", "reason", "exit_code", "signal", "waiting_for", "waiting_message",
    "acquired", "billing_start", "registered", "command_started", "finished", "deletion_proven",
    "pull_seconds", "restore_bytes", "superseded_by",
)  # fmt: skip
WORK = (
    "next_try", "limit_at", "start_deadline", "drain_cause", "drain_signalled", "drain_deadline",
    "last_heartbeat", "suspect_since", "watermark", "accrued", "warned", "drill", "drill_at",
)  # fmt: skip
PLACEMENT = (
    "profile", "candidates", "offering", "market", "rate", "hedged", "warm_reuse", "scores",
    "fallbacks", "predicted_usd", "predicted_hours", "predicted_rate",
)  # fmt: skip
SEGMENT = ("segment", "from_ts", "to_ts", "covered", "rate", "usd")
INTERRUPTION = ("at", "trigger", "lost_seconds", "recovery_seconds")
SLOT_STATE = (
    "wanted", "current_epoch", "last_seq", "retries_used", "replacements", "backoff_k",
    "nodus_failures", "lost_in_a_row", "lost_candidates", "not_before", "state",
)  # fmt: skip
MACHINE_IDENTITY = ("key", "organization", "offer", "offering", "market", "requested")
MACHINE_STATE = (
    "state", "handle", "address", "granted", "billing_start", "registered", "releasing", "gone",
    "gone_seen", "tries", "next_try",
)  # fmt: skip
LEASE_STATE = ("won", "last_report", "orders")

database_now: sa.Function[Any] = sa.func.nodus.now(type_=sa.DateTime(timezone=True))
"""The database clock (SC-615): never the transaction's start, never this process's time."""


@cache
def fence() -> sa.Select[Any]:
    """Return the database's time while :token leads; no row: another loop leads (SC-602).

    Share-locks the one row of `leader` until the commit, so a new leader's bump waits
    for every transaction of the old one.
    """
    return (
        sa.select(database_now)
        .select_from(t.leader)
        .where(t.leader.c.token == sa.bindparam("token", type_=sa.BigInteger))
        .with_for_update(read=True)
    )


@cache
def lock_attempts() -> sa.Select[Any]:
    """Lock the Attempts :nos in rising `no`, with their gangs and what their moves may touch.

    A gang is decided as one, so all ranks of its epoch are locked with any (SC-130). So are
    the predecessors whose recovery is still open: a start completes `recoverySeconds` of
    every earlier epoch of its slot (SC-016). So is the maker of the checkpoint that one goes
    on from, since the loss of that checkpoint touches it (SC-141). Uses the primary keys,
    the unique key (workload, slot, epoch) and `attempts_gang`; one row lock an Attempt.
    """
    chosen = _with_their_gangs()
    mine, before = t.attempts.alias("mine"), t.attempts.alias("before")
    open_losses = (
        sa.select(before.c.no)
        .join(
            mine,
            sa.and_(
                before.c.workload == mine.c.workload,
                before.c.slot == mine.c.slot,
                before.c.epoch < mine.c.epoch,
            ),
        )
        .join(t.interruptions, t.interruptions.c.attempt == before.c.no)
        .where(mine.c.no.in_(sa.select(chosen.c.no)), mine.c.command_started.is_(None))
        .where(t.interruptions.c.recovery_seconds.is_(None))
    )
    makers = (
        sa.select(t.checkpoints.c.attempt)
        .join(
            mine,
            sa.and_(
                t.checkpoints.c.workload == mine.c.workload,
                t.checkpoints.c.slot == mine.c.slot,
                t.checkpoints.c.seq == mine.c.restore_seq,
            ),
        )
        # a rank that runs loses its checkpoint with the rank that could not read its own
        .where(sa.or_(mine.c.command_started.is_(None), mine.c.gang.is_not(None)))
        .where(mine.c.no.in_(sa.select(chosen.c.no)), t.checkpoints.c.attempt.is_not(None))
    )
    every = sa.select(chosen.c.no).union(open_losses, makers)
    return (
        sa.select(t.attempts.c.no)
        .where(t.attempts.c.no.in_(every))
        .order_by(t.attempts.c.no)
        .with_for_update()
    )


def _with_their_gangs() -> sa.CTE:
    """The Attempts :nos, and all ranks of the gang epochs they belong to."""
    member, rank = t.attempts.alias("member"), t.attempts.alias("rank")
    ranks = (
        sa.select(rank.c.no)
        .join(
            member, sa.and_(member.c.gang == rank.c.gang, member.c.gang_epoch == rank.c.gang_epoch)
        )
        .where(member.c.no == sa.any_(bigints("nos")), rank.c.gang.is_not(None))
    )
    return sa.select(sa.func.unnest(bigints("nos")).label("no")).union(ranks).cte("chosen")


@cache
def insert_attempts() -> sa.Executable:
    """Insert new epochs; answers `no` and `uid`.

    Guards: `attempts_one_live`, the unique key (workload, slot, epoch), `attempts_gang`.
    """
    return insert_rows(t.attempts, [*ATTEMPT_IDENTITY, *ATTEMPT_STATE]).returning(
        t.attempts.c.no, t.attempts.c.uid
    )


@cache
def advance_attempts() -> sa.Update:
    """Write moved Attempts whose rows are still at their epoch and expected stage (SC-004).

    Fewer rows answered than given means another scheduler moved one first: re-read,
    decide again. Uses the primary key; the rows are locked already.
    """
    return update_rows(
        t.attempts, ["no", "epoch"], ATTEMPT_STATE, expected="stage"
    ).returning(t.attempts.c.no)  # fmt: skip


@cache
def write_work() -> postgresql.Insert:
    """Write the loop's own state of Attempts; costs no revision. Primary key."""
    return upsert_rows(t.attempt_work, ["attempt"], WORK)


@cache
def write_placements() -> postgresql.Insert:
    """Write placements. Primary key; raises the Attempts' `ver` through the trigger."""
    return upsert_rows(t.placements, ["attempt"], PLACEMENT)


@cache
def clear_rejections() -> sa.Delete:
    """Delete the rejections of the Attempts :nos, before the new list is inserted. Primary key."""
    return sa.delete(t.placement_rejections).where(
        t.placement_rejections.c.attempt == sa.any_(bigints("nos"))
    )


@cache
def insert_rejections() -> postgresql.Insert:
    """Insert rejections; at most 20 an Attempt, one an offering, both by constraint."""
    return insert_rows(t.placement_rejections, ["attempt", "ord", "offering", "reason"])


@cache
def write_segments() -> postgresql.Insert:
    """Write rows of the ledger; the deferred chain refuses overlaps and holes (SC-523)."""
    return upsert_rows(t.cost_segments, ["attempt", "machine", "seq"], SEGMENT)


@cache
def clear_segments() -> sa.Delete:
    """Delete rows of the ledger that a recount no longer has. Primary key."""
    given = rows_of(t.cost_segments, ["attempt", "machine", "seq"])
    ledger = t.cost_segments.c
    return sa.delete(t.cost_segments).where(
        sa.tuple_(ledger.attempt, ledger.machine, ledger.seq).in_(
            sa.select(given.c.attempt, given.c.machine, given.c.seq)
        )
    )


@cache
def write_interruptions() -> postgresql.Insert:
    """Write what ended Attempts early. Primary key."""
    return upsert_rows(t.interruptions, ["attempt"], INTERRUPTION)


@cache
def end_workloads() -> sa.Update:
    """Write how workloads ended, or that they wait; guard: still Active. Primary key."""
    statement = update_rows(t.workloads, ["uid"], ["state", "outcome", "ended"])
    return statement.where(t.workloads.c.state == "Active")


@cache
def write_slots() -> postgresql.Insert:
    """Write slots, new ones too. Primary key (workload, slot); after their attempts."""
    return upsert_rows(t.slots, ["workload", "slot"], SLOT_STATE)


@cache
def insert_machines() -> sa.Executable:
    """Insert intents; answers `no` and `key`. Guard: the unique `key` (SC-608)."""
    return insert_rows(t.machines, [*MACHINE_IDENTITY, *MACHINE_STATE]).returning(
        t.machines.c.no, t.machines.c.key
    )


@cache
def write_machines() -> sa.Update:
    """Write machines that are not Gone yet: nothing leaves that state. Primary key."""
    statement = update_rows(t.machines, ["no"], MACHINE_STATE)
    return statement.where(machine_open()).returning(t.machines.c.no)


@cache
def insert_leases() -> postgresql.Insert:
    """Insert open leases. Guards: the exclusion by machine and `leases_one_a_role`."""
    columns = ["machine", "attempt", "fence", "role", "rate", "token_sha256", *LEASE_STATE]
    given = rows_of(t.leases, columns, [_moment("held_from")])
    return postgresql.insert(t.leases).from_select(
        [*columns, "held"],
        sa.select(
            *(given.c[name] for name in columns), sa.func.tstzrange(given.c.held_from, sa.null())
        ),
    )


@cache
def write_leases() -> sa.Update:
    """Write open leases; guard: still open. Primary key (machine, fence)."""
    given = rows_of(t.leases, ["machine", "fence", *LEASE_STATE])
    return (
        sa.update(t.leases)
        .where(t.leases.c.machine == given.c.machine, t.leases.c.fence == given.c.fence)
        .where(sa.func.upper_inf(t.leases.c.held))
        .values({name: given.c[name] for name in LEASE_STATE})
        .returning(t.leases.c.machine)
    )


@cache
def win_start() -> sa.Update:
    """The start CAS (SC-341): one row exactly if this machine may start the program.

    Of :of_machine, its lease's :of_fence, and :of_attempt.

    Guards: the lease is open, the Attempt Starting at its slot's epoch, and no other
    machine of it has won; `leases_one_winner` refuses a second one that races.
    """
    other = t.leases.alias("other")
    machine, attempt, fence = (
        sa.bindparam(f"of_{name}", type_=sa.BigInteger) for name in ("machine", "attempt", "fence")
    )
    return (
        sa.update(t.leases)
        .values(won=True)
        .where(t.leases.c.machine == machine, t.leases.c.attempt == attempt)
        .where(t.leases.c.fence == fence, sa.func.upper_inf(t.leases.c.held))
        .where(t.attempts.c.no == t.leases.c.attempt, t.attempts.c.stage == "Starting")
        .where(t.slots.c.workload == t.attempts.c.workload, t.slots.c.slot == t.attempts.c.slot)
        .where(t.slots.c.current_epoch == t.attempts.c.epoch)
        .where(
            ~sa.exists().where(
                other.c.attempt == attempt, other.c.machine != machine, other.c.won.is_(True)
            )
        )
        .returning(t.leases.c.machine)
    )


@cache
def close_leases() -> sa.Update:
    """End leases at `closed`, never at their own start (SC-608). Primary key."""
    given = rows_of(t.leases, ["machine", "fence"], [_moment("closed")])
    start = sa.func.lower(t.leases.c.held)
    ended = sa.func.greatest(given.c.closed, start + sa.text("interval '1 microsecond'"))
    return (
        sa.update(t.leases)
        .where(t.leases.c.machine == given.c.machine, t.leases.c.fence == given.c.fence)
        .where(sa.func.upper_inf(t.leases.c.held))
        .values(held=sa.func.tstzrange(start, ended))
    )


@cache
def insert_decisions() -> postgresql.Insert:
    """Insert placement decisions, `n` counted on from the Attempt's last. Primary key."""
    columns = ["attempt", "at", "request", "snapshot_id", "result_hash", "top", "counters"]
    given = rows_of(t.decisions, columns)
    earlier = (
        sa.select(sa.func.coalesce(sa.func.max(t.decisions.c.n), 0) + 1)
        .where(t.decisions.c.attempt == given.c.attempt)
        .scalar_subquery()
    )
    return postgresql.insert(t.decisions).from_select(
        [*columns, "n"], sa.select(*(given.c[name] for name in columns), earlier)
    )


@cache
def delete_reports() -> sa.Delete:
    """Delete reports that are applied, or whose lease has ended. Primary key."""
    return sa.delete(t.runner_reports).where(
        t.runner_reports.c.machine == t.leases.c.machine,
        t.runner_reports.c.fence == t.leases.c.fence,
        sa.or_(t.runner_reports.c.n <= t.leases.c.last_report, ~sa.func.upper_inf(t.leases.c.held)),
        t.runner_reports.c.machine == sa.any_(bigints("machines")),
    )


@cache
def publish() -> sa.Select[Any]:
    """The only door into the log: last in a transaction, :nos at most 1,000, :docs and :sels.

    Locks the row of `feed` until the commit; answers the head of the log.
    """
    return sa.select(
        sa.func.nodus.publish(
            bigints("nos"),
            sa.bindparam("docs", type_=postgresql.ARRAY(sa.LargeBinary)),
            sa.bindparam("sels", type_=postgresql.ARRAY(postgresql.JSONB)),
        )
    )


@cache
def notify(channel: str) -> ShortRead:
    """Wake the listeners of a channel; sent in a transaction of its own, after the commit."""
    return ShortRead.of(sa.select(sa.func.pg_notify(channel, "")))


_BIGINTS = postgresql.ARRAY(sa.BigInteger)


def bigints(name: str) -> Any:
    """Return a parameter that is a list of numbers, so that a statement is compiled once."""
    return sa.bindparam(name, type_=_BIGINTS)


def _moment(name: str) -> sa.ColumnClause[Any]:
    return sa.column(name, sa.DateTime(timezone=True))
