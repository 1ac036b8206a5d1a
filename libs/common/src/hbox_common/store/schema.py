"""Bringing a database to the schema that this program knows, or refusing it."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, MetaData, inspect

from hbox_common.errors import InvalidRequest

_ENVIRONMENT = Path(__file__).with_name("migrations")


def migrate(connection: Connection, metadata: MetaData, versions: Path | None) -> None:
    """Run the migrations in the folder `versions` that this database has not had; without a folder, create the tables of `metadata`.

    Raises InvalidRequest when the database has a schema of which this program knows nothing: an older program must not write there; nor must
    any where somebody else's tables have the names of ours.
    """
    if versions is None:
        metadata.create_all(connection)
        connection.commit()
        return
    config = Config()
    config.set_main_option("script_location", str(_ENVIRONMENT))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", str(versions))
    config.attributes["connection"] = connection
    config.attributes["metadata"] = metadata
    script = ScriptDirectory.from_config(config)
    current = MigrationContext.configure(connection).get_current_revision()
    connection.commit()
    if current == script.get_current_head():
        return
    if current is None:
        foreign = sorted(set(metadata.tables) & set(inspect(connection).get_table_names()))
        connection.commit()
        if foreign:
            raise InvalidRequest(
                f"database: it has tables of somebody else's ({', '.join(foreign[:5])})",
                hint="give this service an empty database",
            )
    try:
        if current is not None:
            script.get_revision(current)
    except CommandError as e:
        raise InvalidRequest(
            f"database: its schema {current} is not known to this version",
            hint="start the version that made it, or a newer one",
        ) from e
    command.upgrade(config, "head")
    connection.commit()
