"""Backup and restore of health-monitor's database, by the commands and the running service."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hbox_cli.commands.health import command
from hbox_common.errors import InvalidRequest, NotFound, Unavailable
from hbox_common.model import IncidentState
from hbox_common.model.healthorder import OrderVerb
from hbox_health.adapters.backup import Contents, backup, restore

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
    with pytest.raises(InvalidRequest, match="PostgreSQL"):
        backup("postgresql+psycopg://hbox@postgres/health", file)
    assert database.read_bytes() == before
    assert restore(file, url(database))[0].orders == 1
    assert drafts(tmp_path, world.folder) == []


def test_the_state_folders_database_is_the_default(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["backup", str(tmp_path / "b.db"), "--state", str(tmp_path)])
    assert isinstance(result.exception, NotFound)
    assert f"{tmp_path}/health.db" in str(result.exception)
