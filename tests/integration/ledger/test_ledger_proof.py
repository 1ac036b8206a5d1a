"""What was changed behind the ledger's back is found by replaying its database, and named."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import create_engine, inspect, text

from hbox_common.errors import Bug, InvalidRequest, NotFound
from hbox_common.model import NodeName, PodPhase, PodUid
from hbox_ledger.adapters.audit import Proof, prove
from hbox_ledger.core.chain import GENESIS, Mark, Record, chained

from ... import forked
from .conftest import Kit

TRIGGERS = ("no_update", "no_delete", "no_replace", "append_only", "no_truncate")


async def history(kit: Kit, url: str) -> Proof:
    """Of two epochs: a pod that ended, one that is pending, one that runs, one that was found. Returns what is proven of it."""
    async with kit.started(url) as first:
        await first.open()
        await first.propose(*(kit.plan(f"p{i}", (f"pod{i}", "n0", (kit.whole(i),))) for i in range(3)))
        await first.see("x", kit.fact("pod0", "n0", PodPhase.SUCCEEDED), kit.fact("found", "n1", slices=(kit.whole(0),)))
    async with kit.started(url) as second:
        claim = second.ledger.state.by_pod
        await second.open(*(kit.fact(pod, node, claim=claim[PodUid(pod)]) for pod, node in (("pod1", "n0"), ("found", "n1"))))
        await second.propose(kit.plan("p3", ("pod3", "n0", (kit.whole(3),))))
    return prove(url)


def tamper(url: str, *statements: str) -> None:
    """As somebody with all rights on the database."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for table in ("audit", "transfers"):
            for trigger in TRIGGERS:
                on = "" if engine.dialect.name == "sqlite" else f" ON {table}"
                connection.execute(text(f"DROP TRIGGER IF EXISTS {table}_{trigger}{on}"))
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


async def test_a_ledger_that_nobody_touched_is_proven(kit: Kit, database_url: str) -> None:
    proof = await history(kit, database_url)
    assert proof.faults == []
    assert proof.records == 16
    assert proof.checks > 50
    assert proof.head is not None
    assert prove(database_url, through=proof.head).faults == []


async def test_that_a_node_shrank_and_fits_again_is_no_change_of_a_claim(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open(kit.fact("pod", "n0"))
        whole = running.ledger.state.nodes[NodeName("n0")]
        for node in (replace(whole, allocatable={**whole.allocatable, "cpu": 1}), whole):
            running.ledger.node(node)
            await running.ledger.tick()
    engine = create_engine(database_url)
    with engine.connect() as connection:
        said = connection.execute(text("SELECT change FROM audit WHERE subject = 'node n0' ORDER BY seq")).scalars().all()
    engine.dispose()
    assert said == ["overbooked", "fits"]
    assert prove(database_url).faults == []


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE audit SET cause = 'nothing' WHERE seq = 4", "audit record 4 is not what was written"),
        ("UPDATE audit SET at = at + 1 WHERE seq = 5", "audit record 5 is not what was written"),
        ("UPDATE audit SET actor = 'scheduler-core' || 'x' WHERE seq = 3", "audit record 3 is not what was written"),
        ("DELETE FROM audit WHERE seq = 6", "audit record 6 is missing: record 7 comes after 5"),
        ("DELETE FROM audit WHERE seq < 3", "audit record 1 is missing: record 3 comes after 0"),
    ],
)
async def test_the_first_record_that_was_changed_or_left_out_is_named(
    kit: Kit, database_url: str, statement: str, said: str
) -> None:
    await history(kit, database_url)
    tamper(database_url, statement)
    [fault, *others] = prove(database_url).faults
    assert fault.startswith(said)
    assert others == []


async def test_an_end_that_was_cut_off_is_seen_by_the_count_of_the_epoch(kit: Kit, database_url: str) -> None:
    await history(kit, database_url)
    tamper(database_url, "DELETE FROM audit WHERE seq = 16")
    faults = prove(database_url).faults
    assert "the audit trail has 1 claim changes in epoch " in faults[0]
    assert any("is pending, and void by the audit" in fault for fault in faults)


async def test_a_history_that_was_written_anew_does_not_go_through_the_head_that_was_kept(kit: Kit, database_url: str) -> None:
    proof = await history(kit, database_url)
    engine = create_engine(database_url)
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT * FROM audit ORDER BY seq")).mappings().all()
    engine.dispose()
    head, statements = GENESIS, []
    for row in rows:
        cause = "as it should have been" if "->" in row["change"] else row["cause"]
        head = chained(
            head, row["seq"], Record(row["epoch"], row["at"], row["actor"], row["subject"], row["change"], cause, row["entry"])
        )
        binary = f"X'{head.hex()}'" if engine.dialect.name == "sqlite" else f"decode('{head.hex()}', 'hex')"
        statements.append(f"UPDATE audit SET cause = '{cause}', hash = {binary} WHERE seq = {row['seq']}")
    tamper(database_url, *statements)
    assert prove(database_url).faults == []
    [fault] = prove(database_url, through=proof.head).faults
    assert fault.startswith("audit record 16 is another than that of 16:")


async def test_a_head_of_records_that_are_not_there_any_more_is_a_fault(kit: Kit, database_url: str) -> None:
    await history(kit, database_url)
    [fault] = prove(database_url, through=Mark(99, GENESIS)).faults
    assert fault == "the audit ends with record 16, and record 99 was there"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE accounts SET posted = posted + 1 WHERE resource = 'nvidia.com/gpu'", "1 by its transfers"),
        ("DELETE FROM transfers WHERE seq = 2", "transfer 2 is missing: transfer 3 comes after 1"),
        ("UPDATE card_accounts SET cores = 0 WHERE node = 'n0' AND card = 1", "node n0 card 1: 0 cores in its account, 100 by its claims"),
        ("UPDATE accounts SET borrowed = 2 WHERE resource = 'nvidia.com/gpu'", "2 borrowed in its account, 3 by its claims and rules"),
        ("UPDATE claims SET node = 'n1' WHERE pod = 'pod2'", "holds ['default', 'n1', "),
        ("UPDATE claims SET state = 'void' WHERE pod = 'pod1'", "is void, and posted by the audit"),
    ],
)  # fmt: skip
async def test_sums_that_history_does_not_give_are_faults(kit: Kit, database_url: str, statement: str, said: str) -> None:
    await history(kit, database_url)
    tamper(database_url, statement)
    assert any(said in fault for fault in prove(database_url).faults)


async def test_a_ledger_that_goes_on_can_be_proven_meanwhile(kit: Kit, database_url: str) -> None:
    async with kit.started(database_url) as running:
        await running.open()
        for i in range(5):
            await running.propose(kit.plan(f"p{i}", (f"pod{i}", "n0", ())))
            assert prove(database_url).faults == []


async def test_history_cannot_be_replaced_or_emptied_either(kit: Kit, database_url: str) -> None:
    forbidden = (
        "INSERT OR REPLACE INTO audit SELECT seq, epoch, 0, actor, subject, change, cause, hash, entry FROM audit WHERE seq = 1"
        if database_url.startswith("sqlite")
        else "TRUNCATE audit"
    )
    async with kit.started(database_url) as running:
        await running.open()
        with pytest.raises(Bug, match="append-only"):
            await running.store.write(lambda c: c.execute(text(forbidden)))


def test_a_database_that_is_no_ledgers_is_told(
    empty_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    database_url = empty_database()
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE something (x INTEGER)"))
    with pytest.raises(InvalidRequest, match="its schema is none of ours"):
        prove(database_url)
    assert inspect(engine).get_table_names() == ["something"]
    engine.dispose()
    with pytest.raises(NotFound, match="no such file"):
        prove(f"sqlite:///{tmp_path_factory.mktemp('none')}/ledger.db")


async def test_the_command_prints_the_head_and_names_the_broken_record_with_status_1(kit: Kit, database_url: str) -> None:
    proof = await history(kit, database_url)

    def hbox(*words: str) -> subprocess.CompletedProcess[str]:
        return forked.run("audit", "--ledger", "--database", database_url, *words, timeout_s=60, env=os.environ)

    good = hbox()
    assert (good.returncode, good.stdout.splitlines()[1]) == (0, f"head: {proof.head}")
    assert json.loads(hbox("--head", str(proof.head), "-o", "json").stdout)["head"] == str(proof.head)
    assert "NUMBER:HASH" in hbox("--head", "11").stderr
    tamper(database_url, "UPDATE audit SET actor = 'binder' WHERE seq = 3")
    bad = hbox()
    assert bad.returncode == 1
    assert bad.stdout.startswith("fault: audit record 3 is not what was written")
