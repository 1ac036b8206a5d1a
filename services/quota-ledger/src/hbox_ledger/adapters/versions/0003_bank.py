"""History that no statement rewrites: not TRUNCATE (PostgreSQL), and not INSERT OR REPLACE (SQLite), which fire none of the triggers of 0001."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

APPEND_ONLY = ("transfers", "audit")


def upgrade() -> None:
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


def downgrade() -> None:
    raise NotImplementedError("restore a backup that was made before the upgrade")
