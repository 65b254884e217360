"""Money that can run out: what was paid in, and who may rent what.

Revision ID: 0007
"""

from pathlib import Path

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _run(Path(__file__).with_suffix(".sql"))


def downgrade() -> None:
    _run(Path(__file__).with_name(f"{Path(__file__).stem}_back.sql"))


def _run(script: Path) -> None:
    op.execute("SELECT 1")  # opens the transaction that the script, run past Alembic, joins
    # asyncpg prepares what `op.execute` is given, and a prepared statement is one command
    text = script.read_text(encoding="utf-8")
    op.get_bind().connection.dbapi_connection.run_async(lambda driver: driver.execute(text))
