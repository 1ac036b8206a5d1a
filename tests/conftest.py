"""Databases to open: a fresh SQLite file, or a fresh database of a PostgreSQL server of our own."""

import itertools
from collections.abc import Callable, Iterator
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
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Addresses of empty databases of each kind, as many as a test likes; on PostgreSQL each is the last one, emptied."""
    if request.param == "sqlite":
        numbers = itertools.count()
        return lambda: f"sqlite:///{tmp_path}/hbox{next(numbers)}.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.empty_database


@pytest.fixture
def database_url(empty_database: Callable[[], str]) -> str:
    """The address of an empty database of each kind."""
    return empty_database()
