"""What is given away, pod by pod: the ledger's live claims, and our own placements that it has not answered yet.

A pod has one booking at most. The columns are the sum of the bookings; where a node's cards change or it comes back, its row is summed anew.
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
    task: Task | None = None  #: all that the pod asks for, where this process placed it; claims do not tell
    gang: bool = False  #: whether its job has a PodGroup, as far as that is known
    preemptable: bool = True
    claim: ClaimId = ClaimId("")
    held: Claim | None = None  #: the ledger's claim, once there is one
    models: Resources | None = None  #: cards by model, while queues name models
    pool: str = ""  #: in which it counts
    #: as what it stands in the books of its node's zones; None: it does not, or its kubelet has counted it
    waiting: PodAsk | None = None

    @property
    def amounts(self) -> Resources:
        """What counts against its queue."""
        amounts = self.requests | self.models if self.models else self.requests
        return amounts_in(self.pool, amounts) if self.pool else amounts

    @classmethod
    def of(cls, claim: Claim, before: "Booking | None") -> "Booking":
        """The booking of a ledger's claim, in place of our own booking `before`."""
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
    """Pods whose bookings changed since a reader that keeps a view of its own last asked. Nothing is noted before its first question."""

    MOST = 65_536  #: beyond it the reader begins anew

    def __init__(self) -> None:
        self._pods: dict[PodUid, None] | None = None  # in order: what is made of them must not depend on hashes

    def note(self, pods: Iterable[PodUid]) -> None:
        if self._pods is not None:
            self._pods.update(dict.fromkeys(pods))
            if len(self._pods) > self.MOST:
                self._pods = None

    def begin(self) -> None:
        """All have changed."""
        self._pods = None

    def take(self) -> list[PodUid] | None:
        """None: all may have changed."""
        pods, self._pods = self._pods, {}
        return None if pods is None else list(pods)


@dataclass(frozen=True, slots=True)
class Suspended:
    """Bookings that are removed during a trial, and the logs of freed resources as of before."""

    bookings: tuple[Booking, ...]
    queues_freed: set[QueueName]
    namespaces_freed: set[str]
    domains_left: set[JobId]


class Bookings:
    """All bookings, with the columns and the queues' sums kept in step."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._of: dict[PodUid, Booking] = {}
        self._on: dict[NodeName, list[PodUid]] = {}  #: whose bookings are on a node
        self.queue_used: dict[QueueName, Resources] = {}  #: of each queue's own pods
        self.queues = QueueTree(self.queue_used)
        self.card_quotas = CardQuotas()  #: of namespaces, with what is held there
        self.namespaces_freed: set[str] = set()  #: where cards were given back; the reader empties it
        self._priorities: defaultdict[QueueName, Counter[int]] = defaultdict(Counter)
        self.queues_freed: set[QueueName] = set()  #: queues of which something was given back; the reader empties it
        self.lending = Lending(self.queues, lambda: map(_held, self._of.values()), columns.described_nodes)
        #: queues whose non-preemptible work waits because of what others are guaranteed; the reader empties it
        self.limited_by_guarantees: set[QueueName] = set()
        self._by_model = False
        #: of all but `pooled`: how many are there, by queue
        self._in_pools: defaultdict[str, Counter[QueueName]] = defaultdict(Counter)
        self._protected: dict[PodUid, float] = {}  #: until when nobody takes from them
        self.in_domains: set[JobId] = set()  #: jobs that were placed inside one domain of the fabric, and have to stay there
        self.domains_left: set[JobId] = set()  #: of them, those of which a pod has left; the reader empties it
        self.changed = Changed()
        self._gone: dict[NodeName, None] = {}  #: deleted nodes that had bookings

    def __len__(self) -> int:
        return len(self._of)

    def get(self, pod: PodUid) -> Booking | None:
        return self._of.get(pod)

    def __contains__(self, pod: PodUid) -> bool:
        return pod in self._of

    def all(self) -> Mapping[PodUid, Booking]:
        return self._of

    def on(self, node: NodeName) -> list[Booking]:
        """Of one node, in the order in which they came."""
        return [self._of[pod] for pod in self._on.get(node, ())]

    def record(self, bookings: Sequence[Booking]) -> None:
        """Take down bookings of free pods with equal requests, of one job, whose amounts are on the columns already (by a batch)."""
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
        if self._by_model or self._columns.pools_known or (first.task is not None and first.task.offline):
            alike: dict[tuple[int, str], tuple[Booking, int]] = {}
            for booking in bookings:
                booking.pool = self._pool(booking)
                models = booking.models = self._models(booking)
                key = id(models) if models else 0, booking.pool
                alike[key] = booking, alike.get(key, (booking, 0))[1] + 1
            for booking, times in alike.values():
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
        """The job gets places; where it is bound to a domain of the fabric, its pods are not to be moved out of it."""
        if any(
            wish is not None and wish.mode is TopologyMode.HARD
            for wish in (job.topology, *(policy.topology for policy in job.sub_gangs))
        ):
            self.in_domains.add(job.id)

    def ruled(self) -> None:
        """Rules of queues changed: what is booked is counted by model from now on, or no more."""
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
        """In which pool it counts: as the ledger's claim says, where there is one, else by the inventory."""
        if booking.held is not None:
            return booking.held.pool
        if booking.task is not None and booking.task.offline:
            return OFFLINE
        row = self._columns.row_of.get(booking.node)
        return self._columns.pool_of(row) if row is not None else ""

    def _models(self, booking: Booking) -> Resources | None:
        """Cards by model: as the ledger's claim says, where there is one, else by the inventory."""
        if not self._by_model or not booking.slices:
            return None
        if booking.held is not None:
            return booking.held.models or None
        row = self._columns.row_of.get(booking.node)
        return cards_by_model(self._columns.states[row], booking.slices) or None if row is not None else None

    def held(self, pods: Iterable[PodUid]) -> list[Held]:
        """What those of them that have bookings hold."""
        return [_held(booking) for pod in pods if (booking := self._of.get(pod)) is not None]

    def limit(self, quotas: Iterable[CardQuota]) -> set[str]:
        """Take these for all quotas of cards that there are. Returns the namespaces whose quotas are others than before."""
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
        """Of the bookings in a queue; None where there are none."""
        return min((priority for priority, count in self._priorities.get(queue, {}).items() if count > 0), default=None)

    def put(self, booking: Booking) -> None:
        """Book a pod, in place of what it had. Equal amounts on the same node leave the columns untouched."""
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
        """What is on its way to the node's zones with it."""
        if row not in self._columns.zones or self._counted(booking, row):
            return None
        return booking.task.aligned if booking.task is not None else guessed_ask(booking.requests)

    def _counted(self, booking: Booking, row: int) -> bool:
        """Whether its kubelet has counted it."""
        held = booking.held
        return held is not None and self._columns.zones.has_seen(row, held.namespace, held.pod, booking.pod)

    def _rezone(self, booking: Booking) -> None:
        """A booking that stands: its kubelet may have counted it meanwhile."""
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
        """A kubelet has spoken of its zones, and nothing stands in their books: book there again what it has not counted."""
        row = self._columns.row_of[node]
        for pod in self._on.get(node, ()):
            booking = self._of[pod]
            booking.waiting = self._waiting(booking, row)
            if booking.waiting is not None:
                self._columns.zones.book(row, booking.waiting, anew=False)

    def remove(self, pod: PodUid) -> Booking | None:
        """Take a pod's booking back. Returns it, or None where there was none."""
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
        """Undo `suspend`, including its effects on the logs of freed resources."""
        for booking in suspended.bookings:
            self.put(booking)
        self.queues_freed, self.namespaces_freed = suspended.queues_freed, suspended.namespaces_freed
        self.domains_left = suspended.domains_left

    def take_back(self, plan: PlanId, pods: Iterable[PodUid]) -> None:
        """Remove what a plan booked for these pods, where the ledger has not put a claim in its place."""
        for pod in pods:
            booking = self._of.get(pod)
            if booking is not None and booking.plan == plan and not booking.claim:
                self.remove(pod)

    def rebuild(self, node: NodeName) -> None:
        """Sum up a node's row anew."""
        row = self._columns.row_of[node]
        self.moved(node)
        self._columns.clear_usage(row)
        for pod in self._on.get(node, ()):
            booking = self._of[pod]
            booking.waiting = self._waiting(booking, row)
            booking.slices = self._located(row, booking.slices)
            self._columns.book(row, booking.requests, booking.slices, aligned=booking.waiting)

    def resolve_again(self) -> None:
        """Update tasks and columns after `Columns` assigned resources to other columns."""
        resolved: dict[int, Task] = {}
        for booking in self._of.values():
            if (task := booking.task) is not None:
                if (found := resolved.get(id(task))) is None:
                    found = resolved[id(task)] = replace(task, amount=self._columns.amount(task.requests))
                booking.task = found
        for node in self._columns.row_of:
            self.rebuild(node)

    def moved(self, node: NodeName) -> None:
        """The node has another row now, or none."""
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
        self._priorities[booking.queue][booking.priority] -= 1
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
        """When the next of those may be taken from whom nobody takes from now; None where there are none."""
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
            self._in_pools[booking.pool][booking.queue] += times

    @property
    def offline(self) -> bool:
        """Whether anybody has a place as offline work."""
        return any(count > 0 for count in self._in_pools.get(OFFLINE, {}).values())

    def on_loan(self, owner: QueueName) -> bool:
        """Whether others are on nodes of a pool that the queue owns."""
        return any(
            count > 0 and self.queues.owns(owner, pool) and self.queues.borrows(queue, pool)
            for pool, there in self._in_pools.items()
            for queue, count in there.items()
        )


def _held(booking: Booking) -> Held:
    return Held(booking.queue, booking.node, booking.amounts, booking.preemptable)
