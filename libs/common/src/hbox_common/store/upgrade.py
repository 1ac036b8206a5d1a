"""Running migrations with Alembic; imported where there is one to run, for it is 10 MiB and a fifth of a second."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData

from .reach import reaches

_ENVIRONMENT = Path(__file__).with_name("migrations")


def upgrade(connection: Connection, metadata: MetaData, versions: Path) -> None:
    """From the revision of the database, one of those in `versions` or none, to the newest."""
    config = Config()
    config.set_main_option("script_location", str(_ENVIRONMENT))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", str(versions))
    config.attributes["connection"] = connection
    config.attributes["metadata"] = metadata
    scripts = [*ScriptDirectory.from_config(config).walk_revisions()]
    oldest = max(str(getattr(one.module, "works_with", one.revision)) for one in scripts)
    reaches(connection, oldest, head=scripts[0].revision)
    command.upgrade(config, "head")
    connection.commit()
