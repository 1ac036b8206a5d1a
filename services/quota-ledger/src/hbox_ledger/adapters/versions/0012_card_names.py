"""The card of each card number. Existing claims have indices of their nodes as numbers; the ledger maps them to cards when it receives the nodes' states.
Older ledgers continue to work: they read and write the same numbers."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

works_with = "0011"


def upgrade() -> None:
    op.create_table(
        "card_names",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("card", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node", "card"),
    )
    op.create_index("card_names_number", "card_names", ["node", "number", "since"], unique=True)
