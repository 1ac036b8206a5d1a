"""Over-booked nodes: their capacity shrank, their pods were resized, or other schedulers bound pods there. No pod is evicted; the nodes take no new pods."""

from hbox_common.model import NodeName, is_host_port
from hbox_common.model.devices import ALL_CORES, short_card
from hbox_common.model.hostports import WHOLE

from .ledgerstate import LedgerState


def overbooked(state: LedgerState, name: NodeName) -> str:
    """What a node holds too much of, for people; empty where nothing is. A node that is gone has nothing to hold."""
    node, held = state.nodes.get(name), state.by_node.get(name)
    if node is None or held is None:
        return ""
    over = [
        f"{resource} more than once" if is_host_port(resource) else f"{used} of {node.allocatable.get(resource, 0)} {resource}"
        for resource, used in sorted(held.used.items())
        if used > (WHOLE if is_host_port(resource) else node.allocatable.get(resource, 0))
    ]
    for id_, on in sorted(held.cards.items()):
        if not on.pods:
            continue
        card = node.card(id_)
        if card is None:
            over.append(f"card {short_card(id_)}, which it does not have")
        elif on.cores > ALL_CORES or on.memory_mib > card.memory_mib:
            over.append(f"{on.cores} % and {on.memory_mib} of {card.memory_mib} MiB of card {card.uuid}")
    return ", ".join(over)
