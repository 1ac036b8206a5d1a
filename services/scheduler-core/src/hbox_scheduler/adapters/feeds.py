"""Inputs of the scheduler: followed on the bus, and read as a whole if a feed has missed messages.

Claims: while a snapshot is requested, changes keep arriving that do not fit the old view. They are kept and applied after the snapshot, so that a busy ledger
cannot keep a new scheduler from catching up. Jobs carry revisions and do not need this.

At the start the pages of snapshots are processed when they arrive, later once the answer is complete; always in slices, so that the loop answers other messages
in between. While the claims of a snapshot are being booked, nothing is planned and no later change is applied.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

from hbox_common.bus import Bus, Delivery, Start
from hbox_common.clock import monotonic_s
from hbox_common.errors import HBoxError, InvalidRequest, Unavailable
from hbox_common.events import (
    BudgetsChanged,
    CardQuotasChanged,
    ClaimsAsked,
    ClaimsChanged,
    ClaimsPage,
    Event,
    FabricChanged,
    FabricGapsFound,
    FabricSeen,
    HealthVerdict,
    JobsAsked,
    JobsPage,
    JobsPending,
    JobsWithdrawn,
    NamespaceQuotasChanged,
    NodeImagesChanged,
    NodeRests,
    NodesMeasured,
    NodeStateChanged,
    NodeZonesChanged,
    PlansAnswered,
    QueueStateChanged,
    RunTimesLearned,
    VictimsStayed,
)
from hbox_common.model import (
    CardQuota,
    Claim,
    ClassQuota,
    GroupState,
    Job,
    NodeName,
    NodeState,
    PodBudget,
    RefusalReason,
    ResourceQuota,
    pool_of,
)
from hbox_common.model.shards import ONE_SHARD, Shards
from hbox_common.model.sharing import Shared
from hbox_common.pace import in_slices

from .. import metrics
from ..core import Scheduler
from ..faults import Guard, Kind, Quarantine, Suspect

log = logging.getLogger(__name__)

#: Between two questions, when the answer was "not yet" or none at all.
ASK_AGAIN_S = 0.25
ASK_TIMEOUT_S = 10.0
#: The same for everything, whose pages are processed while they arrive: 100,000 claims take some seconds, and a crowded machine several times as long. A server
#: that is silent is asked again much earlier.
READ_TIMEOUT_S = 60.0
#: Between two requests for the ledger's head while it is frozen and publishes no change.
FROZEN_AGAIN_S = 2.0
#: The place was free when the plan was made, and was taken meanwhile: by another shard, or by pods that Kubernetes reported.
CONFLICTING = frozenset(
    {RefusalReason.POD_CLAIMED, RefusalReason.NODE_RESOURCES, RefusalReason.CARD_TAKEN, RefusalReason.VICTIM_GONE}
)
#: Between two requests for the head alone, while the ledger holds plans back.
HELD_AGAIN_S = 0.5


class Feeds:
    """Passes the inputs to `scheduler`, without those in `quarantine`, and calls `changed` after each change, and `grown` after each slice of jobs and claims
    that were read. All three states have to be read before it may plan."""

    def __init__(
        self,
        scheduler: Scheduler,
        bus: Bus,
        *,
        instance: str,
        guard: Guard,
        quarantine: Quarantine,
        changed: Callable[[], None],
        grown: Callable[[], None] = lambda: None,
        shards: Shards = Shards.ONE,
        shard: str = ONE_SHARD,
    ) -> None:
        self._scheduler, self._bus, self._instance, self._changed = scheduler, bus, instance, changed
        self._guard, self._quarantine, self._grown = guard, quarantine, grown
        self._withheld: dict[NodeName, dict[type[Event], Event]] = {}  #: latest events of nodes in quarantine
        self._shards, self._shard = shards, shard
        self._shared = Shared()
        self.state_read = self.jobs_read = self.claims_read = False
        self._booking = False  #: claims of a snapshot that is not complete are booked
        self._ask_jobs, self._ask_claims, self._held = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._card_quotas: dict[str, tuple[CardQuota, ...]] = {}  #: by shard
        self._class_quotas: dict[str, tuple[ClassQuota, ...]] = {}  #: likewise
        self._namespace_quotas: dict[str, tuple[ResourceQuota, ...]] = {}
        self._budgets: dict[str, tuple[PodBudget, ...]] = {}
        self._early: deque[ClaimsChanged] = deque(maxlen=10_000)
        self._warned: dict[str, str] = {}

    @property
    def ready(self) -> bool:
        return self.state_read and self.jobs_read and self.claims_read and not self._booking

    @property
    def booking(self) -> bool:
        """Whether a snapshot of claims is booked in part."""
        return self._booking

    async def run(self) -> None:
        """Run until cancelled. Snapshots are requested only once the feed behind them is followed, so that no message is missed in between."""
        own: dict[type[Event], tuple[str, ...]] = {}
        if self._shards.several:
            own = {JobsPending: (self._shard,), JobsWithdrawn: (self._shard,), PlansAnswered: (self._scheduler.id,)}
        async with asyncio.TaskGroup() as group:
            group.create_task(
                self._bus.follow(
                    [
                        NodeStateChanged,
                        NodeZonesChanged,
                        HealthVerdict,
                        NodeRests,
                        QueueStateChanged,
                        CardQuotasChanged,
                        NamespaceQuotasChanged,
                        FabricChanged,
                        FabricGapsFound,
                        FabricSeen,
                        NodesMeasured,
                        NodeImagesChanged,
                        BudgetsChanged,
                        RunTimesLearned,
                    ],
                    self._on_state,
                    start=Start.LAST_PER_SUBJECT,
                    on_ready=self._state_ready,
                )
            )
            group.create_task(
                self._bus.follow(
                    [JobsPending, JobsWithdrawn],
                    self._on_jobs,
                    on_ready=self._ask_jobs.set,
                    on_gap=self._jobs_lost,
                    keys={key: own[key] for key in (JobsPending, JobsWithdrawn) if key in own},
                )
            )
            group.create_task(
                self._bus.follow(
                    [ClaimsChanged, PlansAnswered, VictimsStayed],
                    self._on_ledger,
                    on_ready=self._ask_claims.set,
                    on_gap=self._claims_lost,
                    keys={key: own[key] for key in (PlansAnswered,) if key in own},
                )
            )
            group.create_task(self._read_jobs())
            group.create_task(self._read_claims())
            group.create_task(self._ask_while_held())

    def _warn_once(self, of: str, error: HBoxError) -> None:
        """Log once what is missing; the request itself is repeated four times a second."""
        if self._warned.get(of) != error.message:
            self._warned[of] = error.message
            log.warning("%s cannot be read yet: %s", of, error)

    # State.

    def _state_ready(self) -> None:
        self.state_read = True
        self._changed()

    def come_back(self, one: Suspect) -> None:
        """Its quarantine is over. Jobs are there only once all are read."""
        if one.kind is not Kind.NODE:
            self.ask_jobs()
            return
        for event in self._withheld.pop(NodeName(one.name), {}).values():
            with self._guard():
                self._on_event_of_node(event)
        self._changed()

    def _on_event_of_node(self, event: Event) -> None:
        match event:
            case NodeStateChanged(node=node):
                self._on_node(node)
            case NodeZonesChanged(zones=zones):
                self._scheduler.on_zones(zones)
            case HealthVerdict(verdict=verdict):
                self._scheduler.on_verdict(verdict)
            case NodeRests(rest=rest):
                self._scheduler.on_rest(rest)

    async def _on_state(self, deliveries: Sequence[Delivery]) -> None:
        def work(some: Iterable[Delivery]) -> None:
            with self._guard():
                for delivery in some:
                    self._on_state_event(delivery)

        await in_slices(deliveries, work)
        metrics.NODES.set(len(self._scheduler.columns.row_of))
        self._changed()

    def _on_state_event(self, delivery: Delivery) -> None:
        match delivery.event:
            case NodeStateChanged() | NodeZonesChanged() | HealthVerdict() | NodeRests() as event:
                if self._quarantine.holds_node(name := _node_of(event)):
                    self._withheld.setdefault(name, {})[type(event)] = event
                else:
                    self._on_event_of_node(event)
            case FabricChanged(fabric=fabric, hypernodes=hypernodes, version=version):
                self._scheduler.on_fabric(hypernodes, fabric, version)
            case FabricGapsFound(fabric=fabric, degraded=degraded):
                self._scheduler.on_fabric_gaps(fabric, degraded)
            case FabricSeen(fabric=fabric, seen_at=seen_at, source=source):
                self._scheduler.on_fabric_seen(fabric, seen_at, source)
            case RunTimesLearned(learned=learned):
                self._scheduler.on_run_times(learned)
            case NodesMeasured(usages=usages):
                self._scheduler.on_usage(usages)
            case NodeImagesChanged(images=images):
                self._scheduler.on_images(delivery.subject, images)
            case CardQuotasChanged(quotas=quotas, classes=limited, index=index):
                if limited != self._class_quotas.get(delivery.subject, ()):
                    self._class_quotas[delivery.subject] = limited
                    classes = tuple(one for some in self._class_quotas.values() for one in some)
                    self._scheduler.on_class_quotas(classes, index)
                self._card_quotas[delivery.subject] = quotas
                self._scheduler.on_card_quotas(tuple(one for some in self._card_quotas.values() for one in some))
            case NamespaceQuotasChanged(quotas=amounts):
                self._namespace_quotas[delivery.subject] = amounts
                self._scheduler.on_namespace_quotas(tuple(one for some in self._namespace_quotas.values() for one in some))
            case BudgetsChanged(budgets=budgets):
                self._budgets[delivery.subject] = budgets
                self._scheduler.on_budgets(one for some in self._budgets.values() for one in some)
            case QueueStateChanged(queue=queue, gone=gone, recent_cards=recent):
                self._scheduler.on_queue(queue, gone=gone, recent_cards=recent)

    def _on_node(self, node: NodeState) -> None:
        """Nodes of other shards are removed: the scheduler neither places pods on them nor evicts pods from them."""
        if self._shards.has_node(self._shard, pool_of(node.labels)):
            self._scheduler.on_node(node)
        elif node.name in self._scheduler.columns.row_of:
            self._scheduler.on_node(replace(node, gone=True))

    # Jobs.

    async def _on_jobs(self, deliveries: Sequence[Delivery]) -> None:
        with self._guard():
            self._on_job_events(deliveries)
        self._changed()

    def _on_job_events(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            if delivery.key != self._shard:
                self._leave(delivery.event)
                continue
            if isinstance(delivery.event, JobsPending) and delivery.event.anew:
                # A job-controller that restarted publishes no zero for the numbers of its predecessor.
                self._scheduler.on_missing_snapshot(())
            match delivery.event:
                case JobsPending(anew=True) if self._scheduler.admission.on or self._shards.several:
                    self.ask_jobs()  # a PodGroup that was deleted meanwhile would be counted for ever; a job may be another shard's by now
                case JobsPending(
                    jobs=jobs,
                    neighbours=neighbours,
                    priority_classes=classes,
                    namespaces=namespaces,
                    groups=groups,
                    missing=missing,
                ):
                    if classes is not None:
                        self._scheduler.on_priority_classes(classes)
                    if namespaces is not None:
                        self._scheduler.on_namespaces(namespaces)
                    self._scheduler.on_neighbours(neighbours)
                    if groups:
                        self._scheduler.on_groups(self._groups_let_in(groups))
                    if missing:
                        self._scheduler.on_missing(missing)
                    self._scheduler.on_jobs(self._let_in(jobs))
                case JobsWithdrawn(jobs=jobs, revisions=revisions):
                    self._scheduler.on_withdrawn(jobs, revisions)

    def _let_in(self, jobs: Iterable[Job]) -> list[Job]:
        return [job for job in jobs if not self._quarantine.holds_job(job.id, job.namespace)]

    def _groups_let_in(self, groups: Iterable[GroupState]) -> list[GroupState]:
        return [group for group in groups if not self._quarantine.holds_job(group.id, group.namespace)]

    def _leave(self, event: Event) -> None:
        """These jobs belong to another shard: withdraw those that were ours. Followed if job-controller has shards and this process has none."""
        if isinstance(event, JobsPending):
            left = [job for job in event.jobs if self._scheduler.reports.entry(job.id) is not None]
            self._scheduler.on_withdrawn([job.id for job in left], [job.revision for job in left])

    async def _jobs_lost(self) -> None:
        self.ask_jobs()

    def ask_jobs(self) -> None:
        """Request all jobs again."""
        self._ask_jobs.set()

    async def _read_jobs(self) -> NoReturn:
        while True:
            await self._ask_jobs.wait()
            self._ask_jobs.clear()
            mark, began, placed = self._scheduler.mark(), monotonic_s(), self._scheduler.reports.moves_pods
            record = partial(self._record_jobs, mark)
            try:
                pages = await self._bus.ask(
                    JobsAsked(
                        asker=self._instance,
                        gatekeeper=self._scheduler.id,
                        placed=placed,
                        complete=True,
                        shard=self._shard if self._shards.several else "",
                    ),
                    JobsPage,
                    timeout_s=READ_TIMEOUT_S,
                    on_page=None if self.jobs_read else record,
                )
            except (Unavailable, InvalidRequest) as e:
                self._warn_once("jobs", e)
                pages = []
            if not pages or not all(page.complete for page in pages):
                self._ask_jobs.set()
                await asyncio.sleep(ASK_AGAIN_S)
                continue
            if self.jobs_read:
                for number, page in enumerate(pages):
                    await record(number, page)
            with self._guard():
                self._take_jobs(pages, mark)
            metrics.SNAPSHOTS.labels("jobs").inc()
            self._warned.pop("jobs", None)
            self.jobs_read = True
            self._changed()
            if placed and not all(page.computed for page in pages):  # placed jobs are missing, and no message announces them
                self._ask_jobs.set()
                await asyncio.sleep(ASK_AGAIN_S + monotonic_s() - began)

    async def _record_jobs(self, mark: int, _: int, page: JobsPage) -> None:
        """Record the jobs of one page, in slices."""

        def work(jobs: Iterable[Job]) -> None:
            with self._guard():
                self._scheduler.on_jobs_page(self._let_in(jobs), since=mark)
            self._grown()

        if not page.complete:
            return
        with self._guard():
            if page.priority_classes is not None:
                self._scheduler.on_priority_classes(page.priority_classes)
            if page.namespaces is not None:
                self._scheduler.on_namespaces(page.namespaces)
            self._scheduler.on_neighbours(page.neighbours)
        if page.shard == self._shard:
            await in_slices(page.jobs, work)

    def _take_jobs(self, pages: Sequence[JobsPage], mark: int) -> None:
        for page in pages:
            if page.priority_classes is not None:
                self._scheduler.on_priority_classes(page.priority_classes)
            if page.namespaces is not None:
                self._scheduler.on_namespaces(page.namespaces)
        self._scheduler.on_neighbours(neighbour for page in pages for neighbour in page.neighbours)
        pages = [page for page in pages if page.shard == self._shard]
        self._scheduler.on_missing_snapshot(one for page in pages for one in page.missing)
        self._scheduler.on_jobs_snapshot(
            self._let_in(job for page in pages for job in page.jobs),
            since=mark,
            groups=self._groups_let_in(group for page in pages for group in page.groups),
        )
        if placed := self._let_in(job for page in pages for job in page.placed):
            self._scheduler.on_placed(placed)

    # The ledger.

    async def _on_ledger(self, deliveries: Sequence[Delivery]) -> None:
        with self._guard():
            self._on_ledger_events(deliveries)
        self._changed()

    def _on_ledger_events(self, deliveries: Sequence[Delivery]) -> None:
        now = monotonic_s()
        for delivery in deliveries:
            match delivery.event:
                case ClaimsChanged() as change if self._booking:
                    self._early.append(change)
                case ClaimsChanged(previous=previous, index=index, claims=claims) if index - previous != len(claims):
                    metrics.FALSE.inc()
                    log.error("changes of claims %d to %d are %d: dropped", previous, index, len(claims))
                    self._ask_claims.set()
                case ClaimsChanged() as change:
                    if not self._apply(change, now):
                        self._early.append(change)
                        self._ask_claims.set()
                    elif self._scheduler.frozen:
                        self._ask_claims.set()  # the ledger opens with a change
                case PlansAnswered(epoch=epoch, index=index, answers=answers):
                    for answer in answers:
                        metrics.ANSWERS.labels("committed" if answer.committed else str(answer.reason)).inc()
                        if answer.reason in CONFLICTING:
                            metrics.CONFLICTS.inc()
                        if answer.reason is RefusalReason.PODS_UNSEEN and not self._scheduler.held:
                            self._scheduler.on_held(answer.message)
                            self._held.set()
                    if not self._scheduler.on_answers(epoch=epoch, index=index, answers=answers, now=now):
                        self._ask_claims.set()
                case VictimsStayed(epoch=epoch, pods=pods):
                    self._scheduler.on_stayed(epoch=epoch, pods=pods, now=now)

    def _apply(self, change: ClaimsChanged, now: float) -> bool:
        return self._scheduler.on_claims(
            epoch=change.epoch,
            previous=change.previous,
            index=change.index,
            claims=tuple(map(self._kept, change.claims)),
            nominations=change.nominations,
            ended=change.ended,
            leaving=change.leaving,
            now=now,
        )

    def _kept(self, claim: Claim) -> Claim:
        """The equal claim that is booked, or else one of shared parts: most claims are read again unchanged."""
        booking = self._scheduler.bookings.get(claim.pod_uid)
        if booking is not None and booking.held == claim:
            return booking.held
        return self._shared.claim(claim)

    async def _claims_lost(self) -> None:
        self._ask_claims.set()

    async def _read_claims(self) -> NoReturn:
        while True:
            await self._ask_claims.wait()
            self._ask_claims.clear()
            before = len(self._early)
            claims: list[Claim] = []
            book = partial(self._book_claims, claims)
            try:
                pages = await self._bus.ask(
                    ClaimsAsked(asker=self._instance),
                    ClaimsPage,
                    timeout_s=READ_TIMEOUT_S,
                    on_page=None if self.claims_read else book,
                )
            except (Unavailable, InvalidRequest) as e:
                self._warn_once("claims", e)
                pages = []
            if not pages:
                self._ask_claims.set()
                await asyncio.sleep(ASK_AGAIN_S)
                continue
            if self.claims_read:
                for number, page in enumerate(pages):
                    await book(number, page)
            with self._guard():
                self._take_claims(pages, claims, before)
            self._changed()
            if pages[0].frozen:
                await self._until_open()
                self._ask_claims.set()

    async def _until_open(self) -> None:
        """Return when the ledger is open. While it is frozen, it records running pods by the thousand, each turn of which is a change of claims: all claims
        are read once, at the end, and only the head before."""
        while True:
            try:
                async with asyncio.timeout(FROZEN_AGAIN_S):
                    await self._ask_claims.wait()
            except TimeoutError:
                pass
            self._ask_claims.clear()
            head = await self._ask_head()
            if head is not None and not head.frozen:
                return
            await asyncio.sleep(ASK_AGAIN_S)

    async def _ask_head(self) -> ClaimsPage | None:
        """The ledger's state without its claims; None if it does not answer."""
        try:
            pages = await self._bus.ask(ClaimsAsked(asker=self._instance, head=True), ClaimsPage, timeout_s=ASK_TIMEOUT_S)
        except (Unavailable, InvalidRequest) as e:
            self._warn_once("claims", e)
            return None
        return pages[0] if pages else None

    async def _ask_while_held(self) -> NoReturn:
        """Plans are held: ask until they are accepted again."""
        while True:
            await self._held.wait()
            await asyncio.sleep(HELD_AGAIN_S)
            head = await self._ask_head()
            if head is None:
                continue
            if head.held != self._scheduler.held:
                self._scheduler.on_held(head.held)
            if not self._scheduler.held:
                self._held.clear()
                self._changed()

    async def _book_claims(self, claims: list[Claim], number: int, page: ClaimsPage) -> None:
        """Book the claims of one page, in slices, and append them to `claims`."""

        def booked(some: Iterable[Claim]) -> Iterator[Claim]:
            for claim in some:
                claims.append(self._kept(claim))
                yield claims[-1]

        def work(some: Iterable[Claim]) -> None:
            with self._guard():
                self._scheduler.on_claims_page(epoch=page.epoch, index=page.index, claims=booked(some), now=monotonic_s())
            self._grown()

        if not number:
            claims.clear()
        self._booking = True
        await in_slices(page.claims, work)

    def _take_claims(self, pages: Sequence[ClaimsPage], claims: Sequence[Claim], before: int) -> None:
        """`claims`: of the pages, as they were booked. `before`: number of changes received before the snapshot was requested. A change among them that is
        newer than the snapshot is dropped: the ledger does not have it."""
        now = monotonic_s()
        first = pages[0]
        self._scheduler.on_claims_snapshot(
            epoch=first.epoch,
            index=first.index,
            frozen=first.frozen,
            claims=claims,
            nominations=[nomination for page in pages for nomination in page.nominations],
            now=now,
        )
        metrics.SNAPSHOTS.labels("claims").inc()
        self._warned.pop("claims", None)
        self.claims_read, self._booking = True, False
        early, self._early = self._early, deque(maxlen=self._early.maxlen)
        for number, change in enumerate(early):
            if self._apply(change, now):
                continue
            if number < before:
                metrics.FALSE.inc()
                log.error("a claim change in epoch %d is ahead of the ledger: dropped", change.epoch)
                continue
            self._early.append(change)
            self._ask_claims.set()


def _node_of(event: NodeStateChanged | NodeZonesChanged | HealthVerdict | NodeRests) -> NodeName:
    match event:
        case NodeStateChanged(node=node):
            return node.name
        case NodeZonesChanged(zones=zones):
            return zones.node
        case HealthVerdict(verdict=verdict):
            return verdict.node
        case NodeRests(rest=rest):
            return rest.node
