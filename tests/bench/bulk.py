"""The longest turns of scheduler-core's core during changes of many nodes, claims or jobs.

Run it as `python -m tests.bench bulk`. `HBOX_BENCH_SIZE=0.1` uses a tenth of everything, and `HBOX_BENCH_BULK=cordon,preview` runs only these parts.

The cluster of `core` without a free card and with 40,000 pending jobs, under HBox's policy. There is no broker: each part calls the core as the service does,
on an event loop, and a turn is one iteration of that loop. Each part consists of steps; the bench prints the longest turn of each step.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import NoReturn, TypeVar

from hbox_common.model import Claim, Generation, HyperNode, NodeState, NodeUsage, PodBudget, ResourceQuota, Verdict
from hbox_common.pace import in_slices
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.policy.registry import check_plugins
from hbox_scheduler.core.queueing.jobs import JobState

from .core import NODES, PAGE, TURN_MS, WAITING, WALL, World
from .scheduler import report

T = TypeVar("T")

#: Nodes that change together where few do.
FEW = 50
#: Nodes of a domain of the fabric.
LEAF = 32


class Bulk:
    """The cluster, and the longest turn of the step that runs."""

    def __init__(self) -> None:
        self.world = World(default_conf(), full=True)
        self.simulation, self.scheduler = self.world.simulation, self.world.scheduler
        holders = self.world.holders
        self.waiting = [self.world.new("waiting", queue=holders[i % len(holders)]) for i in range(WAITING)]
        for first in range(0, WAITING, PAGE):
            self.simulation.submit(self.waiting[first : first + PAGE])
        while self.scheduler.reports.jobs_by_state[JobState.ACTIVE]:
            self.world.settle()
            self.simulation.now += 1.0
        self.nodes = [state for state in self.scheduler.columns.states if state is not None]
        self._longest_ms = 0.0

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        """Measure the turns of the block."""
        watching = asyncio.create_task(self._watch())
        await asyncio.sleep(0)
        self._longest_ms, began = 0.0, time.process_time()
        yield
        await asyncio.sleep(0)
        watching.cancel()
        report(
            f"{name}, {1000 * (time.process_time() - began):,.0f} ms in all: longest turn",
            self._longest_ms,
            "ms",
            TURN_MS,
            least=False,
        )

    async def _watch(self) -> NoReturn:
        while True:
            began = time.process_time()
            await asyncio.sleep(0)
            self._longest_ms = max(self._longest_ms, 1000 * (time.process_time() - began))

    async def each(self, items: Sequence[T], call: Callable[[T], object]) -> None:
        """Call it with each item, as the service does with messages of a state."""

        def work(some: Iterable[T]) -> None:
            for item in some:
                call(item)

        await in_slices(items, work)

    async def put_nodes(self, nodes: Sequence[NodeState]) -> None:
        await self.each(nodes, lambda node: self.simulation.put_nodes([node]))

    async def settle(self, name: str, most: int = 200) -> None:
        """Count changed claims in slices, then plan, until nothing is left to do."""
        self.simulation.now += 1.0
        async with self.step(f"  cycles after: {name}"):
            for _ in range(most):
                while self.scheduler.advance():  # noqa: ASYNC110  each call does a part of the work
                    await asyncio.sleep(0)
                out = self.world.cycle()
                await asyncio.sleep(0)
                self.simulation.accept(out.plans)
                await asyncio.sleep(0)
                self.world.rest()
                await asyncio.sleep(0)
                if not out.plans and not out.more:
                    return


async def cordon(bulk: Bulk) -> None:
    await _cordon(bulk, "50 nodes", bulk.nodes[:FEW], 1)
    await _cordon(bulk, "all nodes", bulk.nodes, 3)


async def _cordon(bulk: Bulk, what: str, nodes: Sequence[NodeState], generation: int) -> None:
    for closed in (True, False):
        generation += 1
        changed = [replace(one, unschedulable=closed, generation=Generation(generation)) for one in nodes]
        name = f"{what} {'cordoned' if closed else 'uncordoned'}"
        async with bulk.step(name):
            await bulk.put_nodes(changed)
        await bulk.settle(name)


async def removal(bulk: Bulk) -> None:
    """A tenth of the nodes leaves and returns, with what runs there."""
    some = bulk.nodes[: NODES // 10]
    async with bulk.step("a tenth of the nodes removed"):
        await bulk.put_nodes([replace(one, gone=True, generation=Generation(20)) for one in some])
    await bulk.settle("a tenth of the nodes removed")
    async with bulk.step("a tenth of the nodes returned"):
        await bulk.put_nodes([replace(one, generation=Generation(21)) for one in some])
    await bulk.settle("a tenth of the nodes returned")


async def verdicts(bulk: Bulk) -> None:
    for healthy in (False, True):
        found = [Verdict(node.name, Generation(1), healthy, reason="" if healthy else "fault") for node in bulk.nodes]
        async with bulk.step(f"verdicts of all nodes: healthy={healthy}"):
            await bulk.each(found, bulk.simulation.put_verdict)
        await bulk.settle(f"verdicts of all nodes: healthy={healthy}")


async def claims(bulk: Bulk) -> None:
    """All claims are read again: first the same, then the tenth of them is new."""
    simulation = bulk.simulation
    for name, change in (
        ("all claims read again, unchanged", False),
        ("all claims read again, a tenth has another state", True),
    ):
        known = list(simulation.claims.values())
        if change:
            known[::10] = [replace(claim, priority=claim.priority + 1) for claim in known[::10]]
            simulation.claims = {claim.pod_uid: claim for claim in known}
        async with bulk.step(name):
            await _read_claims(bulk, known)
        await bulk.settle(name)


async def _read_claims(bulk: Bulk, claims: Sequence[Claim]) -> None:
    scheduler, now = bulk.scheduler, bulk.simulation.now
    epoch, index = scheduler.epoch, scheduler.index

    def book(some: Iterable[Claim]) -> None:
        scheduler.on_claims_page(epoch=epoch, index=index, claims=some, now=now)

    for first in range(0, len(claims), PAGE):
        await in_slices(claims[first : first + PAGE], book)
    scheduler.on_claims_snapshot(epoch=epoch, index=index, frozen=False, claims=claims, now=now)


async def jobs(bulk: Bulk) -> None:
    """All jobs are read again, unchanged; then a tenth of them is missing; then they return."""
    scheduler = bulk.scheduler
    entries = scheduler._queue.entries
    known = [entry.job for entry in entries.values()]
    for name, listed in (
        ("all jobs read again", known),
        ("jobs read again without a tenth", known[NODES // 3 :]),
        ("jobs read again with that tenth", [replace(job, revision=job.revision + 1) for job in known]),
    ):
        async with bulk.step(name):
            mark = scheduler.mark()
            for first in range(0, len(listed), PAGE):
                await in_slices(listed[first : first + PAGE], partial(scheduler.on_jobs_page, since=mark))
            scheduler.on_jobs_snapshot(listed, since=mark)
        await bulk.settle(name)


async def policy(bulk: Bulk) -> None:
    async with bulk.step("another policy"):
        bulk.scheduler.follow(default_conf())
    await bulk.settle("another policy")


async def rules(bulk: Bulk) -> None:
    """The rules of all queues change."""
    queues = list(bulk.scheduler.queues.all().values())
    changed = [replace(one, weight=one.weight + 1) for one in queues]
    async with bulk.step("rules of all queues"):
        await bulk.each(changed, bulk.scheduler.on_queue)
    await bulk.settle("rules of all queues")


async def fabric(bulk: Bulk) -> None:
    """A fabric of all nodes appears, and one of its domains changes."""
    names = [node.name for node in bulk.nodes]
    leaves = [HyperNode(f"leaf-{i}", 1, nodes=tuple(names[i : i + LEAF])) for i in range(0, len(names), LEAF)]
    spine = HyperNode("spine", 2, children=tuple(leaf.name for leaf in leaves))
    async with bulk.step("a fabric of all nodes"):
        bulk.scheduler.on_fabric([*leaves, spine], "f", 1)
    await bulk.settle("a fabric of all nodes")
    async with bulk.step("a domain of the fabric changed"):
        bulk.scheduler.on_fabric([replace(leaves[0], nodes=leaves[0].nodes[1:]), *leaves[1:], spine], "f", 2)
    await bulk.settle("a domain of the fabric changed")


async def states(bulk: Bulk) -> None:
    """States that one message has for all nodes or namespaces."""
    usages = [NodeUsage(node.name, 50.0, 50.0, WALL) for node in bulk.nodes]
    async with bulk.step("usage of all nodes"):
        bulk.scheduler.on_usage(usages)
    async with bulk.step("budgets"):
        bulk.scheduler.on_budgets(PodBudget("default", f"b{i}", 1) for i in range(NODES // 5))
    async with bulk.step("ResourceQuotas"):
        bulk.scheduler.on_namespace_quotas([ResourceQuota(f"n{i}", "quota", {"pods": 10}) for i in range(NODES // 5)])
    await bulk.settle("states")


async def questions(bulk: Bulk) -> None:
    """Questions about a job that waits, and what the service measures itself."""
    scheduler, waiting = bulk.scheduler, bulk.waiting[0].id
    wall = WALL + bulk.simulation.now
    asked: dict[str, Callable[[], object]] = {
        "fragmentation": scheduler.reports.fragmentation,
        "sample of starts": lambda: scheduler.start_times.sample(wall),
        "card reasons": lambda: scheduler.reports.card_reasons(waiting),
        "explanation": lambda: scheduler.reports.explanation(waiting, wall),
        "estimate of a start": lambda: scheduler.start_times.estimate(waiting, wall),
        "jobs by state, the oldest": lambda: (
            scheduler.reports.jobs_by_state,
            *map(scheduler.reports.oldest_job, scheduler.reports.jobs_by_state),
        ),
    }
    for name, ask in asked.items():
        for again in ("", ", again"):
            async with bulk.step(f"{name}{again}"):
                ask()


async def preview(bulk: Bulk) -> None:
    wall = WALL + bulk.simulation.now
    reports = bulk.scheduler.reports
    async with bulk.step("preview of moves"):
        preview = reports.preview_moves()
        while preview.advance(wall):  # noqa: ASYNC110  each call does a part of the work
            await asyncio.sleep(0)
        reports.defragmentation(preview)


PARTS: dict[str, Callable[[Bulk], Awaitable[None]]] = {
    "states": states,
    "questions": questions,
    "rules": rules,
    "policy": policy,
    "claims": claims,
    "jobs": jobs,
    "verdicts": verdicts,
    "cordon": cordon,
    "fabric": fabric,
    "preview": preview,
    "removal": removal,
}


async def _run(names: Iterable[str]) -> None:
    bulk = Bulk()
    for name in names:
        print(f"-- {name}", flush=True)
        await PARTS[name](bulk)


def main() -> None:
    chosen = os.environ.get("HBOX_BENCH_BULK", "")
    check_plugins()  # as the service does
    asyncio.run(_run(chosen.split(",") if chosen else PARTS))
