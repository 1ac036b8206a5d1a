"""Nominations: places for which others leave, kept over a restart."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "nominations",
        sa.Column("plan", sa.Text, primary_key=True),
        sa.Column("until", sa.Double, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
