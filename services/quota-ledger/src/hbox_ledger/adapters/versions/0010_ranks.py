"""Which rank a pod is given in its job. Claims that are live now have none: their bindings, made already or sent again, write none."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("claims", sa.Column("rank", sa.Integer(), nullable=False, server_default="-1"))
