"""What the kubelet's topology manager says, case by case."""

from dataclasses import replace

import pytest

from hbox_common.model.numa import AFFINITY_ERROR, SMT_ERROR, NumaNode, NumaPolicy, NumaScope, Zone, admit, memory_freed

GPU = "nvidia.com/gpu"


def box(policy: NumaPolicy, *zones: tuple[int, int], free: tuple[tuple[int, int], ...] = ()) -> NumaNode:
    """Zones of (CPUs, cards)."""
    own = free or zones
    return NumaNode(
        policy,
        zones=tuple(
            Zone(i, {"cpu": cpus, GPU: cards}, {"cpu": own[i][0], GPU: own[i][1]}) for i, (cpus, cards) in enumerate(zones)
        ),
        aligned=frozenset({"cpu", GPU}),
    )


def ask(cpu: int = 0, cards: int = 0) -> dict[str, int]:
    return {"cpu": cpu * 1000, GPU: cards}


H100 = box(NumaPolicy.RESTRICTED, (96, 4), (96, 4))


def test_four_cards_with_their_cores_are_on_one_node() -> None:
    found = admit(H100, [ask(48, 4)], guaranteed=True)
    assert (found.admitted, found.masks) == (True, (0b01,))
    assert found.node is not None
    assert admit(found.node, [ask(48, 4)], guaranteed=True).masks == (0b10,)


def test_cards_over_two_nodes_with_one_cpu_are_refused_when_restricted() -> None:
    """GPU width 2, CPU width 1 (sources: topology-manager)."""
    found = admit(H100, [ask(1, 8)], guaranteed=True)
    assert (found.admitted, found.reason) == (False, AFFINITY_ERROR)
    assert found.message == "what is asked for needs NUMA nodes of different number: 1 cpu need 1, 8 nvidia.com/gpu need 2"
    assert admit(H100, [ask(100, 8)], guaranteed=True).admitted
    assert admit(H100, [ask(1, 8)], guaranteed=False).admitted, "of a Burstable pod devices alone are aligned"
    assert admit(replace(H100, policy=NumaPolicy.BEST_EFFORT), [ask(1, 8)], guaranteed=True).admitted


def test_a_fragmented_node_is_refused_though_enough_is_free() -> None:
    node = box(NumaPolicy.RESTRICTED, (96, 4), (96, 4), free=((96, 2), (96, 2)))
    found = admit(node, [ask(0, 4)], guaranteed=False)
    assert (found.admitted, found.message) == (
        False,
        "4 nvidia.com/gpu would be spread over 2 NUMA nodes, and fewer would do were they free",
    )


def test_devices_are_aligned_for_every_class_of_pods() -> None:
    node = box(NumaPolicy.SINGLE, (96, 4), (96, 4), free=((96, 2), (96, 2)))
    assert not admit(node, [ask(0, 3)], guaranteed=False).admitted
    assert admit(node, [ask(0, 2)], guaranteed=False).masks == (0b01,)


@pytest.mark.parametrize("scope", list(NumaScope))
def test_a_zone_that_names_no_cards_has_none(scope: NumaScope) -> None:
    """As the half of a box on whose PCI bridges no cards are: it lacks the resource, and does not have 0 of it."""
    cardless = Zone(1, {"cpu": 96}, {"cpu": 96})
    node = replace(H100, scope=scope, zones=(H100.zones[0], cardless))
    found = admit(node, [ask(8, 2)], guaranteed=True)
    assert (found.admitted, found.masks) == (True, (0b01,))
    assert found.node is not None
    assert [dict(zone.free) for zone in found.node.zones] == [{"cpu": 88, GPU: 2}, {"cpu": 96}]


def test_one_numa_node_is_all_that_a_pod_gets_under_single() -> None:
    node = replace(H100, policy=NumaPolicy.SINGLE)
    assert admit(node, [ask(8, 5)], guaranteed=True).message == "5 nvidia.com/gpu are more than one NUMA node has"


def test_containers_go_one_by_one_and_a_pod_at_once() -> None:
    two = [ask(8, 3), ask(8, 3)]
    assert admit(replace(H100, policy=NumaPolicy.SINGLE), two, guaranteed=True).masks == (0b01, 0b10)
    assert not admit(replace(H100, policy=NumaPolicy.SINGLE, scope=NumaScope.POD), two, guaranteed=True).admitted


def test_cards_without_cores_beside_them_are_not_aligned() -> None:
    """AMD NPS4: cards on nodes that others' CPUs have been taken from."""
    node = box(NumaPolicy.SINGLE, (32, 0), (32, 4), free=((32, 0), (2, 4)))
    found = admit(node, [ask(8, 1)], guaranteed=True)
    assert not found.admitted
    assert admit(node, [ask(2, 1)], guaranteed=True).masks == (0b10,)


def test_uneven_nodes_never_hold_four_cards_alone() -> None:
    """Intel SNC2 with 3, 1, 3 and 1 cards: two nodes are the narrowest set, which restricted takes."""
    node = box(NumaPolicy.RESTRICTED, (24, 3), (24, 1), (24, 3), (24, 1))
    assert admit(node, [ask(0, 4)], guaranteed=False).masks == (0b0011,)
    assert not admit(replace(node, policy=NumaPolicy.SINGLE), [ask(0, 4)], guaranteed=False).admitted


def test_the_nearest_of_equal_sets_is_taken_where_that_is_asked_for() -> None:
    node = replace(
        box(NumaPolicy.RESTRICTED, (24, 1), (24, 1), (24, 1), (24, 1)),
        distances=((10, 32, 32, 12), (32, 10, 12, 32), (32, 12, 10, 32), (12, 32, 32, 10)),
    )
    assert admit(node, [ask(0, 2)], guaranteed=False).masks == (0b0011,)
    assert admit(replace(node, prefer_closest=True), [ask(0, 2)], guaranteed=False).masks == (0b0110,)


def test_half_a_core_is_refused_under_full_pcpus_only_and_parts_of_a_cpu_are_nobodys() -> None:
    node = replace(H100, full_pcpus_only=True, threads_per_core=2)
    found = admit(node, [ask(3, 1)], guaranteed=True)
    assert (found.admitted, found.reason) == (False, SMT_ERROR)
    assert admit(node, [{"cpu": 3500, GPU: 1}], guaranteed=True).admitted, "its CPUs are of the shared set"
    assert admit(node, [ask(3, 1)], guaranteed=False).admitted


@pytest.mark.parametrize("policy", NumaPolicy)
def test_who_asks_for_nothing_that_is_aligned_goes_anywhere(policy: NumaPolicy) -> None:
    assert admit(replace(H100, policy=policy), [{"memory": 2**30}, {}], guaranteed=True).admitted


def test_more_than_there_is_is_refused_by_name() -> None:
    assert admit(H100, [ask(0, 9)], guaranteed=False).message == "no NUMA nodes have 9 nvidia.com/gpu free together"


def memory_node(*zones: tuple[int, int, int], policy: NumaPolicy = NumaPolicy.RESTRICTED) -> NumaNode:
    """zones: bytes free of 100, blocks that are from there, and the bits of its group."""
    found = tuple(Zone(i, {"memory": 100}, {"memory": free}, blocks, group) for i, (free, blocks, group) in enumerate(zones))
    return NumaNode(policy, NumaScope.CONTAINER, found, frozenset({"memory"}))


def test_a_zone_of_a_group_gives_no_memory_alone_and_one_that_gives_alone_is_in_no_group() -> None:
    grouped = memory_node((100, 0, 0), (40, 1, 0b110), (40, 1, 0b110))
    assert admit(grouped, [{"memory": 30}], guaranteed=True).masks == (0b001,)
    assert admit(memory_node((40, 1, 0b11), (40, 1, 0b11)), [{"memory": 30}], guaranteed=True).reason == "TopologyAffinityError"
    assert admit(memory_node((40, 1, 0), (100, 0, 0)), [{"memory": 120}], guaranteed=True).reason == "UnexpectedAdmissionError"


@pytest.mark.parametrize("policy", list(NumaPolicy))
def test_where_no_zones_have_the_memory_the_allocation_fails_behind_the_topology_manager(policy: NumaPolicy) -> None:
    found = admit(memory_node((40, 1, 0), (40, 1, 0), policy=policy), [{"memory": 60}], guaranteed=True)
    assert (found.admitted, found.reason) == (False, "UnexpectedAdmissionError")
    assert admit(memory_node((40, 1, 0), (40, 1, 0), policy=policy), [{"memory": 60}], guaranteed=False).admitted


def test_containers_use_the_memory_of_init_containers_before_them_again() -> None:
    found = admit(memory_node((100, 0, 0), (0, 1, 0)), [{"memory": 60}], guaranteed=True, init=[{"memory": 80}])
    assert found.node is not None
    assert found.node.zones[0].free == {"memory": 20}
    assert found.node.zones[0].assigned == 2


def test_what_is_freed_ends_a_group_with_its_last_block() -> None:
    zones = memory_node((0, 2, 0b11), (40, 2, 0b11)).zones
    first = memory_freed(zones, [("memory", 60, 0b11)])
    assert [(zone.free["memory"], zone.assigned, zone.group) for zone in first] == [(60, 1, 0b11), (40, 1, 0b11)]
    last = memory_freed(first, [("memory", 100, 0b11)])
    assert [(zone.free["memory"], zone.assigned, zone.group) for zone in last] == [(100, 0, 0), (100, 0, 0)]


def sockets_box(*free: tuple[int, int], align_by_socket: bool = False) -> NumaNode:
    """Four zones of 8 CPUs and 2 cards on two sockets; of each what is free."""
    own = free or ((8, 2),) * 4
    zones = tuple(Zone(i, {"cpu": 8, GPU: 2}, {"cpu": cpus, GPU: cards}) for i, (cpus, cards) in enumerate(own))
    return NumaNode(
        NumaPolicy.RESTRICTED,
        NumaScope.CONTAINER,
        zones,
        frozenset({"cpu", GPU}),
        sockets=(0, 0, 1, 1),
        align_by_socket=align_by_socket,
    )


def test_cards_of_two_zones_of_a_socket_need_no_more_cpus_than_one_zone_has_under_align_by_socket() -> None:
    assert not admit(sockets_box(), [ask(2, 4)], guaranteed=True).admitted
    found = admit(sockets_box(align_by_socket=True), [ask(2, 4)], guaranteed=True)
    assert (found.admitted, found.masks) == (True, (0b0011,))
    assert admit(sockets_box((8, 1), (8, 2), (8, 2), (8, 2), align_by_socket=True), [ask(2, 4)], guaranteed=True).masks == (
        0b1100,
    )
    assert not admit(sockets_box(align_by_socket=True), [ask(2, 5)], guaranteed=True).admitted, (
        "two sockets, where CPUs need one"
    )


def test_cpus_come_from_the_whole_socket_under_align_by_socket_and_from_which_zone_is_the_kubelets_choice() -> None:
    """Go packs: of the socket's zones that with least left first."""
    found = admit(sockets_box((8, 0), (5, 2), (8, 2), (8, 2), align_by_socket=True), [ask(4, 0)], guaranteed=True)
    assert (found.masks, found.split) == ((0b0001,), True)
    assert found.node is not None
    assert [zone.free["cpu"] for zone in found.node.zones] == [8, 1, 8, 8]
    exact = admit(sockets_box((8, 2), (0, 2), (8, 2), (8, 2), align_by_socket=True), [ask(8, 0)], guaranteed=True)
    assert not exact.split


def test_containers_are_aligned_to_where_init_containers_before_them_have_cpus_and_cards() -> None:
    """The kubelet keeps these for the pod, and hints of others lack their NUMA nodes."""
    node = box(NumaPolicy.SINGLE, (16, 4), (16, 4), free=((16, 0), (16, 4)))
    assert admit(node, [ask(4, 1)], guaranteed=True).masks == (0b10,)
    assert admit(node, [ask(4, 1)], guaranteed=True, init=[ask(1, 0)]).reason == AFFINITY_ERROR
    assert admit(node, [ask(4, 1)], guaranteed=True, init=[ask(1, 1)]).masks == (0b10,)
    assert admit(node, [ask(4, 1)], guaranteed=True, init=[{"cpu": 500}]).masks == (0b10,), "its CPUs are of the shared set"


def test_what_init_containers_had_more_than_those_behind_them_stays_the_pods() -> None:
    found = admit(H100, [ask(8, 1), ask(8, 1)], guaranteed=True, init=[ask(4, 0), ask(24, 3)])
    assert found.node is not None
    assert [(zone.free["cpu"], zone.free[GPU]) for zone in found.node.zones] == [(72, 1), (96, 4)]


def test_cpus_of_cores_that_are_reserved_in_part_are_nobodys_under_full_pcpus_only() -> None:
    node = replace(
        box(NumaPolicy.RESTRICTED, (16, 4), (16, 4), free=((6, 4), (0, 4))), threads_per_core=2, full_pcpus_only=True
    )
    assert admit(node, [ask(6, 1)], guaranteed=True).admitted
    found = admit(replace(node, cut_cpus=2), [ask(6, 1)], guaranteed=True)
    assert (found.admitted, found.reason) == (False, SMT_ERROR)
    assert admit(replace(node, cut_cpus=2), [ask(4, 1)], guaranteed=True).admitted


def test_under_full_pcpus_only_what_init_containers_keep_is_not_there_for_those_that_would_use_it_again() -> None:
    """`GetAvailablePhysicalCPUs` leaves it out, where hints count it."""
    node = replace(box(NumaPolicy.RESTRICTED, (16, 4), (16, 4), free=((8, 4), (0, 4))), threads_per_core=2)
    init = [ask(4, 0)]
    assert admit(node, [ask(8, 1)], guaranteed=True, init=init).admitted
    assert admit(replace(node, full_pcpus_only=True), [ask(8, 1)], guaranteed=True, init=init).reason == SMT_ERROR
    assert admit(replace(node, full_pcpus_only=True), [ask(4, 1)], guaranteed=True, init=init).admitted


def test_parts_of_cores_are_refused_whatever_the_topology_manager_does() -> None:
    node = NumaNode(
        NumaPolicy.NONE, NumaScope.CONTAINER, H100.zones, frozenset({"cpu"}), threads_per_core=2, full_pcpus_only=True
    )
    assert admit(node, [ask(3, 1)], guaranteed=True).reason == SMT_ERROR
    assert admit(node, [ask(4, 1)], guaranteed=True).admitted
