"""Sealed segments of the audit and of the transfers: sealing, and what `hbox audit --ledger` finds wrong with them."""

import asyncio
import hashlib
import json
import lzma
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from hbox_common.errors import Bug, InvalidRequest
from hbox_common.model import PodPhase, PodUid
from hbox_ledger import ledger
from hbox_ledger.adapters import audit
from hbox_ledger.adapters.backup import backup, restore
from hbox_ledger.adapters.export import export
from hbox_ledger.adapters.segments import file_of
from hbox_ledger.core import segments

from ... import forked
from .conftest import Kit, Running
from .failpoints import points
from .test_ledger_failpoints import EACH
from .test_ledger_proof import TRIGGERS

RECORDS = 8


@pytest.fixture(autouse=True)
def _short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "RECORDS", RECORDS)
    monkeypatch.setattr(segments, "MOST_TRANSFERS", 8 * RECORDS)


async def lives(kit: Kit, running: Running, first: int, count: int) -> None:
    """Pods that are placed and end, one after the other: four audit records each."""
    await running.open(*(kit.fact(str(pod), "n0", claim=claim) for pod, claim in running.ledger.state.by_pod.items()))
    for i in range(first, first + count):
        await running.propose(kit.plan(f"p{i}", (f"pod{i}", "n0", (kit.whole(i % 4),))))
        await running.see(f"runs{i}", kit.fact(f"pod{i}", "n0", claim=running.ledger.state.by_pod[PodUid(f"pod{i}")]))
        await running.see(f"ends{i}", kit.fact(f"pod{i}", "n0", PodPhase.SUCCEEDED))
        running.clock[0] += 10


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    engine = create_engine(url)
    with engine.connect() as connection:
        found = [tuple(row) for row in connection.execute(text(query))]
    engine.dispose()
    return found


def tamper(url: str, *statements: str) -> None:
    """As an administrator of the database."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for table in ("audit", "transfers", "segments", "segment_contents"):
            for trigger in TRIGGERS:
                on = "" if engine.dialect.name == "sqlite" else f" ON {table}"
                connection.execute(text(f"DROP TRIGGER IF EXISTS {table}_{trigger}{on}"))
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


async def test_old_history_is_sealed_and_the_audit_follows_it(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await lives(kit, running, 0, 12)
        before = audit.prove(database_url)
        heads = dict(rows(database_url, "SELECT seq, hash FROM audit"))
        kept = rows(database_url, "SELECT seq FROM transfers ORDER BY seq")
        sealed = await running.ledger.seal(before=running.clock[0] - 40, most=0)
    assert sealed >= 3
    after = audit.prove(database_url)
    assert (before.faults, after.faults) == ([], [])
    assert after.segments == sealed
    assert 0 <= after.records - (before.records + sealed) <= 1, "each segment adds a record to the chain"
    [(first, first_at)] = rows(database_url, "SELECT seq, at FROM audit ORDER BY seq LIMIT 1")
    assert first == sealed * RECORDS + 1
    assert first_at <= running.clock[0] - 40 + 20
    left = rows(database_url, "SELECT seq FROM transfers ORDER BY seq")
    assert left == kept[-len(left) :]
    assert 0 < len(left) < len(kept) / 2
    for number, head in rows(database_url, "SELECT number, head FROM segments ORDER BY number"):
        assert bytes(head) == bytes(heads[number * RECORDS])


async def test_the_first_record_of_a_segment_has_the_head_of_the_one_before(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await lives(kit, running, 0, 6)
    heads = {seq: bytes(hash).hex() for seq, hash in rows(database_url, "SELECT seq, hash FROM audit")}
    begins = rows(database_url, "SELECT seq, cause FROM audit WHERE change = 'begins' ORDER BY seq")
    assert [seq for seq, _ in begins] == [seq for seq in heads if seq > 1 and seq % RECORDS == 1]
    assert begins
    for seq, cause in begins:
        assert cause.startswith(f"after {seq - 1}:{heads[seq - 1]}, transfer ")


async def test_a_segment_is_a_file_of_lines_whose_sum_is_in_the_audit(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await lives(kit, running, 0, 6)
        records = rows(database_url, "SELECT epoch, at, actor, subject, change, cause, entry FROM audit ORDER BY seq")
        await running.ledger.seal(before=running.clock[0], most=0)
    [(content,)] = rows(database_url, "SELECT content FROM segment_contents WHERE number = 1")
    [(cause,)] = rows(database_url, "SELECT cause FROM audit WHERE change = 'sealed' ORDER BY seq LIMIT 1") or [("",)]
    header, *lines = map(json.loads, lzma.decompress(bytes(content)).decode().splitlines())
    assert (header["segment"], header["first_record"], header["last_record"]) == (1, 1, RECORDS)
    assert lines[:RECORDS] == [list(row) for row in records[:RECORDS]]
    digests = rows(database_url, "SELECT digest FROM segments WHERE number = 1")
    assert bytes(digests[0][0]) == hashlib.sha256(bytes(content)).digest()
    assert "sha256 " in cause


async def test_a_number_of_records_is_a_limit_as_well(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await lives(kit, running, 0, 12)
        assert await running.ledger.seal(before=0.0, most=0) == 0
        assert await running.ledger.seal(before=0.0, most=2 * RECORDS) > 0
        [(count,)] = rows(database_url, "SELECT count(*) FROM audit")
        assert count <= 3 * RECORDS
        assert await running.ledger.seal(before=0.0, most=2 * RECORDS) == 0
    assert audit.prove(database_url).faults == []


async def test_the_ledger_continues_after_sealing_and_after_a_restart(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await lives(kit, running, 0, 12)
        await running.propose(kit.plan("stays", ("stays", "n1", (kit.whole(0),))))
        await running.ledger.seal(before=running.clock[0] + 1, most=0)
        await lives(kit, running, 12, 3)
    async with kit.started(database_url, now=2000.0) as running:
        assert running.states() == {"stays": "posted"}
        await lives(kit, running, 15, 6)
        await running.ledger.seal(before=running.clock[0] + 1, most=0)
        head = audit.prove(database_url).head
    proof = audit.prove(database_url, through=head)
    assert proof.faults == []
    [(last,)] = rows(database_url, "SELECT max(seq) FROM audit")
    [(segments_,)] = rows(database_url, "SELECT count(*) FROM segments")
    assert proof.records == last
    assert segments_ == proof.segments > 5


async def test_only_sealed_rows_may_be_deleted(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await lives(kit, running, 0, 12)
        await running.ledger.seal(before=running.clock[0], most=2 * RECORDS)
        for table in ("audit", "transfers"):
            with pytest.raises(Bug, match="append-only"):
                await running.store.write(lambda c, table=table: c.execute(text(f"DELETE FROM {table}")))  # type: ignore[misc]
        for statement in (
            "UPDATE segments SET size = 0",
            "DELETE FROM segments WHERE number = 1",
            "UPDATE segment_contents SET number = 99",
        ):
            with pytest.raises(Bug, match=r"append-only|is not changed"):
                await running.store.write(lambda c, s=statement: c.execute(text(s)))  # type: ignore[misc]
    assert audit.prove(database_url).faults == []


SWAP = (
    "UPDATE segment_contents SET number = -1 WHERE number = 2",
    "UPDATE segment_contents SET number = 2 WHERE number = 3",
    "UPDATE segment_contents SET number = 3 WHERE number = -1",
)


@pytest.mark.parametrize(
    ("statements", "found"),
    [
        (["DELETE FROM segments WHERE number = 2"], ["segment 2 is missing: segment 3 comes after 1"]),
        (["DELETE FROM segment_contents WHERE number = 2"], ["segment 2: its content is missing"]),
        (SWAP, ["segment 2 has the content of segment 3", "segment 3 has the content of segment 2"]),
        (
            ["UPDATE segments SET digest = head WHERE number = 2"],
            ["segment 2 was altered: its content is not the one that was sealed"],
        ),
        (
            ["UPDATE segments SET last_transfer = last_transfer - 1 WHERE number = 2"],
            ["segment 2 was altered: its content is not the one that was sealed"],
        ),
        (["UPDATE segment_contents SET content = (SELECT head FROM segments WHERE number = 1) WHERE number = 3"], ["segment 3 was altered: it cannot be read"]),
    ],
)  # fmt: skip
async def test_a_segment_that_is_missing_altered_or_in_anothers_place_is_named(
    kit: Kit, database_url: str, statements: list[str], found: list[str]
) -> None:
    async with kit.started(database_url) as running:
        await lives(kit, running, 0, 12)
        await running.ledger.seal(before=running.clock[0] - 10, most=0)
    tamper(database_url, *statements)
    faults = audit.prove(database_url).faults
    assert len(faults) == len(found)
    for fault, beginning in zip(faults, found, strict=True):
        assert fault.startswith(beginning)


async def test_a_segment_that_was_written_anew_contradicts_its_digest_in_the_audit(kit: Kit, database_url: str) -> None:
    """Transfers are not in the chain themselves: only the digest of their segment is."""
    async with kit.started(database_url) as running:
        await lives(kit, running, 0, 12)
        await running.ledger.seal(before=running.clock[0] - 10, most=0)
    [(content,)] = rows(database_url, "SELECT content FROM segment_contents WHERE number = 2")
    header, records, moves = segments.unpack(bytes(content))
    forged = segments.pack(header, records, [move._replace(queue="other") for move in moves])
    engine = create_engine(database_url)
    tamper(database_url)
    with engine.begin() as connection:
        values = {"content": forged, "digest": segments.digest_of(forged), "size": len(forged)}
        connection.execute(text("UPDATE segment_contents SET content = :content WHERE number = 2"), values)
        connection.execute(text("UPDATE segments SET digest = :digest, size = :size WHERE number = 2"), values)
    engine.dispose()
    assert "segment 2 was altered: the audit has another digest of it" in audit.prove(database_url).faults


async def test_rows_that_are_sealed_and_not_deleted_yet_have_to_equal_the_sealed_ones(
    kit: Kit, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kit.started(database_url) as running:
        await lives(kit, running, 0, 12)
        trim = running.ledger._trim
        calls = iter((trim,))

        async def dies_at_the_second() -> None:
            await next(calls)()

        monkeypatch.setattr(running.ledger, "_trim", dies_at_the_second)
        with pytest.raises(RuntimeError):
            await running.ledger.seal(before=running.clock[0] - 10, most=0)
    assert audit.prove(database_url).faults == []
    tamper(
        database_url,
        "UPDATE audit SET hash = (SELECT hash FROM audit WHERE seq = 3) WHERE seq = 2",
        "UPDATE transfers SET amount = 7 WHERE seq = 1",
    )
    assert audit.prove(database_url).faults == [
        "transfer 1 is not the one that was sealed",
        "audit record 2 is not the one that was sealed",
    ]


async def sealed_history(kit: Kit, url: str) -> audit.Proof:
    """Of twelve pods that ended and one that runs, most of it sealed. Returns what is proven of it."""
    async with kit.started(url) as running:
        await running.open()
        await running.propose(kit.plan("stays", ("stays", "n1", (kit.whole(0),))))
        await lives(kit, running, 0, 12)
        await running.ledger.seal(before=running.clock[0] - 10, most=0)
    return audit.prove(url)


async def test_exported_segments_may_be_removed_and_are_verified_from_their_files(
    kit: Kit, database_url: str, tmp_path: Path
) -> None:
    before = await sealed_history(kit, database_url)
    folder = tmp_path / "history"
    done = export(database_url, folder)
    assert (done.written, done.files, done.removed) == (before.segments, before.segments, 0)
    done = export(database_url, folder, removes=True)
    assert (done.written, done.files, done.removed) == (0, before.segments, before.segments)
    assert rows(database_url, "SELECT count(*) FROM segment_contents") == [(0,)]
    whole = audit.prove(database_url, folder=folder)
    assert (whole.faults, whole.notes, whole.checks) == ([], [], before.checks)
    without = audit.prove(database_url)
    assert without.faults == []
    assert without.notes[0].startswith(f"segments 1-{before.segments} are not in the database")
    async with kit.started(database_url, now=5000.0) as running:
        await lives(kit, running, 20, 12)
        await running.ledger.seal(before=running.clock[0] - 10, most=0)
    assert audit.prove(database_url).faults == audit.prove(database_url, folder=folder).faults == []


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE claims SET state = 'void' WHERE pod = 'new'", "is void, and pending by the audit"),
        ("UPDATE audit SET cause = 'x' WHERE seq = (SELECT max(seq) FROM audit)", "is not what was written"),
        ("UPDATE accounts SET pending = pending + 1 WHERE resource = 'cpu'", "pending in its account"),
    ],
)
async def test_history_without_its_removed_beginning_is_verified_as_far_as_it_goes(
    kit: Kit, database_url: str, tmp_path: Path, statement: str, found: str
) -> None:
    await sealed_history(kit, database_url)
    export(database_url, tmp_path, removes=True)
    async with kit.started(database_url, now=5000.0) as running:
        await running.propose(kit.plan("new", ("new", "n1", (kit.whole(1),))))
    async with kit.started(database_url, now=6000.0) as running:
        await running.open(kit.fact("stays", "n1", claim=running.ledger.state.by_pod[PodUid("stays")]))
        await running.propose(kit.plan("new", ("new", "n1", (kit.whole(1),))))
    tamper(database_url, statement)
    assert any(found in fault for fault in audit.prove(database_url).faults)


async def test_files_of_another_history_or_altered_ones_are_refused(kit: Kit, database_url: str, tmp_path: Path) -> None:
    await sealed_history(kit, database_url)
    export(database_url, tmp_path)
    file = file_of(tmp_path, 2)
    file.write_bytes(file_of(tmp_path, 3).read_bytes())
    with pytest.raises(InvalidRequest, match="is not segment 2 of this database"):
        export(database_url, tmp_path, removes=True)
    assert rows(database_url, "SELECT count(*) FROM segment_contents") == [(audit.prove(database_url).segments,)]
    tamper(database_url, "DELETE FROM segment_contents")
    [fault] = audit.prove(database_url, folder=tmp_path).faults
    assert fault == "segment 2 has the content of segment 3"


async def test_backups_contain_segments_and_are_restored_with_them(kit: Kit, database_url: str, tmp_path: Path) -> None:
    before = await sealed_history(kit, database_url)
    made = backup(database_url, tmp_path / "backup.db")
    assert (made.faults, made.segments, made.checks) == ([], before.segments, before.checks)
    restored = restore(tmp_path / "backup.db", database_url, overwrite=True)
    assert (restored.proof.faults, restored.proof.head) == ([], before.head)
    async with kit.started(database_url, now=5000.0) as running:
        await lives(kit, running, 20, 12)
        await running.ledger.seal(before=running.clock[0] - 10, most=0)
    after = audit.prove(database_url, through=before.head)
    assert after.faults == []
    assert after.segments > before.segments


async def test_an_unreadable_claim_is_restored_from_a_sealed_record(kit: Kit, database_url: str) -> None:
    await sealed_history(kit, database_url)
    [(first,)] = rows(database_url, "SELECT min(seq) FROM audit")
    assert first > RECORDS, "the record of its creation is sealed"
    tamper(database_url, "UPDATE claims SET requests = '[1, 2]' WHERE pod = 'stays'")
    async with kit.started(database_url, now=5000.0) as running:
        assert running.states() == {"stays": "posted"}
    assert audit.prove(database_url).faults == []
    assert audit.prove(database_url).notes == []


def test_the_command_follows_segments_exports_and_removes_them(kit: Kit, database_url: str, tmp_path: Path) -> None:
    before = asyncio.run(sealed_history(kit, database_url))

    def hbox(*words: str) -> str:
        done = forked.run("audit", "--ledger", "--database", database_url, *words, timeout_s=60, env=os.environ)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert hbox().startswith(f"ledger: {before.records} records, {before.segments} segments, ")
    assert f"{before.segments} removed from the database" in hbox("--export", str(tmp_path / "files"), "--remove")
    assert hbox().startswith(f"note: segments 1-{before.segments} are not in the database")
    assert hbox("--segments", str(tmp_path / "files")).startswith(f"ledger: {before.records} records")


def test_sealing_that_is_killed_before_any_statement_is_completed_by_the_next_ledger(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite: the steps are the same on PostgreSQL."""
    monkeypatch.setattr(ledger, "TRIMMED_SLICE", 5)
    monkeypatch.setattr(ledger, "TRIM_PAUSE_S", 0.0)
    path, made = tmp_path / "ledger.db", tmp_path / "made.db"
    url = f"sqlite:///{path}"

    async def make() -> None:
        async with kit.started(f"sqlite:///{made}") as running:
            await lives(kit, running, 0, 7)

    def fresh() -> None:
        for old in tmp_path.glob("ledger.db*"):
            old.unlink()
        shutil.copyfile(made, path)

    async def seal(arm: Callable[[], None] = lambda: None) -> None:
        async with kit.started(url, now=2000.0) as running:
            arm()
            await running.ledger.seal(before=1e9, most=0)

    asyncio.run(make())
    with closing(sqlite3.connect(made)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    count = 0
    for count in points(seal, fresh=fresh, each=EACH):  # noqa: B007
        assert audit.prove(url).faults == []
        asyncio.run(seal())
        assert audit.prove(url).faults == []
        [(first, last)] = rows(url, "SELECT min(seq), max(seq) FROM audit")
        assert last - first <= RECORDS + 1, "all that can be sealed is sealed, once"
    assert count > 8, "a hook that sees no statements proves nothing"
