"""MIG instances that are handed out as cards have the UUID of their card."""

from hbox_common.model import NodeDevices, NodeName, NodeNuma, NodeNvml
from hbox_common.model.nodedevices import DeviceIds
from hbox_common.model.nodenvml import MigInstance, NvmlCard
from hbox_topology.core.facts import NodeFacts
from hbox_topology.core.inventory import Inventory

N, GPU = NodeName("n1"), "nvidia.com/gpu"


def numa(**instances: str) -> NodeNuma:
    """As NVML has them: card by instance."""
    cards = tuple(
        NvmlCard(i, card, instances=tuple(MigInstance(one) for one, of in instances.items() if of == card))
        for i, card in enumerate(dict.fromkeys(instances.values()))
    )
    return NodeNuma(N, 1.0, nvml=NodeNvml(cards=cards))


def parents(inventory: Inventory, *ids: str) -> dict[str, str]:
    inventory.devices[N] = NodeDevices(N, 1.0, (DeviceIds(GPU, ids),))
    inventory.observe(NodeFacts(N, "u1", conditions={"Ready": "True"}, allocatable={GPU: str(len(ids))}), now=1.0)
    [state] = inventory.states()
    return {card.uuid: card.parent_id for card in state.cards}


def test_nvml_reports_the_parent_and_it_stays_known() -> None:
    inventory = Inventory()
    inventory.numa[N] = numa(**{"MIG-a": "GPU-0", "MIG-b": "GPU-1"})
    assert parents(inventory, "MIG-a", "MIG-b") == {"MIG-a": "gpu:GPU-0", "MIG-b": "gpu:GPU-1"}
    inventory.numa[N] = numa()
    assert parents(inventory, "MIG-a", "MIG-b") == {"MIG-a": "gpu:GPU-0", "MIG-b": "gpu:GPU-1"}
    assert parents(inventory, "MIG-a") == {"MIG-a": "gpu:GPU-0"}
    assert parents(inventory, "MIG-a", "MIG-b") == {"MIG-a": "gpu:GPU-0", "MIG-b": "gpu:GPU-1"}


def test_older_drivers_write_the_parent_into_the_uuid() -> None:
    assert parents(Inventory(), "MIG-GPU-1234-ab/7/0", "MIG-c", "GPU-d") == {
        "MIG-GPU-1234-ab/7/0": "gpu:GPU-1234-ab",
        "MIG-c": "",
        "GPU-d": "",
    }
