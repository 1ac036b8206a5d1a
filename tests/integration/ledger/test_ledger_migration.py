"""Databases of earlier commits under this version's schema: their rows stay, and an interrupted migration is completed. A ledger next to a later version whose
migration only adds. Databases that are too old."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, create_engine, event, text

from hbox_common.errors import InvalidRequest
from hbox_common.model import DEFAULT_QUEUE, Epoch
from hbox_common.store.engine import engine as engine_of
from hbox_common.store.engine import parse
from hbox_common.store.reach import REACH
from hbox_common.store.schema import Schema, migrate, newest
from hbox_ledger.adapters import tables as t
from hbox_ledger.adapters.audit import prove
from hbox_ledger.core.chain import GENESIS, Record, chained

from .conftest import Kit
from .older_schemas import REVISIONS, create

PODS = 3
CLAIM = {
    "namespace": "ml", "job": "j", "plan": "", "queue": "default", "priority": 0, "node": "n0", "slots": "-1", "state": "posted", "reason": "",
    "generation": 1, "intent": "none", "intent_reason": "", "resource_version": "", "deadline": 0.0, "forced": True, "traceparent": "",
    "changed_at": 10.0, "requests": json.dumps({"nvidia.com/gpu": 1}), "cards": json.dumps({"unknown": 1000}),
}  # fmt: skip


class Died(Exception):
    pass


@pytest.fixture(params=REVISIONS)
def old(request: pytest.FixtureRequest, empty_database: Callable[[], str]) -> str:
    """A database of an earlier commit with three pods on three cards, their transfers and their chain."""
    database_url = empty_database()
    engine = create_engine(database_url)
    with engine.connect() as connection:
        create(connection, request.param)
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


@pytest.mark.parametrize("old", REVISIONS[:-1], indirect=True)
def test_a_migration_that_dies_at_any_statement_is_taken_up_again(old: str) -> None:
    engine = engine_of(parse(old))
    for died_after in range(100):
        with dying(engine, died_after) as changed, engine.connect() as connection:
            try:
                migrate(connection, t.metadata, t.VERSIONS)
            except Died:
                continue
        assert 0 < len(changed) <= died_after, "what an earlier one had finished is not done again"
        assert died_after > 2
        break
    engine.dispose()
    assert prove(old).faults == ["queue default, nvidia.com/gpu: 0 borrowed in its account, 3 by its claims and rules"]


def layout(url: str) -> tuple[str | None, str | None, list[str], list[str]]:
    """Revision, oldest supported revision, differences from the tables that the code names, and the triggers."""
    engine = engine_of(parse(url))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_name": lambda name, *_: name != REACH.name})
        schema, differences = Schema.of(connection), [str(one) for one in compare_metadata(context, t.metadata)]
        sqlite = connection.dialect.name == "sqlite"
        triggers = "sqlite_master WHERE type = 'trigger'" if sqlite else "pg_trigger WHERE NOT tgisinternal"
        names = connection.execute(text(f"SELECT {'name' if sqlite else 'tgname'} FROM {triggers} ORDER BY 1")).scalars().all()
    engine.dispose()
    return schema.revision, schema.oldest, differences, [*names]


async def test_a_database_of_an_earlier_commit_gets_the_schema_of_a_new_one(
    kit: Kit, old: str, empty_database: Callable[[], str], request: pytest.FixtureRequest
) -> None:
    async with kit.started(old):
        pass
    adopted = layout(old)
    new = empty_database()
    async with kit.started(new):
        pass
    assert adopted == layout(new)
    assert adopted[:3] == (newest(t.VERSIONS), "0011", []), "programs of a200f6ea, with schema 0011, can use either"


@pytest.mark.parametrize("old", ["0011"], indirect=True)
async def test_a_database_older_than_those_that_are_adopted_is_refused_unchanged(kit: Kit, old: str) -> None:
    engine = create_engine(old)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0010'"))
    before = layout(old)
    with pytest.raises(InvalidRequest, match="its schema 0010 is older than 0011") as refused:
        async with kit.started(old):
            pass
    assert "start a version in between on it once" in str(refused.value.hint)
    assert layout(old) == before
    engine.dispose()


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
