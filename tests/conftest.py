"""Databases to open: a fresh SQLite file, or a fresh database of a PostgreSQL server of our own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .postgres_server import NoPostgres, PostgresServer, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server; skips where none can run."""
    try:
        with postgres_server() as server:
            yield server
    except NoPostgres as e:
        pytest.skip(f"no PostgreSQL can be started here: {e}")


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/hbox.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.empty_database()
