"""The books: the database's live claims in memory, with the sums that arbitration needs.

The books are a cache. Every change goes through `enter`, `post` or `void`, which also record it in the current step. The shell commits that step to the
database. A step whose commit failed is committed later; if the database refuses it, the shell reloads the books. `validate` recounts everything.

Invariants (docs/reference/invariants.md): arbitration plus the database's constraints ensure S1 and S2, arbitration over `used` ensures S3. S5 holds by
construction (a move has both its ends); S12 holds because these three functions are the only writers of a claim's state.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from hbox_common.events import HeldNomination, Placement, Plan
from hbox_common.model import (
    CardQuota,
    CardQuotas,
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    ClassQuota,
    Epoch,
    Held,
    Index,
    JobId,
    JobTerms,
    Lending,
    NodeAllocation,
    NodeName,
    NodeState,
    PlanId,
    PodFact,
    PodUid,
    Queue,
    QueueName,
    QueueTree,
    Resources,
    Verdict,
    amounts_in,
    counted_as,
    counts_in,
    is_host_port,
    is_model,
    is_offline,
    name_slices,
    pool_of,
    sound_capacity,
)
from hbox_common.model.consolidation import RecentMoves
from hbox_common.model.devices import card_id, number_in, relocated
from hbox_common.model.reclaimpreview import Shares
from hbox_common.model.resources import add
from hbox_common.model.weightshares import shares_by_weight

from .accounts.demand import Demand
from .accounts.history import Decay, History
from .cardnumbers import CardNumbers
from .claimrecord import ClaimRecord, Decision, Gang
from .classquotas import ClassQuotas
from .evictions.beneficiaries import FOR_OTHERS, Beneficiaries
from .evictions.brake import Brake
from .evictions.evicted import Evicted
from .evictions.evicting import Evicting
from .evictions.nominations import Nominations, places_of, successor_of
from .evictions.sickhardware import SickHardware
from .fabrics import Fabrics
from .records import Records
from .regrouped import Regrouped
from .schedulers import Schedulers
from .spread import spread_of
from .step import Bucket, CardDelta, CardKey, Change, Step

#: Maximum remembered pods that are gone and may still appear in late messages. A uid is never reused, so forgetting one only costs a comparison.
TOMBSTONES = 100_000

BUCKETS = {ClaimState.PENDING: Bucket.PENDING, ClaimState.POSTED: Bucket.POSTED}


@dataclass(slots=True)
class JobClaims:
    """The live claims of one job, and how many of them are posted."""

    queue: QueueName = field(compare=False)  #: of its first claim
    waiting: JobTerms | None = field(
        default=None, compare=False
    )  #: its record until its minimum of pods is bound; None: bound, or bound before
    live: dict[ClaimId, None] = field(default_factory=dict)
    posted: int = 0


@dataclass(slots=True)
class LedgerState:
    epoch: Epoch
    index: Index = Index(0)
    key: bytes = b""  #: proves that a claim written on a pod was issued by this ledger (`identity`)
    frozen: bool = True  #: no plan is accepted until the books agree with Kubernetes
    clock_rate: float = 1.0  #: the clock's seconds per real second: above 1 if an emulated cluster's clock runs faster
    held: str = ""  #: why plans are refused for now: job-controller does not see the pods
    nodes: dict[NodeName, NodeState] = field(default_factory=dict)
    verdicts: dict[NodeName, Verdict] = field(default_factory=dict)
    single_node: set[NodeName] = field(default_factory=set)  #: nodes whose verdict excludes gangs over several nodes
    queues: QueueTree = field(init=False)  #: with the usage of each queue and of all queues below it
    live: dict[ClaimId, ClaimRecord] = field(default_factory=dict)
    open: dict[ClaimId, ClaimRecord] = field(default_factory=dict)  #: subset of `live` with a decision that has no outcome yet
    by_pod: dict[PodUid, ClaimId] = field(default_factory=dict)
    by_node: dict[NodeName, NodeAllocation] = field(default_factory=dict)
    with_cards: dict[NodeName, dict[ClaimId, None]] = field(default_factory=dict)  #: by node, its claims that hold cards
    jobs: dict[JobId, JobClaims] = field(default_factory=dict)
    placed_jobs: Counter[QueueName] = field(default_factory=Counter)  #: number of `jobs` by queue; "" for foreign pods
    card_quotas: CardQuotas = field(default_factory=CardQuotas)  #: by namespace, with their usage
    class_quotas: ClassQuotas = field(default_factory=ClassQuotas)  #: the same by PriorityClass
    used: dict[QueueName, Resources] = field(default_factory=dict)  #: pending and posted, of each queue's own pods
    #: part of `used` that may not be reclaimed, of each queue's own pods
    protected: dict[QueueName, Resources] = field(default_factory=dict)
    borrowed: dict[QueueName, Resources] = field(default_factory=dict)  #: part of `used` beyond deserved (`loans`)
    foreign: dict[NodeName, Resources] = field(default_factory=dict)  #: by node, the amounts of claims without a queue
    gangs: dict[JobId, Gang] = field(default_factory=dict)
    slots: dict[CardKey, set[int]] = field(default_factory=dict)
    numbers: CardNumbers = field(default_factory=CardNumbers)
    #: by node, claims on cards whose ids are provisional: an index, or a generated UUID. `name_cards` replaces them when the node's state has the real ids.
    unnamed: dict[NodeName, dict[ClaimId, None]] = field(default_factory=dict)
    gone: dict[PodUid, Index] = field(default_factory=dict)  #: in order of ending, with the books' index at that time
    #: pods of `gone` that a later message, or a later list, shows on a node
    contradicted: dict[PodUid, PodFact] = field(default_factory=dict)
    evicting: Evicting = field(default_factory=Evicting)  #: posted claims with a committed eviction
    beneficiaries: Beneficiaries = field(default_factory=Beneficiaries)  #: plans that the evictions make room for
    nominations: Nominations = field(default_factory=Nominations)  #: their nominated places
    evicted: Evicted = field(default_factory=Evicted)  #: jobs that were recently evicted for others
    sick: SickHardware = field(default_factory=SickHardware)  #: requests of health-monitor, and jobs' policies
    notice_s: int = -1  #: maximum grace period of victims in seconds; -1: the pod's own
    brake: Brake = field(default_factory=Brake)  #: number of recent evictions
    moves: RecentMoves = field(default_factory=RecentMoves)  #: pods that moved within the last hour
    records: Records = field(default_factory=Records)  #: of jobs with pods to place
    regrouped: Regrouped = field(default_factory=Regrouped)  #: members of a recreated PodGroup, with claims of the deleted one
    schedulers: Schedulers = field(default_factory=Schedulers)  #: leaders of the shards
    month: int = 0  #: the first second of the month of `spent`
    spent: dict[QueueName, int] = field(default_factory=dict)  #: in that month, as accrued, in thousandths of card-seconds
    history: History = field(default_factory=lambda: History(Decay(half_life_h=0.0)))  #: recent usage of queues, as accrued
    fabrics: Fabrics = field(default_factory=Fabrics)  #: current domains of nodes
    #: by node, pods found bound whose cards its inventory does not contain yet; and those of these nodes whose state has changed since (`find_cards`)
    unplaced: dict[NodeName, dict[PodUid, PodFact]] = field(default_factory=dict)
    described: set[NodeName] = field(default_factory=set)
    look_at: set[NodeName] = field(
        default_factory=set
    )  #: nodes that may be over-booked: their capacity shrank, or a pod was found on them
    recount: set[NodeName] = field(
        default_factory=set
    )  #: nodes whose cards, or use of them, changed since metrics counted them
    suspects: dict[ClaimId, None] = field(default_factory=dict)  #: posted, but absent from the last list of pods
    #: claims that only the binder reported as posted, with the index of that change; no pod fact has arrived since; oldest first
    unseen: dict[ClaimId, Index] = field(default_factory=dict)
    lending: Lending = field(init=False)  #: lent and lendable parts of guarantees
    by_model: bool = False  #: whether `used` counts cards by model: while any queue names models
    _divided: tuple[int, ...] = ()  #: inputs of the last division of shares by weight
    _inventory: int = 0  #: incremented with every change of the nodes' capacity

    def __post_init__(self) -> None:
        self.queues = QueueTree(self.used)
        self.lending = Lending(
            self.queues,
            lambda: (_held(record.claim) for record in self.live.values()),
            lambda: ((node, self.verdicts.get(name)) for name, node in self.nodes.items()),
        )

    @property
    def demand(self) -> Demand | None:
        """Demand of queues, if they have or may have shares by weight; None: only their rules apply."""
        return self.records.demand

    def count_demand(self, *, by_weight: bool = True) -> None:
        """Count the demand of jobs from now on; `by_weight`: queues also have shares by weight. Call it before any job is recorded."""
        assert not len(self.records)
        self.records.demand = Demand(self.by_pod.__contains__)
        self.records.by_weight = by_weight

    def keep_records(self, records: Records) -> None:
        """Take over the job records of this ledger's previous books."""
        self.records = records
        if records.demand is not None:
            records.demand = records.demand.with_claims(self.by_pod.__contains__)

    def divide(self, now: float) -> None:
        """Update the shares by weight from the ledger's own records only: its claims, the waiting jobs that job-controller published, the nodes."""
        demand = self.demand
        if demand is None:
            return
        demand.pass_(now)
        if not self.records.by_weight:
            self._divided = ()
            self.queues.divide({})
            return
        seen = self.index, demand.version, self.queues.version, self._inventory
        if seen != self._divided:
            self._divided = seen
            self.queues.divide(shares_by_weight(self.queues, self.total(), demand.waiting))

    def shares_of(self) -> Shares | None:
        """A function that divides other trees by the current demand; None if weights do not count."""
        if self.demand is None or not self.records.by_weight:
            return None
        waiting = {queue: dict(amounts) for queue, amounts in self.demand.waiting.items()}
        return partial(shares_by_weight, total=self.total(), waiting=waiting)

    def total(self) -> Resources:
        """The amounts that queues share, by pool: of nodes that take work, the larger of allocatable and used; of other nodes what is used.

        Amounts of foreign pods (claims without a queue) are subtracted."""
        total: Resources = {}
        for name, node in self.nodes.items():
            verdict = self.verdicts.get(name)
            takes_work = node.ready and not node.unschedulable and (verdict is None or verdict.healthy)
            held = self.by_node.get(name)
            if takes_work or held is not None:
                capacity = sound_capacity(node, verdict) if takes_work or held is None else {}
                for resource, units in held.used.items() if held is not None else ():
                    capacity[resource] = max(capacity.get(resource, 0), units)
                add(capacity, self.foreign.get(name, {}), -1)
                pool = counted_as(pool_of(node.labels))
                add(total, amounts_in(pool, capacity) if pool else capacity)
        return total

    def step(self, now: float) -> Step:
        """An empty step at the books' present index."""
        return Step(now, self.index)

    def held_by(self, claims: Iterable[ClaimId]) -> list[Held]:
        """What the live ones of these claims hold."""
        return [_held(record.claim) for claim in claims if (record := self.live.get(claim)) is not None]

    def know(self, node: NodeName, state: NodeState | None = None, verdict: Verdict | None = None) -> None:
        """Record a node's new state, verdict or both; None leaves that part unchanged."""
        if state is not None:
            self.nodes[node] = state
            self.name_cards(state)
        if verdict is not None:
            self.verdicts[node] = verdict
            (self.single_node.discard if verdict.multi_node else self.single_node.add)(node)
        self._inventory += 1
        self.recount.add(node)
        if (known := self.nodes.get(node)) is None:
            return
        if state is not None:
            self.look_at.add(node)
            if node in self.unplaced:
                self.described.add(node)
        self.lending.node(known, self.verdicts.get(node))
        if known.gone:
            del self.nodes[node]

    def name_cards(self, node: NodeState) -> None:
        """Move allocations and claims from provisional ids of the node's cards to the real ids. A provisional id is an index from an older program, or a
        generated UUID from the time before the kubelet reported the real one."""
        held = self.by_node.get(node.name)
        if held is None or not held.cards:
            return
        present = {card.id for card in node.cards}
        names = {
            old: card.id
            for old in held.cards
            if old not in present and (card := node.known_card(old)) is not None and card.id != old
        }
        for old, new in names.items():
            moved = held.cards.pop(old)
            held.cards[new] = moved if (known := held.cards.get(new)) is None else known.plus(moved)
            self.numbers.rename(node.name, self.numbers.number(node.name, old, -1), new)
        if not names:
            return
        for id_ in list(self.unnamed.get(node.name, ())):
            record = self.live[id_]
            slices = tuple(replace(s, card=names[s.card]) if s.card in names else s for s in record.claim.slices)
            record.claim = replace(record.claim, slices=slices)
            self._note_provisional(record.claim)

    def named(self, name: NodeName, slices: tuple[CardSlice, ...]) -> tuple[CardSlice, ...]:
        """The slices with ids and current indices of their cards; unchanged if the node is unknown."""
        node = self.nodes.get(name)
        return slices if node is None or not slices else name_slices(slices, (*node.cards, *node.lost))

    def located(self, name: NodeName, slices: Sequence[CardSlice]) -> tuple[CardSlice, ...]:
        """The slices with ids of their cards, as far as the node is known, and with the database's card numbers (`CardNumbers`) as indices."""
        node, found = self.nodes.get(name), []
        for s in slices:
            card = None
            if node is not None:
                card = node.card(s.card, s.index) or node.known_card(s.card)
            id_, index = (s.card, s.index) if card is None else (card.id, card.index)
            number = self.numbers.number(name, id_, index)
            found.append(s if number == s.index and id_ == s.card else replace(s, index=number, card=id_))
        return tuple(found)

    def _note_provisional(self, claim: Claim) -> None:
        """Update `unnamed` for this claim."""
        made_up = card_id(f"{claim.node}-")
        if any(number_in(s.card) is not None or s.card.startswith(made_up) for s in claim.slices):
            self.unnamed.setdefault(claim.node, {})[claim.id] = None
        elif (others := self.unnamed.get(claim.node)) is not None:
            others.pop(claim.id, None)
            if not others:
                del self.unnamed[claim.node]

    def pool_of(self, name: NodeName) -> str:
        """Pool in which claims on this node count (`counted_as`)."""
        node = self.nodes.get(name)
        return counted_as(pool_of(node.labels)) if node is not None else ""

    def counts_in(self, job: JobId, name: NodeName) -> str:
        """Pool in which the job's claims on this node count: the node's pool, or offline work."""
        return counts_in(self.pool_of(name), offline=is_offline(self.records.class_of(job)))

    def node(self, name: NodeName) -> NodeAllocation:
        return self.by_node.setdefault(name, NodeAllocation())

    def load(self, records: Iterable[ClaimRecord], gangs: Iterable[Gang], nominations: Iterable[HeldNomination] = ()) -> None:
        """Fill empty books from the database. Load the queues first."""
        self.by_model = self.queues.by_model
        for record in records:
            self.take_in(record)
        self.gangs = {gang.job: gang for gang in gangs if gang.job in self.jobs}  # claims of other gangs could not be read
        self.load_nominations(nominations)

    def take_in(self, record: ClaimRecord) -> None:
        """Enter a live claim as the database has it."""
        claim = record.claim
        self.node(claim.node).book(claim.requests, claim.slices)
        self._index(record)
        self._use(claim, 1, self.counted(claim))

    def take_out(self, record: ClaimRecord) -> None:
        """The reverse of `take_in`: the claim is neither live nor void."""
        self._unindex(record, self.counted(record.claim))

    def load_nominations(self, nominations: Iterable[HeldNomination]) -> None:
        """Fill empty nominations from the database. Load the claims first."""
        for nomination in nominations:
            self.nominate(nomination)
            for victim in nomination.plan.victims:
                if victim.claim in self.evicting and not self.live[victim.claim].beneficiary:
                    self.live[victim.claim].beneficiary = nomination.plan.id
        leave = (id for id, one in self.open.items() if one.decision is Decision.EVICT and one.reason.startswith(FOR_OTHERS))
        self.beneficiaries.leave(leave)
        self.nominations.take_changes()

    def nominate(self, nomination: HeldNomination) -> None:
        """Hold these places for the plan's job, and for the successors of moved pods. The plan's victims are already being evicted."""
        plan = nomination.plan
        self.nominations.add(nomination)
        for pod, place in places_of(nomination).items():
            self.evicting.nominate(pod, place)
        victims = [victim.claim for victim in plan.victims if victim.claim in self.evicting]
        if plan.placements and victims:  # otherwise every beneficiary has a place
            self.beneficiaries.need(plan.id, [p.pod_uid for p in plan.placements], victims)

    def settle(self, pod: PodUid) -> None:
        """Drop the pod's nomination, because it has a claim, is gone, or is planned again: no eviction is needed for it any more."""
        self.evicting.settle(pod)
        self.nominations.settle(pod)
        self.beneficiaries.settled(pod)

    def give_up(self, plan: PlanId) -> None:
        """Drop the nomination. Pods that already moved for it keep their successors' places."""
        kept = {successor_of(claim.pod_uid) for claim in self.nominations.moves(plan) if claim.id not in self.live}
        for pod in sorted(self.nominations.places(plan) - kept):
            self.settle(pod)

    def rule(self, step: Step, name: QueueName, queue: Queue | None) -> None:
        """A queue's rules from now on; None: it is gone. Where it is the first to name models, or the last, what is held is counted by model, or no more."""
        step.ruled = True
        if queue is None:
            del self.queues[name]
        else:
            self.queues[name] = queue
        if self.by_model is self.queues.by_model:
            return
        self.by_model = not self.by_model
        times = 1 if self.by_model else -1
        for record in self.live.values():
            claim = record.claim
            if claim.queue and (models := {name: cards for name, cards in claim.models.items() if is_model(name)}):
                models = amounts_in(claim.pool, models)
                self._count(claim.queue, models, times)
                step.queues.add(claim.queue)
                held = BUCKETS[claim.state]
                debit, credit = (Bucket.FREE, held) if self.by_model else (held, Bucket.FREE)
                for model, cards in models.items():
                    step.move(claim.queue, model, debit, credit, cards)

    def limit(self, quotas: Iterable[CardQuota]) -> set[str]:
        """Replace all quotas of cards. Returns the namespaces whose quotas changed."""
        return self.card_quotas.adopt(quotas, self._held())

    def limit_classes(self, quotas: Iterable[ClassQuota]) -> bool:
        """Replace all quotas by PriorityClass. Returns whether they changed."""
        return self.class_quotas.adopt(quotas, (record.claim for record in self.live.values()))

    def _held(self) -> Iterator[tuple[str, Resources, Sequence[CardSlice]]]:
        return ((record.claim.namespace, record.claim.requests, record.claim.slices) for record in self.live.values())

    def enter(self, step: Step, record: ClaimRecord, *, actor: str, cause: str) -> None:
        """Add a new live claim."""
        self.locate(record)
        claim = record.claim
        self.node(claim.node).book(claim.requests, claim.slices)
        self._enter(step, record, actor, cause)
        counted = self.counted(claim)
        self._use(claim, 1, counted)
        self._move(step, claim, Bucket.FREE, BUCKETS[claim.state], counted)

    def locate(self, record: ClaimRecord) -> None:
        """Apply `located` to the claim of a record before it is entered, and update its layout."""
        claim = record.claim
        slices = self.located(claim.node, claim.slices)
        if any(a is not b for a, b in zip(slices, claim.slices, strict=True)):
            record.claim = replace(claim, slices=slices)
            if record.layout:
                record.layout = relocated(record.layout, claim.slices, slices)

    def enter_plan(self, step: Step, records: Sequence[ClaimRecord], *, actor: str, cause: str) -> None:
        """Enter the live claims of one plan. Validation has already booked them on their nodes."""
        by_amounts: dict[
            tuple[int, int, str], list[Claim]
        ] = {}  # by counted amounts, of which a plan has few: the queue adds up these, not each claim
        for record in records:
            self.locate(record)
            self._enter(step, record, actor, cause)
            by_amounts.setdefault((id(record.claim.requests), id(record.claim.models), record.claim.pool), []).append(
                record.claim
            )
        for claim, *others in by_amounts.values():
            counted = self.counted(claim)
            self._use(claim, 1 + len(others), counted)
            self._move(step, claim, Bucket.FREE, BUCKETS[claim.state], counted, 1 + len(others))

    def _enter(self, step: Step, record: ClaimRecord, actor: str, cause: str) -> None:
        claim = record.claim
        assert claim.id not in self.live
        assert claim.pod_uid not in self.by_pod
        if record.forced:
            record.slots = (-1,) * len(claim.slices)
        elif claim.slices:
            record.slots = tuple([self._slot(CardKey(claim.node, s.index)) for s in claim.slices])
        self._index(record)
        step.made[claim.id] = record
        self._on_cards(step, record, 1)
        self._changed(step, claim, None, actor, cause)
        if claim.state is ClaimState.POSTED:
            record.posted = self.index

    def post(self, step: Step, record: ClaimRecord, *, actor: str, cause: str) -> None:
        """PENDING -> POSTED: its pod is bound to the claim's node."""
        assert record.claim.state is ClaimState.PENDING
        record.claim = replace(record.claim, state=ClaimState.POSTED)
        record.reason = ""  # reason of a revocation that came too late
        job = self.jobs[record.claim.job]
        job.posted += 1
        if job.waiting is not None and job.posted >= job.waiting.min_member:
            step.bound.append((job.waiting.queue, record.claim.job, step.now - job.waiting.created_at))
            if (spread := spread_of([self.live[id].claim for id in job.live], self.nodes, self.fabrics)) is not None:
                step.gangs_bound.append((job.waiting.queue, spread))
            job.waiting = None
        self.decide(step, record, Decision.NONE)
        self._move(step, record.claim, Bucket.PENDING, Bucket.POSTED, self.counted(record.claim))
        self._changed(step, record.claim, ClaimState.PENDING, actor, cause)
        record.posted = self.index

    def void(self, step: Step, record: ClaimRecord, *, actor: str, cause: str) -> None:
        """PENDING or POSTED -> VOID, on evidence that its pod holds nothing there and never will."""
        claim, before = record.claim, record.claim.state
        counted = self.counted(claim)
        if record.beneficiary and claim.id in self.evicting:
            self.evicted.note(claim, step.now)
            if self.demand is not None:
                self.demand.taken(claim.queue, counted, step.now)
        self._unindex(record, counted)
        record.decision = Decision.NONE
        record.claim = replace(claim, state=ClaimState.VOID, reason=cause)
        if claim.id not in step.made:
            step.touched[claim.id] = step.freed[claim.id] = record
        record.changed_at = step.now
        self._on_cards(step, record, -1)
        self._move(step, claim, BUCKETS[before], Bucket.FREE, counted)
        self._changed(step, record.claim, before, actor, cause)

    def decide(self, step: Step, record: ClaimRecord, decision: Decision) -> None:
        """Record the open decision of a live claim."""
        record.decision, record.changed_at, record.blocked = decision, step.now, ""
        if decision is Decision.NONE:
            self.open.pop(record.claim.id, None)
        else:
            self.open[record.claim.id] = record
        if record.claim.id not in step.made:
            step.touched[record.claim.id] = record

    def stay(self, step: Step, record: ClaimRecord) -> None:
        """Revert its eviction, which was not carried out."""
        self.evicting.discard(record.claim.id)
        self.beneficiaries.left(record.claim.id)
        self.settle(successor_of(record.claim.pod_uid))
        record.reason, record.beneficiary = "", PlanId("")
        self.decide(step, record, Decision.NONE)

    def leave(self, step: Step, record: ClaimRecord) -> None:
        """Record that its eviction was accepted, whatever was decided since: it has no open decision and gets none (S9)."""
        if record.claim.id not in self.evicting:
            record.reason = "its eviction was under way"
            self.evicting.add(record)
        self.decide(step, record, Decision.NONE)

    def bury(self, pod: PodUid) -> None:
        """Remember that this pod no longer holds anything, whatever older messages report."""
        self.gone[pod] = self.index
        self.contradicted.pop(pod, None)
        self.settle(pod)
        while len(self.gone) > TOMBSTONES:
            oldest = next(iter(self.gone))
            del self.gone[oldest]
            self.contradicted.pop(oldest, None)

    def _slot(self, card: CardKey) -> int:
        taken = self.slots.get(card)
        if not taken:
            return 0
        return next(n for n in range(len(taken) + 1) if n not in taken)

    def _index(self, record: ClaimRecord) -> None:
        claim = record.claim
        self.live[claim.id] = record
        self.by_pod[claim.pod_uid] = claim.id
        if self.lending.counting:
            self.lending.book(_held(claim))
        self.card_quotas.book(claim.namespace, claim.requests, claim.slices)
        if record.decision is not Decision.NONE:
            self.open[claim.id] = record
        if claim.state is ClaimState.POSTED and record.reason:
            self.evicting.add(record)
        self.settle(claim.pod_uid)
        if (demand := self.demand) is not None:
            demand.entered(claim.pod_uid)
        self.class_quotas.enter(claim)
        job = self.jobs.get(claim.job)
        if job is None:
            job = self.jobs[claim.job] = JobClaims(claim.queue, self.records.first_start(claim.job))
            self.placed_jobs[claim.queue] += 1
        job.live[claim.id] = None
        job.posted += claim.state is ClaimState.POSTED
        for slot, s in zip(record.slots, claim.slices, strict=True):
            if slot >= 0:
                self.slots.setdefault(CardKey(claim.node, s.index), set()).add(slot)
        self.recount.add(claim.node)
        if claim.slices:
            self.with_cards.setdefault(claim.node, {})[claim.id] = None
            self._note_provisional(claim)

    def _unindex(self, record: ClaimRecord, counted: Resources) -> None:
        """Remove it from all indices and sums. counted: its amounts (`counted`)."""
        claim = record.claim
        if self.lending.counting:
            self.lending.book(_held(claim), -1)
        del self.live[claim.id], self.by_pod[claim.pod_uid]
        self.open.pop(claim.id, None)
        self.suspects.pop(claim.id, None)
        self.unseen.pop(claim.id, None)
        self.evicting.discard(claim.id)
        self.beneficiaries.left(claim.id)
        if (demand := self.demand) is not None:
            demand.left(claim.pod_uid)
        job = self.jobs[claim.job]
        del job.live[claim.id]
        job.posted -= claim.state is ClaimState.POSTED
        if not job.live:
            del self.jobs[claim.job]
            self.placed_jobs[job.queue] -= 1
            if not self.placed_jobs[job.queue]:
                del self.placed_jobs[job.queue]
        self.class_quotas.leave(claim, last=not job.live)
        self.sick.left(claim, last=not job.live)
        if (unplaced := self.unplaced.get(claim.node)) is not None:
            unplaced.pop(claim.pod_uid, None)
            if not unplaced:
                del self.unplaced[claim.node]
        self.by_node[claim.node].book(claim.requests, claim.slices, -1)
        self.recount.add(claim.node)
        self.card_quotas.book(claim.namespace, claim.requests, claim.slices, -1)
        for slot, s in zip(record.slots, claim.slices, strict=True):
            self.slots.get(CardKey(claim.node, s.index), set()).discard(slot)
        if claim.slices:
            del self.with_cards[claim.node][claim.id]
            if not self.with_cards[claim.node]:
                del self.with_cards[claim.node]
        if (unnamed := self.unnamed.get(claim.node)) is not None:
            unnamed.pop(claim.id, None)
        self._use(claim, -1, counted)

    def _use(self, claim: Claim, times: int, counted: Resources) -> None:
        if not claim.queue:
            on = self.foreign.setdefault(claim.node, {})
            add(on, claim.requests, times)
            if not any(on.values()):
                del self.foreign[claim.node]
        else:
            self._count(claim.queue, counted, times)
            if not claim.preemptable:
                add(self.protected.setdefault(claim.queue, {}), claim.amounts, times)

    def _count(self, queue: QueueName, amounts: Resources, times: int) -> None:
        add(self.used.setdefault(queue, {}), amounts, times)
        self.queues.book(queue, amounts, times)

    def protected_in(self, queue: QueueName) -> Resources:
        """Amounts of the queue and all queues below it that may not be reclaimed."""
        sums: Resources = {}
        for name in (queue, *self.queues.below(queue)):
            add(sums, self.protected.get(name, {}))
        return sums

    def counted(self, claim: Claim) -> Resources:
        """Amounts that count against the claim's queue: all but host ports, which only matter on their node."""
        amounts = claim.counted(by_model=self.by_model)
        return (
            {name: n for name, n in amounts.items() if not is_host_port(name)} if any(map(is_host_port, amounts)) else amounts
        )

    def _on_cards(self, step: Step, record: ClaimRecord, times: int) -> None:
        claim = record.claim
        if not claim.slices:
            return
        node = self.nodes.get(claim.node)
        for s in claim.slices:
            key = CardKey(claim.node, s.index)
            delta = step.cards.get(key)
            if delta is None:
                delta = step.cards[key] = CardDelta()
            delta.cores += times * s.cores
            delta.memory_mib += times * s.memory_mib
            delta.pods += times * s.slots
            delta.whole += times * s.whole
            delta.forced += times * record.forced
            if times > 0 and not record.forced:
                card = node.card(s.card, s.index) if node is not None else None
                assert card is not None
                delta.size = card.memory_mib, card.shares

    def _move(  # noqa: PLR0917  a move, and what moves
        self, step: Step, claim: Claim, debit: Bucket, credit: Bucket, counted: Resources, times: int = 1
    ) -> None:
        if not claim.queue:
            return  # pods of other schedulers count against no quota
        step.queues.add(claim.queue)
        for resource, amount in counted.items():
            step.move(claim.queue, resource, debit, credit, amount * times)

    def _changed(self, step: Step, claim: Claim, before: ClaimState | None, actor: str, cause: str) -> None:
        self.index = Index(self.index + 1)
        step.changes.append(Change(self.index, claim, before, actor, cause))

    def protected_until(self, plan: Plan, placement: Placement, now: float) -> float:
        """End of the time for which this newly placed pod may not be reclaimed; 0 = not protected. Borrowed cards are never protected, nor are those of offline
        work."""
        if is_offline(self.records.class_of(plan.job)) or self.queues.borrows(plan.queue, self.pool_of(placement.node)):
            return 0.0
        evicted = self.evicted.of_late(plan, placement, now)
        return self.queues.run_time(plan.queue).protected_until(now, evicted=evicted)

    def validate(self) -> None:
        """Recount everything from the live claims. Raises AssertionError if a sum, an index or an invariant is wrong."""
        assert self.by_model is self.queues.by_model
        fresh = LedgerState(self.epoch)
        fresh.queues.update(self.queues)
        fresh.load(self.live.values(), ())
        for nomination in self.nominations.all():
            fresh.nominate(nomination)
        assert fresh.nominations.all() == self.nominations.all()
        assert fresh.foreign == self.foreign
        assert dict(fresh.evicting.nominations()) == dict(self.evicting.nominations())
        assert _solid(fresh.evicting.nominated) == _solid(self.evicting.nominated)
        assert fresh.by_pod == self.by_pod
        assert fresh.with_cards == self.with_cards
        assert fresh.jobs == self.jobs
        assert +self.placed_jobs == Counter(job.queue for job in self.jobs.values())
        assert fresh.open == self.open
        assert fresh.evicting.claims() == self.evicting.claims()
        assert _solid(fresh.evicting.used) == _solid(self.evicting.used)
        assert _solid(fresh.used) == _solid(self.used)
        assert _solid(fresh.protected) == _solid(self.protected)
        self.queues.validate()
        self.lending.validate()
        if self.demand is not None:
            self.demand.validate()
        held = {
            namespace: dict(self.card_quotas.used(namespace)) for namespace in {quota.namespace for quota in self.card_quotas}
        }
        assert _solid(self.card_quotas.counted(self._held())) == _solid(held)
        assert {k: v for k, v in fresh.slots.items() if v} == {k: v for k, v in self.slots.items() if v}
        for name, state in self.by_node.items():
            counted = fresh.node(name)
            assert _solid({name: state.used}) == _solid({name: counted.used})
            cards = {i: c for i, c in state.cards.items() if c.pods or c.cores or c.memory_mib}
            assert cards == counted.cards
        for record in self.live.values():
            assert record.claim.state.live
            assert (record.claim.state is ClaimState.PENDING) <= (record.decision in (Decision.BIND, Decision.REVOKE))


def _held(claim: Claim) -> Held:
    return Held(claim.queue, claim.node, claim.amounts, claim.preemptable)


def _solid(
    sums: Mapping[QueueName, Resources] | Mapping[NodeName, Resources] | Mapping[str, Resources],
) -> dict[str, Resources]:
    clean = {str(k): {r: n for r, n in v.items() if n} for k, v in sums.items()}
    return {k: v for k, v in clean.items() if v}
