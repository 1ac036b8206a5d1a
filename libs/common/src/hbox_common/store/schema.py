"""Migrates a database to this program's schema, accepts a newer schema that supports this program, or refuses the database.

Migrations only go forward, and at first only add: columns with a default, tables, indexes. Such a migration sets `works_with = "NNNN"`: programs with that
schema or a later one can use the database too, so that old and new versions of a service overlap during an upgrade and a rollback keeps the database. Columns
and tables without writers are removed one release later, by a migration without `works_with`, which ends that support.

The migrations of versions that are no longer supported may be replaced by one with the number of the last (`upgrade`).
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, MetaData, inspect, select, text

from hbox_common.errors import InvalidRequest

from .reach import REACH

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Schema:
    """Of a database: its revision, and the oldest revision whose programs it supports; None if it has none."""

    revision: str | None
    oldest: str | None

    @classmethod
    def of(cls, connection: Connection) -> "Schema":
        tables = inspect(connection)
        revision: str | None = None
        if tables.has_table("alembic_version"):
            revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        return cls(revision, connection.execute(select(REACH.c.oldest)).scalar() if tables.has_table(REACH.name) else revision)

    def fits(self, versions: Path) -> bool:
        """Whether a program that knows these may read and write the database as it is: it has the newest schema, or a later one with room for the program."""
        known = revisions(versions)
        return self.revision == max(known) or (self.revision not in known and self.oldest in known)


def migrate(connection: Connection, metadata: MetaData, versions: Path | None) -> None:
    """Run the migrations in the folder `versions` that this database lacks; without a folder, create the tables of `metadata`.

    `versions`: Alembic's, in files NNNN_what.py whose revision is NNNN.

    Raises InvalidRequest if the database has a newer schema that does not support this program, or one too old to upgrade, or if foreign tables have the names
    of ours.
    """
    if versions is None:
        metadata.create_all(connection)
        connection.commit()
        return
    found = Schema.of(connection)
    foreign = sorted(set(metadata.tables) & set(inspect(connection).get_table_names())) if found.revision is None else []
    connection.commit()
    if found.fits(versions):
        if found.revision != newest(versions):
            log.warning(
                "database: its schema %s is a newer version's, and has room for this one's, %s",
                found.revision,
                newest(versions),
            )
        return
    if found.revision is not None and found.revision > newest(versions):
        raise InvalidRequest(
            f"database: its schema {found.revision} is not known to this version",
            hint="start the version that made it, or a newer one",
        )
    if foreign:
        raise InvalidRequest(
            f"database: it contains tables of another application ({', '.join(foreign[:5])})",
            hint="give this service an empty database",
        )
    from .upgrade import upgrade  # noqa: PLC0415  Alembic is large, and most starts have nothing to migrate

    upgrade(connection, metadata, versions, found=found.revision)


def newest(versions: Path) -> str:
    """The revision that this program knows."""
    return max(revisions(versions))


def revisions(versions: Path) -> set[str]:
    """All that this program knows."""
    return {path.name.partition("_")[0] for path in versions.glob("[0-9]*_*.py")}
