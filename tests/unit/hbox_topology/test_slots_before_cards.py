"""A kubelet publishes the slots of HAMi's plugin before the plugin registers its cards. Slots do not count as cards."""

import pytest

from hbox_common.model import Generation
from hbox_common.model.devices import GPU
from hbox_topology.core.facts import NodeFacts
from hbox_topology.core.node import INVENTORY_WARNING, read_node

PRODUCT = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}


def cards(count: int, labels: dict[str, str], annotations: dict[str, str] | None = None) -> int:
    facts = NodeFacts("n", "uid", labels=PRODUCT | labels, annotations=annotations or {}, allocatable={GPU: str(count)})
    state = read_node(facts, Generation(0)).state
    assert (INVENTORY_WARNING in state.conditions) == (not state.cards)
    assert (GPU in state.allocatable) == bool(state.cards)
    return len(state.cards)


@pytest.mark.parametrize("count", [10, 20, 40, 80, 17, 64])
def test_implausible_number_is_not_a_number_of_cards(count: int) -> None:
    assert cards(count, {}) == 0


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_plain_node_has_its_cards_immediately(count: int) -> None:
    assert cards(count, {}) == count


def test_feature_discovery_label_sets_the_number_of_cards() -> None:
    assert cards(10, {"nvidia.com/gpu.count": "10"}) == 10
    assert cards(20, {"nvidia.com/gpu.count": "20", "gpu": "on"}) == 20
    assert cards(40, {"nvidia.com/gpu.count": "4"}) == 0
    assert cards(7, {"nvidia.com/gpu.count": "8"}) == 7, "one card is sick"
    assert cards(8, {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "4"}) == 8


def test_hami_node_waits_for_its_register() -> None:
    assert cards(8, {"gpu": "on"}) == 0
    assert cards(8, {}, {"hami.io/node-handshake": "Requesting_2026-11-27 22:00:00"}) == 0
    register = (
        '[{"id": "GPU-a", "index": 0, "count": 10, "devmem": 81920, "devcore": 100, "type": "NVIDIA-A100", "health": true}]'
    )
    assert cards(40, {"gpu": "on"}, {"hami.io/node-nvidia-register": register}) == 1
