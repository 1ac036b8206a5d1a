"""What a queue still allows, by its rules and by what is booked in it: a check before planning, so that the ledger rarely has to refuse."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from hbox_common.model import (
    POOLED,
    Job,
    Pools,
    Queue,
    QueueName,
    QueueTree,
    RefusalReason,
    Resources,
    amounts_in,
    in_pool,
    is_model,
    of_pool,
)
from hbox_common.model.cardparts import cards_of_share
from hbox_common.model.devices import VENDORS

from ..cluster import Bookings
from ..explain.labels import Label

#: Pools that a queue may use; and of each queue of its path the namespaces and PriorityClasses that it is for, and whether it is closed to all others.
Route: TypeAlias = tuple[Pools, tuple[tuple[tuple[str, ...], tuple[str, ...], bool], ...]]


_MENDED = {
    RefusalReason.QUEUE_NAMESPACE: "name another queue in the job",
    RefusalReason.QUEUE_PRIORITY_CLASS: "name one of these, or another queue",
}


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many pods may still start (None = no limit), and why no more."""

    pods: int | None
    message: str = ""


class Queues:
    """The rules as the ledger announced them. Use is counted from the bookings: they are the ledger's claims and our own plans."""

    def __init__(self, bookings: Bookings) -> None:
        self._tree = bookings.queues
        self._lending = bookings.lending
        self._bookings = bookings

    def put(self, queue: Queue) -> bool:
        """Take new rules. Returns whether they differ from the old."""
        if self._tree.get(queue.name) == queue:
            return False  # each arriving or leaving pod republishes its queue, and a change of rules invalidates everything
        self._lending.eased = True
        self._tree[queue.name] = queue
        self._bookings.ruled()
        return True

    def drop(self, name: QueueName) -> tuple[QueueName, ...]:
        """Forget the rules of a queue. Returns which queues may allow more now: one that has no other below it takes work again."""
        above = self._tree.path(name)
        self._tree.pop(name, None)
        self._lending.eased = True
        self._bookings.ruled()
        return above

    def all(self) -> QueueTree:
        """Every queue that was announced."""
        return self._tree

    def refusal(self, name: QueueName, *, cards: bool) -> str:
        """Why the queue admits no work, or no work with cards, whatever is free; "" = it does."""
        if refusal := self._tree.refusal(name):
            return f"{Label(refusal.reason)}: {refusal.message}"
        if cards:
            for above in self._tree.path(name):
                if (queue := self._tree.get(above)) is not None and queue.stopped:
                    return f"{Label.QUEUE_BUDGET}: {queue.stopped}"
        return ""

    def pools(self, name: QueueName, there: Iterable[str]) -> list[str]:
        """Of these pools, as counted, those that the queue may use."""
        return [pool for pool in there if self._tree.may_use(name, pool or POOLED)]

    def allowance(self, name: QueueName, each: Resources, pool: str = "") -> Allowance:
        """How many times `each` fits in the pool under the capability of the queue and its ancestors, while the guarantees of others stay covered."""
        asks_cards = VENDORS.asked(each) > 0
        each = amounts_in(pool, each) if pool else each
        if why := self.refusal(name, cards=asks_cards):
            return Allowance(0, why)
        headroom = self._tree.headroom(name, self._smallest(each, pool))
        kept = self.kept_for_others(name, each)
        if kept.pods is not None and (headroom.times is None or kept.pods < headroom.times):
            return kept
        return Allowance(headroom.times, f"{Label.QUEUE_CAPABILITY}: {headroom.message}" if headroom.message else "")

    def _smallest(self, each: Resources, pool: str) -> Resources:
        """The amounts, on cards of which a unit is the smallest part of a card that there is."""
        shares = self._bookings.shares
        units = each.get(in_pool(cards_of_share(shares[0]), pool), 0) if shares else 0
        return {**each, in_pool(shares[0], pool): units} if units else each

    def kept_for_others(self, name: QueueName, each: Resources) -> Allowance:
        """How many times `each` fits while enough stays reclaimable for the guarantees of others. Matters for queues that give nothing back; work of a
        non-preemptible class starts as a borrower's if it would leave too little."""
        if not self._lending.is_non_preemptible(name, preemptable=True):
            return Allowance(None)
        headroom = self._lending.headroom(name, each)
        if headroom.times is not None:
            self._bookings.limited_by_guarantees.add(name)
        return Allowance(headroom.times, f"{Label.QUEUE_GUARANTEES}: {headroom.message}" if headroom.message else "")

    def eased(self) -> set[QueueName]:
        """Queues whose non-preemptible work may have more headroom under the guarantees of others than when it was last examined."""
        if not self._lending.eased:
            return set()
        self._lending.eased = False
        eased = set(self._bookings.limited_by_guarantees)
        self._bookings.limited_by_guarantees.clear()
        return eased

    def left_of_models(self, name: QueueName, pool: str = "") -> Resources:
        """How many more cards of each model the queue's work may hold in the pool: under the capability of the queue and its ancestors and, for non-preemptible
        work, while the guarantees of others stay covered. Models without an entry have no limit. An attempt deducts from it."""
        left = self._tree.left_of_shares(name, self._bookings.shares, pool)
        if not self._tree.by_model:
            return left
        left |= self._tree.left_of_models(name, pool)
        non_preemptible = self._lending.is_non_preemptible(name, preemptable=True)
        guaranteed = of_pool(pool, dict.fromkeys(self._lending.guaranteed, 1)) if non_preemptible else {}
        for model in filter(is_model, guaranteed):
            kept = self.kept_for_others(name, {in_pool(model, pool): 1}).pods
            if kept is not None:
                left[model] = min(left.get(model, kept), kept)
        return left

    def blocked_reason(self, job: Job) -> str:
        """Why the job may not use its queue at all."""
        refusal = self._tree.forbids(job.queue, job.namespace, job.priority_class)
        return f"{Label(refusal.reason)}: {refusal.message}; {_MENDED[refusal.reason]}" if refusal is not None else ""

    def closed(self, name: QueueName, namespace: str) -> str:
        """Why the queue admits no work of this namespace now."""
        if refusal := self._tree.refusal(name):
            return f"{Label(refusal.reason)}: {refusal.message}"
        refusal = self._tree.forbids(name, namespace)
        return f"{Label(refusal.reason)}: {refusal.message}" if refusal is not None else ""

    def route(self, name: QueueName) -> Route:
        """The pools that work of the queue may use, and the rules of the queue and its ancestors about whose work they admit."""
        rules = [queue for above in self._tree.path(name) if (queue := self._tree.get(above)) is not None]
        return self._tree.reach(name), tuple((queue.namespaces, queue.priority_classes, queue.bound) for queue in rules)

    def freed(self, names: Iterable[QueueName]) -> set[QueueName]:
        """These queues, and their ancestors with a limit or a share: queues below any of them may have headroom again, or a right to it."""
        found: set[QueueName] = set()
        for name in names:
            found.add(name)
            found.update(
                above for above in self._tree.path(name) if (queue := self._tree.get(above)) is not None and _limited(queue)
            )
        return found

    def among(self, name: QueueName, freed: set[QueueName]) -> bool:
        """Whether the queue or one above it is among `freed`."""
        return bool(freed) and not freed.isdisjoint(self._tree.path(name))


def _limited(queue: Queue) -> bool:
    return bool(queue.capability or queue.deserved or queue.guarantee or queue.pool_amounts)
