"""Running migrations with Alembic; imported where there is one to run, for it is 10 MiB and a fifth of a second."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, MetaData

from hbox_common.errors import InvalidRequest

_ENVIRONMENT = Path(__file__).with_name("migrations")


def upgrade(connection: Connection, metadata: MetaData, versions: Path, current: str | None) -> None:
    """From the revision `current` (None: an empty database) to the newest in `versions`. Raises InvalidRequest where `current` is not among them."""
    config = Config()
    config.set_main_option("script_location", str(_ENVIRONMENT))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", str(versions))
    config.attributes["connection"] = connection
    config.attributes["metadata"] = metadata
    try:
        if current is not None:
            ScriptDirectory.from_config(config).get_revision(current)
    except CommandError as e:
        raise InvalidRequest(
            f"database: its schema {current} is not known to this version",
            hint="start the version that made it, or a newer one",
        ) from e
    command.upgrade(config, "head")
    connection.commit()
