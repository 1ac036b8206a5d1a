"""The PersistentVolumeClaims that are bound to volumes before the pod of a claim. Live claims have none: their pods are bound first, as older binders do."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

works_with = "0011"


def upgrade() -> None:
    op.add_column("claims", sa.Column("volume_claims", sa.Text(), nullable=False, server_default=""))
