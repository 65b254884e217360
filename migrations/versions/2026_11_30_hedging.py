"""Hedging: when a second machine may be asked for, and how each machine's race came out.

Revision ID: 0005
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # No default and no check that reads old rows: the catalogue alone is written.
    op.execute("ALTER TABLE nodus.attempt_work ADD COLUMN hedge_at timestamptz")
    op.execute(
        "ALTER TABLE nodus.leases ADD COLUMN pull_seconds int, ADD COLUMN lost timestamptz,"
        " ADD COLUMN lost_cause text"
    )


def downgrade() -> None:
    op.execute(
        "ALTER TABLE nodus.leases DROP COLUMN lost_cause, DROP COLUMN lost,"
        " DROP COLUMN pull_seconds"
    )
    op.execute("ALTER TABLE nodus.attempt_work DROP COLUMN hedge_at")
