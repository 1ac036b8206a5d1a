"""A ledger as it runs, on a real broker and the emulated API, with the other services played by the test."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import TypeVar

import msgpack

from hbox_common.bus import Bus, Delivery, EmbeddedServer, Start
from hbox_common.clock import new_id
from hbox_common.events import (
    BindDecided,
    ClaimsAsked,
    ClaimsChanged,
    ClaimsPage,
    Event,
    EvictDecided,
    JobsAsked,
    JobsPage,
    JobTermsPending,
    NodeStateChanged,
    Plan,
    PlanAnswer,
    PlansAnswered,
    PlansProposed,
    PodRead,
    PodsAsked,
    PodsRead,
    PodStanding,
    QueueStateChanged,
)
from hbox_common.model import Card, Epoch, Generation, Index, JobId, JobTerms, NodeName, NodeState, PodFact, SchedulerId
from hbox_common.runtime import Health
from hbox_ledger.app import run
from hbox_ledger.settings import LedgerSettings

from ...jobterms import terms
from ...waiting import until

E = TypeVar("E", bound=Event)

DEADLINE_S = 60.0


@asynccontextmanager
async def running(settings: LedgerSettings) -> AsyncIterator[Health]:
    health = Health("quota-ledger")
    task = asyncio.create_task(run(settings, health))
    try:
        yield health
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@dataclass
class Others:
    """The rest of the platform: remembers what the ledger says, and answers for job-controller."""

    bus: Bus
    pods: list[PodFact] = field(default_factory=list)
    said: list[Event] = field(default_factory=list)
    terms: dict[JobId, JobTerms] = field(default_factory=dict)
    asked: int = 0  #: how often for all pods
    age_s: float = 0.0  #: of job-controller's view of pods
    there: set[str] | None = None  #: uids of pods that the API server has; None: those of `pods`
    read: list[str] = field(default_factory=list)  #: uids that were asked for

    async def listen(self, deliveries: Sequence[Delivery]) -> None:
        self.said += [d.event for d in deliveries]

    async def jobs(self, asked: Event) -> AsyncIterator[Event]:
        """As job-controller."""
        assert isinstance(asked, JobsAsked)
        self.asked += asked.pods
        pods = tuple(self.pods) if asked.pods else ()
        yield JobsPage(
            complete=self.age_s < 20,
            pods=pods,
            terms=tuple(self.terms.values()),
            age_s=self.age_s,
            why="the watch is silent" if self.age_s else "",
        )

    async def reads(self, asked: Event) -> AsyncIterator[Event]:
        """As the binder."""
        assert isinstance(asked, PodsAsked)
        there = {pod.uid for pod in self.pods} if self.there is None else self.there
        self.read += [pod.uid for pod in asked.pods]
        held, gone = PodStanding.HOLDS, PodStanding.GONE
        yield PodsRead(
            pods=tuple(
                PodRead(uid=pod.uid, standing=held if pod.uid in there else gone, node=NodeName("n0")) for pod in asked.pods
            )
        )

    def all(self, kind: type[E]) -> list[E]:
        return [e for e in self.said if isinstance(e, kind)]

    def answers(self) -> dict[str, PlanAnswer]:
        return {a.plan: a for e in self.all(PlansAnswered) for a in e.answers}

    async def claims(self) -> list[ClaimsPage]:
        return await self.bus.ask(ClaimsAsked(asker="test"), ClaimsPage)

    async def open_epoch(self, timeout_s: float = DEADLINE_S) -> Epoch:
        async with asyncio.timeout(timeout_s):
            while True:
                with suppress(Exception):
                    [page] = await self.claims()
                    if not page.frozen:
                        return page.epoch
                await asyncio.sleep(0.05)

    async def next_epoch(self, last: Epoch, timeout_s: float) -> Epoch:
        """The epoch after `last`, once it is open."""
        async with asyncio.timeout(timeout_s):
            while (epoch := await self.open_epoch(timeout_s)) <= last:  # noqa: ASYNC110  what another process does sets no event of ours
                await asyncio.sleep(0.05)
            return epoch

    async def tell(self, plans: Sequence[Plan]) -> None:
        """Of the jobs of these plans, as job-controller would have."""
        self.terms |= {plan.job: terms(plan) for plan in plans}
        body = msgpack.packb({"jobs": [asdict(self.terms[plan.job]) for plan in plans]})
        await self.bus.publish_raw(JobTermsPending, body, "0", message_id=new_id())

    async def propose(self, epoch: Epoch, *plans: Plan, wait: bool = True, tell: bool = True) -> None:
        if tell:
            await self.tell(plans)
        message = PlansProposed(scheduler=SchedulerId("s"), epoch=epoch, seen=Index(0), plans=plans)
        await self.bus.publish(message, "s")
        if wait:
            await until(lambda: all(p.id in self.answers() for p in plans), timeout_s=DEADLINE_S)


@asynccontextmanager
async def others(broker: EmbeddedServer) -> AsyncIterator[Others]:
    async with Bus.connect(broker.url, name="job-controller", instance="test") as bus:
        world = Others(bus)
        cards = tuple(Card(i, f"n0-{i}", "A100", 40_960, shares=4) for i in range(4))
        room = {"cpu": 64_000, "pods": 100, "nvidia.com/gpu": 16}
        node = NodeState(NodeName("n0"), "n0", Generation(1), ready=True, allocatable=room, cards=cards)
        await bus.publish(NodeStateChanged(node=node), "n0")
        followed: list[list[type[Event]]] = [[PlansAnswered, ClaimsChanged], [BindDecided, EvictDecided], [QueueStateChanged]]
        tasks = [asyncio.create_task(bus.follow(types, world.listen, start=Start.ALL)) for types in followed]
        tasks.append(asyncio.create_task(bus.serve(JobsAsked, world.jobs)))
        tasks.append(asyncio.create_task(bus.serve(PodsAsked, world.reads)))
        try:
            yield world
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
