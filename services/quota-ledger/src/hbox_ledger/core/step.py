"""The changes of one turn, as data: the journal writes them in one transaction, the relay publishes the messages about them."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from hbox_common.events import Bind, BudgetUsed, CloudEvent, Evict, EvictionReceipt, HeldNomination, PlanAnswer, QueueRefused
from hbox_common.model import Claim, ClaimId, ClaimState, Index, JobId, NodeName, PlanId, PodUid, QueueName, SchedulerId

from .accounts.usage import Accrued
from .cardnumbers import CardName
from .claimrecord import ClaimRecord, Gang
from .spread import Spread


class Bucket(StrEnum):
    """State of a queue's units: free, promised or in use; and of the latter two, how many are borrowed from the pool."""

    FREE = "free"
    PENDING = "pending"
    POSTED = "posted"
    POOL = "pool"
    BORROWED = "borrowed"


class Move(NamedTuple):
    """Units of one resource of one queue that go from `debit` to `credit`: both entries of the book in one row."""

    queue: QueueName
    resource: str
    debit: Bucket
    credit: Bucket


class CardKey(NamedTuple):
    """`card`: its number (`cardnumbers`)."""

    node: NodeName
    card: int


@dataclass(slots=True)
class CardDelta:
    """What a turn adds to one card's account. `size` is (MiB, shares) of the card, set where a claim was validated against it."""

    cores: int = 0
    memory_mib: int = 0
    pods: int = 0
    whole: int = 0
    forced: int = 0
    size: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one claim, numbered by the index: the unit of the feed and of the audit."""

    index: Index
    claim: Claim
    before: ClaimState | None
    actor: str
    cause: str


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    scheduler: SchedulerId
    answer: PlanAnswer


@dataclass(slots=True)
class Step:
    """The effects of one turn. `now` is its time, in seconds since the epoch; everything else is in the order of happening."""

    now: float
    first: Index  #: the books' index before the step
    changes: list[Change] = field(default_factory=list)
    made: dict[ClaimId, ClaimRecord] = field(default_factory=dict)
    touched: dict[ClaimId, ClaimRecord] = field(default_factory=dict)  #: changed in the step, created before
    freed: dict[ClaimId, ClaimRecord] = field(default_factory=dict)  #: subset of `touched`: voided in the step
    moves: dict[Move, int] = field(default_factory=dict)
    cards: dict[CardKey, CardDelta] = field(default_factory=dict)
    names: list[CardName] = field(default_factory=list)  #: card numbers assigned in the step
    gangs: dict[JobId, Gang | None] = field(default_factory=dict)
    nominations: dict[PlanId, HeldNomination | None] = field(default_factory=dict)  #: None: ended
    queues: set[QueueName] = field(default_factory=set)  #: queues whose usage changed
    stored: list[StoredAnswer] = field(default_factory=list)
    answers: dict[SchedulerId, dict[PlanId, PlanAnswer]] = field(default_factory=dict)
    refused: list[QueueRefused] = field(default_factory=list)
    binds: list[Bind] = field(default_factory=list)
    evictions: list[Evict] = field(default_factory=list)
    #: jobs whose minimum of pods is bound for the first time, with their queues and the seconds since their creation
    bound: list[tuple[QueueName, JobId, float]] = field(default_factory=list)
    gangs_bound: list[tuple[QueueName, Spread]] = field(default_factory=list)  #: the gangs with whole cards among them
    receipts: list[EvictionReceipt] = field(default_factory=list)  #: published to the owners of evicted pods
    leaving: dict[PodUid, int] = field(default_factory=dict)  #: pods whose evictions were accepted -> grace period in seconds
    stayed: list[PodUid] = field(default_factory=list)  #: victims that may not be evicted now
    budgets: list[BudgetUsed] = field(default_factory=list)
    public: list[CloudEvent] = field(default_factory=list)  #: without ids, which the outbox assigns
    usage: Accrued | None = None
    ruled: bool = False  #: a queue's rules changed
    announce: bool = False  #: publish the epoch and index even if no claim changed

    @property
    def durable(self) -> bool:
        """Whether the step changes anything that has to be on disk."""
        done = (
            self.changes
            or self.touched
            or self.names
            or self.gangs
            or self.nominations
            or self.stored
            or self.binds
            or self.evictions
        )
        return bool(done or self.usage is not None or self.announce)

    def move(self, queue: QueueName, resource: str, debit: Bucket, credit: Bucket, amount: int) -> None:
        if amount:
            key = Move(queue, resource, debit, credit)
            self.moves[key] = self.moves.get(key, 0) + amount

    def answer(self, scheduler: SchedulerId, answer: PlanAnswer) -> None:
        self.answers.setdefault(scheduler, {})[answer.plan] = answer
