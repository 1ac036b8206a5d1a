"""Usage accounts: card-seconds by queue, user, card model and hour, each either the queue's own or borrowed; and what a queue deserved and left idle.

Theory of operation. There are no timers: an account is an integral over the intervals of live claims in the database, from the last accrued second to the
present one. So a crash loses nothing, and the frequency of queries does not matter. Times are truncated to whole seconds, use is in thousandths of a card,
amounts in thousandths of a card-second: sums are exact.

- A claim uses cards from its creation, which reserves them, until it is void. A slice counts the larger of its compute and memory share; a replica or fixed
  partition counts its part of the card (`cardparts`), by the node's labels at that time.
- Borrowed is what a queue uses beyond its deserved cards at that time; of a queue that deserves none, all. Users and models share it in proportion.
- Idle is what a queue deserves and does not use; it has no user and no model. Parent queues have none: their share is their children's.
- The user is the pod's namespace: the only name of its owner in a claim that Kubernetes protects.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from hbox_common.model import Claim, NodeName, NodeState, Queue, QueueName, Resources, cards_in
from hbox_common.model.cardparts import parts_on
from hbox_common.model.devices import ALL_CORES, MAX_CARDS, VENDORS
from hbox_common.model.devices.partitions import PRODUCT

from ..claimrecord import ClaimRecord

HOUR_S = 3600
CARD = 1000  #: thousandths
UNKNOWN = "unknown"  #: model of cards on a node whose inventory is unknown


class Account(NamedTuple):
    queue: QueueName
    user: str
    model: str
    hour: int  #: its first second, Unix time


@dataclass(slots=True)
class Amounts:
    """Thousandths of a card-second."""

    own: int = 0
    borrowed: int = 0
    idle: int = 0

    def add(self, other: "Amounts") -> None:
        self.own, self.borrowed, self.idle = self.own + other.own, self.borrowed + other.borrowed, self.idle + other.idle


@dataclass(frozen=True, slots=True)
class Held:
    """The cards that one claim holds, from second `start` to before `end`."""

    queue: QueueName
    user: str
    cards: Resources  #: thousandths of a card by model
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Accrued:
    """Amounts added to accounts between two whole seconds."""

    since: int
    until: int
    amounts: dict[Account, Amounts] = field(default_factory=dict)


def meter(made: Iterable[ClaimRecord], nodes: Mapping[NodeName, NodeState]) -> None:
    """Record on each new claim which cards it uses."""
    for record in made:
        record.cards = cards_of(record.claim, nodes.get(record.claim.node))


def cards_of(claim: Claim, node: NodeState | None) -> Resources:
    """Thousandths of cards by model. Foreign pods whose cards are unknown hold what they requested; pods without a queue have no account."""
    if not claim.queue:
        return {}
    found: Resources = {}
    for s in claim.slices:
        card = node.card(s.card, s.index) if node is not None else None
        size = card.memory_mib if card is not None else 0
        share = s.cores * CARD // ALL_CORES
        if size and not s.whole:
            share = max(share, s.memory_mib * CARD // size)
        model = card.model if card is not None and card.model else UNKNOWN
        found[model] = found.get(model, 0) + min(CARD, share)
    parts = parts_on(node) if node is not None else None
    if node is not None and parts is not None:
        model = next((card.model for card in node.cards), node.labels.get(PRODUCT, "")) or UNKNOWN
        return {model: min(held, MAX_CARDS * CARD)} if (held := int(parts.held(claim.requests) * CARD)) else {}
    if not claim.slices and (asked := VENDORS.asked(claim.requests)):
        found[UNKNOWN] = asked * CARD
    return found


def deserved_cards(queues: Iterable[Queue]) -> dict[QueueName, int]:
    """What each queue deserves, in thousandths of a card, without parent queues."""
    everyone = list(queues)
    above = {queue.parent for queue in everyone}
    return {queue.name: cards_in(queue.deserved) * CARD for queue in everyone if queue.name not in above}


def accrue(held: Iterable[Held], deserved: Mapping[QueueName, int], *, since: int, until: int) -> Accrued:
    """Usage of the claims `held` in [since, until), with constant `deserved` (thousandths of a card)."""
    by_queue: defaultdict[QueueName, list[Held]] = defaultdict(list)
    for one in held:
        by_queue[one.queue].append(one)
    accrued = Accrued(since, until)
    for queue in sorted(by_queue.keys() | {name for name, cards in deserved.items() if cards > 0}):
        _accrue(accrued, queue, by_queue.get(queue, ()), deserved.get(queue, 0))
    return accrued


def _accrue(accrued: Accrued, queue: QueueName, held: Iterable[Held], deserved: int) -> None:
    since, until = accrued.since, accrued.until
    #: second -> (user, model) -> thousandths of a card more or less
    moves: defaultdict[int, defaultdict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
    for one in held:
        start, end = max(since, one.start), min(until, one.end)
        if start < end:
            for model, cards in one.cards.items():
                moves[start][one.user, model] += cards
                moves[end][one.user, model] -= cards
    using: defaultdict[tuple[str, str], int] = defaultdict(int)
    cuts = sorted({since, until, *moves, *range(since - since % HOUR_S + HOUR_S, until, HOUR_S)})
    for first, last in pairwise(cuts):
        for user_model, cards in moves.get(first, {}).items():
            using[user_model] += cards
        seconds, hour = last - first, first - first % HOUR_S
        used = sum(using.values())
        for (user, model), (own, borrowed) in _split(using, used, max(0, used - deserved)).items():
            amounts = accrued.amounts.setdefault(Account(queue, user, model, hour), Amounts())
            amounts.own += own * seconds
            amounts.borrowed += borrowed * seconds
        if used < deserved:
            accrued.amounts.setdefault(Account(queue, "", "", hour), Amounts()).idle += (deserved - used) * seconds


def _split(using: Mapping[tuple[str, str], int], used: int, borrowed: int) -> dict[tuple[str, str], tuple[int, int]]:
    """Own and borrowed part of each user and model: proportional, whole, and `borrowed` in sum (largest remainder, then by name)."""
    there = {user_model: cards for user_model, cards in using.items() if cards}
    if not borrowed:
        return {user_model: (cards, 0) for user_model, cards in there.items()}
    parts = {user_model: cards * borrowed // used for user_model, cards in there.items()}
    left = borrowed - sum(parts.values())
    for user_model in sorted(there, key=lambda user_model: (-(there[user_model] * borrowed % used), user_model))[:left]:
        parts[user_model] += 1
    return {user_model: (cards - parts[user_model], parts[user_model]) for user_model, cards in there.items()}
