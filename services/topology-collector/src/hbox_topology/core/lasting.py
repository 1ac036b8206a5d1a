"""A card keeps its index for as long as its node is known: over registrations, over the loss of other cards, and over restarts of this process, which reads
the last state of each node back from the bus.

The identity of a card is its UUID (`Card.id`); users and older programs see the index. When a card has fallen off the bus, HAMi's plugin renumbers the others
and may skip indices. A lost card stays in `NodeState.lost` with its index, which no other card gets in the meantime: a claim of an older program may name it.
"""

from collections.abc import Sequence
from dataclasses import replace

from hbox_common.model import NodeState
from hbox_common.model.devices import MAX_INDEX, Card
from hbox_common.model.devices.identity import made_up

#: Maximum number of lost cards kept for a node; the newest are kept.
MOST_LOST = 64


def with_lasting_indices(state: NodeState, known: NodeState | None) -> NodeState:
    """`state` with the indices that its cards had before, and the cards that the node lost. `known`: the last state of the node."""
    if known is None or state.gone:
        return state
    before = {card.uuid: card for card in (*known.lost, *known.cards)}
    fixed = {card.index for card in state.cards if made_up(state.name, card, state.registered)}
    present = {card.uuid for card in state.cards}
    lost = [card for card in (*known.cards, *known.lost) if _is_lost(state, card, present)][:MOST_LOST]
    taken = fixed | {card.index for card in lost}
    index: dict[str, int] = {}
    real = [card for card in state.cards if card.index not in fixed]
    for card in real:
        old = before.get(card.uuid)
        if old is not None and old.kind == card.kind and old.index not in taken:
            index[card.uuid] = old.index
            taken.add(old.index)
    for card in real:
        if card.uuid not in index:
            index[card.uuid] = card.index if card.index not in taken else _free(card.index, taken)
            taken.add(index[card.uuid])
    cards = [replace(card, index=index.get(card.uuid, card.index)) for card in state.cards]
    linked = _linked(state.cards, cards)
    remembered = tuple(replace(card, healthy=False, traits=None, adapters=None) for card in lost)
    return replace(state, cards=tuple(sorted(linked, key=lambda card: card.index)), lost=remembered)


def _is_lost(state: NodeState, card: Card, present: set[str]) -> bool:
    """Whether the node no longer reports the card. A card with a generated UUID does not count: it may have its real UUID now."""
    return card.uuid not in present and not made_up(state.name, card, state.registered)


def _free(index: int, taken: set[int]) -> int:
    return next((n for n in range(index + 1, MAX_INDEX + 1) if n not in taken), index)


def _linked(before: Sequence[Card], after: Sequence[Card]) -> list[Card]:
    """The links of each card in the order of the new indices of its kind (`CardTraits.links`)."""
    found = list(after)
    for kind in {card.kind for card in before}:
        places = [place for place, card in enumerate(before) if card.kind == kind]
        old = sorted(places, key=lambda place: before[place].index)
        new = sorted(places, key=lambda place: after[place].index)
        if old == new:
            continue
        column = {place: at for at, place in enumerate(old)}
        for place in places:
            card = found[place]
            if card.traits is not None and len(card.traits.links) == len(places):
                links = tuple(card.traits.links[column[other]] for other in new)
                found[place] = replace(card, traits=replace(card.traits, links=links))
    return found
