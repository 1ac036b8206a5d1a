"""What claims and queues have to say when others want their room."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("claims", sa.Column("min_member", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("claims", sa.Column("preemptable", sa.Boolean(), nullable=False, server_default=sa.true()))
    op.add_column("claims", sa.Column("created_at", sa.Double(), nullable=False, server_default="0"))
    op.add_column("queues", sa.Column("rules", sa.Text(), nullable=False, server_default="{}"))
