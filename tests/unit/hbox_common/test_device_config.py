"""What an operator sets for the vendors in `device-config.yaml`."""

from pathlib import Path

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS, Card, is_model
from hbox_common.model.devices import Ask, CardSlice, CardTraits, DeviceLabel, Fitted, NodeReport, PodDevices, Refused
from hbox_common.model.devices.ascend import Ascend

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
        assert card.effective_traits.profiles == ()


def test_what_is_set_for_nobody_changes_nothing() -> None:
    before = tuple(VENDORS)
    for text in (None, "", "cambricon: {}", "nvidia:", "hygon: {resourceCountName: ''}"):
        with VENDORS.configured(text) as warnings:
            assert [vendor.kind for vendor in VENDORS] == [vendor.kind for vendor in before]
            assert VENDORS.fingerprint == ""
            assert not warnings
        assert tuple(VENDORS) == before


RENAMED = """
nvidia:
  resourceCountName: vendor.example/gpu
  resourceMemoryName: vendor.example/gpu.mem
  resourceMemoryPercentageName: vendor.example/mem-percent
  resourceCoreName: vendor.example/cores
  deviceSplitCount: 4
  preConfiguredDeviceMemory: 65536
metax: {resourceVCountName: vendor.example/sgpu, sgpuTopologyAware: true}
enflame: {resourceNameDRSGCU: vendor.example/drs}
awsneuron: {resourceCoreName: vendor.example/core}
hygon: {memoryFactor: 8}
iluvatars:
- {chipName: BI-V200, commonWord: BI-V200, resourceCountName: vendor.example/bi, resourceMemoryName: vendor.example/bi-mem}
vnpus:
  hamiVnpuCore: true
  configs:
  - {commonWord: Ascend910B3, resourceName: vendor.example/npu, aiCore: 20, aiCPU: 7, templates: [{name: half, memory: 30000, aiCore: 10, aiCPU: 3}]}
  - {commonWord: Ascend910X, resourceName: vendor.example/x, resourceMemoryName: vendor.example/x-mem, resourceCoreName: vendor.example/x-core,
     memoryAllocatable: 1000, memoryCapacity: 1024, memoryFactor: 2, aiCore: 8, templates: [{name: large, memory: 500}, {name: small, memory: 250}]}
"""


def test_resources_have_the_names_that_the_file_gives_them() -> None:
    with VENDORS.configured(RENAMED) as warnings:
        assert not warnings
        assert "vendor.example/gpu" in VENDORS
        assert "nvidia.com/gpu" not in VENDORS
        assert {"vendor.example/gpu.mem", "vendor.example/cores", "vendor.example/drs", "vendor.example/core"} <= VENDORS.parts
        assert VENDORS.limits["limits.vendor.example/gpu.mem"] == "vendor.example/gpu.mem"
        assert VENDORS.default.ask(
            {"vendor.example/gpu": 1, "vendor.example/gpu.mem": 3000, "vendor.example/cores": 30}
        ) == Ask("NVIDIA", 1, cores=30, memory_mib=3000)
        assert VENDORS.kind("AWSNeuron").ask({"vendor.example/core": 1}) == Ask(
            "AWSNeuron", 1, cores=50, memory_percent=0, part="1"
        )
        assert VENDORS.kind("Enflame").ask({"vendor.example/drs": 3}) is not None
        assert VENDORS.kind("DCU").ask({"hygon.com/dcunum": 1, "hygon.com/dcumem": 100}) == Ask(
            "DCU", 1, cores=100, memory_mib=800
        )
        assert VENDORS.kind("BI-V200").ask({"vendor.example/bi": 1, "vendor.example/bi-mem": 2}) == Ask(
            "BI-V200", 1, cores=0, memory_mib=512
        )
        assert not is_model("vendor.example/gpu.mem")
        assert is_model("vendor.example/gpu.A100")
    assert "nvidia.com/gpu" in VENDORS
    assert "vendor.example/gpu" not in VENDORS
    assert not VENDORS.knows("BI-V200")


def test_cards_without_a_register_are_shared_as_the_file_says() -> None:
    with VENDORS.configured(RENAMED):
        [card] = VENDORS.cards_of(NodeReport("n1", {"vendor.example/gpu": 1}), print)
        assert (card.memory_mib, card.shares, card.kind) == (65_536, 4, "NVIDIA")
    [card] = VENDORS.cards_of(NodeReport("n1", {"nvidia.com/gpu": 1}, {"nvidia.com/gpu.memory": "81920"}), print)
    assert card.shares == 10


def test_chips_of_ascend_are_those_of_the_file() -> None:
    with VENDORS.configured(RENAMED):
        known = VENDORS.kind("Ascend910B3")
        ask = known.ask({"vendor.example/npu": 1, "huawei.com/Ascend910B3-memory": 20_000})
        assert ask == Ask("Ascend910B3", 1, cores=0, memory_mib=30_000, part="half")
        new = VENDORS.kind("Ascend910X")
        assert new.ask({"vendor.example/x": 1, "vendor.example/x-mem": 200}) == Ask(
            "Ascend910X", 1, cores=0, memory_mib=500, part="large"
        )
        assert isinstance(new, Ascend)
        assert new.chip.linked
        # Its plugin's names follow from the word.
        register = '[{"id":"N0","count":4,"devmem":1000,"devcore":8,"type":"Ascend910X","health":true}]'
        [card] = VENDORS.cards_of(NodeReport("n1", {}, {}, {"hami.io/node-register-Ascend910X": register}), print)
        assert (card.kind, card.memory_mib) == ("Ascend910X", 1000)


@pytest.mark.parametrize(
    ("node", "fits"), [({}, True), ({"hami-vnpu-core": "false"}, False), ({"hami-vnpu-core": "true"}, True)]
)
def test_whether_software_shares_npus_is_the_nodes_word_first(node: dict[str, str], *, fits: bool) -> None:
    ask = Ask("Ascend910B3", 1, cores=10, memory_mib=1000)
    asked = PodDevices((ask,), wishes=(("huawei.com/vnpu-mode", "hami-core"),))
    cards = (Card(0, "N0", "Ascend910B3", 65_536, shares=4, kind="Ascend910B3"),)
    with VENDORS.configured("vnpus: {hamiVnpuCore: true}"):
        assert isinstance(VENDORS.fit(cards, {}, asked, node), Fitted) is fits
    unsaid = VENDORS.fit(cards, {}, asked, {})
    assert isinstance(unsaid, Refused)
    assert unsaid.cards == {DeviceLabel.MODE: 1}


@pytest.mark.parametrize(("said", "counts"), [("", True), ("false", False), ("perhaps", True), ("true", True)])
def test_whether_link_zones_count_is_the_pods_word_first(said: str, *, counts: bool) -> None:
    cards = tuple(
        Card(i, f"S{i}", "C500", 65_536, shares=16, kind="Metax-SGPU", traits=CardTraits(group=1 + i // 4)) for i in range(8)
    )
    wishes = (("metax-tech.com/sgpu-topology-aware", said),) if said else ()
    asked = PodDevices((Ask("Metax-SGPU", 4),), wishes=wishes)
    plain = VENDORS.fit(cards, {}, PodDevices((Ask("Metax-SGPU", 4),)), {})
    with VENDORS.configured("metax: {sgpuTopologyAware: true}"):
        found = VENDORS.fit(cards, {}, asked, {})
    assert isinstance(found, Fitted)
    assert isinstance(plain, Fitted)
    assert (found.score != plain.score) is counts


def test_volcanos_file_names_volcanos_resources() -> None:
    with VENDORS.configured("nvidia: {resourceCountName: volcano.sh/vgpu-number, resourceMemoryName: volcano.sh/vmem}"):
        assert VENDORS.default.cards == "nvidia.com/gpu"
        assert VENDORS.kind("volcano-vgpu").memory == "volcano.sh/vmem"


def test_configurations_of_hamis_older_releases_are_read() -> None:
    text = "vnpus: [{chipName: 910A, commonWord: Ascend910A, memoryAllocatable: 32000, templates: [{name: t, memory: 1000}]}]"
    with VENDORS.configured(text):
        ascend = VENDORS.kind("Ascend910A")
        assert isinstance(ascend, Ascend)
        assert ascend.chip.memory_mib == 32_000
        assert [one.name for one in ascend.chip.templates] == ["t"]


def test_what_does_nothing_is_told() -> None:
    text = """
        nvidia: {resourceCuontName: a.b/c, overwriteEnv: true, runtimeClassName: nvidia, libCudaLogLevel: 1, gpuCorePolicy: default,
                 deviceCoreScaling: 2, deviceMemoryScaling: 1.5, migProfileAllowlist: [], enableNumaTopology: false}
        hygan: {}
        biren: {resourceMemoryName: x.y/z}
        """
    with VENDORS.configured(text) as warnings:
        told = sorted(warnings)
    assert told == [
        "biren.resourceMemoryName is no key that HBox knows; did you mean resourceCountName?",
        "hygan is no key that HBox knows; did you mean hygon?",
        "nvidia.deviceCoreScaling: HBox gives away 100 percent of a card's compute, no more and no less",
        "nvidia.overwriteEnv: the admission endpoint alone writes it into pods; where there is none, write it in the pods",
        "nvidia.resourceCuontName is no key that HBox knows; did you mean resourceCountName?",
        "nvidia.runtimeClassName: the admission endpoint alone writes it into pods; where there is none, write it in the pods",
    ]


def test_processes_that_were_told_the_same_have_the_same_fingerprint() -> None:
    found = {}
    for text in (
        "",
        "hygon: {memoryFactor: 8}",
        "{nvidia: {defaultMemory: 0}, hygon: {memoryFactor: 8}}",
        "hygon: {memoryFactor: 9}",
    ):
        with VENDORS.configured(text):
            found[text] = VENDORS.fingerprint
    first, second, third, fourth = found.values()
    assert first == ""
    assert second == third
    assert len({first, second, fourth}) == 3


def test_a_second_configuration_says_nothing_of_the_first() -> None:
    with VENDORS.configured("hygon: {memoryFactor: 8}"), VENDORS.configured("amd: {resourceCountName: vendor.example/amd}"):
        assert VENDORS.kind("DCU").memory_unit_mib == 1
        assert VENDORS.kind("AMD").cards == "vendor.example/amd"


def test_hamis_own_configuration_says_what_hbox_has_built_in() -> None:
    """As its chart renders it at v2.10, but for what MIG may be: plugins register that."""
    with VENDORS.configured((Path(__file__).parent / "hami_device_config.yaml").read_text()) as warnings:
        assert not warnings
        assert VENDORS.fingerprint == ""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nvidia: [1]", "nvidia is no mapping"),
        ("nvidia: {memoryFactor: -1}", r"nvidia\.memoryFactor is '-1'"),
        ("[nvidia]", "is no mapping"),
        ("nvidia: {deviceSplitCount: 0}", "deviceSplitCount is '0'"),
        ("nvidia: {deviceMemoryScaling: '2'}", "deviceMemoryScaling is '2'"),
        ("nvidia: {deviceMemoryScaling: .nan}", "deviceMemoryScaling is '.nan'"),
        ("nvidia: {resourceCountName: gpu}", r"nvidia\.resourceCountName is 'gpu'"),
        ("nvidia: {resourceCountName: [gpu]}", r"nvidia\.resourceCountName is"),
        ("nvidia: {resourceCountName: amd.com/gpu}", "amd.com/gpu is named twice, for NVIDIA and AMD"),
        ("nvidia: {resourceCountName: a.b/c, resourceCoreName: a.b/c}", "a.b/c is named twice, for NVIDIA"),
        ("metax: {sgpuTopologyAware: 1}", "sgpuTopologyAware is '1'"),
        ("iluvatars: [{resourceCountName: a.b/c}]", r"iluvatars\[0\]\.commonWord is not there"),
        ("iluvatars: [{commonWord: Ascend910A}]", "which is another maker's"),
        ("vnpus: {configs: [{commonWord: 'a;b'}]}", r"vnpus\.configs\[0\]\.commonWord is 'a;b'"),
        ("vnpus: {configs: [{commonWord: NEW}]}", "NEW has no memoryAllocatable or aiCore"),
        ("vnpus: {configs: [{commonWord: Ascend910A, templates: [{name: a, memory: 99999999}]}]}", r"templates\[0\]\.memory"),
        ("vnpus: {configs: [{commonWord: Ascend910A, templates: [{name: 'a:b', memory: 9}]}]}", r"templates\[0\]\.name"),
        (
            "vnpus: {configs: [{commonWord: Ascend910A, templates: [{name: a, memory: 1}, {name: a, memory: 2}]}]}",
            "the same name",
        ),
        (
            "vnpus: {configs: [{commonWord: Ascend910A, memoryAllocatable: 5000, memoryCapacity: 1000}]}",
            "memoryCapacity is 1000",
        ),
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
