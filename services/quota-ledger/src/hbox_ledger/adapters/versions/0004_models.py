"""What claims count of each card model. Claims that are live now count of none until they end: nobody noted what they hold."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("claims", sa.Column("models", sa.Text(), nullable=False, server_default="{}"))
