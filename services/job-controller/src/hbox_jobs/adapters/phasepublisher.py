"""Publishes the phases of jobs, and the public events that follow from them (`core.lifecycle`)."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NoReturn

from hbox_common.bus import Bus
from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import ClaimsAsked, ClaimsPage, CloudEvent, Event, JobPhase, JobPhaseChanged
from hbox_common.insisting import insist
from hbox_common.model import Claim, JobId
from hbox_common.pacing import TokenBucket

from .. import metrics
from ..core.jobs import Jobs
from ..core.lifecycle import LIFECYCLE, Entered, Reached, Stage
from ..core.phases import is_news
from .paced import BUSY_SHARE
from .traces import JobTraces, trace_of

log = logging.getLogger(__name__)

#: Age in seconds at which a phase is published: most jobs are bound by then, and their pending phase is obsolete.
PHASE_REST_S = 0.5
#: Maximum phases in one batch, and seconds between two batches: published one by one, each phase wakes the broker and this process.
PHASES_AT_ONCE = 50
PHASES_WINDOW_S = 0.05
#: For so long they go at a part of their rate while the platform is busy.
PHASES_PATIENCE_S = 60.0

#: Seconds between two attempts to read the claims of jobs that were deleted before the start, and from the start to the last attempt.
CLAIMS_RETRY_S, CLAIMS_WITHIN_S = 5.0, 600.0


class PhasePublisher:
    """Created once all jobs are listed. `busy`: the platform is busy with work that is more urgent; `behind`: set when phases may be waiting."""

    def __init__(
        self, bus: Bus, jobs: Jobs, traces: JobTraces, busy: Callable[[], bool], *, behind: asyncio.Event, rate_per_s: float
    ) -> None:
        self._bus, self._jobs, self._traces, self._busy, self._behind, self._rate_per_s = (
            bus,
            jobs,
            traces,
            busy,
            behind,
            rate_per_s,
        )
        self._listed = frozenset(jobs.ids())

    async def run(self) -> NoReturn:
        """Publish the phases of each job, and its public events, in the order in which it entered them; each is retried until the broker has it.

        If a job is older than this process, the previous process may have published its first phase.
        """
        published: dict[JobId, JobPhase] = {}
        stages: dict[JobId, Stage] = {}
        listed = set(self._listed)
        full = TokenBucket(rate_per_s=self._rate_per_s, burst=PHASES_AT_ONCE)
        slow = TokenBucket(rate_per_s=BUSY_SHARE * self._rate_per_s, burst=PHASES_AT_ONCE)
        while True:
            waiting = self._jobs.phases
            rest_s = waiting.wait_s(wall := wall_s(), PHASE_REST_S)
            if rest_s is None:
                self._behind.clear()
                await self._behind.wait()
                continue
            if rest_s > 0.0:
                await asyncio.sleep(rest_s)
                continue
            bucket = slow if waiting.age_s(wall) < PHASES_PATIENCE_S and self._busy() else full
            limit = bucket.available(now := monotonic_s())
            if limit <= 0:
                await asyncio.sleep(bucket.wait_s(now))
                continue
            phases = self._jobs.take_phases(limit, now=wall, rest_s=PHASE_REST_S)
            if doubtful := [phase for phase in phases if phase.job in listed]:
                await self._look_up(doubtful, published, stages)
                listed.difference_update(phase.job for phase in doubtful)
            async with asyncio.TaskGroup() as group:
                for phase in phases:
                    events = stages.setdefault(phase.job, Stage()).follow(phase)
                    if phase.phase is JobPhase.DELETED:
                        del stages[phase.job]
                    news = not phase.rejected and is_news(phase.phase, published.get(phase.job))
                    if news:
                        published.pop(phase.job, None)
                        self._traces.entered(phase)
                    bucket.spend(news + len(events))
                    group.create_task(self._publish_entered(phase, events, news=news))
            await asyncio.sleep(PHASES_WINDOW_S)

    async def _look_up(self, phases: Sequence[Entered], published: dict[JobId, JobPhase], stages: dict[JobId, Stage]) -> None:
        """Add what an earlier process published about these jobs: the last phase, and the stage that follows from the last public events."""
        keys = [(phase.queue, phase.job) for phase in phases]
        published.update(
            (event.job, event.phase)
            for event in await self._last(JobPhaseChanged, [(None, *key) for key in keys])
            if isinstance(event, JobPhaseChanged)
        )
        events: dict[JobId, list[CloudEvent]] = {}
        for type_ in LIFECYCLE:
            for event in await self._last(type_, keys):
                if isinstance(event, LIFECYCLE):
                    events.setdefault(event.data.job, []).append(event)
        for phase in phases:
            stages[phase.job] = Stage.after(events.get(phase.job, ()), published.get(phase.job))

    async def _last(self, type_: type[Event], keys: Sequence[tuple[str | None, ...]]) -> list[Event]:
        try:
            last = await insist(
                lambda: self._bus.last(type_, keys),
                on_unavailable=lambda e: log.warning("earlier phases are not read yet: %s", e),
            )
        except InvalidRequest as e:
            log.warning("earlier phases cannot be read and are published again: %s", e)
            return []
        return [delivery.event for delivery in last]

    async def _publish_entered(self, entered: Entered, events: Sequence[CloudEvent], *, news: bool) -> None:
        """Publish the events of a phase, then the phase (`news`): a successor that finds the phase published does not repeat the events."""
        for event in events:
            await self._publish_about(entered, event, event.keys, event.id)
        if news:
            phase = entered.changed
            message_id = f"{phase.job}.{phase.phase.value}.{phase.at:.6f}"
            if await self._publish_about(entered, phase, (phase.phase.value, phase.queue, phase.job), message_id):
                metrics.PHASES.labels(phase.phase.value).inc()

    async def _publish_about(self, entered: Entered, event: Event, keys: tuple[str, ...], message_id: str) -> bool:
        """Returns whether the broker has it."""
        try:
            await insist(
                lambda: self._bus.publish(event, *keys, message_id=message_id, traceparent=trace_of(entered.job)),
                on_unavailable=lambda e: log.debug("phases wait: %s", e),
            )
        except InvalidRequest as e:
            log.error(
                "%s of job %s/%s (%s) cannot be published: %s",
                event.ce_type(),
                entered.namespace,
                entered.name,
                entered.phase,
                e,
            )
            return False
        return True

    async def finish_deleted(self, asker: str) -> None:
        """Finish jobs that were deleted while no job-controller ran: the ledger still has their claims, since no message has reported the end of their pods."""
        pages = await self._claims(asker)
        found: dict[JobId, list[Claim]] = {}
        for claim in (claim for page in pages for claim in page.claims):
            if claim.plan and claim.job not in self._listed:
                found.setdefault(claim.job, []).append(claim)
        for job, claims in found.items():
            queue, events = claims[0].queue, list[CloudEvent]()
            for type_ in LIFECYCLE:
                events += [event for event in await self._last(type_, [(queue, job)]) if isinstance(event, LIFECYCLE)]
            stage = Stage.after(events, None)
            if stage.reached not in (Reached.PLACED, Reached.STARTED) or self._jobs.known(job) is not None:
                continue
            name = next((event.data.name for event in events if isinstance(event, LIFECYCLE)), claims[0].pod)
            changed = JobPhaseChanged(
                job=job,
                namespace=claims[0].namespace,
                name=name,
                queue=queue,
                phase=JobPhase.DELETED,
                members=0,
                bound=0,
                at=wall_s(),
            )
            entered = Entered(changed, tuple((claim.node, claim.slices) for claim in claims))
            await self._publish_entered(entered, stage.follow(entered), news=True)

    async def _claims(self, asker: str) -> list[ClaimsPage]:
        until = monotonic_s() + CLAIMS_WITHIN_S
        while monotonic_s() < until:
            try:
                return await self._bus.ask(ClaimsAsked(asker=asker), ClaimsPage)
            except Unavailable as e:
                log.debug("the ledger's claims are not read yet: %s", e)
                await asyncio.sleep(CLAIMS_RETRY_S)
            except InvalidRequest as e:
                log.warning("the ledger's claims cannot be read: %s", e)
                break
        return []
