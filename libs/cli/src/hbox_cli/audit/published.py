"""What the services publish of a node's cards, for the audit: cards that the node lost, and the cards that its kubelet gave to pods."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hbox_common.bus import Bus
from hbox_common.events import NodeDevicesChanged, NodeStateChanged
from hbox_common.model import VENDORS, CardId, NodeDevices, NodeName, NodeState, PodUid
from hbox_common.model.devices.identity import made_up
from hbox_common.model.nodedevices import card_of

#: Nodes of one request to the bus.
NODES_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Published:
    lost: frozenset[CardId] = frozenset()  #: cards that the node had, by topology-collector
    #: by pod, the cards that the kubelet gave it, by node-agent; without pods that have devices which are no cards of the inventory
    given: Mapping[PodUid, frozenset[CardId]] = field(default_factory=dict)


def published_of(node: NodeState, devices: NodeDevices | None) -> Published:
    """`devices`: None where no node-agent runs. What may be old (`problem`) counts for nothing."""
    current = devices is not None and not devices.gone and not devices.problem
    return Published(frozenset(card.id for card in node.lost), _given(node, devices) if devices is not None and current else {})


async def read_published(bus: Bus, names: Collection[str]) -> dict[str, Published]:
    """Of these nodes, those that topology-collector knows. Raises Unavailable."""
    states: dict[NodeName, NodeState] = {}
    devices: dict[NodeName, NodeDevices] = {}
    ordered = sorted(names)
    for start in range(0, len(ordered), NODES_AT_ONCE):
        keys = [(name,) for name in ordered[start : start + NODES_AT_ONCE]]
        for one in await bus.last(NodeStateChanged, keys):
            if isinstance(one.event, NodeStateChanged) and not one.event.node.gone:
                states[one.event.node.name] = one.event.node
        for one in await bus.last(NodeDevicesChanged, keys):
            if isinstance(one.event, NodeDevicesChanged):
                devices[one.event.devices.node] = one.event.devices
    return {name: published_of(state, devices.get(name)) for name, state in states.items()}


def _given(node: NodeState, devices: NodeDevices) -> dict[PodUid, frozenset[CardId]]:
    known = (*node.cards, *node.lost)
    cards = {card.uuid: card.id for card in known if not made_up(node.name, card, node.registered)}
    found: dict[PodUid, set[CardId]] = {}
    strange: set[PodUid] = set()
    for one in devices.holds if cards else ():
        uid = PodUid(one.uid)
        for id_ in (id_ for part in one.devices if part.resource in VENDORS.cards for id_ in part.ids):
            card = card_of(id_, cards)
            if card is None:
                strange.add(uid)
            else:
                found.setdefault(uid, set()).add(card)
    return {uid: frozenset(own) for uid, own in found.items() if uid and uid not in strange}
