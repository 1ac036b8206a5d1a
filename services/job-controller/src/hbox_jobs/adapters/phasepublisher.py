"""Publishes the phases of jobs, and the public events that follow from them (`core.lifecycle`)."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn

from hbox_common.bus import Bus
from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import InvalidRequest
from hbox_common.events import CloudEvent, Event, JobFinished, JobPhase, JobPhaseChanged, JobPlaced, token_of
from hbox_common.insisting import insist
from hbox_common.model import JobId
from hbox_common.pacing import TokenBucket

from .. import metrics
from ..core.jobs import Jobs
from ..core.lifecycle import LIFECYCLE, Entered, Stage, end_of_deleted
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
                    stage = stages.setdefault(phase.job, Stage())
                    before = replace(stage)
                    events = stage.follow(phase)
                    if phase.phase is JobPhase.DELETED:
                        del stages[phase.job]
                    news = not phase.rejected and is_news(phase.phase, published.get(phase.job))
                    if news:
                        published.pop(phase.job, None)
                        self._traces.entered(phase, before, events)
                        stage.known = True
                    bucket.spend(news + len(events))
                    group.create_task(self._publish_entered(phase.changed, events, news=news))
            await asyncio.sleep(PHASES_WINDOW_S)

    async def _look_up(self, phases: Sequence[Entered], published: dict[JobId, JobPhase], stages: dict[JobId, Stage]) -> None:
        """Add what an earlier process published about these jobs: the last phase, and the stage that follows from the last public events."""
        subjects = [JobPhaseChanged.filter(None, phase.queue, phase.job) for phase in phases]
        last = {event.job: event for event in await self._last(JobPhaseChanged, subjects) if isinstance(event, JobPhaseChanged)}
        published.update((job, event.phase) for job, event in last.items())
        events = await self._lifecycle_events([(phase.queue, phase.job) for phase in phases])
        for phase in phases:
            at = last[phase.job].at if phase.job in last else 0.0
            stages[phase.job] = Stage.after(events.get(phase.job, ()), published.get(phase.job), at=at)

    async def _lifecycle_events(self, keys: Sequence[tuple[str, str]]) -> dict[JobId, list[CloudEvent]]:
        """The last public events of each type, of jobs by queue and job."""
        events: dict[JobId, list[CloudEvent]] = {}
        for type_ in LIFECYCLE:
            for event in await self._last(type_, [type_.filter(*key) for key in keys]):
                if isinstance(event, LIFECYCLE):
                    events.setdefault(event.data.job, []).append(event)
        return events

    async def _last(self, type_: type[Event], subjects: Sequence[str]) -> list[Event]:
        """Phases that cannot be read are published again."""
        last = await insist(
            lambda: self._bus.last_of_subjects(type_, subjects),
            on_unavailable=lambda e: log.warning("earlier phases are not read yet: %s", e),
        )
        return [delivery.event for delivery in last]

    async def _publish_entered(self, phase: JobPhaseChanged, events: Sequence[CloudEvent], *, news: bool) -> None:
        """Publish the events of a phase, then the phase (`news`): a successor that finds the phase published does not repeat the events."""
        for event in events:
            await self._publish_about(phase, event, event.keys, event.id)
        if news:
            message_id = f"{phase.job}.{phase.phase.value}.{phase.at:.6f}"
            if await self._publish_about(phase, phase, (phase.phase.value, phase.queue, phase.job), message_id):
                metrics.PHASES.labels(phase.phase.value).inc()

    async def _publish_about(self, phase: JobPhaseChanged, event: Event, keys: tuple[str, ...], message_id: str) -> bool:
        """Returns whether the broker has it."""
        try:
            await insist(
                lambda: self._bus.publish(event, *keys, message_id=message_id, traceparent=trace_of(phase.job)),
                on_unavailable=lambda e: log.debug("phases wait: %s", e),
            )
        except InvalidRequest as e:
            log.error(
                "%s of job %s/%s (%s) cannot be published: %s",
                event.ce_type(),
                phase.namespace,
                phase.name,
                phase.phase,
                e,
            )
            return False
        return True

    async def finish_deleted(self) -> None:
        """Finish jobs that were deleted before the start, and whose end is not published."""
        unfinished = await self._unfinished()
        for start in range(0, len(unfinished), PHASES_AT_ONCE):
            placed = await self._last(JobPlaced, unfinished[start : start + PHASES_AT_ONCE])
            keys = [(event.data.queue, event.data.job) for event in placed if isinstance(event, JobPlaced)]
            for job, events in (await self._lifecycle_events(keys)).items():
                finished = end_of_deleted(events, wall_s())
                if finished is None or self._jobs.known(job) is not None:
                    continue
                changed = JobPhaseChanged(
                    job=job,
                    namespace=finished.data.namespace,
                    name=finished.data.name,
                    queue=finished.data.queue,
                    phase=JobPhase.DELETED,
                    members=0,
                    bound=0,
                    at=wall_s(),
                )
                self._traces.entered(Entered(changed), Stage.after(events, JobPhase.BOUND), [finished])
                await self._publish_entered(changed, [finished], news=True)

    async def _unfinished(self) -> list[str]:
        """Subjects of the placements of jobs that do not exist, and were placed more often than they ended."""
        placed, finished = [
            await insist(
                lambda type_=type_: self._bus.count_by_subject(type_),  # type: ignore[misc]
                on_unavailable=lambda e: log.warning("unfinished jobs are not read yet: %s", e),
            )
            for type_ in (JobPlaced, JobFinished)
        ]
        ended = Counter({_keys(subject): count for subject, count in finished.items()})
        existing = {token_of(job) for job in self._listed}
        return [
            subject for subject, count in placed.items() if count > ended[_keys(subject)] and _keys(subject)[1] not in existing
        ]


def _keys(subject: str) -> tuple[str, str]:
    """Queue and job, as a subject of the public events of jobs ends with them."""
    head, job = subject.rsplit(".", 1)
    return head.rsplit(".", 1)[1], job
