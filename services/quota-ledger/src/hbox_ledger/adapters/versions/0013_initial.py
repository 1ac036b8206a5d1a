"""The initial schema, with triggers that keep `transfers` and `audit` append-only.

It replaces the thirteen migrations from before release 0.1.0 and has the number of the last one. `adopt` completes the databases of their last revisions.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = None
branch_labels = None
depends_on = None

works_with = "0011"
#: Revisions from before release 0.1.0 whose databases `adopt` completes; older ones are refused.
adopts = ("0011", "0012")

APPEND_ONLY = ("transfers", "audit")


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("pending", sa.BigInteger(), nullable=False),
        sa.Column("posted", sa.BigInteger(), nullable=False),
        sa.Column("borrowed", sa.BigInteger(), nullable=False, server_default="0"),
        sa.CheckConstraint("borrowed >= 0 AND borrowed <= pending + posted", name="accounts_borrowed"),
        sa.CheckConstraint("pending >= 0 AND posted >= 0", name="accounts_not_negative"),
        sa.PrimaryKeyConstraint("queue", "resource"),
    )
    op.create_table(
        "audit",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("change", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("entry", sa.Text(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_table(
        "card_accounts",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("card", sa.Integer(), nullable=False),
        sa.Column("cores", sa.BigInteger(), nullable=False),
        sa.Column("memory_mib", sa.BigInteger(), nullable=False),
        sa.Column("pods", sa.BigInteger(), nullable=False),
        sa.Column("whole", sa.BigInteger(), nullable=False),
        sa.Column("forced", sa.BigInteger(), nullable=False),
        sa.Column("size_mib", sa.BigInteger(), nullable=False),
        sa.Column("shares", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "cores >= 0 AND memory_mib >= 0 AND pods >= 0 AND whole >= 0 AND forced >= 0", name="card_accounts_none_below_zero"
        ),
        sa.CheckConstraint(
            "forced > 0 OR pods = 0 OR (cores <= 100 AND memory_mib <= size_mib AND pods <= shares AND (whole = 0 OR pods = 1))",
            name="card_accounts_not_overbooked",
        ),
        sa.PrimaryKeyConstraint("node", "card"),
    )
    op.create_table(
        "claims",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pod_uid", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("pod", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("requests", sa.Text(), nullable=False),
        sa.Column("slices", sa.Text(), nullable=False),
        sa.Column("slots", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("intent", sa.Text(), nullable=False),
        sa.Column("intent_reason", sa.Text(), nullable=False),
        sa.Column("resource_version", sa.Text(), nullable=False),
        sa.Column("deadline", sa.Double(), nullable=False),
        sa.Column("forced", sa.Boolean(), nullable=False),
        sa.Column("traceparent", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.Column("min_member", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("preemptable", sa.Boolean(), nullable=False, server_default=sa.true()),
        sa.Column("created_at", sa.Double(), nullable=False, server_default="0"),
        sa.Column("claimed_at", sa.Double(), nullable=False, server_default="0"),
        sa.Column("cards", sa.Text(), nullable=False, server_default="{}"),
        sa.Column("models", sa.Text(), nullable=False, server_default="{}"),
        sa.Column("pool", sa.Text(), nullable=False, server_default=""),
        sa.Column("protected_until", sa.Double(), nullable=False, server_default="0"),
        sa.Column("rank", sa.Integer(), nullable=False, server_default="-1"),
        sa.Column("layout", sa.Text(), nullable=False, server_default=""),
        _volume_claims(),
        sa.CheckConstraint("state IN ('pending', 'posted', 'void')", name="claims_state"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "claims_pod",
        "claims",
        ["pod_uid"],
        unique=True,
        sqlite_where=sa.text("state <> 'void'"),
        postgresql_where=sa.text("state <> 'void'"),
    )
    op.create_index(
        "claims_void",
        "claims",
        ["changed_at"],
        unique=False,
        sqlite_where=sa.text("state = 'void'"),
        postgresql_where=sa.text("state = 'void'"),
    )
    op.create_table(
        "gangs",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("min_member", sa.Integer(), nullable=False),
        sa.Column("deadline", sa.Double(), nullable=False),
        sa.Column("unwinding", sa.Boolean(), nullable=False),
        sa.Column("finished", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("job"),
    )
    op.create_table(
        "inbox",
        sa.Column("consumer", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("result", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("consumer", "message"),
    )
    op.create_index("inbox_at", "inbox", ["at"], unique=False)
    op.create_table(
        "ledger",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("idx", sa.BigInteger(), nullable=False),
        sa.Column("metered_until", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("key", sa.LargeBinary()),
        sa.CheckConstraint("id = 1", name="ledger_one"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "nominations",
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("plan"),
    )
    op.create_table(
        "outbox",
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("keys", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("traceparent", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("epoch", "number"),
    )
    op.create_table(
        "plan_answers",
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("scheduler", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("committed", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("refresh", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("plan"),
    )
    op.create_index("plan_answers_at", "plan_answers", ["at"], unique=False)
    op.create_table(
        "queues",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("capability", sa.Text(), nullable=False),
        sa.Column("weight", sa.BigInteger(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("gone", sa.Boolean(), nullable=False),
        sa.Column("rules", sa.Text(), nullable=False, server_default="{}"),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "transfers",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("idx", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("debit", sa.Text(), nullable=False),
        sa.Column("credit", sa.Text(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("amount > 0 AND debit <> credit", name="transfers_move_something"),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_table(
        "card_slots",
        sa.Column("claim", sa.Text(), nullable=False),
        sa.Column("card", sa.Integer(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("live", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["claim"], ["claims.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("claim", "card"),
    )
    op.create_index(
        "card_slots_slot",
        "card_slots",
        ["node", "card", "slot"],
        unique=True,
        sqlite_where=sa.text("live AND slot >= 0"),
        postgresql_where=sa.text("live AND slot >= 0"),
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
    _create_card_names()
    if op.get_bind().dialect.name == "sqlite":
        _append_only_in_sqlite()
    else:
        _append_only_in_postgresql()
        # Compressing messages that are deleted within a second took 2 ms of a commit of 400 claims.
        op.execute("ALTER TABLE outbox ALTER COLUMN body SET STORAGE EXTERNAL")


def adopt(found: str) -> None:
    """Add what the database of revision `found` lacks. Live claims keep the indices of their cards as numbers until the ledger receives the nodes' states."""
    if found == "0011":
        _create_card_names()
    op.add_column("claims", _volume_claims())


def _volume_claims() -> sa.Column[str]:
    return sa.Column("volume_claims", sa.Text(), nullable=False, server_default="")


def _create_card_names() -> None:
    op.create_table(
        "card_names",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("card", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node", "card"),
    )
    op.create_index("card_names_number", "card_names", ["node", "number", "since"], unique=True)


def _append_only_in_sqlite() -> None:
    """INSERT OR REPLACE fires no trigger on DELETE; the trigger on INSERT rejects it."""
    for table in APPEND_ONLY:
        refused = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        for verb in ("UPDATE", "DELETE"):
            op.execute(f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} {refused}")
        newer = f"EXISTS (SELECT 1 FROM {table} WHERE seq >= NEW.seq)"  # noqa: S608  a name of ours
        op.execute(f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} WHEN {newer} {refused}")


def _append_only_in_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION refuse_rewriting() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'check_violation'; END $$"
    )
    for table in APPEND_ONLY:
        each = "EXECUTE FUNCTION refuse_rewriting()"
        op.execute(f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW {each}")
        op.execute(f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} FOR EACH STATEMENT {each}")
