"""The platform's promises, as pure functions over plain data: what one node, card, gang or queue holds, in; violations, out.

`hbox audit` checks a whole cluster with them, the observer of `make chaos` and the judge of the simulation only what a change touched: each function looks at
one object. Callers keep the sums. They share no code with the services.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from hbox_common.model import CardId, CardSlice, Resources
from hbox_common.model.devices import ALL_CORES, short_card

from .cluster import AuditCard, AuditNode, AuditPod


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise. `rule`: its short name."""

    rule: str
    message: str


def over_allocated(node: AuditNode, used: Mapping[str, int], only: Container[str] | None = None) -> Iterator[Violation]:
    """Amounts on a node beyond its allocatable ones. `only`: the resources to look at."""
    limits: Resources = node.allocatable
    for resource, amount in used.items():
        if amount > limits.get(resource, 0) and (only is None or resource in only):
            yield Violation(
                "capacity",
                f"node {node.name}: {amount} of {resource} given away, {limits.get(resource, 0)} are there (base units)",
            )


@dataclass(slots=True)
class CardUse:
    """What pods hold of one card."""

    cores: int = 0
    memory_mib: int = 0
    pods: int = 0
    whole: int = 0

    def add(self, piece: CardSlice, times: int = 1) -> None:
        """`times`: -1 releases the piece."""
        self.cores += times * piece.cores
        self.memory_mib += times * piece.memory_mib
        self.pods += times * piece.slots
        self.whole += times * piece.whole


def over_booked(node: str, id_: CardId, card: AuditCard | None, use: CardUse) -> Iterator[Violation]:
    """What pods hold of a card beyond the whole card. `card`: None if it is unknown."""
    where = f"node {node} card {short_card(id_)}"
    if use.cores > ALL_CORES:
        yield Violation("card", f"{where}: {use.cores} % of its compute given away")
    if use.whole and use.pods > 1:
        yield Violation("card", f"{where} is held whole, and by {use.pods} pods")
    if card is None:
        return
    if card.memory_mib and use.memory_mib > card.memory_mib:
        yield Violation("card", f"{where}: {use.memory_mib} MiB given away of {card.memory_mib}")
    if card.shares and use.pods > card.shares:
        yield Violation("card", f"{where}: {use.pods} pods, {card.shares} may share it")


def partial_gang(name: str, bound: int, min_member: int) -> Iterator[Violation]:
    """A gang of which fewer members than its minimum have nodes. The caller decides since when, and whether it ever started whole."""
    if 0 < bound < min_member:
        yield Violation("gang", f"gang {name} started in part: {bound} pods of at least {min_member}")


def partial_plan(gang: str, claimed: int, min_member: int) -> Iterator[Violation]:
    """A gang whose first plan claimed fewer members than its minimum."""
    if claimed < min_member:
        yield Violation("gang", f"the first plan of gang {gang} claimed {claimed} pods of at least {min_member}")


def undecided(pod: AuditPod) -> Iterator[Violation]:
    """A bound pod without a claim, or on other cards than it requests, by its annotations."""
    if not pod.claim:
        yield Violation("decision", f"pod {pod.name} is bound to {pod.node} without a claim")
    yield from wrong_cards(pod)


def wrong_cards(pod: AuditPod) -> Iterator[Violation]:
    """A bound pod on another number of cards than it requests, by its annotations."""
    held = pod.slices
    if held is None or (not pod.by_containers and len({piece.card for piece in held}) != pod.cards):
        yield Violation("decision", f"pod {pod.name} asked for {pod.cards} cards and was given {held}")


def over_limit(queue: str, used: Mapping[str, int], limits: Resources) -> Iterator[Violation]:
    """What the bound pods of a queue hold beyond its capability."""
    for resource, limit in limits.items():
        if used.get(resource, 0) > limit:
            yield Violation("queue", f"queue {queue}: {used[resource]} of {resource} used, its capability is {limit}")


def room_for(node: AuditNode, used: Mapping[str, int], on_cards: Mapping[CardId, CardUse], pod: AuditPod) -> int:
    """How many such pods fit on what is unused of the node, in cards that are wholly idle."""
    counts = [
        (node.allocatable.get(what, 0) - used.get(what, 0)) // amount for what, amount in pod.requests.items() if amount > 0
    ]
    if pod.cards:
        counts.append(sum((use := on_cards.get(card)) is None or not use.pods for card in node.cards) // pod.cards)
    return max(0, min(counts, default=0))


def stale_nominations(nominated: Iterable[tuple[str, str]], leaving: Container[str]) -> Iterator[Violation]:
    """Pods (by name, with their nominated node) that wait for a node from which no pod is leaving. `leaving`: nodes with terminating pods."""
    for pod, node in nominated:
        if node not in leaving:
            yield Violation("nomination", f"pod {pod} is nominated to {node}, from which no pod is leaving")
