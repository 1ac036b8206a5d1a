"""A ledger killed with -9 in the middle of committing: everything it said was committed is there, nothing is half there."""

import asyncio
import subprocess
import sys

from sqlalchemy import func, select

from hbox_ledger.adapters import tables as t

from .conftest import Kit

#: Proposes plans for ever and prints each plan's id once it is committed.
PROGRAM = """
import asyncio, sys
from hbox_common.events import Placement, Plan, PlansProposed
from hbox_common.model import NodeState
from hbox_common.store import Store
from hbox_ledger.adapters import tables
from hbox_ledger.ledger import Ledger
from hbox_ledger.relay import Relay
from tests.jobterms import terms

class Away:
    async def publish_raw(self, type_, body, *keys, message_id):
        await asyncio.Event().wait()

async def main():
    async with Store.open(sys.argv[1], metadata=tables.metadata, versions=tables.VERSIONS) as store:
        ledger = await Ledger.begin(store, Relay(store, Away()), clock=lambda: 1000.0)
        ledger.node(NodeState("n0", "n0", 1, ready=True, allocatable={"cpu": 10**9, "pods": 10**9}))
        await ledger.reconcile([], as_of=ledger.index)
        for n in range(10**6):
            plans = tuple(
                Plan(id=f"p{n}-{i}", job=f"j{n}-{i}", namespace="n", name="j", queue="default", priority=0, min_member=1, bound=0,
                     requests=({"cpu": 1, "pods": 1},),
                     placements=(Placement(pod_uid=f"{n}-{i}", pod="p", resource_version="1", node="n0", generation=1),))
                for i in range(3)
            )
            ledger.state.records.only(map(terms, plans))
            await ledger.propose([PlansProposed(scheduler="s", epoch=ledger.state.epoch, seen=0, plans=plans)])
            print(n, flush=True)

asyncio.run(main())
"""


async def test_what_was_committed_before_a_kill_is_there_afterwards_and_whole(kit: Kit, database_url: str) -> None:
    url = database_url
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, url], stdout=subprocess.PIPE)  # noqa: ASYNC220  forks quickly
        try:
            assert process.stdout is not None
            last = [await asyncio.to_thread(process.stdout.readline) for _ in range(15)][-1]
        finally:
            process.kill()
            rest = await asyncio.to_thread(process.communicate)
        said = max(map(int, [last, *rest[0].split()]))
        async with kit.opened(url) as running:
            pods = set(running.ledger.state.by_pod)
            assert {f"{n}-{i}" for n in range(said + 1) for i in range(3)} <= pods
            assert len(pods) % 3 == 0
            answers, audited = await running.store.read(
                lambda c: (
                    c.execute(select(func.count()).select_from(t.plan_answers)).scalar_one(),
                    c.execute(
                        select(func.count()).select_from(t.audit).where(t.audit.c.change == "none->pending")
                    ).scalar_one(),
                )
            )
            assert answers >= len(pods) == audited
