"""Which RDMA adapters are nearest to each card of a node: of what node-agent reads of its PCI tree."""

from collections import Counter
from dataclasses import replace

from .devices.adapters import Adapter, NearAdapters, nearest
from .devices.identity import made_up
from .node import NodeState
from .nodenuma import NodeNuma, PciDevice, PciKind


def adapters_of(numa: NodeNuma) -> tuple[Adapter, ...]:
    """The adapters with an active port, or whose port state is unknown."""
    return tuple(Adapter(one.name, one.path, one.numa) for one in numa.devices if one.kind is PciKind.HCA and not one.down)


def nearest_by_address(numa: NodeNuma) -> dict[str, NearAdapters]:
    """Of each card of the machine by its PCI address, of which anything is known. Where all adapters are down there is none near any card."""
    up = adapters_of(numa)
    hcas = [Adapter(one.name, one.path, one.numa) for one in numa.devices if one.kind is PciKind.HCA]
    found: dict[str, NearAdapters] = {}
    for card in _cards(numa):
        if (near := nearest(card.path, card.numa, up)) is not None:
            found[card.address] = near
        elif nearest(card.path, card.numa, hcas) is not None:
            found[card.address] = NearAdapters.none()
    return found


def addresses_of(node: NodeState, numa: NodeNuma) -> dict[int, str]:
    """PCI addresses of a node's cards by index: by card id if NVML reported it, else in order of address if a device plugin numbers cards in that order (HAMi's
    register). Cards known only from the kubelet are left out: the order of their ids does not follow the machine's."""
    address_by_id = (
        {one.uuid: _plain(one.address) for one in numa.nvml.cards if one.uuid and one.address} if numa.nvml is not None else {}
    )
    own = [card for card in node.cards if not made_up(node.name, card, node.registered)]
    by_id = {card.index: address_by_id[card.uuid] for card in own if card.uuid in address_by_id}
    if by_id:
        return by_id
    machine = _cards_of_only_vendor(numa, len(node.cards))
    if len(own) < len(node.cards) or len(machine) != len(own) or not _registered(node):
        return {}
    cards = sorted(own, key=lambda card: card.index)
    if any(card.numa >= 0 and one.numa >= 0 and card.numa != one.numa for card, one in zip(cards, machine, strict=True)):
        return {}  # two orders: the mapping is unknown
    return {card.index: one.address for card, one in zip(cards, machine, strict=True)}


def with_adapters(node: NodeState, numa: NodeNuma | None) -> NodeState:
    """The node with the nearest adapters of its cards. Adapters set by annotation are kept."""
    if numa is None or not node.cards:
        return node
    near, address = nearest_by_address(numa), addresses_of(node, numa)
    found = [
        replace(card, adapters=near.get(address.get(card.index, ""))) if card.adapters is None else card for card in node.cards
    ]
    return node if all(a is b or a == b for a, b in zip(found, node.cards, strict=True)) else replace(node, cards=tuple(found))


def _cards(numa: NodeNuma) -> list[PciDevice]:
    return [one for one in numa.devices if one.kind is PciKind.CARD]


def _cards_of_only_vendor(numa: NodeNuma, count: int) -> list[PciDevice]:
    """The machine's cards of the only vendor with this number of cards, by address; empty if there is no such vendor or several."""
    cards = _cards(numa)
    vendors = [vendor for vendor, n in Counter(card.vendor for card in cards).items() if n == count]
    if len(vendors) != 1:
        return []
    return sorted((card for card in cards if card.vendor == vendors[0]), key=lambda card: card.address)


def _registered(node: NodeState) -> bool:
    kinds: set[str] = {card.kind for card in node.cards}
    return len(kinds) == 1 and bool(node.registered)


def _plain(address: str) -> str:
    """As /sys writes it: NVML's domains have eight digits."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain[-4:] if domain[:-4].strip('0') == '' else domain}:{rest}"
