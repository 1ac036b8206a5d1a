"""Databases to open: a fresh SQLite file, or a fresh database of a PostgreSQL server of our own."""

import gc
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hbox_common.loops import heed_cancellation

from . import searching
from .postgres_server import PostgresServer, postgres_server
from .side_by_side import Scheduling, turns

# As the Makefile does: with no compiled files each of the many processes that tests start would compile all that it imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

searching.register()
heed_cancellation()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Meanwhile next to nothing becomes garbage, and what there is only grows."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    turn = turns(item.nodeid for item in items)
    items.sort(key=lambda item: turn[item.nodeid])


def pytest_collection_finish() -> None:
    """Thousands of tests and all that they import stay: the collector of Python need not walk them again and again, nor once for what little is garbage."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    return Scheduling(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server. Fails where none can run, but for HBOX_TESTS_WITHOUT_POSTGRES=1, which leaves its tests out."""
    if os.environ.get("HBOX_TESTS_WITHOUT_POSTGRES"):
        pytest.skip("HBOX_TESTS_WITHOUT_POSTGRES is set")
    with postgres_server() as server:
        yield server


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
