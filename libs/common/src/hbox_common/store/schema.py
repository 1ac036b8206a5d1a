"""Bringing a database to the schema that this program knows, or refusing it."""

from pathlib import Path

from sqlalchemy import Connection, MetaData, inspect, text

from hbox_common.errors import InvalidRequest


def migrate(connection: Connection, metadata: MetaData, versions: Path | None) -> None:
    """Run the migrations in the folder `versions` that this database has not had; without a folder, create the tables of `metadata`.

    `versions`: Alembic's, in files NNNN_what.py whose revision is NNNN.

    Raises InvalidRequest when the database has a schema of which this program knows nothing: an older program must not write there; nor must
    any where somebody else's tables have the names of ours.
    """
    if versions is None:
        metadata.create_all(connection)
        connection.commit()
        return
    tables = set(inspect(connection).get_table_names())
    current: str | None = None
    if "alembic_version" in tables:
        current = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    connection.commit()
    if current == newest(versions):
        return
    if current is None and (foreign := sorted(tables & set(metadata.tables))):
        raise InvalidRequest(
            f"database: it has tables of somebody else's ({', '.join(foreign[:5])})", hint="give this service an empty database"
        )
    from .upgrade import upgrade  # noqa: PLC0415  Alembic is large, and most starts have nothing to migrate

    upgrade(connection, metadata, versions, current)


def newest(versions: Path) -> str:
    """The revision that this program knows."""
    return max(path.name.partition("_")[0] for path in versions.glob("[0-9]*_*.py"))
