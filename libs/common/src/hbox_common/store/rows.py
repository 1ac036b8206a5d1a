"""Backups of databases on PostgreSQL: all rows of a service's tables, from one database into the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, MetaData, create_engine, insert, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from hbox_common.errors import Unavailable

from .engine import engine, parse, refused, schema_lock, writers

ROWS = 5_000


def copy_rows(source: Connection, target: Connection, metadata: MetaData) -> None:
    """Insert every row of every table of `metadata`, in the order of its key, without a commit. A table of large rows has in its `info` how many `rows` are
    copied at a time."""
    for table in metadata.sorted_tables:
        most = table.info.get("rows", ROWS)
        rows = source.execution_options(yield_per=most).execute(select(table).order_by(*table.primary_key.columns))
        for batch in rows.mappings().partitions(most):
            target.execute(insert(table), [dict(row) for row in batch])


@contextmanager
def replacing(url: str, work: Path, *, service: str) -> Iterator[tuple[Connection, Connection]]:
    """Connections to the PostgreSQL database at `url`, whose schema no other process changes meanwhile, and to the SQLite file `work`. Raises Unavailable
    while a `service` is connected to the database, or the database is unavailable."""
    made = engine(parse(url))
    where = located(url)
    source = create_engine(f"sqlite:///{work.absolute()}", poolclass=NullPool)
    try:
        with made.connect() as target, schema_lock(target):
            if writers(target):
                raise Unavailable(f"{where}: a {service} is connected to it", hint=f"stop the {service} first")
            with source.connect() as rows:
                yield target, rows
    except SQLAlchemyError as e:
        raise refused(e, where) from e
    finally:
        made.dispose()
        source.dispose()


def located(url: str) -> str:
    """The database at `url`, for messages: without its password."""
    return f"database {parse(url).render_as_string(hide_password=True)}"
