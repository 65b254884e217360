"""Calibrations: how long the programs of a workload take, against what its manifests say.

Revision ID: 0004
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # By the name that a workload is submitted under, not by its uid: it is to outlive the
    # workload, so that the next one of that name is predicted better.
    op.execute(
        "CREATE TABLE nodus.calibrations ("
        " project nodus.label63 NOT NULL REFERENCES nodus.projects ON DELETE CASCADE,"
        " kind text NOT NULL, name nodus.label63 NOT NULL, accelerator text NOT NULL,"
        " count int NOT NULL CONSTRAINT calibrations_count_with_accelerator"
        " CHECK (count >= 0 AND (count = 0) = (accelerator = '')),"
        " ratio double precision CONSTRAINT calibrations_ratio_clamped"
        " CHECK (ratio BETWEEN 0.5 AND 2), hours jsonb NOT NULL, updated timestamptz NOT NULL,"
        " PRIMARY KEY (project, kind, name, accelerator, count))"
    )
    op.execute("CREATE INDEX calibrations_updated ON nodus.calibrations (updated)")
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON nodus.calibrations TO nodus_scheduler")


def downgrade() -> None:
    op.execute("DROP TABLE nodus.calibrations")
