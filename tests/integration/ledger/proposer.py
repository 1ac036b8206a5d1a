"""Proposes plans for ever and prints the number of each three once they are committed, until it is killed. Run by test_ledger_killed."""

import asyncio
import sys

from hbox_common.events import Event, Placement, Plan, PlansProposed
from hbox_common.model import Generation, Index, JobId, NodeName, NodeState, PlanId, PodUid, QueueName, SchedulerId
from hbox_common.store import Store
from hbox_ledger.adapters import tables
from hbox_ledger.ledger import Ledger
from hbox_ledger.relay import Relay

from ...jobterms import terms

NODE = NodeName("n0")


class Away:
    async def publish_raw(self, type_: type[Event], body: bytes, *keys: str, message_id: str) -> None:
        await asyncio.Event().wait()


def plan(n: int, i: int) -> Plan:
    return Plan(
        id=PlanId(f"p{n}-{i}"), job=JobId(f"j{n}-{i}"), namespace="n", name="j", queue=QueueName("default"), priority=0,
        min_member=1, bound=0, requests=({"cpu": 1, "pods": 1},),
        placements=(Placement(PodUid(f"{n}-{i}"), "p", "1", NODE, Generation(1)),),
    )  # fmt: skip


async def propose(url: str) -> None:
    async with Store.open(url, metadata=tables.metadata, versions=tables.VERSIONS) as store:
        ledger = await Ledger.begin(store, Relay(store, Away()), clock=lambda: 1000.0)
        ledger.node(NodeState(NODE, NODE, Generation(1), ready=True, allocatable={"cpu": 10**9, "pods": 10**9}))
        await ledger.reconcile([], as_of=ledger.index)
        for n in range(10**6):
            plans = tuple(plan(n, i) for i in range(3))
            ledger.state.records.only(map(terms, plans))
            proposal = PlansProposed(scheduler=SchedulerId("s"), epoch=ledger.state.epoch, seen=Index(0), plans=plans)
            await ledger.propose([proposal])
            print(n, flush=True)


if __name__ == "__main__":
    asyncio.run(propose(sys.argv[1]))
