"""In which pool claims count. Claims that are live now count in `pooled` until they end: nobody noted where they are."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("claims", sa.Column("pool", sa.Text(), nullable=False, server_default=""))
