"""Which cards a pod holds of its node where nobody has a record of it: at most what it asks for.

What is written on a pod is its tenant's to write. It may say which cards these are, and never how many or how much of each: `hbox.io/cards` where no other pod
holds them, and where HAMi's plugin serves a node the annotations by which it hands cards over (`cards_written`), whoever holds them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
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


def layout_written(allocated: Iterable[tuple[Vendor, str]], devices: PodDevices, cards: Sequence[Card]) -> Layout:
    """What the vendors' annotations (`Vendor.allocated`) together say of these cards; () where they say nothing of them."""
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


def cards_written(
    allocated: Mapping[str, str],
    request: CardRequest,
    cards: Sequence[Card],
    *,
    kind: str,
    facts: Mapping[str, str],
    partly: bool = False,
) -> tuple[CardSlice, ...]:
    """The cards that the annotations `allocated` (text by kind) name by UUID, of each as much as the pod asks for, whoever else is on them; () unless they name
    a card of the node for each one that is asked for. Instances of a divided card are those that are written. `kind`: of the cards that a request of one
    container asks for; `facts`: of the node; `partly`: also where some of the cards that are named are not there."""
    devices = request.devices
    if devices is None:
        ask = Ask(kind, request.count, request.cores, request.memory_mib, request.memory_percent, container=request.container)
        devices = PodDevices((ask,), request.containers)
    layout = layout_written([(VENDORS.kind(of), text) for of, text in allocated.items() if VENDORS.knows(of)], devices, cards)
    given: list[tuple[CardSlice, ...]] = []
    for container in range(devices.containers if layout else 0):
        named = layout[container] if container < len(layout) else ()
        found: list[CardSlice] = []
        for ask in devices.of(container):
            slices = _as_asked(ask, named, cards, facts, partly=partly)
            if not slices and not partly:
                return ()
            found += slices
        given.append(tuple(found))
    return name_slices(effective(tuple(given), devices), cards)


def _as_asked(
    ask: Ask, named: Sequence[CardSlice], cards: Sequence[Card], facts: Mapping[str, str], *, partly: bool
) -> tuple[CardSlice, ...]:
    """What the vendor would give for the request of these cards alone while they were idle: their state now is nothing to a pod that has them."""
    of = {s.index for s in named}
    own = [card for card in cards if card.index in of and card.kind in ("", ask.kind)]
    if partly and len(own) < ask.count:
        ask = replace(ask, count=len(own))
    sound = tuple(replace(card, healthy=True, traits=replace(card.says, cordoned=False)) for card in own)
    found = VENDORS.kind(ask.kind).fit(Offer(sound, {}, facts), ask) if sound else ()
    if isinstance(found, Refused) or not found:
        return ()
    memory = {card.index: card.memory_mib for card in own}
    written = [replace(s, memory_mib=min(s.memory_mib, memory[s.index])) for s in named if s.part and s.index in memory]
    return tuple(written) if len(written) == len(found) and all(s.part for s in found) else found


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
