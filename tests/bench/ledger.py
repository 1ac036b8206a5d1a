"""Transactions and claims per second of the ledger's arbiter, with all writes of a turn, on SQLite (synchronous=FULL) and PostgreSQL (fsync).

The ledger has 10,000 live claims of 200 teams in a tree of four levels. Run it as `python -m tests.bench ledger`. It publishes nothing: other benchmarks
measure the bus.
"""

import asyncio
import gc
import os
import statistics
import tempfile
from collections.abc import AsyncIterator, Iterator
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
    Queue,
    QueueName,
    SchedulerId,
)
from hbox_common.store import Store
from hbox_ledger.adapters import tables
from hbox_ledger.ledger import Ledger
from hbox_ledger.relay import Relay

from ..jobterms import terms
from ..postgres_server import NoPostgres, postgres_server

NODES, CARDS = 2_500, 8
LIVE = 10_000
BUDGET_MS = 0.25  #: CPU of a one-pod plan in batches
COMMITS, CLAIMS = 500, 10_000  #: a second: budgets, of one plan and of 50 plans with eight pods each a transaction

#: 5 x 5 x 8 x 1: four levels with 200 leaves.
DEPARTMENTS, TEAMS, PROJECTS = 5, 5, 8


def queues() -> Iterator[Queue]:
    """From the top; only leaves take work."""
    for d in range(DEPARTMENTS):
        yield _queue(f"d{d}", "")
        for t in range(TEAMS):
            yield _queue(f"d{d}-t{t}", f"d{d}")
            for p in range(PROJECTS):
                yield _queue(f"d{d}-t{t}-p{p}", f"d{d}-t{t}")
                yield _queue(f"d{d}-t{t}-p{p}-x", f"d{d}-t{t}-p{p}")


def _queue(name: str, parent: str) -> Queue:
    walls = {"cpu": 10**9, "nvidia.com/gpu": 10**6}
    return Queue(
        QueueName(name), parent=parent, capability=walls, deserved={"nvidia.com/gpu": 100}, guarantee={"nvidia.com/gpu": 1}
    )


LEAVES = [queue.name for queue in queues() if queue.name.endswith("x")]


class Nowhere:
    """Where the relay publishes to."""

    async def publish_raw(self, type_: type[Event], body: bytes, *keys: str, message_id: str) -> None:
        return None


def node_of(number: int) -> NodeState:
    name, room = f"n{number}", {"cpu": 128_000, "memory": 1_000_000, "pods": 110, "nvidia.com/gpu": CARDS}
    cards = tuple(Card(i, f"{name}-{i}", "A100", 81_920, shares=10) for i in range(CARDS))
    return NodeState(NodeName(name), name, Generation(1), ready=True, allocatable=room, cards=cards)


@asynccontextmanager
async def _ledger(url: str) -> AsyncIterator[Ledger]:
    """Open, with all queues and LIVE claims."""
    async with Store.open(url, metadata=tables.metadata, versions=tables.VERSIONS) as store:
        relay = Relay(store, Nowhere())
        ledger = await Ledger.begin(store, relay, clock=time)
        for n in range(NODES):
            ledger.node(node_of(n))
        for queue in queues():
            await ledger.set_queues(queue)
        await ledger.reconcile([], as_of=ledger.index)
        relaying = asyncio.create_task(relay.run())
        for first in range(0, LIVE, 500):
            plans = [_plan(n, 1) for n in range(first, first + 500)]
            ledger.state.records.only(map(terms, plans))
            await ledger.propose([_message(ledger, plans)])
        yield ledger
        relaying.cancel()
        await asyncio.wait([relaying])


def _message(ledger: Ledger, plans: list[Plan]) -> PlansProposed:
    return PlansProposed(scheduler=SchedulerId("bench"), epoch=ledger.state.epoch, seen=Index(0), plans=tuple(plans))


def _plan(first: int, pods: int) -> Plan:
    """A gang of so many pods, each on a card of its own from card `first` of the cluster on."""
    placements = []
    for number in range(first, first + pods):
        node, card = divmod(number, CARDS)
        placements.append(
            Placement(
                pod_uid=PodUid(f"00000000-0000-4000-8000-{number:012d}"), pod=f"train-{number}", resource_version="12345",
                node=NodeName(f"n{node}"), generation=Generation(1), slices=(CardSlice(card, 100, 81_920),),
            )
        )  # fmt: skip
    return Plan(
        id=PlanId(f"plan-{first:028d}"), job=JobId(f"00000000-0000-4000-9000-{first:012d}"), namespace="research", name=f"train-{first}",
        queue=LEAVES[first % len(LEAVES)], priority=0, min_member=pods, bound=0,
        requests=({"cpu": 8000, "memory": 65_536, "pods": 1, "nvidia.com/gpu": 1},), placements=tuple(placements),
    )  # fmt: skip


async def measure(url: str, *, plans: int, pods: int, turns: int) -> str:
    """So many transactions of `plans` plans with `pods` pods each; a line with the rates."""
    async with _ledger(url) as ledger:
        starts = iter(range(LIVE, NODES * CARDS, pods))
        messages = [_message(ledger, [_plan(next(starts), pods) for _ in range(plans)]) for _ in range(turns)]
        ledger.state.records.only(terms(plan) for message in messages for plan in message.plans)
        took, wall, cpu = [], perf_counter(), process_time()
        for message in messages:
            began = perf_counter()
            await ledger.propose([message])
            took.append(1000 * (perf_counter() - began))
        wall, cpu = perf_counter() - wall, process_time() - cpu
        assert len(ledger.state.live) == LIVE + plans * pods * turns
    p50, p99 = statistics.median(took), statistics.quantiles(took, n=100)[98]
    rate, what = (turns / wall, f"commits/s (budget {COMMITS})") if plans == 1 else (plans * pods * turns / wall, "claims/s")
    if plans > 1 and pods > 1:
        what += f" (budget {CLAIMS})"
    each = 1000 * cpu / (plans * turns)
    return f"{plans:>3} plans of {pods} a transaction: {rate:7.0f} {what:<24} p50 {p50:6.2f} p99 {p99:6.2f} ms  {each:.3f} ms CPU a plan"


def main() -> None:
    gc.set_threshold(50_000, 20, 50)  # as every service has it
    gc.freeze()
    print(f"{LIVE} live claims, {len(list(queues()))} queues in four levels, load average {os.getloadavg()[0]:.1f}")
    for plans, pods, turns in ((1, 1, 500), (50, 1, 100), (50, 8, 20)):
        with tempfile.TemporaryDirectory() as folder:
            line = asyncio.run(measure(f"sqlite:///{folder}/ledger.db", plans=plans, pods=pods, turns=turns))
        print(f"sqlite      {line}" + (f" (budget {BUDGET_MS})" if plans > 1 and pods == 1 else ""), flush=True)
        try:
            with postgres_server(fsync=True) as server:
                print(
                    f"postgresql  {asyncio.run(measure(server.empty_database(), plans=plans, pods=pods, turns=turns))}",
                    flush=True,
                )
        except NoPostgres as e:
            print(f"postgresql  not measured: {e}")


if __name__ == "__main__":
    main()
