"""A ledger that is killed before every single statement of its transactions and migrations, and what the next one makes of it."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, NullPool, create_engine, select, text

from hbox_common.events import BindOutcome, Victim
from hbox_common.model import NodeName, PodPhase, PodUid, Queue, QueueName
from hbox_common.model.devices import card_id
from hbox_common.store import Store
from hbox_common.store.engine import parse
from hbox_common.store.reach import REACH
from hbox_common.store.schema import newest
from hbox_ledger.adapters import tables as t
from hbox_ledger.core.claimids import claim_id

from .balance import balanced
from .conftest import Kit, Running
from .failpoints import points
from .older_schemas import REVISIONS, create

#: In a plain run they die before every COMMIT and every ninth statement of the others, all of which leave what was there after the last COMMIT.
EACH = 1 if os.environ.get("HBOX_FAILPOINTS") else 9

pytestmark = pytest.mark.timeout(240)


async def work(kit: Kit, running: Running) -> None:
    """A turn of every kind, as messages bring them: repeated by whoever does not know whether they were handled."""
    ledger = running.ledger
    await ledger.set_queues(Queue(QueueName("q"), capability={"cpu": 9000}))
    bound = [kit.fact(p, "n0", claim=ledger.state.by_pod[PodUid(p)]) for p in ("one", "other") if p in running.states()]
    await running.open(*bound)
    victim = Victim(
        claim=claim_id(
            ledger.state.key, kit.plan("p1").id, PodUid("one"), NodeName("n0"), (replace(kit.whole(0), card=card_id("n0-0")),)
        ),
        pod_uid=PodUid("one"),
    )
    await running.propose(
        kit.plan("p1", ("one", "n0", (kit.whole(0),)), ("other", "n0", (kit.whole(1),))),
        kit.plan("p2", ("a", "n1", (kit.whole(0),)), ("b", "n1", ()), job="gang", min_member=2),
        kit.plan("p3", ("late", "n0", (kit.whole(0),))),
    )
    for pod in ("one", "other"):
        if running.states().get(pod) == "pending":
            await running.outcome(f"bound-{pod}", pod, BindOutcome.BOUND)
    urgent = kit.plan("p4", ("urgent", "n0", (kit.whole(0),)))
    await running.propose(urgent.model_copy(update={"victims": (victim,), "priority": 9}))
    await running.see("news", kit.fact("one", "n0", PodPhase.GONE), kit.fact("found", "n1", slices=(kit.whole(3),)))
    running.clock[0] += 61.0
    await ledger.tick()
    await ledger.forget(before=running.clock[0] - 86_400)


def state(connection: Connection) -> dict[str, list[tuple[object, ...]]]:
    """All that has to be the same whenever the ledger died. Answers to what was asked twice are in it, epochs and times are not."""
    questions = {
        "claims": select(t.claims.c.pod_uid, t.claims.c.state, t.claims.c.intent, t.claims.c.node, t.claims.c.slices),
        "answers": select(t.plan_answers.c.plan, t.plan_answers.c.committed, t.plan_answers.c.reason),
        "changes": select(t.audit.c.change).where(t.audit.c.change.like("%->p%") | t.audit.c.change.like("%->v%")),
        "gangs": select(t.gangs.c.job, t.gangs.c.unwinding),
        "queues": select(t.queues.c.name),
    }
    return {name: sorted(map(tuple, connection.execute(question).all())) for name, question in questions.items()}


class Empty:
    """One database with the newest schema, emptied again and again: migrating takes longer than a whole round."""

    def __init__(self, url: str) -> None:
        self.url = url
        asyncio.run(self._migrate())
        self._file = Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else None
        self._bytes = self._file.read_bytes() if self._file else b""

    async def _migrate(self) -> None:
        async with Store.open(self.url, metadata=t.metadata, versions=t.VERSIONS) as store:
            await store.read(lambda _: None)

    def again(self) -> None:
        if self._file is not None:
            for path in self._file.parent.glob(f"{self._file.name}-*"):
                path.unlink()
            self._file.write_bytes(self._bytes)
            return
        engine = create_engine(parse(self.url), poolclass=NullPool)
        with engine.begin() as connection:
            connection.execute(text("SET LOCAL session_replication_role = replica"))  # history has triggers that refuse it
            connection.execute(text(f"TRUNCATE {', '.join(t.metadata.tables)}"))


async def finished(kit: Kit, url: str) -> dict[str, list[tuple[object, ...]]]:
    """A ledger that starts there, hears everything again, and is asked everything again."""
    async with kit.opened(url) as running:
        await running.store.read(balanced)
        await work(kit, running)
        await running.store.read(balanced)
        return await running.store.read(state)


def test_a_ledger_that_is_killed_before_any_statement_leaves_books_that_balance_and_one_answer_to_each_plan(
    kit: Kit, empty_database: Callable[[], str]
) -> None:
    database = Empty(empty_database())
    right = asyncio.run(finished(kit, database.url))
    assert {plan: committed for plan, committed, _ in right["answers"]} == {"p1": True, "p2": True, "p3": False, "p4": True}

    async def act(arm: Callable[[], None]) -> None:
        async with kit.started(database.url) as running:
            arm()
            await work(kit, running)

    count = 0
    for count in points(act, fresh=database.again, each=EACH):  # noqa: B007
        assert asyncio.run(finished(kit, database.url)) == right
    assert count > 18, "a hook that sees no statements proves nothing"


HISTORY = """
INSERT INTO ledger (id, epoch, idx) VALUES (1, 900, 2);
INSERT INTO claims (id, pod_uid, namespace, pod, job, plan, queue, priority, node, requests, slices, slots, state, reason, generation, intent,
    intent_reason, resource_version, deadline, forced, traceparent, changed_at)
  VALUES ('c', 'pod', 'ml', 'pod', 'pod', 'p', 'default', 0, 'n0', '{"cpu": 1000}', '0:100:40960', '0', 'posted', '', 1, 'none', '', '1', 0,
    false, '', 1);
INSERT INTO card_slots VALUES ('c', 0, 'n0', 0, true);
INSERT INTO card_accounts VALUES ('n0', 0, 100, 40960, 1, 1, 0, 40960, 4);
INSERT INTO accounts (queue, resource, pending, posted) VALUES ('default', 'cpu', 0, 1000);
INSERT INTO transfers VALUES (1, 900, 1, 1, 'default', 'cpu', 'free', 'pending', 1000), (2, 900, 2, 1, 'default', 'cpu', 'pending', 'posted', 1000);
INSERT INTO queues (name, phase, capability, weight, priority, gone) VALUES ('q', 'Open', '{"cpu": 5}', 1, 0, false);
INSERT INTO plan_answers VALUES ('p', 's', 'pod', true, NULL, '', 0, 1);
"""


def test_a_migration_that_is_killed_before_any_statement_is_finished_by_the_next_start(
    kit: Kit, empty_database: Callable[[], str]
) -> None:
    """From the oldest schema that is adopted, with books in it, to the newest."""
    url = ""

    async def made() -> None:
        nonlocal url
        url = empty_database()
        engine = create_engine(parse(url), poolclass=NullPool)
        with engine.begin() as connection:
            create(connection, REVISIONS[0])
        with engine.begin() as connection:
            for statement in HISTORY.split(";")[:-1]:
                connection.exec_driver_sql(statement)

    async def act(arm: Callable[[], None]) -> None:
        arm()
        async with Store.open(url, metadata=t.metadata, versions=t.VERSIONS) as store:
            await store.read(lambda _: None)

    async def whole() -> None:
        async with kit.opened(url) as running:
            assert running.states() == {"pod": "posted"}
            assert running.ledger.state.epoch == 1000
            assert await running.store.read(schema) == newest(t.VERSIONS)
            await running.open(kit.fact("pod", "n0", claim="c"))
            await running.propose(kit.plan("p", ("pod", "n0", ())), kit.plan("next", ("next", "n0", (kit.whole(0),))))
            answers = await running.store.read(
                lambda c: sorted(c.execute(select(t.plan_answers.c.plan, t.plan_answers.c.committed)))
            )
            assert list(map(tuple, answers)) == [("next", False), ("p", True)]

    count = 0
    for count in points(act, fresh=lambda: asyncio.run(made()), each=EACH):  # noqa: B007
        asyncio.run(whole())
    assert count > 5, "a hook that sees no statements proves nothing"


def schema(connection: Connection) -> str | None:
    """The revision, where the tables are those of the code."""
    context = MigrationContext.configure(connection, opts={"include_name": lambda name, *_: name != REACH.name})
    assert compare_metadata(context, t.metadata) == []
    return context.get_current_revision()
