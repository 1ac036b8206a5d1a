"""Which cards a pod holds of its node where nobody has a record of it: at most what it asks for.

What is written on a pod is its tenant's to write. It may say which cards these are, where nobody else holds them, and never how many or how much of each.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from .devices import (
    ALL_CORES,
    VENDORS,
    Card,
    CardAllocation,
    CardRequest,
    CardSlice,
    Fitted,
    PodDevices,
    by_index,
    effective,
    name_slices,
)
from .ids import CardId


def cards_held(
    request: CardRequest,
    cards: Sequence[Card],
    held: Mapping[CardId, CardAllocation],
    *,
    named: Collection[CardId] = (),
    kind: str = "",
    facts: Mapping[str, str] = MappingProxyType({}),
) -> tuple[CardSlice, ...]:
    """The cards `named`, where these are as many as asked for and have that much left beside `held`; else the lowest that have. `kind`: of the
    cards that a request of one container asks for, where that is known; `facts`: of the node (`NodeState.device_facts`).

    Fewer than asked for where the node has no more: that it is over-full shows in what the pod requests.
    """
    if request.devices is not None:
        return _by_containers(request.devices, cards, held, facts)
    own = [card for card in sorted(cards, key=_index) if not kind or card.kind in ("", kind)]
    fitting = {card.id: s for card in own if (s := _slice(request, card, held.get(card.id)))}
    if len(named) == request.count and len(set(named)) == request.count and all(card in fitting for card in named):
        return tuple(fitting[card] for card in named)
    return tuple(list(fitting.values())[: request.count])


def _by_containers(
    devices: PodDevices, cards: Sequence[Card], held: Mapping[CardId, CardAllocation], facts: Mapping[str, str]
) -> tuple[CardSlice, ...]:
    """Of a pod whose containers ask each by itself: what it would be given now; where that is nothing, what it would have had of idle cards, since it runs."""
    for books in (held, {}):
        found = VENDORS.fit(cards, by_index(books, cards), devices, facts)
        if isinstance(found, Fitted):
            return name_slices(effective(found.layout, devices), cards)
    return ()


def _slice(request: CardRequest, card: Card, held: CardAllocation | None) -> CardSlice | None:
    """What the pod would hold of this card; None where too little is left of it."""
    cores, memory_mib = ALL_CORES if request.whole else request.cores, request.memory_on(card.memory_mib)
    if held is not None and held.pods > 0:
        if cores >= ALL_CORES or held.cores + cores > ALL_CORES or held.cores >= ALL_CORES:
            return None
        if held.memory_mib + memory_mib > card.memory_mib or held.pods >= card.shares:
            return None
    return CardSlice(card.index, cores, memory_mib, card=card.id)


def _index(card: Card) -> int:
    return card.index
