"""Schemas of commits before release 0.1.0, as SQL text: what their migrations made.

0011 is the schema of commit a200f6ea, 0013 the last one before the migrations were replaced by one.
"""

from pathlib import Path

from sqlalchemy import Connection

REVISIONS = ("0011", "0012", "0013")

_FOLDER = Path(__file__).with_name("schemas")


def create(connection: Connection, revision: str) -> None:
    """Make the tables of this revision in an empty database."""
    for one in REVISIONS[: REVISIONS.index(revision) + 1]:
        file = _FOLDER / f"{one}.sql"
        file = file if file.exists() else _FOLDER / f"{one}.{connection.dialect.name}.sql"
        for statement in file.read_text().split(";\n")[:-1]:
            connection.execution_options(no_parameters=True).exec_driver_sql(statement)
    connection.commit()
