"""Every table of schema `nodus` as a Core table, for building statements.

The migrations make the tables; these say names, types, what may be NULL and what the server fills
in, and a test compares each column with the catalogue. Keys other than the primary one, CHECKs and
grants stand in the migrations alone.
"""

from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Column
from sqlalchemy.dialects.postgresql import JSONB, TSTZRANGE

metadata = sa.MetaData(schema="nodus")

LABEL = sa.Text()  # domain label63: a DNS label
USD = sa.Numeric(18, 6)  # domain usd: not negative, to a micro-dollar
MOMENT = sa.TIMESTAMP(timezone=True)
JSON = JSONB(none_as_null=True)


class Letter(sa.types.UserDefinedType[str]):
    """Postgres' one-byte type `"char"`, a str here."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Return the type's SQL name."""
        return '"char"'

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[str | None], bytes | None]:  # noqa: ARG002 - SQLAlchemy's signature
        """Give the driver the byte it wants."""
        return lambda value: None if value is None else value.encode("ascii")

    def result_processor(
        self,
        dialect: sa.Dialect,  # noqa: ARG002 - SQLAlchemy's signature
        coltype: object,  # noqa: ARG002 - SQLAlchemy's signature
    ) -> Callable[[bytes | None], str | None]:
        """Turn the driver's byte into a letter."""
        return lambda value: None if value is None else value.decode("ascii")


class Xid8(sa.types.UserDefinedType[int]):
    """A 64-bit transaction id, an int here."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Return the type's SQL name."""
        return "xid8"


def table(name: str, *columns: Column[Any]) -> sa.Table:
    """Return a table of schema nodus."""
    return sa.Table(name, metadata, *columns)


def required(kind: Any, *names: str) -> Iterator[Column[Any]]:
    """Return columns that every INSERT gives."""
    return (Column(name, kind, nullable=False) for name in names)


def optional(kind: Any, *names: str) -> Iterator[Column[Any]]:
    """Return columns that may be NULL."""
    return (Column(name, kind) for name in names)


def filled(kind: Any, *names: str) -> Iterator[Column[Any]]:
    """Return columns never NULL that the server fills in when an INSERT leaves them out."""
    return (Column(name, kind, defaulted(), nullable=False) for name in names)


def generated() -> sa.FetchedValue:
    """Mark a column that the server computes and nobody may write."""
    return sa.FetchedValue(for_update=True)


def defaulted() -> sa.FetchedValue:
    """Mark a column that the server fills in when an INSERT leaves it out."""
    return sa.FetchedValue()


# revision space
installation = table(
    "installation",
    Column("one", sa.Boolean, defaulted(), primary_key=True),
    *filled(sa.Uuid, "id"),
    *filled(sa.LargeBinary, "continue_key"),
)
runner_key = table(
    "runner_key",
    Column("one", sa.Boolean, defaulted(), primary_key=True),
    *filled(sa.LargeBinary, "key"),
)
feed = table(
    "feed",
    Column("one", sa.Boolean, defaulted(), primary_key=True),
    *required(sa.Integer, "epoch"),
    *required(sa.Text, "timeline"),
    *required(sa.BigInteger, "sysid", "oldest"),
)
feed_epochs = table(
    "feed_epochs",
    Column("epoch", sa.Integer, primary_key=True),
    *required(sa.BigInteger, "first_rev", "prev_last"),
    *required(sa.Text, "timeline"),
    *required(sa.BigInteger, "sysid"),
    *filled(MOMENT, "began"),
)
changes = table(
    "changes",
    Column("rev", sa.BigInteger, primary_key=True),
    *required(Letter, "kind"),
    *optional(sa.Uuid, "uid"),
    *optional(sa.Text, "project", "name"),
    *optional(sa.BigInteger, "ver"),
    *filled(MOMENT, "at"),
    *filled(Xid8, "tx"),
    *optional(JSON, "sel", "prev_sel"),
    *optional(sa.BigInteger, "prev_rev"),
    *optional(sa.LargeBinary, "prev_doc", "doc"),
)

# who may read, in stand-alone mode
organizations = table(
    "organizations",
    Column("name", LABEL, primary_key=True),
)
projects = table(
    "projects",
    Column("name", LABEL, primary_key=True),
    *filled(sa.Uuid, "uid"),
    *filled(LABEL, "organization"),
    *filled(MOMENT, "created"),
    *filled(sa.BigInteger, "access_rev"),
)
project_members = table(
    "project_members",
    Column("project", LABEL, primary_key=True),
    Column("subject_kind", sa.Text, primary_key=True),
    Column("subject", sa.Text, primary_key=True),
    *required(sa.Text, "role"),
)
tokens = table(
    "tokens",
    Column("id", sa.Text, primary_key=True),
    *required(sa.LargeBinary, "secret_sha256"),
    *required(sa.Text, "username"),
    *filled(sa.ARRAY(sa.Text), "groups", "scopes"),
    *filled(MOMENT, "created"),
    *optional(MOMENT, "expires", "revoked"),
)
token_uses = table(
    "token_uses",
    Column("id", sa.Text, primary_key=True),
    *required(MOMENT, "last_used"),
)
access_changes = table(
    "access_changes",
    Column("rev", sa.BigInteger, primary_key=True),
    *required(sa.Text, "what", "key"),
    *required(sa.Boolean, "deleted"),
    *optional(sa.Uuid, "project_uid"),
    *filled(MOMENT, "at"),
)

# what is wanted
workloads = table(
    "workloads",
    Column("uid", sa.Uuid, primary_key=True),
    *required(LABEL, "project"),
    *required(sa.Text, "kind"),
    *required(LABEL, "name"),
    *required(JSON, "spec"),
    *filled(sa.Text, "state"),
    *optional(sa.Text, "outcome"),
    *filled(USD, "archived_usd"),
    *required(MOMENT, "created"),
    *optional(MOMENT, "ended"),
)
slots = table(
    "slots",
    Column("workload", sa.Uuid, primary_key=True),
    Column("slot", sa.Text, primary_key=True),
    *filled(sa.Boolean, "wanted"),
    *filled(sa.Integer, "current_epoch"),
    *filled(sa.BigInteger, "last_seq"),
    *filled(
        sa.Integer, "retries_used", "replacements", "backoff_k", "nodus_failures", "lost_in_a_row"
    ),
    *filled(JSON, "lost_candidates"),
    *optional(MOMENT, "not_before"),
    *filled(sa.Text, "state"),
)
commands = table(
    "commands",
    Column("no", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    *required(sa.Text, "key"),
    *required(LABEL, "project"),
    *required(sa.Text, "verb"),
    *optional(sa.Text, "kind"),
    *required(sa.Text, "target"),
    *required(JSON, "body"),
    *required(sa.Text, "asked_by"),
    *filled(MOMENT, "asked"),
    *optional(MOMENT, "applied"),
    *optional(sa.Text, "outcome", "message"),
)
drill_schedules = table(
    "drill_schedules",
    Column("project", LABEL, primary_key=True),
    *required(sa.Text, "trigger"),
    *required(sa.Numeric(9, 4), "per_hour"),
    *required(sa.BigInteger, "seed"),
    *optional(MOMENT, "next_at"),
)

# what can be rented
offering_classes = table(
    "offering_classes",
    Column("name", sa.Text, primary_key=True),
    *optional(sa.Text, "accelerator", "form"),
    *required(sa.Integer, "count"),
    *optional(sa.Numeric(10, 2), "accelerator_memory_gib"),
    *required(sa.Numeric(10, 2), "vcpus", "memory_gib", "disk_gib"),
    *required(sa.Text, "arch", "region_class"),
    *required(sa.Boolean, "gang_capable"),
    *required(USD, "rate_on_demand"),
    *optional(USD, "rate_spot"),
    *filled(sa.Boolean, "enabled", "retired"),
    *required(sa.Numeric(9, 4), "speed"),
    *required(USD, "reference_rate"),
)
supplier_offers = table(
    "supplier_offers",
    Column("no", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    *required(sa.Text, "class", "supplier", "instance_type", "region"),
    *filled(sa.Text, "zone"),
    *required(USD, "cost_on_demand"),
    *optional(USD, "cost_spot"),
    *filled(sa.Integer, "billing_increment_seconds", "minimum_seconds"),
    *optional(sa.Integer, "quota"),
    *optional(sa.Text, "credentials_ref"),
    *filled(sa.Boolean, "enabled"),
)
offering_stats = table(
    "offering_stats",
    Column("offer", sa.BigInteger, primary_key=True),
    Column("market", sa.Text, primary_key=True),
    *required(JSON, "stats"),
    *optional(sa.Integer, "available"),
    *filled(sa.Integer, "failures_in_row"),
    *optional(MOMENT, "backoff_until"),
    *required(MOMENT, "updated"),
)
calibrations = table(
    "calibrations",
    Column("project", LABEL, primary_key=True),
    Column("kind", sa.Text, primary_key=True),
    Column("name", LABEL, primary_key=True),
    Column("accelerator", sa.Text, primary_key=True),
    Column("count", sa.Integer, primary_key=True),
    *optional(sa.Double, "ratio"),
    *required(JSON, "hours"),
    *required(MOMENT, "updated"),
)

# attempts and their children; what no reader sees lives in attempt_work
attempts = table(
    "attempts",
    Column("no", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    *required(sa.Uuid, "uid"),
    *required(LABEL, "project"),
    *required(sa.Text, "name"),
    *required(sa.Uuid, "workload"),
    *required(sa.Text, "slot"),
    *required(sa.Integer, "epoch"),
    *optional(sa.Integer, "superseded_by"),
    *optional(sa.Text, "gang"),
    *optional(sa.Integer, "gang_epoch", "gang_rank", "gang_size"),
    *filled(sa.Boolean, "resumes"),
    *optional(sa.BigInteger, "restore_seq", "cursor_completed", "cursor_total", "restore_bytes"),
    *required(sa.Text, "stage"),
    Column("phase", sa.Text, generated()),
    *optional(sa.Text, "reason"),
    *optional(sa.Integer, "exit_code", "signal"),
    *optional(sa.Text, "waiting_for", "waiting_message"),
    *required(MOMENT, "queued"),
    *optional(
        MOMENT,
        "acquired",
        "billing_start",
        "registered",
        "command_started",
        "finished",
        "deletion_proven",
    ),
    *optional(sa.Integer, "pull_seconds"),
    *filled(sa.BigInteger, "ver"),
    Column("needs_offering", sa.BigInteger, generated()),
)
attempt_work = table(
    "attempt_work",
    Column("attempt", sa.BigInteger, primary_key=True),
    *optional(MOMENT, "next_try", "limit_at", "start_deadline"),
    *optional(sa.Text, "drain_cause"),
    *optional(
        MOMENT,
        "drain_signalled",
        "drain_deadline",
        "last_heartbeat",
        "suspect_since",
        "watermark",
        "accrued",
        "warned",
    ),
    *optional(sa.Text, "drill"),
    *optional(MOMENT, "drill_at"),
)
placements = table(
    "placements",
    Column("attempt", sa.BigInteger, primary_key=True),
    *required(sa.Text, "profile"),
    *required(sa.Integer, "candidates"),
    *optional(sa.Text, "offering", "market"),
    *optional(USD, "rate"),
    *optional(sa.Boolean, "hedged", "warm_reuse"),
    *optional(JSON, "scores"),
    *optional(sa.ARRAY(sa.Text), "fallbacks"),
    *optional(USD, "predicted_usd"),
    *optional(sa.Numeric(18, 6), "predicted_hours", "predicted_rate"),
    Column("placed", sa.BigInteger, generated()),
)
placement_rejections = table(
    "placement_rejections",
    Column("attempt", sa.BigInteger, primary_key=True),
    Column("ord", sa.SmallInteger, primary_key=True),
    *required(sa.Text, "offering", "reason"),
)
decisions = table(
    "decisions",
    Column("attempt", sa.BigInteger, primary_key=True),
    Column("n", sa.Integer, primary_key=True),
    *required(MOMENT, "at"),
    *required(JSON, "request"),
    *required(sa.Text, "snapshot_id"),
    *required(sa.LargeBinary, "result_hash"),
    *required(JSON, "top", "counters"),
)
interruptions = table(
    "interruptions",
    Column("attempt", sa.BigInteger, primary_key=True),
    *required(MOMENT, "at"),
    *required(sa.Text, "trigger"),
    *required(sa.Integer, "lost_seconds"),
    *optional(sa.Integer, "recovery_seconds"),
)
checkpoints = table(
    "checkpoints",
    Column("workload", sa.Uuid, primary_key=True),
    Column("slot", sa.Text, primary_key=True),
    Column("seq", sa.BigInteger, primary_key=True),
    Column("prev", sa.BigInteger, generated()),
    *optional(sa.BigInteger, "attempt"),
    *required(sa.Integer, "epoch"),
    *filled(sa.Text, "kind"),
    *required(sa.BigInteger, "bytes"),
    *required(sa.Text, "uri"),
    *required(sa.LargeBinary, "sha256"),
    *optional(sa.BigInteger, "cursor_completed", "cursor_total"),
    *required(MOMENT, "committed"),
    *optional(MOMENT, "deleted"),
)

# machines, who holds them, and what they cost
machines = table(
    "machines",
    Column("no", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    *required(sa.Text, "key"),
    *required(LABEL, "organization"),
    *required(sa.BigInteger, "offer"),
    *required(sa.Text, "offering", "market", "state"),
    *optional(sa.Text, "handle", "address"),
    *required(MOMENT, "requested"),
    *optional(
        MOMENT,
        "granted",
        "billing_start",
        "registered",
        "releasing",
        "gone",
        "gone_seen",
        "warm_until",
    ),
    *optional(sa.Text, "image_family"),
    *filled(sa.Integer, "tries"),
    *optional(MOMENT, "next_try"),
)
machine_events = table(
    "machine_events",
    Column("machine", sa.BigInteger, primary_key=True),
    Column("no", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    *required(MOMENT, "at"),
    *required(sa.Text, "kind"),
    *required(JSON, "body"),
)
leases = table(
    "leases",
    Column("machine", sa.BigInteger, primary_key=True),
    *required(sa.BigInteger, "attempt"),
    Column("fence", sa.BigInteger, primary_key=True),
    *required(sa.Text, "role"),
    *required(TSTZRANGE, "held"),
    *required(USD, "rate"),
    *filled(sa.Boolean, "won"),
    *required(sa.LargeBinary, "token_sha256"),
    *filled(sa.BigInteger, "last_report"),
    *filled(JSON, "orders"),
)
runner_reports = table(
    "runner_reports",
    Column("machine", sa.BigInteger, primary_key=True),
    Column("fence", sa.BigInteger, primary_key=True),
    Column("n", sa.BigInteger, primary_key=True),
    *required(sa.Text, "kind"),
    *required(MOMENT, "event_at", "received"),
    *required(JSON, "body"),
)
cost_segments = table(
    "cost_segments",
    Column("attempt", sa.BigInteger, primary_key=True),
    Column("machine", sa.BigInteger, primary_key=True),
    Column("seq", sa.SmallInteger, primary_key=True),
    Column("prev", sa.SmallInteger, generated()),
    *required(sa.Text, "segment"),
    *required(MOMENT, "from_ts", "to_ts"),
    *required(sa.Boolean, "covered"),
    *required(USD, "rate", "usd"),
)
orphans = table(
    "orphans",
    Column("no", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    *required(sa.Text, "supplier", "handle", "cause"),
    *required(MOMENT, "found"),
    *optional(MOMENT, "gone"),
)

# money
funds = table(
    "funds",
    Column("organization", LABEL, primary_key=True),
    *optional(USD, "balance"),
    *filled(USD, "held", "captured"),
)
holds = table(
    "holds",
    Column("attempt", sa.BigInteger, primary_key=True),
    *required(LABEL, "organization"),
    *required(USD, "amount"),
    *filled(USD, "captured"),
    *optional(MOMENT, "released"),
)
project_quotas = table(
    "project_quotas",
    Column("project", LABEL, primary_key=True),
    Column("accelerator", sa.Text, primary_key=True),
    *required(sa.Integer, "max_count"),
)
supplier_costs = table(
    "supplier_costs",
    Column("machine", sa.BigInteger, primary_key=True),
    Column("from_ts", MOMENT, primary_key=True),
    *optional(MOMENT, "to_ts"),
    *required(USD, "rate"),
)

# one writer
leader = table(
    "leader",
    Column("one", sa.Boolean, defaulted(), primary_key=True),
    *filled(sa.BigInteger, "token"),
    *optional(sa.Text, "holder"),
    *optional(MOMENT, "since"),
)
leader_heartbeat = table(
    "leader_heartbeat",
    Column("one", sa.Boolean, defaulted(), primary_key=True),
    *required(MOMENT, "at"),
)

# published objects and their archive
attempt_objects = table(
    "attempt_objects",
    Column("attempt", sa.BigInteger, primary_key=True),
    *required(sa.Uuid, "uid"),
    *required(sa.Text, "project", "name"),
    *required(sa.BigInteger, "ver", "rev"),
    *required(JSON, "sel"),
    *required(sa.LargeBinary, "doc"),
)
attempts_archive = table(
    "attempts_archive",
    Column("finished", MOMENT, primary_key=True),
    Column("uid", sa.Uuid, primary_key=True),
    *required(sa.Text, "project", "name"),
    *required(sa.Uuid, "workload"),
    *required(sa.Text, "workload_kind", "workload_name", "slot"),
    *required(sa.Integer, "epoch"),
    *required(sa.Text, "phase"),
    *optional(sa.Text, "reason"),
    *required(sa.BigInteger, "rev"),
    *required(USD, "usd"),
    *required(JSON, "ledger"),
    *required(sa.LargeBinary, "doc"),
)
