"""Runs migrations with Alembic. `schema` imports it only if there is one to run: Alembic takes 10 MiB and a fifth of a second.

If migrations are replaced by one, the initial migration may complete the databases of the last replaced revisions: it names them in `adopts` and has a function
`adopt(revision)`.
"""

from pathlib import Path
from types import ModuleType

from alembic import command
from alembic.config import Config
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, text

from hbox_common.errors import InvalidRequest

from .reach import reaches

_ENVIRONMENT = Path(__file__).with_name("migrations")


def upgrade(connection: Connection, metadata: MetaData, versions: Path, *, found: str | None) -> None:
    """Migrate a database of revision `found` (None: an empty one) to the newest of `versions`.

    Raises InvalidRequest if its migrations were replaced and the initial migration does not adopt it.
    """
    config = Config()
    config.set_main_option("script_location", str(_ENVIRONMENT))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", str(versions))
    config.attributes["connection"] = connection
    config.attributes["metadata"] = metadata
    scripts = [*ScriptDirectory.from_config(config).walk_revisions()]
    initial = scripts[-1].module
    known, adopted = {one.revision for one in scripts}, getattr(initial, "adopts", ())
    if found is not None and found not in {*known, *adopted}:
        raise InvalidRequest(
            f"database: its schema {found} is older than {min(known | {*adopted})}, the oldest that this version can upgrade",
            hint="start a version in between on it once, or start on an empty database, or restore a newer backup",
        )
    oldest = max(str(getattr(one.module, "works_with", one.revision)) for one in scripts)
    reaches(connection, oldest, head=scripts[0].revision)
    if found is not None and found in adopted:
        _adopt(connection, initial, found)
    command.upgrade(config, "head")
    connection.commit()


def _adopt(connection: Connection, initial: ModuleType, found: str) -> None:
    """In one transaction, so that a process that dies leaves the database at `found`."""
    with Operations.context(MigrationContext.configure(connection)):
        initial.adopt(found)
    connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": initial.revision})
    connection.commit()
