"""Which cards a node has where nothing on its object says so: by the ids that its kubelet gives out (node-agent).

A device plugin without HAMi's register says only how many cards there are; the inventory then calls them `<node>-<index>`. The kubelet knows their ids, and
their NUMA nodes. A card keeps its index for as long as the kubelet gives out its id. It keeps its id once the kubelet has reported it, also while the node
has no agent: claims contain the id.

If the plugin reports a card unhealthy (XID 79), the kubelet removes its id from the allocatable ones at once, and its count from the node's `allocatable` some
seconds later; `capacity` counts the card until the plugin no longer lists it. In between the card is unhealthy; afterwards the node has lost it. Likewise, a
lost card is unhealthy if the node counts one card more than the kubelet reports: it returns, and no pod is bound to it before the kubelet reports its id.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from hbox_common.errors import InvalidRequest
from hbox_common.model import NodeDevices, NodeState, capacity_units
from hbox_common.model.devices import MAX_CARDS, VENDORS, Card
from hbox_common.model.devices.identity import made_up


def with_devices(
    state: NodeState,
    devices: NodeDevices | None,
    known: NodeState | None,
    *,
    capacity: Mapping[str, str | float] | None = None,
) -> NodeState:
    """`state` with the kubelet's ids and NUMA nodes for cards whose ids are generated. `devices`: the kubelet's report, if any; `known`: the last state of the
    node, from which cards keep their indices and, without a report, their ids; `capacity`: of the node object."""
    if not any(made_up(state.name, card, state.registered) for card in state.cards):
        return state
    before = [] if known is None else [card for card in known.cards if not made_up(state.name, card, state.registered)]
    if devices is None and not before:
        return state
    reserved = set() if known is None else {card.index for card in known.lost}
    cards: list[Card] = []
    for kind in dict.fromkeys(card.kind for card in state.cards):
        own = [card for card in state.cards if card.kind == kind]
        vendor = VENDORS.kind(kind) if VENDORS.knows(kind) else VENDORS.of(state.allocatable)
        allocatable = devices.allocatable if devices is not None else ()
        numa = {id_: p.numa for p in allocatable if vendor and p.resource == vendor.cards for id_ in p.ids}
        same_kind = [card for card in before if card.kind == kind]
        if not numa and vendor is not None:  # the agent reports no ids now: the cards keep those that it reported before
            numa = {card.uuid: (card.numa,) if card.numa >= 0 else () for card in same_kind if card.healthy}
        if not (numa and all(made_up(state.name, card, state.registered) for card in own)):
            cards += own
            continue
        counted = max(len(own), _count((capacity or {}).get(vendor.cards, 0)) if vendor is not None else 0)
        lost = [card for card in known.lost if card.kind == kind] if known is not None else []
        unreported = [card for card in (*same_kind, *lost) if card.uuid not in numa][: max(0, counted - len(numa))]
        if devices is None or not devices.left_out:
            unreported = [replace(card, healthy=False) for card in unreported]
        reserved |= {card.index for card in unreported}
        cards += unreported
        cards += _named(own, numa, same_kind, reserved, counted - len(unreported))
    return replace(state, cards=tuple(sorted(cards, key=lambda card: card.index)))


def _count(quantity: str | float) -> int:
    try:
        return min(MAX_CARDS, max(0, capacity_units("", quantity)))
    except InvalidRequest:
        return 0


def _named(
    cards: Sequence[Card], numa: Mapping[str, tuple[int, ...]], known: Sequence[Card], reserved: Collection[int], count: int
) -> Iterator[Card]:
    """So many of the ids of one kind, as cards like these, which are all alike. If there are fewer ids than cards, the rest keeps its generated ids, up to
    `count` cards."""
    first, before = cards[0].index, {card.uuid: card.index for card in known}
    former = {card.index: card.uuid for card in cards} | {card.index: card.former for card in known}
    kept = {id_: before[id_] for id_ in numa if before.get(id_, -1) >= first}
    chosen = sorted(numa, key=lambda id_: (id_ not in kept, kept.get(id_, 0), id_))[:count]
    taken = {kept[id_] for id_ in chosen if id_ in kept}.union(reserved)
    free = iter([index for index in range(first, first + len(chosen) + len(cards) + len(taken)) if index not in taken])
    for id_ in chosen:
        where = numa[id_]
        index = kept[id_] if id_ in kept else next(free)
        yield replace(cards[0], index=index, uuid=id_, numa=where[0] if len(where) == 1 else -1, former=former.get(index, ""))
    for card in cards[len(chosen) : count]:
        yield replace(card, index=next(free))
