"""Which cards the pods of a saved cluster hold.

HBox writes `hbox.io/cards`, HAMi's scheduler an annotation for each vendor. A pod with neither got its cards from its kubelet, and no object names them: it is
counted, after all pods with known cards, on the lowest cards that it can hold, so that the node's sum is right. Only the card ids of `hbox.io/cards` count;
the amounts are those that the pod requests, since its tenant can write the annotation. Cards of init containers are free when these have ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hbox_common.model import (
    VENDORS,
    Card,
    CardAllocation,
    CardId,
    CardRequest,
    CardSlice,
    NodeName,
    NodeState,
    Vendor,
    annotated_layout,
    cards_held,
    name_slices,
)
from hbox_common.model.devices import Fitted, Layout, PodDevices, by_index, effective


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod with a node: what it asks for, and what is written on it."""

    node: NodeName
    devices: PodDevices
    cards: CardRequest
    slices: tuple[CardSlice, ...] = ()  #: by hbox.io/cards
    allocated: tuple[tuple[Vendor, str], ...] = ()  #: of the vendors' annotations
    started: bool = False  #: its init containers have ended

    def held(self, layout: Layout) -> tuple[CardSlice, ...]:
        """What it takes of each card, by its layout."""
        if self.started:
            layout = tuple(() if self.devices.ends_early(place) else own for place, own in enumerate(layout))
        return effective(layout, self.devices)


def slices_of(nodes: Iterable[NodeState], holders: Sequence[Holder]) -> list[tuple[CardSlice, ...]]:
    """What each holder holds, in their order. Less than it asks for where the node has no more."""
    states = {node.name: node for node in nodes}
    books: dict[NodeName, dict[CardId, CardAllocation]] = {name: {} for name in states}
    found: list[tuple[CardSlice, ...]] = []
    for holder in holders:
        known = _written(holder, _cards(states, holder), books.get(holder.node, {}))
        found.append(known)
        _book(books, holder.node, known)
    for place, holder in enumerate(holders):
        if not found[place]:
            found[place] = _assumed(holder, states, books)
            _book(books, holder.node, found[place])
    return found


def _cards(states: Mapping[NodeName, NodeState], holder: Holder) -> Sequence[Card]:
    node = states.get(holder.node)
    return sorted(node.cards, key=lambda card: card.index) if node is not None else ()


def _written(holder: Holder, cards: Sequence[Card], held: Mapping[CardId, CardAllocation]) -> tuple[CardSlice, ...]:
    written = name_slices(holder.slices, cards)
    written_ids = [s.card for s in written]
    if written_ids and holder.cards.devices is None:
        own = cards_held(holder.cards, cards, held, named=written_ids)
        if [s.card for s in own] == written_ids:
            return own
    layout = annotated_layout(holder.allocated, holder.devices, cards)
    if layout:
        return name_slices(holder.held(layout), cards)
    there = {card.id for card in cards}
    return written if holder.cards.devices is not None and there.issuperset(written_ids) else ()


def _assumed(
    holder: Holder, states: Mapping[NodeName, NodeState], books: Mapping[NodeName, dict[CardId, CardAllocation]]
) -> tuple[CardSlice, ...]:
    cards, held, node = _cards(states, holder), books.get(holder.node, {}), states.get(holder.node)
    if holder.cards.devices is None or node is None:
        return cards_held(holder.cards, cards, held)
    fitted = VENDORS.fit(cards, by_index(held, cards), holder.devices, node.device_facts)
    return name_slices(holder.held(fitted.layout), cards) if isinstance(fitted, Fitted) else ()


def _book(books: dict[NodeName, dict[CardId, CardAllocation]], node: NodeName, slices: Sequence[CardSlice]) -> None:
    for s in slices:
        books.setdefault(node, {}).setdefault(s.card, CardAllocation()).book(s)
