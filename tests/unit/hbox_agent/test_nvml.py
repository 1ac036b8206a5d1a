"""What the NVML reader wrote, as a value, and what is found wrong with it."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_agent.core import nvml_of
from hbox_cli.check.findings import Level
from hbox_cli.check.machine import findings
from hbox_common.model import DeviceIds, MigInstance, NodeDevices, NodeName, NodeNuma, NodeNvml, NvmlCard, PciDevice, PciKind

N = NodeName("n1")
LAST = NodeNvml("550", (NvmlCard(0, "GPU-0"),))

CARD: dict[str, Any] = {
    "index": 1, "uuid": "GPU-1", "address": "00000000:5E:00.0", "model": "NVIDIA H200", "memory": 144_384 << 20, "numa": [1],
    "mig": [1, 0], "instances": [["MIG-1", "1g.18gb"]], "links": [[0, "switch"], [1, "00000000:18:00.0"], [2, ""], [3, "switch"]],
    "fabric": {"cluster": "ab" * 16, "clique": 7, "state": 3, "status": 0}, "ecc": [1, 1], "remapped": [4, 0, 1, 0], "retired": 0, "errors": {},
}  # fmt: skip


def lines(*cards: Any, driver: str = "550.54.15") -> list[str]:
    return [json.dumps(one) for one in ({"driver": driver}, *({"card": card} for card in cards), {"count": len(cards)})]


def test_a_card_is_what_the_library_says() -> None:
    assert nvml_of(lines(CARD), LAST) == NodeNvml(
        "550.54.15",
        (
            NvmlCard(
                1, "GPU-1", "0000:5e:00.0", "NVIDIA H200", 144_384, 1, "on", True, (MigInstance("MIG-1", "1g.18gb"),),
                {"0000:18:00.0": 1, "switch": 2}, (2,), "abababab-abab-abab-abab-abababababab.7", "completed", "on", remap_pending=True,
            ),
        ),
    )  # fmt: skip


def test_a_lost_card_is_told_beside_the_others() -> None:
    found = nvml_of(lines(CARD, {"index": 3, "errors": {"lost": "GPU is lost (code 15)"}}), LAST)
    assert [(card.index, card.lost, card.uuid) for card in found.cards] == [(1, False, "GPU-1"), (3, True, "")]


def test_several_numa_nodes_are_none_and_a_box_of_its_own_is_in_no_clique() -> None:
    [card] = nvml_of(
        lines(CARD | {"numa": [0, 1], "fabric": {"cluster": "00" * 16, "clique": 0, "state": 3, "status": 0}}), LAST
    ).cards
    assert (card.numa, card.clique, card.fabric) == (-1, "", "completed")


@pytest.mark.parametrize(
    ("state", "status", "told"), [(1, 0, "not-started"), (2, 0, "in-progress"), (3, 1, "failed"), (9, 0, "")]
)
def test_what_the_fabric_manager_says(state: int, status: int, told: str) -> None:
    [card] = nvml_of(
        lines(CARD | {"fabric": {"cluster": "ab" * 16, "clique": 7, "state": state, "status": status}}), LAST
    ).cards
    assert (card.fabric, card.clique) == (told, "")


@pytest.mark.parametrize(
    ("said", "problem", "told"),
    [
        ([], "", "it ended before it had answered"),
        (lines(CARD)[:-1], "", "it ended before it had answered"),
        ([*lines(CARD)[:-1], '{"asking": 2}'], "no answer within 30 s", "no answer within 30 s, asked for card 2"),
        (
            ['{"problem": "NVML does not start: Driver Not Loaded (code 9)"}'],
            "",
            "NVML does not start: Driver Not Loaded (code 9)",
        ),
        (["[", "3", '{"count": 0, "driver"', '{"asking": true}'], "", "it ended before it had answered"),
    ],
)
def test_an_answer_that_is_not_whole_leaves_what_was_known(said: list[str], problem: str, told: str) -> None:
    assert nvml_of(said, LAST, problem=problem) == replace(LAST, problem=told)


_anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.sampled_from(sorted(CARD)), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.hypothesis
@given(st.dictionaries(st.sampled_from(sorted(CARD)), _anything), st.lists(st.text(max_size=30), max_size=3))
def test_nothing_that_a_library_says_raises(fields: dict[str, Any], garbage: list[str]) -> None:
    said = nvml_of([*garbage, *lines(CARD | fields)], LAST)
    assert isinstance(said, NodeNvml)
    findings(machine(said), None)


def machine(nvml: NodeNvml | None, *devices: PciDevice) -> NodeNuma:
    return NodeNuma(N, 1.0, devices=devices, nvml=nvml)


def pci(address: str, numa: int = 0) -> PciDevice:
    return PciDevice(address, PciKind.CARD, numa, vendor="0x10de")


def bad(numa: NodeNuma, devices: NodeDevices | None = None) -> list[tuple[str, str]]:
    return [
        (one.name, one.message)
        for one in findings(numa, devices)
        if one.level is not Level.OK and one.name[:4] in ("nvml", "card", "nvli")
    ]


GOOD = NvmlCard(0, "GPU-00000000-0000-4000-8000-000000000000", "0000:18:00.0", numa=0, ecc="on", links={"switch": 18})


def told(*cards: NvmlCard, sys: tuple[PciDevice, ...] = (), ids: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    devices = NodeDevices(N, 1.0, (DeviceIds("nvidia.com/gpu", ids),)) if ids else None
    return bad(
        machine(NodeNvml("550", cards), *(sys or tuple(pci(card.address, 0) for card in cards if card.address))), devices
    )


def test_a_node_that_is_well_has_no_findings_and_one_that_nobody_asks_none_of_nvml() -> None:
    assert told(GOOD, ids=(GOOD.uuid,)) == []
    assert bad(machine(None)) == []


def test_what_sys_and_the_kubelet_have_and_nvml_not() -> None:
    assert told(GOOD, sys=(pci("0000:18:00.0"), pci("0000:5e:00.0"))) == [
        ("nvml", "/sys has 0000:5e:00.0, of which NVML knows nothing")
    ]
    assert told(GOOD, sys=(pci("0000:18:00.0", 1),)) == [("nvml", "it has 0000:18:00.0 on node 0 (1 by /sys)")]
    gone = "GPU-00000009-0000-4000-8000-000000000000"
    assert told(GOOD, ids=(gone,)) == [("nvml", f"the kubelet gives out {gone}, of which NVML knows nothing")]
    assert told(GOOD, ids=("GPU-0-1", f"{GOOD.uuid}::3")) == [], "slots and replicas are no cards"


@pytest.mark.parametrize(
    ("fields", "name", "word"),
    [
        ({"lost": True}, "card 1", "lost"),
        ({"links": {}, "links_down": (0, 1)}, "card 1", "NVLink 0, 1 down"),
        ({"fabric": "not-started"}, "card 1", "not-started"),
        ({"remap_failed": True}, "card 1", "no rows"),
        ({"remap_pending": True}, "card 1", "next reset"),
        ({"ecc": "off"}, "card 1", "ECC is off"),
        ({"mig_pending": True}, "card 1", "MIG"),
        ({"clique": "x.1"}, "nvlink", "none, x.1"),
        ({"problems": ("memory: no (code 999)",)}, "card 1", "code 999"),
    ],
)
def test_each_fact_that_is_wrong_is_found(fields: dict[str, Any], name: str, word: str) -> None:
    other = replace(GOOD, index=1, address="0000:5e:00.0", **fields)
    [(its, message)] = told(GOOD, other)
    assert (its, word in message) == (name, True)


def test_a_board_without_bridges_misses_no_link() -> None:
    assert told(replace(GOOD, links={}, links_down=(0, 1))) == []
