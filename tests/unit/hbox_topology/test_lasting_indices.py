"""Cards keep their indices when their plugins renumber them."""

import pytest

from hbox_common.model import NodeDevices, NodeName, NodeState
from hbox_common.model.nodedevices import DeviceIds
from hbox_topology.core.facts import NodeFacts
from hbox_topology.core.inventory import Inventory

GPU = "nvidia.com/gpu"


def hami(*uuids: str, index: bool = True) -> NodeFacts:
    records = [f"{uuid},10,40960,100,NVIDIA-A100,0,true" + (f",{i},hami-core" if index else "") for i, uuid in enumerate(uuids)]
    return facts(len(uuids) * 10, {"hami.io/node-nvidia-register": ":".join(records) + ":"})


def facts(count: int, annotations: dict[str, str] | None = None) -> NodeFacts:
    return NodeFacts(
        name="n1", uid="u", labels={}, annotations=annotations or {}, taints=(), unschedulable=False, conditions={"Ready": "True"},
        allocatable={"cpu": "8", "pods": "100", GPU: str(count)},
    )  # fmt: skip


def kubelet(*ids: str) -> NodeDevices:
    return NodeDevices(NodeName("n1"), 1.0, (DeviceIds(GPU, ids),))


def seen(inventory: Inventory) -> NodeState:
    [state] = inventory.states()
    return state


def numbers(inventory: Inventory) -> dict[str, int]:
    return {card.uuid: card.index for card in seen(inventory).cards}


def restarted(inventory: Inventory) -> Inventory:
    """A new process, which reads the last state back from the bus."""
    fresh = Inventory()
    fresh.devices.update(inventory.devices)
    fresh.restore(seen(inventory))
    return fresh


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("restart", [True, False])
def test_cards_keep_their_indices_when_one_falls_off_the_bus(*, index: bool, restart: bool) -> None:
    inventory = Inventory()
    inventory.observe(hami("a", "b", "c", "d", index=index), now=1.0)
    inventory.observe(hami("a", "c", "d", index=index), now=2.0)
    if restart:
        inventory = restarted(inventory)
    inventory.observe(hami("a", "c", "d", "new", index=index), now=3.0)
    assert numbers(inventory) == {"a": 0, "c": 2, "d": 3, "new": 4}
    assert [(card.uuid, card.index) for card in seen(inventory).lost] == [("b", 1)]
    inventory.observe(hami("d", "c", "b", "a", index=index), now=4.0)
    assert numbers(inventory) == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert [card.uuid for card in seen(inventory).lost] == ["new"]


def test_cards_named_by_a_kubelet_keep_their_names_without_an_agent() -> None:
    inventory = Inventory()
    inventory.observe(facts(3), now=1.0)
    assert numbers(inventory) == {"n1-0": 0, "n1-1": 1, "n1-2": 2}
    inventory.devices["n1"] = kubelet("GPU-a", "GPU-b", "GPU-c")
    inventory.observe(facts(3), now=2.0)
    assert numbers(inventory) == {"GPU-a": 0, "GPU-b": 1, "GPU-c": 2}
    assert [card.former for card in seen(inventory).cards] == ["n1-0", "n1-1", "n1-2"]
    inventory = restarted(inventory)
    inventory.devices["n1"] = kubelet("GPU-a", "GPU-c")
    inventory.observe(facts(2), now=3.0)
    assert numbers(inventory) == {"GPU-a": 0, "GPU-c": 2}
    del inventory.devices["n1"]
    inventory.observe(facts(2), now=4.0)
    assert numbers(inventory) == {"GPU-a": 0, "GPU-c": 2}
    inventory.devices["n1"] = kubelet("GPU-a", "GPU-c", "GPU-new")
    inventory.observe(facts(3), now=5.0)
    assert numbers(inventory) == {"GPU-a": 0, "GPU-c": 2, "GPU-new": 3}
    assert [card.uuid for card in seen(inventory).lost] == ["GPU-b"]
