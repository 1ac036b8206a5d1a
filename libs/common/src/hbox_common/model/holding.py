"""Which cards of its node a pod holds that has no claim: at most what it requests.

A tenant may write any annotation on its pods. Annotations decide which cards these are, never how many or how much of each. Two of them count:
`hbox.io/cards`, if no other pod holds the cards; and on a node of HAMi's plugin the annotations from which the plugin hands cards over
(`annotated_cards`), even if other pods hold the cards.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import MappingProxyType

from .devices import (
    ALL_CORES,
    VENDORS,
    Ask,
    Card,
    CardAllocation,
    CardRequest,
    CardSlice,
    Fitted,
    Layout,
    Offer,
    PodDevices,
    Refused,
    Vendor,
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
    """The cards `named`, if their number is the requested one and each has the requested amount free in addition to `held`; else the cards with the lowest
    indices that have it free.

    `kind`: of the cards that a request of one container names, if known; `facts`: of the node (`NodeState.device_facts`). Fewer slices than requested if the
    node has no more: the pod's requests show that the node is over-booked.
    """
    if request.devices is not None:
        return _by_containers(request.devices, cards, held, facts)
    own = [card for card in sorted(cards, key=_index) if not kind or card.kind in ("", kind)]

    def fitting(some: Iterable[Card]) -> Iterator[CardSlice]:
        return (s for card in some if (s := _slice(request, card, held.get(card.id))) is not None)

    if len(named) == request.count and len(set(named)) == request.count:
        found = {s.card: s for s in fitting(card for card in own if card.id in named)}
        if len(found) == request.count:
            return tuple(found[card] for card in named)
    return tuple(islice(fitting(own), request.count))


def annotated_layout(allocated: Iterable[tuple[Vendor, str]], devices: PodDevices, cards: Sequence[Card]) -> Layout:
    """The layout of a pod by the vendors' annotations (`Vendor.allocated`); () if they name none of these cards."""
    together: list[tuple[CardSlice, ...]] = []
    for vendor, text in allocated:
        own = [card for card in cards if card.kind in ("", vendor.kind)]
        asks = [ask for ask in devices.asks if ask.kind == vendor.kind]
        layout = vendor.rebuild(text, own, asks, devices.wished)
        # Before HAMi v2.10 init containers had no entry.
        shift = devices.init if len(layout) == devices.containers - devices.init else 0
        together += [()] * (len(layout) + shift - len(together))
        for place, slices in enumerate(layout, shift):
            together[place] += slices
    return tuple(together) if any(together) else ()


def annotated_cards(
    allocated: Mapping[str, str],
    request: CardRequest,
    cards: Sequence[Card],
    *,
    kind: str,
    facts: Mapping[str, str],
    partly: bool = False,
) -> tuple[CardSlice, ...]:
    """Slices of the cards that the annotations `allocated` (text by kind) name by UUID, each with the requested amount, even if other pods hold the cards.
    Instances of a divided card are those that the annotation names.

    () unless the annotations name a card of the node for each requested one; with `partly`, cards that the node does not have are left out. `kind`: of the
    cards that a request of one container names; `facts`: of the node."""
    devices = request.devices
    if devices is None:
        ask = Ask(kind, request.count, request.cores, request.memory_mib, request.memory_percent, container=request.container)
        devices = PodDevices((ask,), request.containers)
    layout = annotated_layout([(VENDORS.kind(of), text) for of, text in allocated.items() if VENDORS.knows(of)], devices, cards)
    given: list[tuple[CardSlice, ...]] = []
    for container in range(devices.containers if layout else 0):
        named = layout[container] if container < len(layout) else ()
        found: list[CardSlice] = []
        for ask in devices.of(container):
            slices = _requested_slices(ask, named, cards, facts, partly=partly)
            if not slices and not partly:
                return ()
            found += slices
        given.append(tuple(found))
    return name_slices(effective(tuple(given), devices), cards)


def _requested_slices(
    ask: Ask, named: Sequence[CardSlice], cards: Sequence[Card], facts: Mapping[str, str], *, partly: bool
) -> tuple[CardSlice, ...]:
    """What the vendor's `fit` gives for the request on the named cards alone, as if they were idle and healthy: the pod already holds them."""
    of = {s.index for s in named}
    own = [card for card in cards if card.index in of and card.kind in ("", ask.kind)]
    if partly and len(own) < ask.count:
        ask = replace(ask, count=len(own))
    sound = tuple(replace(card, healthy=True, traits=replace(card.effective_traits, cordoned=False)) for card in own)
    found = VENDORS.kind(ask.kind).fit(Offer(sound, {}, facts), ask) if sound else ()
    if isinstance(found, Refused) or not found:
        return ()
    memory = {card.index: card.memory_mib for card in own}
    written = [replace(s, memory_mib=min(s.memory_mib, memory[s.index])) for s in named if s.part and s.index in memory]
    return tuple(written) if len(written) == len(found) and all(s.part for s in found) else found


def _by_containers(
    devices: PodDevices, cards: Sequence[Card], held: Mapping[CardId, CardAllocation], facts: Mapping[str, str]
) -> tuple[CardSlice, ...]:
    """For a pod whose containers request cards separately: its cards if it were placed now; if that fails, its cards on an idle node, since it is running."""
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
