"""Alembic's environment: migrations run on the connection that the store hands over, one transaction each."""

from alembic import context

config = context.config

context.configure(
    connection=config.attributes["connection"],
    target_metadata=config.attributes["metadata"],
    render_as_batch=True,
    transaction_per_migration=True,
)
context.run_migrations()
