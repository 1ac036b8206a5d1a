"""Messages that wait to be sent stay as they are in PostgreSQL: to compress what is deleted within a second took 2 ms of a commit of 400 claims."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE outbox ALTER COLUMN body SET STORAGE EXTERNAL")
