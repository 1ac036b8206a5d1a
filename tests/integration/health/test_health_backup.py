"""Backup and restore of health-monitor's database, by the commands and the running service."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hbox_cli.commands.health import command
from hbox_common.errors import InvalidRequest, NotFound, Unavailable
from hbox_common.model import IncidentState
from hbox_common.model.healthorder import OrderVerb
from hbox_common.store.files import writing
from hbox_health.adapters import tables as t
from hbox_health.adapters.backup import Contents, backup, restore

from ...postgres_server import PostgresServer
from ...waiting import until
from .conftest import HealthWorld
from .test_judging import SICK, Agent, card, listening
from .test_orders import exempt, give, order, policy


def hbox(*words: str) -> Result:
    result = CliRunner().invoke(command, [*words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def drafts(*folders: Path) -> list[str]:
    return [path.name for folder in folders for path in folder.iterdir() if path.suffix in {".part", ".restoring"}]


def url(file: Path) -> str:
    return f"sqlite:///{file}"


async def test_a_restored_monitor_continues_the_incidents_and_exemptions_of_its_backup(world: HealthWorld) -> None:
    agent, file, database = Agent(world.nats), world.folder / "backup.db", world.folder / "health.db"
    await world.show(cards=(card(0), card(1)))
    async with listening(world.bus) as seen:
        async with world.monitor():
            await agent.report((SICK, 1))
            await until(lambda: bool(seen.incidents and seen.verdicts) and seen.verdicts[-1].cards == (SICK,))
            await give(world, exempt(node="another-node"))
            text = hbox("backup", str(file), "--database", url(database)).output
            assert "1 incidents, 1 of them open, 1 nodes, 1 orders" in text
            await give(world, order(OrderVerb.END_EXEMPTION, "o2", target="o1"))
            with pytest.raises(Unavailable):
                restore(file, url(database))
        text = hbox("restore", str(file), "--database", url(database)).output
        assert "health.db.before-restore-" in text
        async with world.monitor():
            assert [one.id for one in (await policy(world)).exemptions] == ["o1"]
            assert seen.verdicts[-1].cards == (SICK,)
            await agent.report((SICK, 0))
            await until(lambda: seen.incidents[next(iter(seen.incidents))][-1].state is IncidentState.VALIDATING)
        assert len(seen.incidents) == 1, "the incident continues under its id"


async def test_a_folder_keeps_the_newest_backups(world: HealthWorld) -> None:
    folder = world.folder / "backups"
    folder.mkdir()
    for name in ("health-2026-01-01T021700Z.db", "health-2026-01-02T021700Z.db", "ledger-2026-01-01T021700Z.db"):
        (folder / name).write_bytes(b"")
    async with world.monitor():
        text = hbox("backup", str(folder), "--keep", "2", "--database", url(world.folder / "health.db")).output
    assert f"removed: {folder}/health-2026-01-01T021700Z.db" in text
    assert len(list(folder.glob("health-*.db"))) == 2
    assert (folder / "ledger-2026-01-01T021700Z.db").exists()


async def test_a_backup_that_is_none_changes_nothing(world: HealthWorld, tmp_path: Path) -> None:
    database, file = world.folder / "health.db", tmp_path / "backup.db"
    async with world.monitor():
        await give(world, exempt())
        assert backup(url(database), file) == Contents(nodes=0, incidents=0, open=0, orders=1)
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(NotFound):
        restore(tmp_path / "missing.db", url(database))
    other, damaged = tmp_path / "other.db", tmp_path / "damaged.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE ledger (id INTEGER)")
    damaged.write_bytes(file.read_bytes())
    with closing(sqlite3.connect(damaged)) as connection:
        connection.execute("UPDATE orders SET body = '{}'")
        connection.commit()
    before = database.read_bytes()
    for wrong, message in ((other, "is no backup of health-monitor's database"), (damaged, "is damaged")):
        with pytest.raises(InvalidRequest, match=message):
            restore(wrong, url(database))
    with pytest.raises(InvalidRequest, match="is damaged"):
        backup(url(damaged), file)
    with pytest.raises(InvalidRequest, match="no place for a backup"):
        backup(url(database), database)
    assert database.read_bytes() == before
    assert restore(file, url(database))[0].orders == 1
    assert drafts(tmp_path, world.folder) == []


async def test_a_monitor_that_moves_to_postgres_keeps_cards_out_of_use_that_are_not_reported_again(
    world: HealthWorld, postgres: PostgresServer
) -> None:
    """An empty PostgreSQL database would return the sick card to service."""
    agent, file, target = Agent(world.nats), world.folder / "backup.db", postgres.empty_database()
    await world.show(cards=(card(0), card(1)))
    async with listening(world.bus) as seen:
        async with world.monitor():
            await agent.report((SICK, 1))
            await until(lambda: bool(seen.incidents and seen.verdicts) and seen.verdicts[-1].cards == (SICK,))
            await give(world, exempt(node="another-node"))
        hbox("backup", str(file), "--database", url(world.folder / "health.db"))
        text = hbox("restore", str(file), "--database", target).output
        assert text.startswith("restored: 1 incidents, 1 of them open, 1 nodes, 1 orders")
        async with world.monitor(health_database_url=target):
            assert [one.id for one in (await policy(world)).exemptions] == ["o1"]
            with pytest.raises(Unavailable, match="a health-monitor is connected"):
                await asyncio.to_thread(restore, file, target, overwrite=True)
            # A new order proves that the monitor judged after its start and stored it.
            await give(world, order(OrderVerb.END_EXEMPTION, "o2", target="o1"))
            assert seen.verdicts[-1].cards == (SICK,)
            await agent.report((SICK, 0))
            await until(lambda: seen.incidents[next(iter(seen.incidents))][-1].state is IncidentState.VALIDATING)
        assert len(seen.incidents) == 1, "the incident continues under its id"
    assert drafts(world.folder) == []


async def test_a_backup_of_postgres_is_restored_into_either_kind(
    world: HealthWorld, postgres: PostgresServer, tmp_path: Path
) -> None:
    source, file = postgres.empty_database(), tmp_path / "backup.db"
    async with world.monitor(health_database_url=source):
        await give(world, exempt())
        assert await asyncio.to_thread(backup, source, file) == Contents(nodes=0, incidents=0, open=0, orders=1)
    assert file.stat().st_mode & 0o777 == 0o600
    assert restore(file, url(tmp_path / "new.db"))[0].orders == 1
    async with world.monitor(health_database_url=url(tmp_path / "new.db")):
        assert [one.id for one in (await policy(world)).exemptions] == ["o1"]
    with postgres.connect() as connection:
        connection.execute("DELETE FROM orders")
        connection.execute("UPDATE writer SET epoch = 1000")
    with pytest.raises(InvalidRequest, match="has contents of health-monitor"):
        restore(file, source)
    assert restore(file, source, overwrite=True) == (Contents(nodes=0, incidents=0, open=0, orders=1), None)
    with postgres.connect() as connection:
        assert connection.execute("SELECT epoch FROM writer").fetchall() == [(1000,)], "an earlier leader cannot write"


def test_a_restore_leaves_the_database_of_another_service_alone(postgres: PostgresServer, tmp_path: Path) -> None:
    target, file = postgres.empty_database(), tmp_path / "backup.db"
    with writing(file, t.metadata, t.VERSIONS):
        pass
    with postgres.connect() as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('0002')")
    with pytest.raises(InvalidRequest, match="another service's"):
        restore(file, target, overwrite=True)
    with postgres.connect() as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchall() == [(1,)]


def test_a_database_with_writes_in_its_log_is_not_restored_without_them(tmp_path: Path) -> None:
    database = tmp_path / "health.db"
    with writing(database, t.metadata, t.VERSIONS):
        pass
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("INSERT INTO writer VALUES (1, 1)")
        connection.commit()
        with pytest.raises(InvalidRequest, match=r"its latest writes are in health\.db-wal"):
            restore(database, url(tmp_path / "new.db"))


def test_the_state_folders_database_is_the_default(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["backup", str(tmp_path / "b.db"), "--state", str(tmp_path)])
    assert isinstance(result.exception, NotFound)
    assert f"{tmp_path}/health.db" in str(result.exception)
