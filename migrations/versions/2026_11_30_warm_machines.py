"""Warm machines: when an Attempt gave one up wiped, when it was assigned, what it cost idle.

Revision ID: 0006
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_IDLE_TIME = """
CREATE TABLE nodus.idle_time (
  machine bigint NOT NULL REFERENCES nodus.machines ON DELETE CASCADE, from_ts timestamptz NOT NULL,
  to_ts timestamptz NOT NULL CONSTRAINT idle_time_not_empty CHECK (to_ts > from_ts),
  rate nodus.usd NOT NULL, usd nodus.usd NOT NULL, PRIMARY KEY (machine, from_ts))
"""


def upgrade() -> None:
    # Nullable columns without default: the catalogue alone is written.
    op.execute(
        "ALTER TABLE nodus.leases ADD COLUMN assigned timestamptz, ADD COLUMN wiped timestamptz"
    )
    op.execute(_IDLE_TIME)
    op.execute(
        "CREATE INDEX placements_warm ON nodus.placements (offering, market) WHERE warm_reuse"
    )
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON nodus.idle_time TO nodus_scheduler")


def downgrade() -> None:
    op.execute("DROP INDEX nodus.placements_warm")
    op.execute("DROP TABLE nodus.idle_time")
    op.execute("ALTER TABLE nodus.leases DROP COLUMN wiped, DROP COLUMN assigned")
