"""Which container of a pod gets which of its cards. Claims that are live now have no such: their pods' cards follow from what the pods ask for."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("claims", sa.Column("layout", sa.Text(), nullable=False, server_default=""))
