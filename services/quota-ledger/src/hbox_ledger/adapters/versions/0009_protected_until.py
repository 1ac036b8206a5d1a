"""Until when nobody takes from a claim. Those that are live now may be taken from at once."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("claims", sa.Column("protected_until", sa.Double(), nullable=False, server_default="0"))
