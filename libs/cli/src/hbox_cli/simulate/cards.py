"""Which cards the pods of a saved cluster hold.

HBox writes `hbox.io/cards`, HAMi's scheduler an annotation of each vendor's. A pod with neither got its cards from its kubelet, and nobody wrote down which:
it is counted on the lowest that can be its own, after all those that are known, so that the node's sum is right. Of `hbox.io/cards` it counts which cards
these are; how much of each is what the pod asks for, whatever anybody wrote on it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hbox_common.model import Card, CardAllocation, CardRequest, CardSlice, NodeName, NodeState, Vendor, cards_held
from hbox_common.model.devices import Ask, PodDevices, effective


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod with a node: what it asks for, and what is written on it."""

    node: NodeName
    cards: CardRequest
    slices: tuple[CardSlice, ...] = ()  #: as hbox.io/cards says
    vendor: Vendor | None = None  #: of the cards that it asks for
    allocated: str = ""  #: of the vendor's annotation


def slices_of(nodes: Iterable[NodeState], holders: Sequence[Holder]) -> list[tuple[CardSlice, ...]]:
    """What each holder holds, in their order. Less than it asks for where the node has no more."""
    cards = {node.name: sorted(node.cards, key=lambda card: card.index) for node in nodes}
    books: dict[NodeName, dict[int, CardAllocation]] = {name: {} for name in cards}
    found: list[tuple[CardSlice, ...]] = []
    for holder in holders:
        known = _written(holder, cards.get(holder.node, ()), books.get(holder.node, {}))
        found.append(known)
        _book(books, holder.node, known)
    for place, holder in enumerate(holders):
        if not found[place]:
            found[place] = cards_held(holder.cards, cards.get(holder.node, ()), books.get(holder.node, {}))
            _book(books, holder.node, found[place])
    return found


def _written(holder: Holder, cards: Sequence[Card], held: Mapping[int, CardAllocation]) -> tuple[CardSlice, ...]:
    said = [s.index for s in holder.slices]
    if said:
        own = cards_held(holder.cards, cards, held, named=said)
        if [s.index for s in own] == said:
            return own
    if holder.vendor is None:
        return ()
    asked = holder.cards
    asks = [
        Ask(holder.vendor.kind, asked.count, asked.cores, asked.memory_mib, asked.memory_percent, container=asked.container)
    ]
    layout = holder.vendor.rebuild(holder.allocated, cards, asks)
    return effective(layout, PodDevices(tuple(asks), len(layout)))


def _book(books: dict[NodeName, dict[int, CardAllocation]], node: NodeName, slices: Sequence[CardSlice]) -> None:
    for s in slices:
        card = books.setdefault(node, {}).setdefault(s.index, CardAllocation())
        card.cores += s.cores
        card.memory_mib += s.memory_mib
        card.pods += 1
