"""Databases to open: a fresh SQLite file, or a fresh database of a PostgreSQL server of our own."""

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server; skips where none can run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns at import where XDG_RUNTIME_DIR is not set
        from pgserver.postgres_server import get_server  # noqa: PLC0415

    folder = Path(tempfile.mkdtemp(prefix="hbox-pg-"))
    try:
        try:
            server = get_server(folder, cleanup_mode="stop")
        except Exception as e:
            pytest.skip(f"no PostgreSQL can be started here: {type(e).__name__}: {e}")
        yield server.get_uri()
        server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/hbox.db"
    server: str = request.getfixturevalue("postgres")
    name = f"hbox_{abs(hash(request.node.nodeid)):x}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    base, _, options = server.partition("?")
    return f"{base.rsplit('/', 1)[0]}/{name}" + (f"?{options}" if options else "")
