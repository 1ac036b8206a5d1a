"""job-controller and quota-ledger as scheduler-core sees them on the bus, for tests and benchmarks that run it without them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from hbox_common.bus import Bus, Delivery
from hbox_common.events import (
    ClaimsAsked,
    ClaimsChanged,
    ClaimsPage,
    Event,
    JobsAsked,
    JobsPage,
    JobsPending,
    JobsWaiting,
    NodeStateChanged,
    Plan,
    PlanAnswer,
    PlansAnswered,
    PlansProposed,
    QueueStateChanged,
)
from hbox_common.model import DEFAULT_QUEUE, Claim, ClaimId, ClaimState, Epoch, Index, Job, NodeState, Queue, RefusalReason


class Peers:
    """job-controller (its jobs) and quota-ledger (its claims), as the scheduler sees them."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.jobs: list[Job] = []
        self.placed: list[Job] = []  #: with pods on nodes
        self.computed = True
        self.readings = 0  #: of jobs
        self.claims: dict[str, Claim] = {}
        self.claim_readings = 0  #: of all claims, not of the head alone
        self.proposed: list[Plan] = []
        self.waiting: dict[str, str] = {}
        self.scores: dict[str, str] = {}
        self.answering = True
        self.refuse: set[str] = set()
        self.epoch, self.index, self.frozen = Epoch(1), Index(0), False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._bus.serve(JobsAsked, self._list_jobs))
            group.create_task(self._bus.serve(ClaimsAsked, self._list_claims))
            group.create_task(self._bus.consume("ledger", [PlansProposed], self._on_plans))
            group.create_task(self._bus.follow([JobsWaiting], self._on_waiting))

    async def cluster(self, nodes: Sequence[NodeState], queues: Sequence[Queue] = (Queue(DEFAULT_QUEUE),)) -> None:
        for state in nodes:
            await self._bus.publish(NodeStateChanged(node=state), state.name)
        for queue in queues:
            await self._bus.publish(QueueStateChanged(queue=queue, used={}, epoch=self.epoch, index=self.index), queue.name)

    async def submit(self, *jobs: Job) -> None:
        self.jobs.extend(jobs)
        await self._bus.publish(JobsPending(jobs=jobs), "0")

    async def record(self, claim: Claim) -> None:
        """A running pod holds this claim."""
        self.claims[claim.pod_uid] = claim
        previous, self.index = self.index, Index(self.index + 1)
        await self._bus.publish(ClaimsChanged(epoch=self.epoch, previous=previous, index=self.index, claims=(claim,)), "0")

    async def end_pod(self, pod: str) -> None:
        """The pod ended, and its claim with it."""
        claim, previous = replace(self.claims.pop(pod), state=ClaimState.VOID), self.index
        self.index = Index(previous + 1)
        await self._bus.publish(ClaimsChanged(epoch=self.epoch, previous=previous, index=self.index, claims=(claim,)), "0")

    async def _list_jobs(self, asked: JobsAsked) -> AsyncIterator[Event]:
        self.readings += 1
        placed = tuple(self.placed) if asked.placed and self.computed else ()
        yield JobsPage(complete=True, computed=self.computed, jobs=tuple(self.jobs), placed=placed)

    async def _list_claims(self, asked: ClaimsAsked) -> AsyncIterator[Event]:
        self.claim_readings += not asked.head
        claims = () if asked.head else tuple(self.claims.values())
        yield ClaimsPage(epoch=self.epoch, index=self.index, frozen=self.frozen, claims=claims)

    async def _on_waiting(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            assert isinstance(delivery.event, JobsWaiting)
            self.waiting.update((v.job, v.message) for v in delivery.event.verdicts)
            self.scores.update((one.pod_uid, f"{one.node}: {one.note}") for one in delivery.event.scores)

    async def _on_plans(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            event = delivery.event
            assert isinstance(event, PlansProposed)
            self.proposed.extend(event.plans)
            if not self.answering or event.epoch != self.epoch:
                continue
            for plan in event.plans:
                await self._answer(event.scheduler, plan)

    async def _answer(self, scheduler: str, plan: Plan) -> None:
        refused = plan.job in self.refuse
        self.refuse.discard(plan.job)
        claims = [
            Claim(
                id=ClaimId(f"{plan.id}-{p.pod_uid}"),
                pod_uid=p.pod_uid,
                namespace=plan.namespace,
                pod=p.pod,
                job=plan.job,
                plan=plan.id,
                queue=plan.queue,
                priority=plan.priority,
                node=p.node,
                requests=plan.requests[p.requests],
                slices=p.slices,
            )
            for p in plan.placements
            if not refused
        ]
        previous, self.index = self.index, Index(self.index + max(len(claims), 1))
        self.claims.update((claim.pod_uid, claim) for claim in claims)
        answer = PlanAnswer(
            plan=plan.id,
            job=plan.job,
            committed=not refused,
            reason=RefusalReason.CARD_TAKEN if refused else None,
            refresh=self.index if refused else Index(0),
        )
        await self._bus.publish(PlansAnswered(epoch=self.epoch, index=self.index, answers=(answer,)), scheduler)
        changed = ClaimsChanged(epoch=self.epoch, previous=previous, index=self.index, claims=tuple(claims))
        await self._bus.publish(changed, "0")
