"""Which older programs a database has room for, as it says itself: see `schema`."""

from sqlalchemy import Column, Connection, MetaData, Table, Text, insert, inspect

#: The oldest schema whose programs go on beside this one; only in a database where that is, or was, an older one than its own.
REACH = Table("schema_reach", MetaData(), Column("oldest", Text, nullable=False))


def reaches(connection: Connection, oldest: str, *, head: str) -> None:
    """Write down that programs which know `oldest` go on beside `head`; before the schema changes, so that none goes on that must not."""
    if oldest == head and not inspect(connection).has_table(REACH.name):
        return
    REACH.create(connection, checkfirst=True)
    connection.execute(REACH.delete())
    connection.execute(insert(REACH).values(oldest=oldest))
    connection.commit()
