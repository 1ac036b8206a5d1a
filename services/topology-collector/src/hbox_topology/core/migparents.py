"""The cards of MIG instances: with the strategy `single` the device plugin hands out each instance as a card of its own, and its id is `mig:UUID`.

The parent of an instance is the card that it is a part of: a verdict on the card counts for its instances, and for no others. NVML reports it (node-agent with
`nvml`); drivers before R470 also write it into the UUID (`MIG-GPU-<uuid>/<gpu instance>/<compute instance>`). A known parent stays known.
"""

from dataclasses import replace

from hbox_common.model import NodeNuma, NodeState
from hbox_common.model.devices import is_mig
from hbox_common.model.nodedevices import REPLICA

_IN_ID = "MIG-GPU-"


def with_parents(state: NodeState, numa: NodeNuma | None, known: NodeState | None) -> NodeState:
    """`state` with the parents of its MIG instances. `numa`: of node-agent, with NVML's cards; `known`: the last state of the node."""
    if not any(is_mig(card.id) for card in state.cards):
        return state
    cards_of_nvml = numa.nvml.cards if numa is not None and numa.nvml is not None else ()
    parents = {card.uuid: card.parent for card in (*known.lost, *known.cards)} if known is not None else {}
    parents |= {one.uuid: card.uuid for card in cards_of_nvml for one in card.instances if card.uuid}
    found = [
        replace(card, parent=_parent(parents, card.uuid)) if is_mig(card.id) and not card.parent else card
        for card in state.cards
    ]
    return replace(state, cards=tuple(found))


def _parent(parents: dict[str, str], uuid: str) -> str:
    instance = uuid.partition(REPLICA)[0]
    in_id = f"GPU-{instance.removeprefix(_IN_ID).partition('/')[0]}" if instance.startswith(_IN_ID) else ""
    return parents.get(instance) or parents.get(uuid) or in_id
