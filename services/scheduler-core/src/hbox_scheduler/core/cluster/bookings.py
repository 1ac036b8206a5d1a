"""Bookings of pods: the ledger's live claims, and the scheduler's placements that the ledger has not answered yet.

A pod has at most one booking. The columns are the sum of the bookings; if a node's cards change or a deleted node returns, its row is recomputed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hbox_common.model import (
    OFFLINE,
    CardQuota,
    CardQuotas,
    CardSlice,
    Claim,
    ClaimId,
    Held,
    Job,
    JobId,
    Lending,
    NodeName,
    PlanId,
    PodUid,
    QueueName,
    QueueTree,
    Resources,
    TopologyMode,
    amounts_in,
    cards_by_model,
)
from hbox_common.model.claim import counted_models
from hbox_common.model.minruntime import protects
from hbox_common.model.nodezones import guessed_ask
from hbox_common.model.numa import PodAsk
from hbox_common.model.resources import add

from .columns import Columns
from .task import Task


@dataclass(slots=True)
class Booking:
    """One pod on one node. `claim` is empty until the ledger has answered."""

    pod: PodUid
    job: JobId
    queue: QueueName
    node: NodeName
    requests: Resources
    slices: tuple[CardSlice, ...]
    plan: PlanId
    priority: int = 0
    namespace: str = ""
    task: Task | None = None  #: the pod's full requests if this process placed it; claims do not contain them
    gang: bool = False  #: whether its job is known to have a PodGroup
    preemptable: bool = True
    claim: ClaimId = ClaimId("")
    held: Claim | None = None  #: the ledger's claim, once there is one
    models: Resources | None = None  #: cards by model, while queues name models, and units of cards that are parts of cards
    pool: str = ""  #: pool in which it counts
    #: request in the zone books of its node until the kubelet counts the pod; else None
    waiting: PodAsk | None = None

    @property
    def amounts(self) -> Resources:
        """The amounts that count in its queue."""
        amounts = self.requests | self.models if self.models else self.requests
        return amounts_in(self.pool, amounts) if self.pool else amounts

    @classmethod
    def of(cls, claim: Claim, before: "Booking | None") -> "Booking":
        """The booking of a ledger's claim, which replaces the scheduler's booking `before`."""
        return cls(
            pod=claim.pod_uid,
            job=claim.job,
            queue=claim.queue,
            node=claim.node,
            requests=claim.requests,
            slices=claim.slices,
            plan=claim.plan,
            claim=claim.id,
            priority=claim.priority,
            namespace=claim.namespace,
            held=claim,
            task=before.task if before is not None else None,
            gang=before is not None and before.gang,
            preemptable=claim.preemptable,
            pool=claim.pool,
        )


class Changed:
    """Pods whose bookings changed since the reader's last call of `take`. Before the first call no changes are recorded."""

    MOST = 65_536  #: maximum recorded pods; beyond it the reader rebuilds its view

    def __init__(self) -> None:
        self._pods: dict[PodUid, None] | None = None  # ordered: results must not depend on hashes

    def note(self, pods: Iterable[PodUid]) -> None:
        if self._pods is not None:
            self._pods.update(dict.fromkeys(pods))
            if len(self._pods) > self.MOST:
                self._pods = None

    def begin(self) -> None:
        """Mark all bookings as changed."""
        self._pods = None

    def take(self) -> list[PodUid] | None:
        """Return and clear the changed pods; None: all may have changed."""
        pods, self._pods = self._pods, {}
        return None if pods is None else list(pods)


@dataclass(frozen=True, slots=True)
class Suspended:
    """Bookings that are removed during a trial, and the previous logs of freed resources."""

    bookings: tuple[Booking, ...]
    queues_freed: set[QueueName]
    namespaces_freed: set[str]
    domains_left: set[JobId]


class Bookings:
    """All bookings; each change also updates the columns and the queues' sums."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._of: dict[PodUid, Booking] = {}
        self._on: dict[NodeName, list[PodUid]] = {}  #: booked pods by node
        self.queue_used: dict[QueueName, Resources] = {}  #: of each queue's own pods
        self.queues = QueueTree(self.queue_used)
        self.card_quotas = CardQuotas()  #: card quotas of namespaces, with their use
        self.namespaces_freed: set[str] = set()  #: namespaces that freed cards; the reader empties it
        self._priorities: defaultdict[QueueName, Counter[int]] = defaultdict(Counter)
        self.queues_freed: set[QueueName] = set()  #: queues that freed resources; the reader empties it
        self.lending = Lending(self.queues, lambda: map(_held, self._of.values()), columns.described_nodes)
        #: queues whose non-preemptible jobs are pending because of guarantees of other queues; the reader empties it
        self.limited_by_guarantees: set[QueueName] = set()
        self._by_model = False
        #: number of booked pods by pool and queue, for all pools but `pooled`
        self._in_pools: defaultdict[str, Counter[QueueName]] = defaultdict(Counter)
        self._protected: dict[PodUid, float] = {}  #: end of the minimum run time or cool-down
        self.in_domains: set[JobId] = set()  #: jobs that were placed inside one fabric domain and must stay there
        self.domains_left: set[JobId] = set()  #: jobs of `in_domains` that lost a pod; the reader empties it
        self.changed = Changed()
        self._gone: dict[NodeName, None] = {}  #: deleted nodes that had bookings

    def __len__(self) -> int:
        return len(self._of)

    @property
    def shares(self) -> tuple[str, ...]:
        """`Columns.shares`."""
        return self._columns.shares

    def get(self, pod: PodUid) -> Booking | None:
        return self._of.get(pod)

    def __contains__(self, pod: PodUid) -> bool:
        return pod in self._of

    def all(self) -> Mapping[PodUid, Booking]:
        return self._of

    def on(self, node: NodeName) -> list[Booking]:
        """Bookings on a node, oldest first."""
        return [self._of[pod] for pod in self._on.get(node, ())]

    def record(self, bookings: Sequence[Booking]) -> None:
        """Record bookings of unbooked pods of one job with equal requests, whose amounts a batch has already added to the columns."""
        of, on, count = self._of, self._on, len(bookings)
        pods = [booking.pod for booking in bookings]
        after = len(of) + count
        of.update(zip(pods, bookings, strict=True))
        assert len(of) == after, "a pod was placed that has a place"
        for pod, booking in zip(pods, bookings, strict=True):
            if (there := on.get(booking.node)) is None:
                on[booking.node] = [pod]
            else:
                there.append(pod)
        self.changed.note(pods)
        first = bookings[0]
        if first.task is not None and first.task.aligned is not None and self._columns.zones:
            for booking in bookings:
                booking.waiting = first.task.aligned
        if (
            self._by_model
            or self._columns.shares
            or self._columns.pools_known
            or (first.task is not None and first.task.offline)
        ):
            groups: dict[tuple[tuple[tuple[str, int], ...], str], tuple[Booking, int]] = {}
            for booking in bookings:
                booking.pool = self._pool(booking)
                models = booking.models = self._models(booking)
                key = tuple(models.items()) if models else (), booking.pool
                groups[key] = booking, groups.get(key, (booking, 0))[1] + 1
            for booking, times in groups.values():
                self._use(booking, times)
        else:
            self._use(first, count)
        if count == 1:
            self.card_quotas.book(first.namespace, first.requests, first.slices)
        elif first.slices:
            self.card_quotas.book_all(first.namespace, first.requests, (booking.slices for booking in bookings))
        self._priorities[first.queue][first.priority] += count
        if self.lending.counting and self.lending.is_non_preemptible(first.queue, preemptable=first.preemptable):
            for booking in bookings:
                self.lending.book(_held(booking))

    def note_domain(self, job: Job) -> None:
        """Record a placed job that is bound to a fabric domain, so that its pods are not moved out of it."""
        if any(
            wish is not None and wish.mode is TopologyMode.HARD
            for wish in (job.topology, *(policy.topology for policy in job.sub_gangs))
        ):
            self.in_domains.add(job.id)

    def ruled(self) -> None:
        """Apply changed limits of queues: count bookings by card model if and only if queues name models."""
        if self._by_model is self.queues.by_model:
            return
        self._by_model = not self._by_model
        for booking in self._of.values():
            before = booking.amounts
            booking.models = self._models(booking)
            for amounts, times in ((before, -1), (booking.amounts, 1)):
                add(self.queue_used.setdefault(booking.queue, {}), amounts, times)
                self.queues.book(booking.queue, amounts, times)
        self.changed.begin()

    def _pool(self, booking: Booking) -> str:
        """The pool in which it counts: from the ledger's claim if there is one, else from the inventory."""
        if booking.held is not None:
            return booking.held.pool
        if booking.task is not None and booking.task.offline:
            return OFFLINE
        row = self._columns.row_of.get(booking.node)
        return self._columns.pool_of(row) if row is not None else ""

    def _models(self, booking: Booking) -> Resources | None:
        """Cards by model: from the ledger's claim if there is one, else from the inventory."""
        if not booking.slices or not (self._by_model or booking.held is not None or self._columns.shares):
            return None
        if booking.held is not None:
            models = booking.held.models
        else:
            row = self._columns.row_of.get(booking.node)
            models = cards_by_model(self._columns.states[row], booking.slices) if row is not None else {}
        return (models if self._by_model else counted_models(models, by_model=False)) or None

    def held(self, pods: Iterable[PodUid]) -> list[Held]:
        """The amounts held by those of the pods that have bookings."""
        return [_held(booking) for pod in pods if (booking := self._of.get(pod)) is not None]

    def limit(self, quotas: Iterable[CardQuota]) -> set[str]:
        """Replace all card quotas. Returns the namespaces whose quotas changed."""
        return self.card_quotas.adopt(
            quotas, ((booking.namespace, booking.requests, booking.slices) for booking in self._of.values())
        )

    def foreign(self) -> Resources:
        """Amounts of pods without a queue on known nodes, by pool."""
        sums = dict(self.queue_used.get(QueueName(""), {}))
        for node in list(self._gone):
            if node in self._columns.row_of or node not in self._on:
                del self._gone[node]
            for booking in self.on(node) if node in self._gone else ():
                if not booking.queue:
                    add(sums, booking.amounts, -1)
        return sums

    def lowest_priority(self, queue: QueueName) -> int | None:
        """Lowest priority of the bookings in a queue; None if there are none."""
        return min((priority for priority, count in self._priorities.get(queue, {}).items() if count > 0), default=None)

    def put(self, booking: Booking) -> None:
        """Book a pod and replace its previous booking. Equal amounts on the same node leave the columns unchanged."""
        old = self._of.get(booking.pod)
        self.changed.note((booking.pod,))
        booking.models, booking.pool = self._models(booking), self._pool(booking)
        if old is not None and old.node == booking.node and old.slices == booking.slices and old.requests == booking.requests:
            booking.waiting = old.waiting
            self._rezone(booking)
            before, now = (old.queue, old.priority, old.preemptable), (booking.queue, booking.priority, booking.preemptable)
            if before != now or old.models != booking.models or old.pool != booking.pool:
                self._leave(old)
                self._enter(booking)
            else:
                self._of[booking.pod] = booking
                self._protect(booking)
            return
        if old is not None:
            self.remove(booking.pod)
        self._enter(booking)
        row = self._columns.row_of.get(booking.node)
        if row is not None:
            booking.slices = self._located(row, booking.slices)
            self._columns.book(row, booking.requests, booking.slices)
            booking.waiting = self._waiting(booking, row)
            if booking.waiting is not None:
                self._columns.zones.book(row, booking.waiting, anew=booking.task is not None)

    def _located(self, row: int, slices: tuple[CardSlice, ...]) -> tuple[CardSlice, ...]:
        """The slices with ids and current indices of their cards; the same object if nothing changes."""
        found = self._columns.named(row, slices)
        return slices if all(a is b for a, b in zip(found, slices, strict=True)) else found

    def _waiting(self, booking: Booking, row: int) -> PodAsk | None:
        """The request to enter into the node's zone books; None once the kubelet has counted the pod."""
        if row not in self._columns.zones or self._counted(booking, row):
            return None
        return booking.task.aligned if booking.task is not None else guessed_ask(booking.requests)

    def _counted(self, booking: Booking, row: int) -> bool:
        """Whether the kubelet has counted the pod."""
        held = booking.held
        return held is not None and self._columns.zones.has_seen(row, held.namespace, held.pod, booking.pod)

    def _rezone(self, booking: Booking) -> None:
        """Update the zone books for an unchanged booking, since its kubelet may have counted the pod meanwhile."""
        row = self._columns.row_of.get(booking.node)
        if row is None or row not in self._columns.zones:
            return
        waiting = self._waiting(booking, row)
        if waiting != booking.waiting:
            if booking.waiting is not None:
                self._columns.zones.book(row, booking.waiting, -1)
            if waiting is not None:
                self._columns.zones.book(row, waiting, anew=False)
            booking.waiting = waiting
            self._columns.rezoned(row)

    def rezone(self, node: NodeName) -> None:
        """Fill the zone books of a node, which a report of its kubelet has emptied, with the pods that the kubelet has not counted."""
        row = self._columns.row_of[node]
        for pod in self._on.get(node, ()):
            booking = self._of[pod]
            booking.waiting = self._waiting(booking, row)
            if booking.waiting is not None:
                self._columns.zones.book(row, booking.waiting, anew=False)

    def remove(self, pod: PodUid) -> Booking | None:
        """Remove a pod's booking. Returns it, or None if there was none."""
        booking = self._of.get(pod)
        if booking is None:
            return None
        self.changed.note((pod,))
        self._leave(booking)
        row = self._columns.row_of.get(booking.node)
        if row is not None:
            self._columns.book(row, booking.requests, booking.slices, -1, aligned=booking.waiting)
            if booking.waiting is None and self._counted(booking, row):
                self._columns.zones.part(row)
        return booking

    def suspend(self, plan: PlanId, pods: Iterable[PodUid]) -> Suspended:
        """Remove the plan's bookings of these pods for a trial, except those that a claim of the ledger has replaced."""
        freed = set(self.queues_freed), set(self.namespaces_freed), set(self.domains_left)
        booked = [booking for pod in pods if (booking := self._of.get(pod)) is not None]
        mine = tuple(booking for booking in booked if booking.plan == plan and not booking.claim)
        for booking in mine:
            self.remove(booking.pod)
        return Suspended(mine, *freed)

    def restore(self, suspended: Suspended) -> None:
        """Revert `suspend`, including its effects on the logs of freed resources."""
        for booking in suspended.bookings:
            self.put(booking)
        self.queues_freed, self.namespaces_freed = suspended.queues_freed, suspended.namespaces_freed
        self.domains_left = suspended.domains_left

    def take_back(self, plan: PlanId, pods: Iterable[PodUid]) -> None:
        """Remove the plan's bookings of these pods, except those that a claim of the ledger has replaced."""
        for pod in pods:
            booking = self._of.get(pod)
            if booking is not None and booking.plan == plan and not booking.claim:
                self.remove(pod)

    def rebuild(self, node: NodeName) -> None:
        """Recompute a node's row from its bookings."""
        row = self._columns.row_of[node]
        self.moved(node)
        self._columns.clear_usage(row)
        for pod in self._on.get(node, ()):
            booking = self._of[pod]
            booking.waiting = self._waiting(booking, row)
            booking.slices = self._located(row, booking.slices)
            self._columns.book(row, booking.requests, booking.slices, aligned=booking.waiting)

    def resolve_again(self, resolved: Mapping[Task, Task]) -> None:
        """Update tasks and columns after `Columns` assigned resources to other columns. `resolved`: new tasks by their former ones, of pods that wait."""
        known = dict(resolved)
        for booking in self._of.values():
            if (task := booking.task) is not None:
                if (found := known.get(task)) is None:
                    found = known[task] = replace(task, amount=self._columns.amount(task.requests))
                booking.task = found
        for node in self._columns.row_of:
            self.rebuild(node)

    def moved(self, node: NodeName) -> None:
        """Record that the node moved to another row, or was deleted."""
        self.changed.note(self._on.get(node, ()))
        if node not in self._columns.row_of:
            self._gone[node] = None

    def _enter(self, booking: Booking) -> None:
        self._of[booking.pod] = booking
        self._on.setdefault(booking.node, []).append(booking.pod)
        self._use(booking, 1)
        self._protect(booking)
        self.card_quotas.book(booking.namespace, booking.requests, booking.slices)
        self._priorities[booking.queue][booking.priority] += 1
        self.lending.book(_held(booking))

    def _leave(self, booking: Booking) -> None:
        del self._of[booking.pod]
        self._protected.pop(booking.pod, None)
        on = self._on[booking.node]
        on.remove(booking.pod)
        if not on:
            del self._on[booking.node]
        self._use(booking, -1)
        priorities = self._priorities[booking.queue]
        priorities[booking.priority] -= 1
        if not priorities[booking.priority]:
            del priorities[booking.priority]
        self.forget_unused(booking.queue)
        self.lending.book(_held(booking), -1)
        self.queues_freed.add(booking.queue)
        if booking.job in self.in_domains:
            self.domains_left.add(booking.job)
        if booking.slices and booking.namespace in self.card_quotas:
            self.card_quotas.book(booking.namespace, booking.requests, booking.slices, -1)
            self.namespaces_freed.add(booking.namespace)

    def _protect(self, booking: Booking) -> None:
        if booking.held is not None and booking.held.protected_until:
            self._protected[booking.pod] = booking.held.protected_until

    def next_unprotected(self, now: float) -> float | None:
        """The earliest end of a minimum run time or cool-down; None if no pod is protected."""
        for pod in [pod for pod, until in self._protected.items() if not protects(until, now)]:
            del self._protected[pod]
        return min(self._protected.values(), default=None)

    def _use(self, booking: Booking, times: int) -> None:
        amounts = booking.amounts
        if (used := self.queue_used.get(booking.queue)) is None:
            used = self.queue_used[booking.queue] = {}
        add(used, amounts, times)
        self.queues.book(booking.queue, amounts, times)
        if booking.pool:
            there = self._in_pools[booking.pool]
            there[booking.queue] += times
            if not there[booking.queue]:
                del there[booking.queue]

    def forget_unused(self, queue: QueueName) -> None:
        """Drop the sums of a queue that does not exist any more and that no pod uses."""
        if queue not in self.queues and not any(self.queue_used.get(queue, {}).values()):
            self.queue_used.pop(queue, None)
            if not self._priorities.get(queue):
                self._priorities.pop(queue, None)

    @property
    def offline(self) -> bool:
        """Whether any offline work is booked."""
        return any(count > 0 for count in self._in_pools.get(OFFLINE, {}).values())

    def on_loan(self, owner: QueueName) -> bool:
        """Whether other queues use nodes of a pool that the queue owns."""
        return any(
            count > 0 and self.queues.owns(owner, pool) and self.queues.borrows(queue, pool)
            for pool, there in self._in_pools.items()
            for queue, count in there.items()
        )


def _held(booking: Booking) -> Held:
    return Held(booking.queue, booking.node, booking.amounts, booking.preemptable)
