"""What the services publish of a node's cards, for the audit: cards that the node lost, and the cards that its kubelet gave to pods."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hbox_common.bus import Bus
from hbox_common.events import NodeDevicesChanged, NodeStateChanged
from hbox_common.model import CardId, NodeDevices, NodeName, NodeState, PodUid
from hbox_common.model.nodedevices import cards_by_pod

#: Nodes of one request to the bus.
NODES_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Published:
    lost: frozenset[CardId] = frozenset()  #: cards that the node had, by topology-collector
    #: by pod, the cards that the kubelet gave it, by node-agent; without pods that have devices which are no cards of the inventory
    given: Mapping[PodUid, frozenset[CardId]] = field(default_factory=dict)


def published_of(node: NodeState, devices: NodeDevices | None) -> Published:
    """`devices`: None where no node-agent runs. What may be old (`problem`) counts for nothing."""
    given = cards_by_pod(devices, node) if devices is not None and not devices.gone and not devices.problem else {}
    return Published(frozenset(card.id for card in node.lost), given)


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
