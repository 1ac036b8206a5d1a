"""The older programs that a database supports, recorded in the database: see `schema`."""

from sqlalchemy import Column, Connection, MetaData, Table, Text, insert, inspect

#: The oldest schema whose programs can use this database; only in a database where that is, or was, older than its own schema.
REACH = Table("schema_reach", MetaData(), Column("oldest", Text, nullable=False))


def reaches(connection: Connection, oldest: str, *, head: str) -> None:
    """Record that programs with schema `oldest` can use a database at `head`; before the schema changes, so that no unsupported program continues."""
    if oldest == head and not inspect(connection).has_table(REACH.name):
        return
    REACH.create(connection, checkfirst=True)
    connection.execute(REACH.delete())
    connection.execute(insert(REACH).values(oldest=oldest))
    connection.commit()
