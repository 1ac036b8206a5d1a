"""A ledger of before, brought to today's schema: all of it is there, and a migration that dies at any statement is taken up again. And a ledger of today beside
one of a later version, whose migration only adds."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, MetaData, create_engine, event, text

from hbox_common.errors import InvalidRequest
from hbox_common.model import DEFAULT_QUEUE, Epoch
from hbox_common.store.engine import engine as engine_of
from hbox_common.store.engine import parse
from hbox_common.store.schema import migrate, newest
from hbox_ledger.adapters import tables as t
from hbox_ledger.adapters.audit import prove
from hbox_ledger.core.chain import GENESIS, Record, chained

from .conftest import Kit

PODS = 3
CLAIM = {
    "namespace": "ml", "job": "j", "plan": "", "queue": "default", "priority": 0, "node": "n0", "slots": "-1", "state": "posted", "reason": "",
    "generation": 1, "intent": "none", "intent_reason": "", "resource_version": "", "deadline": 0.0, "forced": True, "traceparent": "",
    "changed_at": 10.0, "requests": json.dumps({"nvidia.com/gpu": 1}),
}  # fmt: skip


class Died(Exception):
    pass


@pytest.fixture
def old(empty_database: Callable[[], str], tmp_path: Path) -> str:
    """A database of the second schema with three pods on three cards, their transfers and their chain."""
    versions = tmp_path / "versions"
    versions.mkdir()
    for version in ("0001_initial.py", "0002_standing.py"):
        shutil.copy(t.VERSIONS / version, versions)
    database_url = empty_database()
    engine = create_engine(database_url)
    with engine.connect() as connection:
        migrate(connection, MetaData(), versions)
        fill(connection, {f"c{i}": (f"pod{i}", i) for i in range(PODS)})
        connection.commit()
    engine.dispose()
    return database_url


def fill(connection: Connection, claims: Mapping[str, tuple[str, int]], **ledger: object) -> None:
    """Rows of an older ledger: by claim its pod, and the index of the card that the pod has on n0."""

    def put(table: str, **row: object) -> None:
        statement = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})"
        connection.execute(text(statement), row)

    put("ledger", id=1, epoch=7, idx=len(claims), **ledger)
    put("accounts", queue="default", resource="nvidia.com/gpu", pending=0, posted=len(claims))
    hash = GENESIS
    for i, (claim, (pod, card)) in enumerate(claims.items()):
        put("claims", id=claim, pod_uid=pod, pod=pod, slices=f"{card}:100:40960", **CLAIM)
        account = {"cores": 100, "memory_mib": 40_960, "pods": 1, "whole": 1, "forced": 1, "size_mib": 40_960, "shares": 4}
        put("card_accounts", node="n0", card=card, **account)
        move = {"queue": "default", "resource": "nvidia.com/gpu", "debit": "free", "credit": "posted", "amount": 1}
        put("transfers", seq=i + 1, epoch=7, idx=i + 1, at=10.0, **move)
        record = Record(Epoch(7), 10.0, "reconciler", claim, "none->posted", "found")
        hash = chained(hash, i + 1, record)
        said = {"actor": record.actor, "subject": record.subject, "change": record.change, "cause": record.cause}
        put("audit", seq=i + 1, epoch=7, at=10.0, hash=hash, **said)


@contextmanager
def dying(engine: Engine, after: int) -> Iterator[list[str]]:
    """Statements that change something are counted; the one after so many is the last that anybody hears of."""
    changed: list[str] = []

    def execute(connection: object, cursor: object, statement: str, *_: object) -> None:
        if statement.split(maxsplit=1)[0] in ("ALTER", "CREATE", "UPDATE", "INSERT"):
            if len(changed) == after:
                raise Died
            changed.append(statement)

    event.listen(engine, "before_cursor_execute", execute)
    yield changed
    event.remove(engine, "before_cursor_execute", execute)


async def test_an_old_ledger_goes_on_with_its_claims_and_its_chain(kit: Kit, old: str) -> None:
    async with kit.started(old) as running:
        assert set(running.states()) == {f"pod{i}" for i in range(PODS)}
        assert running.ledger.state.borrowed == {DEFAULT_QUEUE: {"nvidia.com/gpu": PODS}}
        running.clock[0] += 100
        [(account, amounts)] = await running.views.used(["queue", "model"], since=0, until=2**40)
        assert (account.model, amounts.borrowed) == ("unknown", PODS * 100 * 1000)
    proof = prove(old)
    assert proof.faults == []
    assert proof.records == 2 * PODS + 1, "including the card names from the node's state"
    with engine_of(parse(old)).connect() as connection:
        names = connection.execute(text("SELECT number, card FROM card_names ORDER BY number")).all()
    assert [number for number, _ in names] == list(range(PODS))
    assert all(card.startswith("gpu:") for _, card in names)


def test_a_migration_that_dies_at_any_statement_is_taken_up_again(old: str) -> None:
    engine = engine_of(parse(old))
    for died_after in range(100):
        with dying(engine, died_after) as changed, engine.connect() as connection:
            try:
                migrate(connection, t.metadata, t.VERSIONS)
            except Died:
                continue
        assert 0 < len(changed) <= died_after, "what an earlier one had finished is not done again"
        assert died_after > 5
        break
    engine.dispose()
    assert prove(old).faults == ["queue default, nvidia.com/gpu: 0 borrowed in its account, 3 by its claims and rules"]


LATER = f"{int(newest(t.VERSIONS)) + 1:04}"
MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "{later}", "{before}", None, None
{says}


def upgrade() -> None:
    op.add_column("claims", sa.Column("purpose", sa.Text(), nullable=False, server_default=""))
    op.create_table("purposes", sa.Column("name", sa.Text(), primary_key=True))
"""


@pytest.fixture(params=["works_with", ""])
def upgraded(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Callable[[], bool]:
    """Brings the database to the schema of a version to come. Returns whether that says that today's goes on beside it."""

    def upgrade() -> bool:
        versions = tmp_path / "later"
        shutil.copytree(t.VERSIONS, versions)
        before = newest(t.VERSIONS)
        says = f'works_with = "{before}"' if request.param else ""
        (versions / f"{LATER}_purposes.py").write_text(MIGRATION.format(later=LATER, before=before, says=says))
        engine = engine_of(parse(database_url))
        with engine.connect() as connection:
            migrate(connection, t.metadata, versions)
        engine.dispose()
        return bool(request.param)

    return upgrade


async def test_a_ledger_goes_on_beside_a_later_schema_that_has_room_for_it(
    kit: Kit, database_url: str, upgraded: Callable[[], bool]
) -> None:
    """An upgrade while it runs, and the rollback after it: what it writes before, meanwhile and then is one history."""
    async with kit.started(database_url) as running:
        await running.open()
        await running.propose(kit.plan("before", ("a", "n0", (kit.whole(0),))))
        goes_on = upgraded()
        await running.propose(kit.plan("meanwhile", ("b", "n0", (kit.whole(1),))))
    if not goes_on:
        with pytest.raises(InvalidRequest, match=f"schema {LATER} is not known to this version"):
            async with kit.started(database_url):
                pass
        return
    async with kit.started(database_url) as running:
        await running.open()
        await running.propose(kit.plan("then", ("c", "n0", (kit.whole(2),))))
        assert set(running.states()) == {"a", "b", "c"}
    assert prove(database_url).faults == []
