"""Outputs of the scheduler: plans for the ledger, verdicts for job-controller."""

import asyncio
import logging
from collections.abc import Iterator, Sequence

from hbox_common.bus import Bus
from hbox_common.clock import monotonic_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import GivenUp, JobsAdmitted, JobsWaiting, JobVerdict, Plan, PlansProposed, PodScore
from hbox_common.model import Epoch, Index, JobId
from hbox_common.model.shards import ONE_SHARD
from hbox_common.telemetry import within

from .. import metrics
from ..core import Scheduler
from ..core.protocol.limits import Proposals

log = logging.getLogger(__name__)

VERDICTS_A_MESSAGE = 500

#: A plan that could not be sent is sent again anyway, when its answer is overdue.
PUBLISH_TIMEOUT_S = 5.0


class Sender:
    def __init__(self, scheduler: Scheduler, bus: Bus, *, placements_a_message: int, shard: str = ONE_SHARD) -> None:
        self._scheduler, self._bus, self._most, self._shard = scheduler, bus, placements_a_message, shard

    async def send(self, out: Proposals) -> None:
        """Publish a cycle's proposals, as of the epoch in which it ran: once the scheduler receives a later epoch, it does not know these plans any more.
        Returns when the broker has them, or has failed to accept them in time."""
        started = monotonic_s()
        as_of = self._scheduler.epoch, self._scheduler.index
        async with asyncio.TaskGroup() as group:
            if out.plans or out.resend or out.given_up:
                group.create_task(self._plans(out, *as_of))
            if out.admitted:
                group.create_task(self._admitted(out.admitted))
            if out.verdicts:
                group.create_task(self._verdicts(out.verdicts))
            if out.plans:
                group.create_task(self._scores(out.plans))  # the last task: the plans are published before notes are computed
        metrics.PUBLISH.observe(monotonic_s() - started)

    async def _plans(self, out: Proposals, epoch: Epoch, seen: Index) -> None:
        plans, again, given_up = out.plans, out.resend, out.given_up
        for first in range(0, len(given_up), self._most):
            await self._give_up(given_up[first : first + self._most], epoch, seen)
        if again:
            log.warning("%d plans have no answer yet: sending them again", len(again))
        for batch in batches(plans, self._most):
            await self._publish_plans(batch, epoch, seen)
        for batch in batches(again, self._most):
            await self._publish_plans(batch, epoch, seen)
        metrics.PLANS.labels("new").inc(len(plans))
        metrics.PLANS.labels("again").inc(len(again))
        metrics.PLACEMENTS.inc(sum(len(plan.placements) for plan in plans))

    async def _give_up(self, nominations: Sequence[GivenUp], epoch: Epoch, seen: Index) -> None:
        scheduler = self._scheduler
        event = PlansProposed(scheduler=scheduler.id, epoch=epoch, seen=seen, plans=(), given_up=tuple(nominations))
        try:
            await self._bus.publish(event, scheduler.id, timeout_s=PUBLISH_TIMEOUT_S)
        except (Unavailable, InvalidRequest) as e:
            log.warning("the ledger remembers %d nominations longer than it has to: %s", len(nominations), e)

    async def _publish_plans(self, plans: Sequence[Plan], epoch: Epoch, seen: Index) -> None:
        scheduler = self._scheduler
        event = PlansProposed(scheduler=scheduler.id, epoch=epoch, seen=seen, plans=tuple(plans))
        try:
            await self._bus.publish(event, scheduler.id, timeout_s=PUBLISH_TIMEOUT_S)
        except Unavailable as e:
            log.warning("%d plans not sent, will be sent again: %s", len(plans), e)
        except InvalidRequest as e:
            if len(plans) > 1:
                for plan in plans:
                    await self._publish_plans([plan], epoch, seen)
                return
            with within(plans[0].traceparent):
                log.error("job %s/%s cannot be planned: %s", plans[0].namespace, plans[0].name, e)
            scheduler.refuse(plans[0], e.message, now=monotonic_s())

    async def _admitted(self, jobs: Sequence[JobId]) -> None:
        for start in range(0, len(jobs), VERDICTS_A_MESSAGE):
            batch = tuple(jobs[start : start + VERDICTS_A_MESSAGE])
            try:
                await self._bus.publish_parts(
                    JobsAdmitted(scheduler=self._scheduler.id, jobs=batch), self._shard, timeout_s=PUBLISH_TIMEOUT_S
                )
            except Unavailable as e:
                log.warning("admissions of %d PodGroups are sent again later: %s", len(batch), e)
                continue
            metrics.ADMITTED.inc(len(batch))

    async def _scores(self, plans: Sequence[Plan]) -> None:
        """Publish the scores of pods that got places, for their Events. Lost ones are not repeated."""
        notes = self._scheduler.decisions.notes(plans)
        if not notes:
            return
        scores = tuple(PodScore(pod_uid=pod, node=node, note=note) for pod, node, note in notes)
        try:
            await self._bus.publish_parts(JobsWaiting(verdicts=(), scores=scores), self._shard, timeout_s=PUBLISH_TIMEOUT_S)
        except Unavailable as e:
            log.warning("scores of %d pods not sent: %s", len(scores), e)

    async def _verdicts(self, verdicts: Sequence[JobVerdict]) -> None:
        for start in range(0, len(verdicts), VERDICTS_A_MESSAGE):
            batch = verdicts[start : start + VERDICTS_A_MESSAGE]
            try:
                await self._bus.publish_parts(JobsWaiting(verdicts=tuple(batch)), self._shard, timeout_s=PUBLISH_TIMEOUT_S)
            except Unavailable as e:
                log.warning("%d verdicts not sent: %s", len(batch), e)
                self._scheduler.unpublished(batch, monotonic_s())
                continue
            metrics.VERDICTS.inc(len(batch))


def batches(plans: Sequence[Plan], most: int) -> Iterator[list[Plan]]:
    """Plans in order, at most so many placements together; a larger plan is sent alone."""
    batch: list[Plan] = []
    placements = 0
    for plan in plans:
        if batch and placements + len(plan.placements) > most:
            yield batch
            batch, placements = [], 0
        batch.append(plan)
        placements += len(plan.placements)
    if batch:
        yield batch
