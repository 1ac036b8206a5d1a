"""The key by which a claim that is written on a pod is known as this ledger's. It is made when an epoch begins; claims from before it prove nothing."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("ledger", sa.Column("key", sa.LargeBinary()))
