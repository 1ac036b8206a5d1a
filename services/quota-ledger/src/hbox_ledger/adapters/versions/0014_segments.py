"""Sealed segments of `audit` and `transfers`. Their rows may be deleted from the two tables, no others. And the number of commits of the ledger.

Programs with an older schema continue: they read the ends of both tables, which stay. Their `hbox audit` reports sealed records as missing.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

works_with = "0011"

#: By table, the column of `segments` with the last sealed row.
SEALED = {"audit": "last_record", "transfers": "last_transfer"}


def upgrade() -> None:
    op.create_table(
        "segments",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("first_record", sa.BigInteger(), nullable=False),
        sa.Column("last_record", sa.BigInteger(), nullable=False),
        sa.Column("first_transfer", sa.BigInteger(), nullable=False),
        sa.Column("last_transfer", sa.BigInteger(), nullable=False),
        sa.Column("first_at", sa.Double(), nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
        sa.Column("previous", sa.LargeBinary(), nullable=False),
        sa.Column("head", sa.LargeBinary(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_table(
        "segment_contents",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.add_column("ledger", sa.Column("commits", sa.BigInteger(), nullable=False, server_default="0"))
    if op.get_bind().dialect.name == "sqlite":
        _sqlite()
    else:
        _postgresql()


def _sqlite() -> None:
    for table, last in SEALED.items():
        op.execute(f"DROP TRIGGER {table}_no_delete")
        beyond = f"OLD.seq > coalesce((SELECT {last} FROM segments ORDER BY number DESC LIMIT 1), 0)"  # noqa: S608  a name of ours
        refused = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        op.execute(f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} WHEN {beyond} {refused}")
    refused = "BEGIN SELECT RAISE(ABORT, 'segments is append-only'); END"
    for verb in ("UPDATE", "DELETE"):
        op.execute(f"CREATE TRIGGER segments_no_{verb.lower()} BEFORE {verb} ON segments {refused}")
    newer = "EXISTS (SELECT 1 FROM segments WHERE number >= NEW.number)"
    op.execute(f"CREATE TRIGGER segments_no_replace BEFORE INSERT ON segments WHEN {newer} {refused}")
    changed = "BEGIN SELECT RAISE(ABORT, 'segment_contents is not changed'); END"
    op.execute(f"CREATE TRIGGER segment_contents_no_update BEFORE UPDATE ON segment_contents {changed}")


def _postgresql() -> None:
    for table, last in SEALED.items():
        op.execute(
            f"CREATE FUNCTION refuse_unsealed_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "  # noqa: S608  a name of ours
            f"IF OLD.seq > coalesce((SELECT {last} FROM segments ORDER BY number DESC LIMIT 1), 0) THEN "
            f"RAISE EXCEPTION '{table} is append-only' USING ERRCODE = 'check_violation'; END IF; RETURN OLD; END $$"
        )
        op.execute(f"DROP TRIGGER {table}_append_only ON {table}")
        each = "EXECUTE FUNCTION refuse_rewriting()"
        op.execute(f"CREATE TRIGGER {table}_append_only BEFORE UPDATE ON {table} FOR EACH ROW {each}")
        sealed = f"EXECUTE FUNCTION refuse_unsealed_{table}()"
        op.execute(f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} FOR EACH ROW {sealed}")
    each = "EXECUTE FUNCTION refuse_rewriting()"
    op.execute(f"CREATE TRIGGER segments_append_only BEFORE UPDATE OR DELETE ON segments FOR EACH ROW {each}")
    op.execute(f"CREATE TRIGGER segments_no_truncate BEFORE TRUNCATE ON segments FOR EACH STATEMENT {each}")
    op.execute(f"CREATE TRIGGER segment_contents_no_update BEFORE UPDATE ON segment_contents FOR EACH ROW {each}")
    op.execute("ALTER TABLE segment_contents ALTER COLUMN content SET STORAGE EXTERNAL")  # it is compressed already
