"""What an operator sets for NVIDIA's cards in `device-config.yaml`."""

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS
from hbox_common.model.devices import Ask, CardSlice, Fitted, NodeReport, PodDevices

GEOMETRIES = """
nvidia:
  memoryFactor: 10
  defaultMemory: 5000
  defaultCores: 20
  defaultGPUNum: 2
  gpuMemoryFactor: 2
  knownMigGeometries:
  - models: [TESTMODEL]
    allowedGeometries:
    - group: small
      geometries: [{name: 1g.10gb, memory: 10240, count: 2}]
    -
      - {name: 2g.20gb, memory: 20480, count: 1}
      - {name: 1g.10gb, memory: 10240, count: 3}
"""


def test_settings_of_hami_count_in_what_is_asked_for() -> None:
    with VENDORS.configured(GEOMETRIES):
        nvidia = VENDORS.kind("NVIDIA")
        assert nvidia.ask({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 300}) == Ask("NVIDIA", 1, cores=20, memory_mib=3000)
        assert nvidia.ask({"nvidia.com/gpu": 1}) == Ask("NVIDIA", 1, cores=20, memory_mib=5000)
        assert nvidia.ask({"nvidia.com/gpucores": 5}) == Ask(
            "NVIDIA", 2, cores=5, memory_mib=5000, completed=("nvidia.com/gpu",)
        )
    assert VENDORS.kind("NVIDIA").ask({"nvidia.com/gpu": 1}) == Ask("NVIDIA", 1)


def test_volcanos_unit_of_memory_counts_everywhere() -> None:
    with VENDORS.configured(GEOMETRIES):
        volcano = VENDORS.kind("volcano-vgpu")
        report = NodeReport("n1", annotations={"volcano.sh/node-vgpu-register": "A,7,40960,NVIDIA-TESTMODEL,true,mig:"})
        [card] = cards = volcano.register(report)
        assert card.memory_mib == 81_920
        ask = volcano.ask({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 6144, "volcano.sh/vgpu-cores": 5})
        assert ask is not None
        assert ask.memory_mib == 12_288
        found = VENDORS.fit(cards, {}, PodDevices((ask,)), {})
        assert isinstance(found, Fitted)
        assert found.layout == ((CardSlice(0, 5, 20_480, "1-0"),),)
        notes = volcano.annotate(found.layout, {0: card})
        assert notes["volcano.sh/vgpu-ids-new"] == "A[1-0],NVIDIA,10240,5:"
        assert volcano.rebuild(volcano.allocated(notes), cards, ()) == found.layout
        assert VENDORS.device_id(card, found.layout[0][0]) == "A"  # of no kind yet
        assert volcano.device_id(card, found.layout[0][0]) == "A[1-0]"


def test_models_without_geometries_give_no_instance() -> None:
    with VENDORS.configured("nvidia: {knownMigGeometries: [{models: [TESTMODEL], allowedGeometries: []}]}"):
        volcano = VENDORS.kind("volcano-vgpu")
        report = NodeReport("n1", annotations={"volcano.sh/node-vgpu-register": "A,7,40960,NVIDIA-TESTMODEL,true,mig:"})
        [card] = volcano.register(report)
        assert card.says.profiles == ()


def test_what_is_set_for_others_or_for_nobody_changes_nothing() -> None:
    before = tuple(VENDORS)
    for text in (None, "", "cambricon: {}"):
        with VENDORS.configured(text):
            assert tuple(VENDORS) == before


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nvidia: [1]", "nvidia is no mapping"),
        ("nvidia: {memoryFactor: -1}", r"nvidia\.memoryFactor is '-1'"),
        ("nvidia: {defaultCores: 101}", "defaultCores"),
        ("nvidia: {defaultMemory: yes please}", "defaultMemory"),
        ("nvidia: {knownMigGeometries: 5}", "is no list"),
        ("nvidia: {knownMigGeometries: [{models: []}]}", "an entry has models"),
        ("nvidia: {knownMigGeometries: [{models: [A], allowedGeometries: [[5]]}]}", "an instance has name"),
        ("nvidia: {knownMigGeometries: [{models: [A], allowedGeometries: [[{name: x;y, memory: 5}]]}]}", "MIG geometry"),
        ("nvidia: {knownMigGeometries: [{models: [A], allowedGeometries: [[{name: x, memory: 0}]]}]}", "MIG geometry"),
        ("nvidia: {knownMigGeometries: [{models: [A], allowedGeometries: [{group: 'a,b', geometries: []}]}]}", "MIG geometry"),
        ("nvidia: {knownMigGeometries: [{models: [A], allowedGeometries: [[{name: x, memory: 5, count: 1000}]]}]}", "count"),
        ("{", "line 2"),
    ],
)
def test_what_cannot_be_understood_is_named(text: str, complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint), VENDORS.configured(text):
        pass
