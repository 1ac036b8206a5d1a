"""What the ledger's arbiter costs: commits and one-pod plans a second, with everything that a turn writes, on SQLite with synchronous=FULL.

Run it as `python -m tests.bench ledger`. Nothing is published; the cost of the bus is measured elsewhere.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter, process_time, time

from hbox_common.events import Event, Placement, Plan, PlansProposed
from hbox_common.model import (
    Card,
    CardSlice,
    Generation,
    Index,
    JobId,
    NodeName,
    NodeState,
    PlanId,
    PodUid,
    QueueName,
    SchedulerId,
)
from hbox_common.store import Store
from hbox_ledger.adapters import tables
from hbox_ledger.ledger import Ledger
from hbox_ledger.relay import Relay

NODES, CARDS = 1_250, 8
BUDGET_MS = 0.25  #: CPU of a one-pod plan in batches


class Nowhere:
    """Where the relay publishes to."""

    async def publish_raw(self, type_: type[Event], body: bytes, *keys: str, message_id: str) -> None:
        return None


@asynccontextmanager
async def _ledger() -> AsyncIterator[Ledger]:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/ledger.db"
        async with Store.open(url, metadata=tables.metadata, versions=tables.VERSIONS) as store:
            relay = Relay(store, Nowhere())
            ledger = await Ledger.begin(store, relay, clock=time)
            room = {"cpu": 128_000, "memory": 1_000_000, "pods": 110, "nvidia.com/gpu": CARDS}
            for n in range(NODES):
                cards = tuple(Card(i, f"n{n}-{i}", "A100", 81_920, shares=10) for i in range(CARDS))
                ledger.node(NodeState(NodeName(f"n{n}"), f"n{n}", Generation(1), ready=True, allocatable=room, cards=cards))
            await ledger.reconcile([], asked_at=0.0)
            relaying = asyncio.create_task(relay.run())
            yield ledger
            relaying.cancel()
            await asyncio.wait([relaying])


def _plan(number: int) -> Plan:
    node, card = divmod(number, CARDS)
    pod = f"00000000-0000-4000-8000-{number:012d}"
    return Plan(
        id=PlanId(f"plan-{number:028d}"), job=JobId(pod), namespace="research", name=f"train-{number}", queue=QueueName("default"),
        priority=0, min_member=1, bound=0, requests=({"cpu": 8000, "memory": 65_536, "pods": 1, "nvidia.com/gpu": 1},),
        placements=(
            Placement(
                pod_uid=PodUid(pod), pod=f"train-{number}", resource_version="12345", node=NodeName(f"n{node}"),
                generation=Generation(1), slices=(CardSlice(card, 100, 81_920),),
            ),
        ),
    )  # fmt: skip


async def measure(batch: int, plans: int) -> str:
    """Answer `plans` one-pod plans in messages of `batch`; a line with the rates."""
    async with _ledger() as ledger:
        messages = [
            PlansProposed(
                scheduler=SchedulerId("bench"),
                epoch=ledger.books.epoch,
                seen=Index(0),
                plans=tuple(map(_plan, range(n, n + batch))),
            )
            for n in range(0, plans, batch)
        ]
        wall, cpu = perf_counter(), process_time()
        for message in messages:
            await ledger.propose([message])
        wall, cpu = perf_counter() - wall, process_time() - cpu
        assert len(ledger.books.live) == plans
    each = 1000 * cpu / plans
    return (
        f"ledger, batches of {batch:>3}: {len(messages) / wall:7.0f} commits/s  {plans / wall:7.0f} plans/s  "
        f"{each:.3f} ms CPU a plan" + (f" (budget {BUDGET_MS})" if batch > 1 else "")
    )


def main() -> None:
    for batch, plans in ((1, 500), (50, 5_000)):
        print(asyncio.run(measure(batch, plans)))


if __name__ == "__main__":
    main()
