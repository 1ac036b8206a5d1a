"""Publishes the core's changes on the bus: the first change at once, then all changes within a window together.

The core, not this shell, remembers what differs: while the broker is unavailable, one batch is retried under the same message ids, and all other changes
gather, coalesced, in the core.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import TypeVar

from hbox_common.bus import Bus
from hbox_common.clock import monotonic_s, new_id, wall_s
from hbox_common.events import Event, JobsAsked, JobsPage, JobsPending, JobsWithdrawn, PodsObserved
from hbox_common.insisting import insist
from hbox_common.kube import Freshness
from hbox_common.model import GroupState, Job, JobId, PodFact, PodPhase, demand_of, terms_of
from hbox_common.telemetry import within

from .. import metrics
from ..core.batch import Batch
from ..core.feedback import Feedback
from ..core.jobs import MAX_ITEMS, Jobs
from ..core.queues import Burst
from .traces import JobTraces

log = logging.getLogger(__name__)

WINDOW_S = 0.010
WINDOW_UNDER_BACKLOG_S = 0.025
#: For more than BURST_JOBS jobs within a window: then throughput counts, which depends on the CPU time that messages leave.
WINDOW_IN_A_BURST_S = 0.05
BURST_JOBS = 4
#: Window while so many jobs are in progress that one more waits far longer than the window: the work that an announcement causes (a plan, a commit, a
#: decision, each with its messages) costs about the same for thirty jobs as for sixty. The criterion is jobs in progress and not the rate alone: 50 pods a
#: second
#: that arrive in clumps are no backlog, and a window of 0.1 s would keep the clumps.
WINDOW_UNDER_LOAD_S, UNDER_LOAD = 0.2, 64

#: Seconds after which the highest revision is published again if no other message was: the stream drops messages older than a quarter of an hour, and the next
#: process has to continue above it, even if the clock was set back.
REVISION_S = 300.0

#: Pods that came and pods that were bound a second, above which the platform is busy; and for how long it is so after that.
BUSY_PER_S, BUSY_FOR_S = 120.0, 3.0

PAGE_ITEMS = 500
PAGE_PODS = 10_000

#: Age of a view that never existed; maximum characters of a view's problem.
MOST_AGE_S, MOST_WHY = 1e9, 1000

T = TypeVar("T")
J = TypeVar("J", Job, GroupState)


class Announcer:
    """The writers of `jobs` set `wake`; the announcer sets `behind` when there may be changes for Kubernetes."""

    def __init__(
        self,
        jobs: Jobs,
        feedback: Feedback,
        traces: JobTraces,
        bus: Bus,
        *,
        wake: asyncio.Event,
        behind: asyncio.Event,
        groups_delivered: Callable[[], str],
        unread: asyncio.Event,
    ) -> None:
        """`groups_delivered`: returns the resourceVersion up to which the watch has delivered PodGroups; `unread`: set when PodGroups have to be read."""
        self._jobs, self._feedback, self._traces, self._bus = jobs, feedback, traces, bus
        self._shards = jobs.routing.shards.names
        self._wake, self._behind = wake, behind
        self._groups_delivered, self._unread = groups_delivered, unread
        self._busy = Burst(BUSY_PER_S, BUSY_FOR_S)
        self._revision_at = 0.0  #: monotonic time of the last publication of the highest revision

    def busy(self) -> bool:
        """Whether so many jobs are being placed that changes without urgency should wait."""
        return self._busy.lasts(monotonic_s())

    def came(self, pods: int) -> None:
        """So many pods to place were seen for the first time."""
        self._busy.count(pods, monotonic_s())

    def window_s(self, jobs: int) -> float:
        """Until the next announcement, behind one of so many jobs. Two within a window: more are coming, and each message costs every service behind us."""
        if jobs > BURST_JOBS:
            return WINDOW_UNDER_LOAD_S if self._jobs.pending > UNDER_LOAD and self.busy() else WINDOW_IN_A_BURST_S
        return WINDOW_UNDER_BACKLOG_S if jobs > 1 else WINDOW_S

    async def run(self) -> None:
        """Run until cancelled. Pods that wait for a node never wait for facts or withdrawals to be published."""
        publishing: asyncio.Task[None] | None = None
        others, until = False, 0.0  # until: next turn of the crowded namespaces
        await self._publish(JobsPending(jobs=(), anew=True))
        async with asyncio.TaskGroup() as group:
            while True:
                await self._something_due()
                started, wall = monotonic_s(), wall_s()
                self._jobs.groups_delivered(self._groups_delivered())
                batch = self._jobs.take(started, wall, others=others)
                self._unread.set()
                for record in batch.settled:
                    self._feedback.settled(record, started)
                self._behind.set()
                for shard, left in batch.groups_left:
                    await self._publish(JobsPending(jobs=(), groups=(left,)), [shard])
                if batch.missing:  # before the facts about the pods that ended
                    await self._publish(JobsPending(jobs=(), missing=batch.missing))
                if batch.facts or batch.withdrawn or batch.left:
                    if publishing is not None:
                        await publishing  # while the broker is away, the rest gathers in the core
                    publishing = group.create_task(self._publish_facts(batch))
                if batch.priority_classes is not None:
                    await self._publish(JobsPending(jobs=(), priority_classes=dict(batch.priority_classes)))
                if batch.namespaces is not None:
                    await self._publish(JobsPending(jobs=(), namespaces=_plain(batch.namespaces)))
                if batch.neighbours:  # first: jobs are placed by them
                    await self._publish(JobsPending(jobs=(), neighbours=batch.neighbours))
                if batch.groups:  # before the jobs that they are, too
                    for shards, groups in self._by_shards(batch.groups, [group.id for group in batch.groups], batch):
                        await self._publish(JobsPending(jobs=(), groups=tuple(groups)), shards)
                if batch.pending:
                    for shards, jobs in self._by_shards(batch.pending, [job.id for job in batch.pending], batch):
                        await self._pending(jobs, shards)
                    metrics.PUBLISH.observe(monotonic_s() - started)
                self._traces.announced(batch.pending, batch.settled, wall, wall_s())
                self._busy.count(sum(fact.phase is PodPhase.BOUND for fact in batch.facts), started)
                if not others:
                    until = started + (self.window_s(len(batch.pending)) if batch.settled else 0.0)
                others = await self._rest(until)

    async def _rest(self, until: float) -> bool:
        """Until that time; returns sooner, and true, where a namespace that is none of the crowd has something: it does not wait for the crowd's company,
        but WINDOW_UNDER_BACKLOG_S."""
        await asyncio.sleep(min(until - monotonic_s(), WINDOW_UNDER_BACKLOG_S))
        if monotonic_s() >= until:
            return False
        while not self._jobs.others_wait:
            self._wake.clear()
            try:
                async with asyncio.timeout(until - monotonic_s()):
                    await self._wake.wait()
            except TimeoutError:
                return False
        return monotonic_s() < until

    async def _something_due(self) -> None:
        while True:
            self._wake.clear()
            due, now = self._jobs.next_due(), monotonic_s()
            if due is not None and due <= now:
                return
            again = self._revision_at + REVISION_S
            if again <= now:
                await self._publish(JobsPending(jobs=()))
                continue
            try:
                async with asyncio.timeout((again if due is None else min(due, again)) - now):
                    await self._wake.wait()
            except TimeoutError:
                pass  # the lazy ones are due

    async def _publish_facts(self, batch: Batch) -> None:
        if batch.facts:
            await self._facts(batch.facts)
        for shards, withdrawn in self._by_shards(batch.withdrawn, [job for job, _ in batch.withdrawn], batch):
            await self._withdrawn(withdrawn, shards)
        for shard in dict.fromkeys(shard for shard, _, _ in batch.left):
            await self._withdrawn([(job, revision) for left, job, revision in batch.left if left == shard], [shard])

    def _by_shards(
        self, items: Sequence[T], jobs: Sequence[JobId], batch: Batch
    ) -> Iterator[tuple[Sequence[str], Sequence[T]]]:
        """The items, which belong to these jobs, by their receivers: the schedulers of one shard, or of all shards if it is unknown."""
        if not items or len(self._shards) == 1:
            yield from [(self._shards, items)] if items else []
            return
        found: dict[str, list[T]] = {}
        for item, job in zip(items, jobs, strict=True):
            found.setdefault(batch.shards.get(job) or self._jobs.shard_of(job), []).append(item)
        for shard, some in found.items():
            yield [shard] if shard else self._shards, some

    async def _facts(self, facts: Sequence[PodFact]) -> None:
        await self._publish(PodsObserved(pods=tuple(facts)))
        metrics.FACTS.inc(len(facts))

    async def _withdrawn(self, withdrawn: Sequence[tuple[JobId, int]], shards: Sequence[str]) -> None:
        for start in range(0, len(withdrawn), MAX_ITEMS):
            some = withdrawn[start : start + MAX_ITEMS]
            await self._publish(JobsWithdrawn(jobs=tuple(job for job, _ in some), revisions=tuple(r for _, r in some)), shards)
        metrics.WITHDRAWN.inc(len(withdrawn))

    async def _pending(self, jobs: Sequence[Job], shards: Sequence[str]) -> None:
        refused = await self._publish(JobsPending(jobs=tuple(jobs)), shards)
        metrics.ANNOUNCED.inc(len(jobs) - len(refused))
        for event in refused:
            assert isinstance(event, JobsPending)
            for job in event.jobs:
                pods = _pods_of(job)
                with within(job.traceparent):
                    log.error("job %s/%s cannot be announced", job.namespace, job.name)
                why = f"its {pods} pods in {len(job.tasks)} different shapes are more than one message carries"
                self._jobs.unpublishable(job.id, f"{why}: make them alike, or split the job", monotonic_s())

    async def _publish(self, event: Event, shards: Sequence[str] = ()) -> list[Event]:
        """Publish the event to these shards (none: all; messages for the ledger alone go to the first), in as many messages as necessary, and retry until the
        broker
        is available. Returns the parts that exceed every message.
        """
        if isinstance(event, JobsPending):
            event, self._revision_at = event.model_copy(update={"revision": self._jobs.revision}), monotonic_s()
        refused: list[Event] = []
        for shard in shards or (self._shards[:1] if isinstance(event, PodsObserved) else self._shards):
            refused = await self._publish_to(event, shard)
        return refused

    async def _publish_to(self, event: Event, shard: str) -> list[Event]:
        message_id = new_id()
        return await insist(
            lambda: self._bus.publish_parts(event, shard, message_id=message_id),
            on_unavailable=lambda e: log.warning("%s not published yet, retrying: %s", type(event).__name__, e),
        )


def pages(
    asked: JobsAsked, jobs: Jobs, seen: Freshness, *, synced: bool, without: Mapping[str, str] | None = None
) -> Iterator[JobsPage]:
    """The answer to `asked`: at least one page; the bus divides those that are too large. `seen`: freshness of the copy of pods; if it is stale, its pages are
    returned all the same, marked incomplete: they are useful for display but not for decisions. A program that can use only complete pages sets
    `JobsAsked.complete`. `without`: shards without a scheduler, with the message for their jobs.

    The jobs and the pods that are listed are those of the call. All that is computed of them is computed page by page, since 100,000 pods take a second: other
    tasks run between two pages. What changes meanwhile is published too, and a page has the present state or an older one, as if the whole answer had been
    delayed. Pods that end between two pages are among `ended`, which is read last.
    """
    page = partial(
        JobsPage,
        complete=synced and not seen.old,
        resource_version=seen.resource_version,
        age_s=min(seen.age_s, MOST_AGE_S),
        why=seen.why[:MOST_WHY],
        computed=jobs.computed,
    )
    if (asked.complete and (not synced or seen.old)) or (asked.computed and not jobs.computed):
        return iter([page()])
    wanted: list[Iterable[JobsPage]] = []
    if synced:
        shards = (asked.shard,) if asked.shard else jobs.routing.shards.names
        wanted += [_of_shard(asked, jobs, shard, partial(page, shard=shard)) for shard in shards]
    if synced and asked.pods:
        wanted.append(page(pods=some) for some in _some(jobs.facts()))
        wanted.append(page(leaving=some) for some in _some(jobs.leaving()))
    if synced and asked.ended:
        wanted.append(page(pods=some) for some in _some(jobs.ended(monotonic_s())))
    if synced and asked.verdicts:
        wanted.append(page(verdicts=some) for some in _some(jobs.verdicts(without or {})))
    if synced and asked.waits:
        wanted.append(page(waits=some) for some in _some(jobs.waits.all()))
    if synced and asked.jobs:
        wanted.append(page(neighbours=some) for some in _some(jobs.neighbours.all()))
        namespaces = _plain(jobs.neighbours.namespaces.all())
        wanted.append([page(priority_classes=dict(jobs.priority_classes), namespaces=namespaces)])
    return _at_least_one(chain.from_iterable(wanted), page)


def _of_shard(asked: JobsAsked, jobs: Jobs, shard: str, page: Callable[..., JobsPage]) -> Iterator[JobsPage]:
    """What is wanted of the jobs of one shard."""
    own = partial(_own, jobs, shard)
    wanted: list[Iterable[JobsPage]] = []
    if asked.jobs:
        found = [*own(jobs.jobs()), *(own(jobs.held()) if asked.held else ())]
        wanted.append(page(jobs=some) for some in _chunks((j, max(1, j.members - j.bound)) for j in found))
    if asked.placed:
        wanted.append(page(placed=some) for some in _chunks((j, _pods_of(j)) for j in own(jobs.placed())))
    waiting = [job for job in own(jobs.jobs()) if job.tasks] if asked.demand or asked.terms else []
    if asked.demand:
        wanted.append(page(demand=some) for some in _chunks((demand_of(job), _pods_of(job)) for job in waiting))
    elif asked.terms:
        wanted.append(page(terms=some) for some in _some(map(terms_of, waiting)))
    if asked.jobs:
        wanted.append([page(groups=some) for some in _some(own(jobs.admission.all()))])
        wanted.append([page(missing=some) for some in _some(jobs.successions.all())])
    found_pages = chain.from_iterable(wanted)
    return (
        _at_least_one(found_pages, page) if jobs.routing.shards.several else found_pages
    )  # a page shows that the shard exists


def _at_least_one(found: Iterator[JobsPage], page: Callable[[], JobsPage]) -> Iterator[JobsPage]:
    yield next(found, None) or page()
    yield from found


def _pods_of(job: Job) -> int:
    return sum(len(task.pods) for task in job.tasks)


def _own(jobs: Jobs, shard: str, found: Iterable[J]) -> Iterator[J]:
    """Those that schedulers of the shard place."""
    return iter(found) if not jobs.routing.shards.several else (one for one in found if jobs.shard_of(one.id) == shard)


def _some(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """In order, PAGE_ITEMS together."""
    found = iter(items)
    while some := tuple(islice(found, PAGE_ITEMS)):
        yield some


def _plain(namespaces: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {name: dict(labels) for name, labels in namespaces.items()}


def last_revision(event: Event) -> int:
    """The highest revision in one of our messages; 0 if it has none, like an older one without jobs."""
    match event:
        case JobsPending(jobs=jobs, groups=groups, revision=revision):
            return max((revision, *(job.revision for job in jobs), *(group.revision for group in groups)))
        case JobsWithdrawn(revisions=revisions):
            return max(revisions, default=0)
    return 0


def _chunks(weighed: Iterable[tuple[T, int]]) -> Iterator[tuple[T, ...]]:
    """Items with their weights, in order, at most PAGE_ITEMS and, unless one alone has more, PAGE_PODS of weight together."""
    chunk: list[T] = []
    weight = 0
    for item, own in weighed:
        if chunk and (len(chunk) >= PAGE_ITEMS or weight + own > PAGE_PODS):
            yield tuple(chunk)
            chunk, weight = [], 0
        chunk.append(item)
        weight += own
    if chunk:
        yield tuple(chunk)
