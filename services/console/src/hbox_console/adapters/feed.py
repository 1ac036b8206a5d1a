"""Follows the bus into the read model.

Last values (nodes, verdicts, queues) are replayed at the start; jobs and claims are read as a whole once their messages are followed, and again when messages
were missed. Jobs that job-controller does not announce (their specification is wrong, or their namespace has too many) come with the next reading, which a
phase of an unknown job brings forward.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from hbox_common.bus import Bus, Delivery, Start
from hbox_common.clock import monotonic_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import (
    ClaimsAsked,
    ClaimsChanged,
    ClaimsPage,
    CloudEvent,
    EvictionReceipt,
    HealthVerdict,
    JobPhaseChanged,
    JobsAsked,
    JobsPage,
    JobsPending,
    JobsWaiting,
    JobsWithdrawn,
    JobVerdict,
    NodeRests,
    NodeStateChanged,
    PodsObserved,
    PolicyFollowed,
    QueueStateChanged,
    WaitsAttributed,
)
from hbox_common.events.public import JobPhase
from hbox_common.model import Claim, GroupState, JobId, PodUid
from hbox_common.model.shards import ONE_SHARD
from hbox_common.views.events import PUBLIC_TYPES
from hbox_common.views.jobs import shards_of

from .. import metrics
from ..core.history import History, Past
from ..core.model import ReadModel

log = logging.getLogger(__name__)

ASK_TIMEOUT_S = 30.0
ASK_AGAIN_S = 0.5
#: Between two readings of all jobs that unknown jobs bring forward, as a multiple of what a reading takes, and at least.
SPACING, LEAST_S = 20.0, 2.0
#: All jobs and claims are read again after this time, which ends differences that no message reports.
READ_AGAIN_S = 300.0

#: Phases of jobs that are there.
_LIVE = frozenset({JobPhase.PENDING, JobPhase.WAITING, JobPhase.BOUND, JobPhase.RUNNING})


@dataclass(slots=True)
class _Listing:
    """The pages of one answer, without the jobs and pods that the model has taken."""

    jobs: set[JobId] = field(default_factory=set)
    pods: set[PodUid] = field(default_factory=set)
    verdicts: dict[JobId, JobVerdict] = field(default_factory=dict)
    groups: list[GroupState] = field(default_factory=list)
    shards: dict[JobId, str] = field(default_factory=dict)

    def clear(self) -> None:
        for each in (self.jobs, self.pods, self.verdicts, self.groups, self.shards):
            each.clear()


class Feed:
    """Fills `model` and `history`."""

    def __init__(self, bus: Bus, model: ReadModel, history: History, *, instance: str) -> None:
        self._bus, self._model, self._history, self._instance = bus, model, history, instance
        self.state_read = self.jobs_read = self.claims_read = False
        self._ask_jobs, self._ask_claims = asyncio.Event(), asyncio.Event()
        self._rested_until = 0.0
        self._policies: dict[str, float] = {}
        self._early: list[ClaimsChanged] = []

    @property
    def ready(self) -> bool:
        return self.state_read and self.jobs_read and self.claims_read

    @property
    def missing(self) -> str:
        parts = {"nodes and queues": self.state_read, "jobs": self.jobs_read, "claims": self.claims_read}
        return ", ".join(name for name, read in parts.items() if not read)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(
                self._bus.follow(
                    [NodeStateChanged, HealthVerdict, NodeRests, QueueStateChanged, PolicyFollowed, WaitsAttributed],
                    self._on_state,
                    start=Start.LAST_PER_SUBJECT,
                    on_ready=self._state_ready,
                )
            )
            group.create_task(
                self._bus.follow(
                    [JobsPending, JobsWithdrawn, PodsObserved, JobsWaiting],
                    self._on_jobs,
                    on_ready=self._ask_jobs.set,
                    on_gap=self._jobs_lost,
                )
            )
            group.create_task(
                self._bus.follow([ClaimsChanged], self._on_claims, on_ready=self._ask_claims.set, on_gap=self._claims_lost)
            )
            group.create_task(self._bus.follow(PUBLIC_TYPES, self._on_public_events, start=Start.ALL))
            group.create_task(
                self._bus.follow([JobPhaseChanged, EvictionReceipt], self._on_events, start=Start.ALL, writers_only=True)
            )
            group.create_task(self._read_jobs())
            group.create_task(self._read_claims())

    # --- last values

    def _state_ready(self) -> None:
        self.state_read = True

    async def _on_state(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            match delivery.event:
                case NodeStateChanged(node=node):
                    self._model.on_node(node)
                case HealthVerdict(verdict=verdict, node_gone=gone):
                    self._model.on_verdict(verdict, gone=gone)
                case NodeRests(rest=rest):
                    self._model.on_rest(rest)
                case QueueStateChanged() as state:
                    self._model.on_queue(
                        state.queue,
                        state.used,
                        gone=state.gone,
                        recent_cards=state.recent_cards,
                        half_life_h=state.half_life_h,
                    )
                case WaitsAttributed(waits=waits):
                    self._model.on_waits(delivery.subject, waits)
                case PolicyFollowed(usage_weight=weight):
                    self._policies[delivery.subject] = weight
                    self._model.usage_weight = max(self._policies.values())

    # --- jobs

    async def _jobs_lost(self) -> None:
        self._ask_jobs.set()

    async def _on_jobs(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            match delivery.event:
                case JobsPending(jobs=jobs, groups=groups, anew=anew):
                    shard = "" if delivery.key == ONE_SHARD else delivery.key
                    self._model.on_groups(groups, {group.id: shard for group in groups})
                    self._model.on_jobs(jobs, shard)
                    if anew:
                        self._ask_jobs.set()
                case JobsWithdrawn(jobs=ids, revisions=revisions):
                    self._model.on_withdrawn(ids, revisions)
                case PodsObserved(pods=pods):
                    self._model.on_pods(pods)
                case JobsWaiting(verdicts=verdicts):
                    self._model.on_verdicts(verdicts)

    async def _read_jobs(self) -> NoReturn:
        while True:
            try:
                async with asyncio.timeout(READ_AGAIN_S):
                    await self._ask_jobs.wait()
            except TimeoutError:
                pass  # it is time for another reading
            await asyncio.sleep(self._rested_until - monotonic_s())
            self._ask_jobs.clear()
            began = monotonic_s()
            self._model.snapshot_requested()
            asked = JobsAsked(
                asker=self._instance, jobs=True, pods=True, verdicts=True, held=True, complete=True, computed=True
            )
            listing = _Listing()
            try:
                pages = await self._bus.ask(
                    asked, JobsPage, timeout_s=ASK_TIMEOUT_S, on_page=partial(self._take_page, listing), keep_items=False
                )
            except (Unavailable, InvalidRequest) as e:
                log.info("jobs cannot be read yet: %s", e)
                pages = []
            if not pages or not all(page.complete and page.computed for page in pages):
                self._ask_jobs.set()
                await asyncio.sleep(ASK_AGAIN_S + monotonic_s() - began)
                continue
            self._model.on_all_listed(listing.jobs, listing.pods, listing.verdicts, listing.groups, listing.shards)
            self._rested_until = monotonic_s() + max(LEAST_S, SPACING * (monotonic_s() - began))
            self.jobs_read = True
            metrics.SNAPSHOTS.labels("jobs").inc()

    async def _take_page(self, listing: "_Listing", number: int, page: JobsPage) -> None:
        """Take the jobs and pods of one page into the model, and note in `listing` what the whole answer has."""
        if not number:
            listing.clear()
        if not page.complete or not page.computed:
            return
        shards = shards_of([page])
        listing.shards |= shards
        listing.jobs.update(job.id for job in page.jobs)
        listing.pods.update(pod.uid for pod in page.pods)
        listing.verdicts |= {verdict.job: verdict for verdict in page.verdicts}
        listing.groups += page.groups
        self._model.on_listed(page.jobs, shards)
        self._model.on_listed_pods(page.pods)

    # --- claims

    async def _claims_lost(self) -> None:
        self._ask_claims.set()

    async def _on_claims(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            change = delivery.event
            assert isinstance(change, ClaimsChanged)
            if not self._apply(change):
                self._early.append(change)
                del self._early[:-1000]
                self._ask_claims.set()

    def _apply(self, change: ClaimsChanged) -> bool:
        return self._model.on_claims(epoch=change.epoch, previous=change.previous, index=change.index, claims=change.claims)

    async def _read_claims(self) -> NoReturn:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(READ_AGAIN_S):
                    await self._ask_claims.wait()
            self._ask_claims.clear()
            claims: list[Claim] = []

            async def take(number: int, page: ClaimsPage, claims: list[Claim] = claims) -> None:
                if not number:
                    claims.clear()
                claims += self._model.shared(page.claims)

            try:
                pages = await self._bus.ask(
                    ClaimsAsked(asker=self._instance), ClaimsPage, timeout_s=ASK_TIMEOUT_S, on_page=take, keep_items=False
                )
            except (Unavailable, InvalidRequest) as e:
                log.info("claims cannot be read yet: %s", e)
                pages = []
            if not pages:
                self._ask_claims.set()
                await asyncio.sleep(ASK_AGAIN_S)
                continue
            self._model.on_claims_snapshot(
                epoch=pages[0].epoch,
                index=pages[0].index,
                claims=claims,
                shares={name: share for page in pages for name, share in page.shares.items()},
            )
            early, self._early = self._early, []
            for change in early:
                if not self._apply(change):
                    self._ask_claims.set()
            self.claims_read = True
            metrics.SNAPSHOTS.labels("claims").inc()
            await asyncio.sleep(ASK_AGAIN_S)

    # --- events

    async def _on_public_events(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            assert isinstance(delivery.event, CloudEvent)
            self._history.events.append(Past(delivery.sequence, delivery.stored_at, delivery.event))

    async def _on_events(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            event = delivery.event
            if isinstance(event, JobPhaseChanged):
                if event.phase is JobPhase.DELETED:
                    self._model.on_deleted(event.job)
                elif event.phase in _LIVE and not self._model.knows_job(event.job):
                    self._ask_jobs.set()
                self._model.names.mention(event.namespace, event.name)
            elif isinstance(event, EvictionReceipt):
                self._history.receipts.append(event)
                for pod in event.pods:
                    self._model.names.mention(event.namespace, pod.pod)
                if event.for_name:
                    self._model.names.mention(event.for_namespace, event.for_name)
