"""Cards of nodes by state, for metrics. Each card counts once, in thousandths where pods share it: a card of which a pod has 30 % is 0.3 used and 0.7 idle.

A slice counts by the larger of its compute and memory shares, and replicas and MIG partitions as parts of a card, as in the usage accounts.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from hbox_common.model import CardId, NodeName, NodeState, Verdict, pool_of
from hbox_common.model.cardparts import WHOLE, PartsOnNode, part_of_share, parts_on, share_on
from hbox_common.model.devices import ALL_CORES, Card
from hbox_common.model.devices.partitions import CARD as WHOLE_PARTS
from hbox_common.model.devices.partitions import PRODUCT

from .accounts.usage import CARD, UNKNOWN
from .ledgerstate import LedgerState


class CardState(StrEnum):
    USED = "used"  #: held by pods, also on nodes that accept no new ones
    KEPT = "kept"  #: idle, and nominated for pods of a plan with evictions or moves
    IDLE = "idle"
    UNHEALTHY = "unhealthy"  #: by the node or by health-monitor; pods may still hold it
    UNAVAILABLE = "unavailable"  #: idle, on a node that accepts no pods: not ready, cordoned or unhealthy


class NodeUse(StrEnum):
    """Of a node that accepts pods, by its healthy cards."""

    EMPTY = "empty"  #: none is used
    PARTIAL = "partial"  #: some are used and some idle, or parts of them
    FULL = "full"  #: none is idle
    UNAVAILABLE = "unavailable"  #: the node accepts no pods, or none of its cards is healthy


@dataclass(frozen=True, slots=True)
class NodeCards:
    pool: str
    cards: Mapping[tuple[str, CardState], int]  #: thousandths of cards by model and state
    use: NodeUse


class CardCounts:
    """Sums over all nodes. Only nodes that changed are counted again: those of `LedgerState.recount`, and those with nominated places."""

    def __init__(self) -> None:
        self.cards: defaultdict[str, Counter[tuple[str, CardState]]] = defaultdict(
            Counter
        )  #: by pool, thousandths by model and state
        self.nodes: defaultdict[str, Counter[NodeUse]] = defaultdict(Counter)  #: by pool
        self._of: dict[NodeName, NodeCards] = {}
        self._state: LedgerState | None = None
        self._nominated: set[NodeName] = set()

    def due(self, state: LedgerState) -> list[NodeName]:
        """The nodes to count now: all in a state that was loaded again."""
        nominated = {place.node for place in state.evicting.places()}
        due = state.recount | self._nominated | nominated
        state.recount, self._nominated = set(), nominated
        if self._state is state:
            return list(due)
        self._state = state
        return list({*state.nodes, *self._of})

    def count(self, state: LedgerState, names: Iterable[NodeName]) -> None:
        for name in names:
            if (old := self._of.pop(name, None)) is not None:
                self._add(old, -1)
            if (new := cards_on(state, name)) is not None:
                self._of[name] = new
                self._add(new, 1)

    def _add(self, counted: NodeCards, times: int) -> None:
        cards, nodes = self.cards[counted.pool], self.nodes[counted.pool]
        for key, amount in counted.cards.items():
            cards[key] += times * amount
        nodes[counted.use] += times
        if not nodes.total():
            del self.cards[counted.pool], self.nodes[counted.pool]


def cards_on(state: LedgerState, name: NodeName) -> NodeCards | None:
    """The cards of a node; None if it has none, is unknown or deleted."""
    node, verdict = state.nodes.get(name), state.verdicts.get(name)
    if node is None or node.gone:
        return None
    accepts = node.ready and not node.unschedulable and (verdict is None or verdict.healthy)
    parts = parts_on(node)
    cards: defaultdict[tuple[str, CardState], int] = defaultdict(int)
    for model, unhealthy, held, nominated, total in (
        _each_card(state, node, verdict) if parts is None else _in_parts(state, node, verdict, parts)
    ):
        used = min(held, total - unhealthy)
        kept = min(nominated, total - unhealthy - used) if accepts else 0
        cards[model, CardState.UNHEALTHY] += unhealthy
        cards[model, CardState.USED] += used
        cards[model, CardState.KEPT] += kept
        cards[model, CardState.IDLE if accepts else CardState.UNAVAILABLE] += total - unhealthy - used - kept
    return NodeCards(pool_of(node.labels), cards, _use(cards, accepts=accepts)) if cards else None


def _each_card(state: LedgerState, node: NodeState, verdict: Verdict | None) -> Iterator[tuple[str, int, int, int, int]]:
    """Of each card: its model; what is unhealthy, used and nominated of it, and all of it, in thousandths."""
    held = state.by_node.get(node.name)
    kept: defaultdict[CardId, int] = defaultdict(int)
    for place in state.evicting.places_on(node.name):
        for s in place.slices:
            if (card := node.card(s.card, s.index)) is not None:
                kept[card.id] += share_of_card(card, s.cores, s.memory_mib)
    for card in node.cards:
        model = card.model or UNKNOWN
        if _is_unhealthy(card, verdict):
            yield model, CARD, 0, 0, CARD
            continue
        allocated = held.of(card) if held is not None else None
        used = share_of_card(card, allocated.cores, allocated.memory_mib) if allocated is not None else 0
        yield model, 0, used, kept[card.id] if kept else 0, CARD


def _in_parts(
    state: LedgerState, node: NodeState, verdict: Verdict | None, parts: PartsOnNode
) -> Iterator[tuple[str, int, int, int, int]]:
    """The same of all cards of a node that offers replicas or fixed partitions: requests, not cards, show what is used."""
    held = state.by_node.get(node.name)
    unit = part_of_share(share_on(node) or WHOLE) * CARD // WHOLE_PARTS
    total = parts.total * CARD
    unhealthy = min(total, unit * sum(_is_unhealthy(card, verdict) for card in node.cards))
    used = int(parts.held(held.used) * CARD) if held is not None else 0
    kept = sum(int(parts.held(place.requests) * CARD) for place in state.evicting.places_on(node.name))
    model = next((card.model for card in node.cards), node.labels.get(PRODUCT, "")) or UNKNOWN
    if total:
        yield model, unhealthy, used, kept, total


def _use(cards: Mapping[tuple[str, CardState], int], *, accepts: bool) -> NodeUse:
    def any_is(*states: CardState) -> bool:
        return any(amount > 0 for (_, which), amount in cards.items() if which in states)

    if not accepts or not any_is(CardState.USED, CardState.KEPT, CardState.IDLE):
        return NodeUse.UNAVAILABLE
    if not any_is(CardState.USED):
        return NodeUse.EMPTY
    return NodeUse.PARTIAL if any_is(CardState.IDLE) else NodeUse.FULL


def _is_unhealthy(card: Card, verdict: Verdict | None) -> bool:
    return not card.healthy or (verdict is not None and verdict.marks_unhealthy(card))


def share_of_card(card: Card, cores: int, memory_mib: int) -> int:
    """A slice's part of its card in thousandths: the larger of its compute and memory shares."""
    of_memory = memory_mib * CARD // card.memory_mib if card.memory_mib else 0
    return min(CARD, max(cores * CARD // ALL_CORES, of_memory))
