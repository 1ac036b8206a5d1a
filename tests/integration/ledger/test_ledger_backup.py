"""Backups of the ledger: from either kind of database into either, while it writes; and what is refused."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import create_engine, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from hbox_cli.commands.backup import command
from hbox_common.errors import HBoxError, InvalidRequest, NotFound, Unavailable
from hbox_common.model import PodPhase
from hbox_common.store import files
from hbox_ledger.adapters import tables
from hbox_ledger.adapters import tables as t
from hbox_ledger.adapters.audit import prove
from hbox_ledger.adapters.backup import backup, faulty, restore

from ...postgres_server import PostgresServer
from ...waiting import until
from .conftest import Kit
from .test_ledger_proof import tamper

pytestmark = pytest.mark.timeout(180)


async def history(kit: Kit, url: str) -> None:
    async with kit.started(url) as running:
        await running.open()
        await running.propose(*(kit.plan(f"p{i}", (f"pod{i}", "n0", (kit.whole(i),))) for i in range(3)))
        await running.see("x", kit.fact("pod0", "n0", PodPhase.SUCCEEDED), kit.fact("found", "n1", slices=(kit.whole(0),)))


def rows(url: str) -> dict[str, list[tuple[object, ...]]]:
    """All of a database, table by table."""
    made = create_engine(url)
    with made.connect() as connection:
        found = {
            table.name: [
                tuple(bytes(v) if isinstance(v, memoryview) else v for v in row)
                for row in connection.execute(select(table).order_by(*table.primary_key.columns))
            ]
            for table in t.metadata.sorted_tables
        }
    made.dispose()
    return found


def _beside(file: Path) -> list[Path]:
    """What an attempt left, that stopped in the middle."""
    return [path for path in file.parent.iterdir() if path.name.startswith(file.name) and path != file]


def address(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.mark.parametrize("into", ["sqlite", "postgresql"])
async def test_all_of_it_goes_from_either_kind_into_either_and_the_ledger_goes_on(
    kit: Kit, database_url: str, into: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    await history(kit, database_url)
    before, file = rows(database_url), tmp_path / "backup.db"
    made = backup(database_url, file)
    assert (made.faults, made.records, file.stat().st_mode & 0o777) == ([], 11, 0o600)
    assert _beside(file) == []
    target = address(tmp_path / "new.db")
    if into == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        target = server.empty_database()
    assert restore(file, target).proof.head == made.head
    after = rows(target)
    assert after == before
    assert len(after["claims"]) == 4
    assert len(after["outbox"]) > 0, "what was not said yet is said after it"
    assert prove(target).faults == []
    async with kit.started(target) as running:
        await running.open(kit.fact("found", "n1", slices=(kit.whole(0),)))
        await running.propose(kit.plan("next", ("next", "n0", (kit.whole(3),))))
        assert running.states()["next"] == "pending"
    assert prove(target, through=made.head).faults == []
    made_anew = create_engine(target, poolclass=NullPool)
    with pytest.raises(DBAPIError, match=r"append-only"), made_anew.begin() as connection:
        connection.execute(text("DELETE FROM audit"))
    made_anew.dispose()


async def test_a_backup_beside_a_ledger_that_writes_is_of_one_moment(kit: Kit, database_url: str, tmp_path: Path) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        written: list[str] = []

        async def work() -> None:
            while True:
                pod = f"pod{len(written)}"
                await running.propose(kit.plan(f"of-{pod}", (pod, "n0", ())))
                written.append(pod)
                await asyncio.sleep(0.002)  # all of it is proven, by a thread that shares the interpreter with this

        writing = asyncio.create_task(work())
        proofs = []
        for i in range(3):
            before = len(written)
            await until(lambda before=before: len(written) > before)  # type: ignore[misc]
            proofs.append(await asyncio.to_thread(backup, database_url, tmp_path / f"b{i}.db"))
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
    assert [proof.faults for proof in proofs] == [[], [], []]
    assert [proof.records for proof in proofs] == sorted(proof.records for proof in proofs), "each is of a later moment"


async def test_nothing_is_restored_under_a_ledger_that_runs(kit: Kit, database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    async with kit.started(database_url) as running:
        await running.open()
        await asyncio.to_thread(backup, database_url, file)
        await running.propose(kit.plan("p", ("pod", "n0", ())))
        with pytest.raises(Unavailable, match=r"another process|a quota-ledger is connected"):
            await asyncio.to_thread(restore, file, database_url, overwrite=True)
        assert running.states() == {"pod": "pending"}
    assert prove(database_url).faults == []


def test_a_file_that_somebody_has_open_without_our_lock_is_left_alone(kit: Kit, tmp_path: Path) -> None:
    """A ledger with leader election holds no lock on its file."""
    database, file = tmp_path / "ledger.db", tmp_path / "backup.db"
    asyncio.run(history(kit, address(database)))
    backup(address(database), file)
    with closing(sqlite3.connect(database)) as other:
        other.execute("SELECT count(*) FROM claims").fetchone()
        with pytest.raises(Unavailable, match=r"has .* open"):
            restore(file, address(database))
    assert restore(file, address(database)).kept is not None


async def test_what_was_there_is_kept_also_where_it_is_broken(kit: Kit, tmp_path: Path) -> None:
    database, file = tmp_path / "ledger.db", tmp_path / "backup.db"
    await history(kit, address(database))
    backup(address(database), file)
    kept = restore(file, address(database)).kept
    assert kept is not None
    assert prove(address(kept)).records == 11
    kept.unlink()
    database.write_bytes(b"broken" * 1000)
    kept = restore(file, address(database)).kept
    assert kept is not None
    assert kept.read_bytes().startswith(b"broken")
    assert database.stat().st_mode & 0o777 == 0o600
    kept.unlink()
    database.unlink()
    assert restore(file, address(database)).kept is None
    assert prove(address(database)).faults == []


async def test_postgresql_gives_up_a_ledger_by_name_alone(kit: Kit, postgres: PostgresServer, tmp_path: Path) -> None:
    url, file = postgres.empty_database(), tmp_path / "backup.db"
    await history(kit, url)
    backup(url, file)
    with pytest.raises(InvalidRequest, match="holds a ledger"):
        restore(file, url)
    before = rows(url)
    assert restore(file, url, overwrite=True).kept is None
    assert rows(url) == before


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _scribbled(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 4096] = b"x" * 4096
    file.write_bytes(raw)


def _forged(file: Path) -> None:
    tamper(address(file), "UPDATE accounts SET posted = posted + 1")


def _edited(file: Path) -> None:
    tamper(address(file), "UPDATE audit SET actor = 'somebody' WHERE seq = 3")


def _newer(file: Path) -> None:
    tamper(address(file), "UPDATE alembic_version SET version_num = '9999'")
    tamper(address(file), "UPDATE schema_reach SET oldest = '9999'")


def _text(file: Path) -> None:
    file.write_text("-- PostgreSQL database dump\n")


def _another(file: Path) -> None:
    file.unlink(missing_ok=True)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE mine (a)")


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (_cut, "damaged"),
        (_scribbled, "damaged"),
        (_forged, "does not prove itself"),
        (_edited, "does not prove itself: .*record 3"),
        (_newer, "has schema 9999"),
        (_text, "is no backup"),
        (_another, "is no backup"),
        (Path.unlink, "no such file"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
async def test_a_backup_that_is_none_changes_nothing(kit: Kit, tmp_path: Path, harm: Callable[[Path], None], says: str) -> None:
    database, file = tmp_path / "ledger.db", tmp_path / "backup.db"
    await history(kit, address(database))
    backup(address(database), file)
    harm(file)
    before = database.read_bytes()
    with pytest.raises((InvalidRequest, NotFound), match=says):
        restore(file, address(database))
    assert database.read_bytes() == before
    assert not [path for path in _beside(database) if "restoring" in path.name]


async def test_a_backup_of_an_older_schema_is_brought_to_ours(kit: Kit, tmp_path: Path) -> None:
    """Schema 11 has no card names, claims on volumes, segments or oldest program; an older one is refused unchanged."""
    database, file = tmp_path / "ledger.db", tmp_path / "backup.db"
    await history(kit, address(database))
    backup(address(database), file)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("ALTER TABLE claims DROP COLUMN volume_claims")
        connection.execute("ALTER TABLE ledger DROP COLUMN commits")
        for newer in ("card_names", "schema_reach", "segments", "segment_contents"):
            connection.execute(f"DROP TABLE {newer}")
        connection.execute("UPDATE alembic_version SET version_num = '0009'")
    with pytest.raises(InvalidRequest, match="its schema 0009 is older than 0011"):
        restore(file, address(database))
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0011'")
    assert restore(file, address(database)).proof.faults == []
    assert len(rows(address(database))["claims"]) == 4


async def test_a_database_that_is_none_of_ours_gives_no_backup(tmp_path: Path, kit: Kit) -> None:
    file = tmp_path / "backup.db"
    for url in (address(tmp_path / "none.db"), "mysql://a/b"):
        with pytest.raises(HBoxError):
            backup(url, file)
    _another(tmp_path / "mine.db")
    with pytest.raises(InvalidRequest):
        backup(address(tmp_path / "mine.db"), file)
    await history(kit, address(tmp_path / "ledger.db"))
    with pytest.raises(InvalidRequest, match="cannot be written"):
        backup(address(tmp_path / "ledger.db"), tmp_path / "none" / "backup.db")
    assert not file.exists()
    assert _beside(file) == []


async def test_no_backup_is_written_over_a_database(kit: Kit, tmp_path: Path) -> None:
    """Neither over the one that it is of, whatever it is called by, nor over one that somebody has open."""
    database, other, name = tmp_path / "ledger.db", tmp_path / "other.db", tmp_path / "name.db"
    await history(kit, address(database))
    name.symlink_to(database)
    node = database.stat().st_ino
    for file in (database, name):
        with pytest.raises(InvalidRequest, match="no place for a backup"):
            backup(address(database), file)
    async with kit.started(address(other)) as running:
        await running.open()
        with pytest.raises(InvalidRequest, match="no place for a backup"):
            await asyncio.to_thread(backup, address(database), other)
    assert database.stat().st_ino == node
    assert name.is_symlink()


async def test_a_backup_with_faults_leaves_the_good_one(kit: Kit, tmp_path: Path) -> None:
    database, file = tmp_path / "ledger.db", tmp_path / "backup.db"
    await history(kit, address(database))
    assert backup(address(database), file).faults == []
    good = file.read_bytes()
    _forged(database)
    assert backup(address(database), file).faults != []
    assert file.read_bytes() == good
    assert prove(address(faulty(file))).faults != []


async def test_a_folder_keeps_the_newest_backups_and_every_valid_one_of_a_faulty_database(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the chart's CronJob calls it, with the database's address in a mounted Secret."""
    database, folder, secrets = tmp_path / "ledger.db", tmp_path / "backups", tmp_path / "secrets"
    await history(kit, address(database))
    for made in (folder, secrets):
        made.mkdir()
    (secrets / "database_url").write_text(address(database) + "\n")
    monkeypatch.setenv("HBOX_SECRETS", str(secrets))
    old = [f"ledger-2026-01-{day:02}T021700Z.db" for day in (1, 2, 3)]
    for name in (*old, "ledger-of-the-move.db", "health-2026-01-01T021700Z.db"):
        (folder / name).write_bytes(b"")

    def hbox(*arguments: str, status: int = 0) -> str:
        result = CliRunner().invoke(command, [*arguments], catch_exceptions=True)
        assert (result.exit_code == 0) == (status == 0), result.output
        return result.output + str(result.exception or "")

    assert f"removed: {folder / old[0]}\nremoved: {folder / old[1]}\n" in hbox(str(folder), "--keep", "2")
    names = {one.name for one in folder.iterdir()}
    assert {old[2], "ledger-of-the-move.db", "health-2026-01-01T021700Z.db"} < names
    assert len(names) == 4
    [new] = names - {old[2], "ledger-of-the-move.db", "health-2026-01-01T021700Z.db"}
    assert prove(address(folder / new)).faults == []
    _forged(database)
    assert "removed" not in hbox(str(folder), "--keep", "1", status=1)
    assert names < {one.name for one in folder.iterdir()}, "a faulty backup replaces none"
    assert "is a folder" in hbox(str(folder), status=1)
    assert "is not a folder" in hbox(str(folder / new), "--keep", "2", status=1)


async def test_a_database_with_a_log_beside_it_is_no_backup(kit: Kit, tmp_path: Path) -> None:
    """Of a machine that died: without the log what was committed last would be gone, and no proof would miss it."""
    database, saved = tmp_path / "ledger.db", tmp_path / "saved.db"
    await history(kit, address(database))
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA user_version=7")
        for end in ("", "-wal"):
            shutil.copyfile(f"{database}{end}", f"{saved}{end}")
    with pytest.raises(InvalidRequest, match=r"its latest writes are in saved\.db-wal") as refusal:
        restore(saved, address(tmp_path / "new.db"))
    assert f"hbox backup NEW --database {address(saved)}" in refusal.value.hint
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("end", [OSError(5, "Input/output error"), KeyboardInterrupt()], ids=["disk", "ctrl-c"])
@pytest.mark.parametrize("at", ["sync", "_kept"])
async def test_a_restore_that_stops_in_the_middle_leaves_what_was_there(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, end: BaseException
) -> None:
    database, file = tmp_path / "ledger.db", tmp_path / "backup.db"
    await history(kit, address(database))
    backup(address(database), file)
    do = getattr(files, at)

    def stopped(path: Path) -> object:
        if at == "_kept":
            do(path)
        raise end

    monkeypatch.setattr(files, at, stopped)
    with pytest.raises((InvalidRequest, KeyboardInterrupt)):
        restore(file, address(database))
    assert prove(address(database)).records == 11


async def test_what_two_restores_of_one_second_keep_is_two_files(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, file = tmp_path / "ledger.db", tmp_path / "backup.db"
    await history(kit, address(database))
    backup(address(database), file)
    database.write_bytes(b"the only copy")
    monkeypatch.setattr("time.strftime", lambda *_: "now")
    first, second = restore(file, address(database)).kept, restore(file, address(database)).kept
    assert first is not None
    assert first.read_bytes() == b"the only copy"
    assert second is not None
    assert second != first


async def test_a_disk_that_is_full_is_the_backups_and_not_the_databases(kit: Kit, tmp_path: Path) -> None:
    database, file = tmp_path / "ledger.db", tmp_path / "backup.db"
    await history(kit, address(database))
    size = database.stat().st_size // 2
    code = (
        "import pathlib, resource, sys\n"
        "from hbox_ledger.adapters.backup import backup\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"
        f"backup({address(database)!r}, pathlib.Path({str(file)!r}))\n"
    )
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "InvalidRequest: " in done.stderr.splitlines()[-1]
    assert "backup.db.part cannot be written" in done.stderr.splitlines()[-1]
    assert _beside(file) == []
    files.new_file(file)
    with pytest.raises(InvalidRequest, match=r"backup\.db cannot be written: .*full"):
        _fill(file)


def _fill(file: Path) -> None:
    """With what comes from PostgreSQL, beyond what the disk has room for."""
    with files.writing(file, tables.metadata, tables.VERSIONS) as rows_of_postgresql:
        rows_of_postgresql.exec_driver_sql("PRAGMA max_page_count=1")
        rows_of_postgresql.exec_driver_sql("CREATE TABLE more AS SELECT randomblob(99999) AS much")


STOPPED = """
import os, signal, sys
from hbox_cli.__main__ import main
from hbox_ledger.adapters import backup
sent = signal.Signals[sys.argv.pop()]
# As at a terminal, also where the tests run under `nohup` or behind a shell's `&`, which have it ignored.
signal.signal(sent, signal.default_int_handler if sent == signal.SIGINT else signal.SIG_DFL)
prove = backup.prove
def stopped(*args):
    os.kill(os.getpid(), sent)
    return prove(*args)
backup.prove = stopped
main()
"""


@pytest.mark.parametrize("sent", ["SIGTERM", "SIGHUP", "SIGINT"])
@pytest.mark.parametrize("command", ["backup", "restore"])
async def test_a_command_that_is_stopped_leaves_no_copy_of_the_books(kit: Kit, tmp_path: Path, command: str, sent: str) -> None:
    """Which have the key of the claims in them."""
    database, file = tmp_path / "ledger.db", tmp_path / "backup.db"
    await history(kit, address(database))
    if command == "restore":
        backup(address(database), file)
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", STOPPED, command, str(file), "--database", address(database), sent],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130, done.stderr
    assert [
        path.name for path in (*_beside(file), *_beside(database)) if ".part" in path.name or ".restoring" in path.name
    ] == []


async def test_a_folder_may_have_a_hash_in_its_name(kit: Kit, tmp_path: Path) -> None:
    folder = tmp_path / "a#b"
    folder.mkdir()
    await history(kit, address(folder / "ledger.db"))
    assert backup(address(folder / "ledger.db"), tmp_path / "backup.db").records == 11
