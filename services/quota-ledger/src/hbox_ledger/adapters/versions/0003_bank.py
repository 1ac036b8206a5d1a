"""Usage accounts; loans; what claims hold as part of the audit; and history that no statement rewrites: not TRUNCATE (PostgreSQL), nor INSERT OR REPLACE
(SQLite), which fire none of the triggers of 0001.

Claims that are live now are accounted for from the first start on, what their slices have of the cards' compute, on models that nobody noted.
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

APPEND_ONLY = ("transfers", "audit")


def upgrade() -> None:
    op.add_column("ledger", sa.Column("metered_until", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("claims", sa.Column("claimed_at", sa.Double(), nullable=False, server_default="0"))
    op.add_column("claims", sa.Column("cards", sa.Text(), nullable=False, server_default="{}"))
    _live_claims()
    op.add_column("audit", sa.Column("entry", sa.Text(), nullable=False, server_default=""))
    op.execute(
        "ALTER TABLE accounts ADD COLUMN borrowed BIGINT NOT NULL DEFAULT 0 "
        "CONSTRAINT accounts_borrowed CHECK (borrowed >= 0 AND borrowed <= pending + posted)"
    )
    op.create_table(
        "usage",
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("own", sa.BigInteger(), nullable=False),
        sa.Column("borrowed", sa.BigInteger(), nullable=False),
        sa.Column("idle", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("own >= 0 AND borrowed >= 0 AND idle >= 0", name="usage_not_negative"),
        sa.PrimaryKeyConstraint("hour", "queue", "namespace", "model"),
    )
    _append_only()


def _live_claims() -> None:
    connection = op.get_bind()
    live = connection.execute(
        sa.text("SELECT id, slices FROM claims WHERE state <> 'void' AND slices <> '' AND queue <> ''")
    ).all()
    if not live:
        return
    cards = [
        {"i": id, "c": json.dumps({"unknown": sum(int(s.split(":")[1]) * 10 for s in slices.split(","))})}
        for id, slices in live
    ]
    connection.execute(sa.text("UPDATE claims SET cards = :c WHERE id = :i"), cards)


def _append_only() -> None:
    for table in APPEND_ONLY:
        if op.get_bind().dialect.name == "sqlite":
            newer = f"EXISTS (SELECT 1 FROM {table} WHERE seq >= NEW.seq)"  # noqa: S608  a name of ours
            refused = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            op.execute(f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} WHEN {newer} {refused}")
        else:
            op.execute(
                f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
                "FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting()"
            )
