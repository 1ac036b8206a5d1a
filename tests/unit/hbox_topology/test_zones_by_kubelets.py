"""The NUMA nodes of a node, of what node-agent reads there."""

from dataclasses import replace
from typing import Any

import pytest

from hbox_common.model import (
    ContainerHolds,
    DeviceIds,
    HeldMemory,
    KubeletRules,
    MemoryBlock,
    NodeDevices,
    NodeName,
    NodeNuma,
    NodeZones,
    NumaZone,
    ZoneMemory,
)
from hbox_common.model.nodezones import zones_by_kubelet
from hbox_common.model.numa import NumaPolicy, NumaScope
from hbox_topology.core.zones import ZoneTable

N, GPU = NodeName("n1"), "nvidia.com/gpu"
RULES = KubeletRules(
    "static", {"full-pcpus-only": "true"}, "", "restricted", "pod", {"prefer-closest-numa-nodes": "true"}, "0,8"
)
NUMA = NodeNuma(N, 1.0, (NumaZone(0, "0-3,8-11", 2048, (10, 21)), NumaZone(1, "4-7,12-15", 2048, (21, 10))), 2, 2, rules=RULES)
HOLDS = (
    ContainerHolds("team", "a", "main", (DeviceIds(GPU, ("g0",), (0,)),), "1,9", uid="u-a"),
    ContainerHolds("team", "a", "side", (), "4"),
)
DEVICES = NodeDevices(N, 2.0, (DeviceIds(GPU, ("g0", "g1"), (0,)), DeviceIds(GPU, ("g2",), (1,))), "1-7,9-15", HOLDS)


def test_what_a_zone_has_may_give_and_has_free() -> None:
    found = zones_by_kubelet(NUMA, DEVICES)
    assert (found.policy, found.scope, found.aligned, found.by_pod) == (
        NumaPolicy.RESTRICTED,
        NumaScope.POD,
        ("cpu", GPU),
        True,
    )
    assert (found.threads_per_core, found.full_pcpus_only, found.prefer_closest) == (2, True, True)
    first, second = found.zones
    assert (first.total, first.most, first.free) == ({"cpu": 8, GPU: 2}, {"cpu": 6, GPU: 2}, {"cpu": 4, GPU: 1})
    assert (second.total, second.most, second.free) == ({"cpu": 8, GPU: 1}, {"cpu": 8, GPU: 1}, {"cpu": 7, GPU: 1})
    [pod] = found.pods
    assert (pod.pod, pod.uid, pod.given) == ("a", "u-a", ({"cpu": 2, GPU: 1}, {"cpu": 1}))
    assert found.counts


def test_options_of_the_cpu_manager_are_told_where_it_is_static() -> None:
    options = {"full-pcpus-only": "1", "align-by-socket": "True"}
    zones = tuple(replace(zone, socket=zone.id) for zone in NUMA.zones)
    numa = replace(NUMA, zones=zones, rules=replace(RULES, cpu_options=options), cut_cpus="7,8")
    found = zones_by_kubelet(numa, DEVICES).numa_node()
    assert (found.full_pcpus_only, found.align_by_socket, found.sockets, found.cut_cpus) == (True, True, (0, 1), 1)
    none = zones_by_kubelet(replace(numa, rules=replace(RULES, cpu_options=options, cpu_manager="none")), DEVICES).numa_node()
    assert (none.full_pcpus_only, none.align_by_socket) == (False, False)


def test_who_refuses_parts_of_cores_is_told_of_though_it_aligns_nothing() -> None:
    found = zones_by_kubelet(replace(NUMA, rules=replace(RULES, topology_manager="none")), DEVICES)
    assert (found.aligned, found.counts, found.refuses) == (("cpu",), True, True)
    one_thread = replace(NUMA, threads_per_core=1, rules=replace(RULES, topology_manager="none"))
    assert not zones_by_kubelet(one_thread, DEVICES).counts


def test_cpus_are_aligned_under_the_static_manager_alone() -> None:
    found = zones_by_kubelet(replace(NUMA, rules=replace(RULES, cpu_manager="none")), DEVICES)
    assert found.aligned == (GPU,)


def test_devices_that_are_at_no_place_or_at_several_are_not_aligned() -> None:
    parts = (DeviceIds(GPU, ("g0",), (0, 1)), DeviceIds("rdma/hca", ("h",)), DeviceIds("x/y", ("z",), (7,)))
    assert zones_by_kubelet(NUMA, replace(DEVICES, allocatable=parts, holds=())).aligned == ("cpu",)


@pytest.mark.parametrize(
    ("numa", "devices", "problem"),
    [
        ({"zones": ()}, {}, "its NUMA nodes are not known"),
        ({"zones": tuple(NumaZone(i, "", 1) for i in range(9))}, {}, "9 NUMA nodes are more than the 8"),
        ({}, {"left_out": 3}, "3 containers or devices are beyond"),
        ({}, {"cpus": "1-"}, "is no range of CPUs"),
        ({"zones": (NumaZone(0, "0-3", 1), NumaZone(0, "4-7", 1))}, {}, "two of its NUMA nodes have one number"),
    ],
)
def test_where_it_cannot_be_told_the_reason_is(numa: dict[str, Any], devices: dict[str, Any], problem: str) -> None:
    found = zones_by_kubelet(replace(NUMA, **numa), replace(DEVICES, **devices))
    assert problem in found.problem
    assert not found.counts


@pytest.mark.parametrize("policy", ["", "none", "of tomorrow"])
def test_a_kubelet_that_aligns_nothing_is_not_spoken_of(policy: str) -> None:
    table = ZoneTable()
    assert table.numa(replace(NUMA, rules=replace(RULES, cpu_options={}, topology_manager=policy))) is None
    assert table.devices(DEVICES) is None


def test_a_word_goes_out_when_both_sources_are_there_and_when_it_differs() -> None:
    table = ZoneTable()
    assert table.devices(DEVICES) is None
    said = table.numa(NUMA)
    assert said is not None
    assert table.devices(replace(DEVICES, at=9.0)) is None, "nothing but the time"
    gone = table.devices(replace(DEVICES, holds=()))
    assert gone is not None
    assert gone.pods == ()
    last = table.forget(N, at=10.0)
    assert last == NodeZones(N, 10.0, gone=True)
    assert table.forget(N, at=11.0) is None


def test_a_policy_that_becomes_none_is_said() -> None:
    table = ZoneTable()
    table.devices(DEVICES)
    table.numa(NUMA)
    said = table.numa(replace(NUMA, rules=replace(RULES, cpu_options={}, topology_manager="none")))
    assert said is not None
    assert not said.counts
    assert [one.counts for one in table.all()] == [False]


def test_after_a_restart_what_was_said_is_not_said_again() -> None:
    table = ZoneTable()
    table.restore(zones_by_kubelet(NUMA, DEVICES))
    assert table.numa(NUMA) is None, "not before the other half is there"
    assert [one.pods != () for one in table.all()] == [True]
    assert table.devices(DEVICES) is None


MEMORY = (
    ZoneMemory(0, {"memory": 800, "hugepages-2Mi": 40}, {"memory": 500, "hugepages-2Mi": 40}, 2, (0, 1)),
    ZoneMemory(1, {"memory": 900}, {"memory": 900}, 1, (0, 1)),
)
KEPT = (*HOLDS, ContainerHolds("team", "b", "main", memory=(HeldMemory("memory", 300, (0, 1)),), uid="u-b"))


@pytest.mark.parametrize("manager", ["Static", "BestEffort"])
def test_memory_is_aligned_under_a_memory_manager_that_gives_it_by_numa_node(manager: str) -> None:
    numa = replace(NUMA, rules=replace(RULES, memory_manager=manager))
    found = zones_by_kubelet(numa, replace(DEVICES, memory=MEMORY, holds=KEPT))
    assert found.aligned == ("cpu", "hugepages-2Mi", "memory", GPU)
    first, second = found.zones
    assert (first.total["memory"], first.most["memory"], first.free["memory"]) == (800, 800, 500)
    assert ((first.assigned, first.group), (second.assigned, second.group)) == ((2, (0, 1)), (1, (0, 1)))
    assert [(pod.pod, pod.blocks) for pod in found.pods] == [("a", ()), ("b", (MemoryBlock("memory", 300, (0, 1)),))]
    assert [zone.group for zone in found.numa_node().zones] == [3, 3]


def test_under_topology_manager_none_memory_alone_is_aligned_and_refused() -> None:
    numa = replace(NUMA, rules=replace(RULES, cpu_options={}, memory_manager="Static", topology_manager="none"))
    found = zones_by_kubelet(numa, replace(DEVICES, memory=MEMORY))
    assert (found.aligned, found.counts, found.refuses) == (("hugepages-2Mi", "memory"), True, True)
    assert not zones_by_kubelet(numa, DEVICES).counts, "without its checkpoint nothing is known"


def test_a_checkpoint_of_a_memory_manager_that_is_configured_no_more_counts_for_nothing() -> None:
    found = zones_by_kubelet(NUMA, replace(DEVICES, memory=MEMORY, holds=KEPT))
    assert "memory" not in found.aligned
    assert not any("memory" in zone.total for zone in found.zones)
    assert [pod.pod for pod in found.pods] == ["a"]


def test_node_is_reported_once_its_policy_and_numa_nodes_are_read() -> None:
    table = ZoneTable()
    for numa in (replace(NUMA, rules=None), replace(NUMA, zones=())):
        table.numa(numa)
        table.devices(DEVICES)
        assert not table.reported(N)
    table.numa(NUMA)
    assert table.reported(N)
    table.forget(N, at=9.0)
    assert not table.reported(N)


def test_node_with_too_many_numa_nodes_is_reported() -> None:
    table = ZoneTable()
    table.devices(DEVICES)
    table.numa(replace(NUMA, zones=tuple(NumaZone(i, "", 1) for i in range(34))))
    assert table.reported(N)


def test_node_whose_kubelet_aligns_nothing_is_reported() -> None:
    table = ZoneTable()
    table.devices(DEVICES)
    table.numa(replace(NUMA, zones=(), rules=KubeletRules()))
    assert table.reported(N)
