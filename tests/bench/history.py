"""Bytes that a claim costs the ledger over its life (placed, running, ended): while its rows are in their tables, once they are sealed, and the longest commit
during sealing.

Run it as `python -m tests.bench history`; `HBOX_BENCH_SIZE=0.5` uses half; fewer claims fill no segment.
Random ids as in a cluster; SQLite, whose pages are counted by table.
"""

import asyncio
import os
import sqlite3
import tempfile
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time, time
from uuid import uuid4

from hbox_common.clock import new_id
from hbox_common.events import Placement, Plan, PlansProposed, PodsObserved
from hbox_common.model import CardSlice, Generation, Index, JobId, NodeName, PlanId, PodFact, PodPhase, PodUid, SchedulerId
from hbox_common.store import Store
from hbox_ledger.adapters import tables
from hbox_ledger.adapters.audit import prove
from hbox_ledger.ledger import Ledger, Numbered
from hbox_ledger.relay import Relay

from ..jobterms import terms
from .ledger import CARDS, LEAVES, Nowhere, node_of, queues

SIZE = float(os.environ.get("HBOX_BENCH_SIZE", "1"))
CLAIMS = int(20_000 * SIZE)
NODES = 250
HISTORY, KEPT = ("audit", "transfers"), ("claims", "card_slots", "plan_answers", "inbox")


def _plan(number: int) -> Plan:
    uid, (node, card) = str(uuid4()), divmod(number % (NODES * CARDS), CARDS)
    placement = Placement(
        pod_uid=PodUid(uid), pod=f"train-{number}", resource_version="12345", node=NodeName(f"n{node}"), generation=Generation(1),
        slices=(CardSlice(card, 100, 81_920),),
    )  # fmt: skip
    return Plan(
        id=PlanId(new_id()), job=JobId(uid), namespace="research", name=f"train-{number}", queue=LEAVES[number % len(LEAVES)], priority=0,
        min_member=1, bound=0, requests=({"cpu": 8000, "memory": 65_536, "pods": 1, "nvidia.com/gpu": 1},), placements=(placement,),
    )  # fmt: skip


def _facts(ledger: Ledger, plans: list[Plan], phase: PodPhase) -> list[PodFact]:
    facts = []
    for plan in plans:
        [p] = plan.placements
        facts.append(
            PodFact(
                uid=p.pod_uid, namespace=plan.namespace, name=p.pod, phase=phase, node=p.node, job=plan.job, queue=plan.queue, priority=0,
                requests={"cpu": 8000, "memory": 65_536, "pods": 1, "nvidia.com/gpu": 1}, cards=1, slices=(),
                claim=ledger.state.by_pod[p.pod_uid], ours=True, resource_version="1",
            )
        )  # fmt: skip
    return facts


async def _live(ledger: Ledger, first: int, count: int) -> None:
    """So many pods live in one turn each: placed, running, ended."""
    plans = [_plan(number) for number in range(first, first + count)]
    ledger.state.records.only(map(terms, plans))
    proposed = PlansProposed(scheduler=SchedulerId("bench"), epoch=ledger.state.epoch, seen=Index(0), plans=tuple(plans))
    await ledger.propose([proposed])
    facts = _facts(ledger, plans, PodPhase.RUNNING)
    await ledger.observed([Numbered(new_id(), PodsObserved(pods=tuple(facts)))])
    ended = tuple(replace(fact, phase=PodPhase.SUCCEEDED) for fact in facts)
    await ledger.observed([Numbered(new_id(), PodsObserved(pods=ended))])
    assert not ledger.state.live


def _sizes(path: Path) -> dict[str, int]:
    """Bytes of each table with its indexes."""
    query = "SELECT m.tbl_name, sum(d.pgsize) FROM dbstat d JOIN sqlite_schema m ON m.name = d.name GROUP BY m.tbl_name"
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute(query).fetchall())


async def measure(together: int, claims: int) -> None:
    """So many claims, `together` of them in a turn."""
    with tempfile.TemporaryDirectory(prefix="hbox-bench-") as folder:
        path = Path(folder) / "ledger.db"
        url = f"sqlite:///{path}"
        async with Store.open(url, metadata=tables.metadata, versions=tables.VERSIONS) as store:
            relay = Relay(store, Nowhere())
            ledger = await Ledger.begin(store, relay, clock=time)
            for number in range(NODES):
                ledger.node(node_of(number))
            await ledger.set_queues(*queues())
            await ledger.reconcile([], as_of=ledger.index)
            relaying = asyncio.create_task(relay.run())
            for first in range(0, claims, together):
                await _live(ledger, first, together)
            await relay.flush()
            sizes = _sizes(path)
            history, kept = (sum(sizes[name] for name in names) / claims for names in (HISTORY, KEPT))
            rows = await store.read(
                lambda c: [c.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar_one() for name in HISTORY]
            )
            print(
                f"{claims:,} claims, {together} a turn: {kept:.0f} bytes a claim for kept_s, {history:.0f} in audit and transfers "
                f"({rows[0] / claims:.1f} and {rows[1] / claims:.1f} rows)"
            )
            longest, stop = 0.0, asyncio.Event()

            async def concurrent() -> None:
                nonlocal longest
                number = claims
                while not stop.is_set():
                    began = perf_counter()
                    await _live(ledger, number, 1)
                    longest = max(longest, (perf_counter() - began) / 3)
                    number += 1
                    await asyncio.sleep(0.02)

            busy = asyncio.create_task(concurrent())
            began, cpu = perf_counter(), process_time()
            count = await ledger.seal(before=time() + 60, most=0)
            wall, cpu = perf_counter() - began, process_time() - cpu
            stop.set()
            with suppress(asyncio.CancelledError):
                await busy
            if not count:
                raise SystemExit(f"{claims} claims fill no segment of the history: set HBOX_BENCH_SIZE to 0.5 or more")
            sealed = await store.read(
                lambda c: c.exec_driver_sql("SELECT sum(size), sum(last_record - first_record + 1) FROM segments").one()
            )
            each = sealed[0] / sealed[1] * rows[0] / claims
            print(
                f"  sealed: {each:.0f} bytes a claim; {count} segments in {wall:.1f} s ({cpu / max(1, count):.2f} s of processor each, pauses and a "
                f"pod every 20 ms included); longest turn of that pod {1000 * longest:.0f} ms"
            )
            relaying.cancel()
            await asyncio.wait([relaying])
        cpu = process_time()
        proof = prove(url)
        assert not proof.faults, proof.faults
        print(f"  verified: {proof.records:,} records in {process_time() - cpu:.1f} s of processor")


def main() -> None:
    asyncio.run(measure(1, CLAIMS // 2))
    asyncio.run(measure(50, CLAIMS))
