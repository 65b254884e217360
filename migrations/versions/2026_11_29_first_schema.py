"""The first schema: feed, access, workloads, offerings, attempts, machines, money, leader, log.

Revision ID: 0001
"""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    op.execute("SELECT 1")  # opens the transaction that the script, run past Alembic, joins
    # asyncpg prepares what `op.execute` is given, and a prepared statement is one command
    connection = op.get_bind().connection.dbapi_connection
    connection.run_async(lambda driver: driver.execute(script))


def downgrade() -> None:
    raise NotImplementedError("there is no way back: restore a backup from before the migration")
