"""Which domain of the fabric a gang gets, and which leaves and nodes in it."""

from collections import Counter
from typing import Any

import pytest

from hbox_common.model import NodeName, SubGangPolicy, TopologyWish
from hbox_common.model.annotations import KAI_REQUIRED, NETWORK_TOPOLOGY
from hbox_scheduler.core.cluster.entities import Status

from .fabric_world import SOFT, Fabric, apart, hard, placed

KUEUE = "kueue.x-k8s.io/podset-"


def leaves(count: int, nodes: int, cores: int = 1) -> dict[str, dict[str, int]]:
    return {f"s{i}": {f"n{i}{j}": cores for j in range(nodes)} for i in range(count)}


def test_a_hard_gang_is_in_one_leaf_or_nowhere() -> None:
    fabric = Fabric(leaves(3, 2), above={"top": ["s0", "s1", "s2"]})
    two = fabric.gang("two", 2, wish=hard(1))
    three = fabric.gang("three", 3, wish=hard(1))
    report = fabric.run()
    assert len(fabric.leaves_used(placed(report, two))) == 1
    assert not placed(report, three)
    assert report.pending["ns/three-000"].message == (
        "TopologyFull: 3 pods have to be in one domain of tier 1 or lower; the best, s1, has room for 2, all nodes together for 4"
    )


def test_a_hard_gang_waits_where_nothing_is_known_of_the_fabric() -> None:
    fabric = Fabric({}, loose={"n0": 1, "n1": 1})
    gang = fabric.gang("g", 2, wish=hard(1))
    report = fabric.run()
    assert not placed(report, gang)
    assert report.pending["ns/g-000"].message.startswith("TopologyUnknown")


@pytest.mark.parametrize("leaves_of_others", [{}, {"s0": {"m0": 1}}], ids=["no fabric", "not of these nodes"])
@pytest.mark.parametrize("cores", [1, (1, 2)], ids=["equal", "unequal"])
@pytest.mark.parametrize(
    "how", [{"wish": hard(1)}, {"annotations": {NETWORK_TOPOLOGY: "singleSwitch"}}], ids=["hard", "switch"]
)
def test_a_hard_gang_that_fits_on_one_node_needs_no_fabric(leaves_of_others: Any, cores: Any, how: Any) -> None:
    fabric = Fabric(leaves_of_others, loose={"n0": 1, "n1": 8, "n2": 3, "n3": 1})
    gang = fabric.gang("g", 2, cores=cores, **how)
    assert set(placed(fabric.run(), gang)) == {"n2"}, "best fit"


def test_later_members_of_a_gang_on_one_node_outside_of_the_fabric_join_it_there() -> None:
    fabric = Fabric({}, loose={"n0": 3, "n1": 8})
    gang = fabric.gang("g", 3, least=2, wish=hard(1), on=["n0", "n0"])
    assert placed(fabric.run(), gang) == {"n0": 1}
    split = Fabric({}, loose={"n0": 3, "n1": 8})
    gang = split.gang("g", 3, least=2, wish=hard(1), on=["n0", "n1"])
    assert not placed(split.run(), gang)


@pytest.mark.parametrize("name", [KAI_REQUIRED, f"{KUEUE}required-topology"])
def test_a_level_by_node_label_is_not_met_by_a_node_without_it(name: str) -> None:
    fabric = Fabric({}, loose={"n0": 4})
    gang = fabric.gang("g", 2, annotations={name: "rack"})
    assert not placed(fabric.run(), gang)


def test_the_words_none_best_effort_and_single_switch() -> None:
    word = "hbox.io/network-topology"
    fabric = Fabric(leaves(2, 2), above={"a": ["s0", "s1"]})
    single = fabric.gang("single", 3, annotations={word: "singleSwitch"})
    best = fabric.gang("best", 2, annotations={word: "bestEffort"})
    wrong = fabric.gang("wrong", 1, annotations={word: "oneSwitch"})
    report = fabric.run()
    assert not placed(report, single)
    assert len(fabric.leaves_used(placed(report, best))) == 1
    assert not placed(report, wrong)
    assert "allowed: none, bestEffort, singleSwitch" in report.pending["ns/wrong-000"].message
    fabric = Fabric(leaves(2, 1))
    free = fabric.gang("free", 2, wish=hard(1), annotations={word: "none"})
    assert placed(fabric.run(), free).total() == 2


def test_sub_groups_and_mixtures_that_do_not_fit_say_so() -> None:
    fabric = Fabric(leaves(2, 2))
    fabric.gang(
        "g",
        3,
        wish=SOFT,
        policies=[SubGangPolicy("three", labels=("three",), size=3, topology=hard(1))],
        labels=[{"three": "x"}] * 3,
    )
    fabric.gang("mixed", 2, wish=hard(1), cores=[2, 1])
    report = fabric.run()
    assert report.pending["ns/g-000"].message.startswith(
        "TopologyFull: 3 pods of sub-group three/x have to be in one domain of tier 1"
    )
    big = Fabric({"s0": {"n0": 2}, "s1": {"n1": 1}})
    big.gang("mixed", 2, wish=hard(1), cores=[2, 1])
    assert big.run().pending["ns/mixed-000"].message == (
        "TopologyFull: 2 pods have to be in one domain of tier 1 or lower; none has room for all of them"
    )


def test_the_lowest_tier_that_holds_a_hard_gang_is_taken() -> None:
    fabric = Fabric(leaves(4, 2), above={"a": ["s0", "s1"], "b": ["s2", "s3"]})
    gang = fabric.gang("g", 3, wish=hard(2))
    assert len(fabric.leaves_used(placed(fabric.run(), gang))) == 2
    small = Fabric(leaves(4, 2), above={"a": ["s0", "s1"], "b": ["s2", "s3"]})
    gang = small.gang("g", 2, wish=hard(2))
    assert len(small.leaves_used(placed(small.run(), gang))) == 1


def test_an_unknown_tier_name_does_not_limit() -> None:
    fabric = Fabric(leaves(2, 2))
    gang = fabric.gang("g", 4, wish=hard(name="hypercluster"))
    assert placed(fabric.run(), gang).total() == 4


def test_a_tier_name_limits() -> None:
    fabric = Fabric(leaves(2, 2), above={"a": ["s0", "s1"]})
    gang = fabric.gang("g", 3, wish=hard(name="leaf"))
    assert not placed(fabric.run(), gang)


def test_a_soft_gang_takes_the_fewest_leaves_even_where_a_lower_domain_has_more_of_them() -> None:
    fabric = Fabric(
        {**leaves(4, 1), "s4": {"m1": 1, "m2": 1}, "s5": {"m3": 1, "m4": 1}},
        above={"a": ["s0", "s1", "s2", "s3"], "b": ["s4"], "c": ["s5"]},
    )
    gang = fabric.gang("g", 4, wish=SOFT)
    assert fabric.leaves_used(placed(fabric.run(), gang)) == {"s4", "s5"}


def test_of_equal_covers_the_one_is_taken_that_leaves_whole_leaves() -> None:
    fabric = Fabric({"s0": {"n0": 1, "n1": 1}, "s1": {"n2": 1, "n3": 1, "n4": 1}})
    fabric.gang("old", 1, on=["n2"])
    gang = fabric.gang("g", 2, wish=SOFT)
    assert fabric.leaves_used(placed(fabric.run(), gang)) == {"s1"}


def test_of_equal_domains_the_one_is_taken_in_which_no_whole_leaf_breaks() -> None:
    leaves = {"a0": {"n0": 1, "n1": 1}, "a1": {"n2": 1, "n3": 1}}
    leaves |= {"b0": {"n4": 1, "n5": 1, "n6": 1}, "b1": {"n7": 1, "n8": 1, "n9": 1}}
    fabric = Fabric(leaves, above={"a": ["a0", "a1"], "b": ["b0", "b1"]})
    fabric.gang("old", 2, on=["n4", "n7"])
    gang = fabric.gang("g", 4, wish=hard(2))
    assert fabric.leaves_used(placed(fabric.run(), gang)) == {"b0", "b1"}


def test_nominated_places_that_break_the_constraint_are_not_taken() -> None:
    """They were made free in an earlier cycle, before the fabric was described as it is now."""
    fabric = Fabric({"s0": {"n0": 1, "n1": 1}, "s1": {"n2": 1, "n3": 1}})
    gang = fabric.gang("g", 2, wish=hard(1))
    gang.members[0].nominated, gang.members[1].nominated = NodeName("n0"), NodeName("n2")
    assert len(fabric.leaves_used(placed(fabric.run(), gang))) == 1


def test_the_last_leaf_is_the_one_that_fits_best() -> None:
    fabric = Fabric({"s0": {"n0": 4}, "s1": {"n1": 3}, "s2": {"n2": 1}})
    gang = fabric.gang("g", 5, wish=SOFT)
    assert placed(fabric.run(), gang) == {"n0": 4, "n2": 1}


def test_a_gang_fills_a_node_before_it_takes_the_next() -> None:
    fabric = Fabric({"s0": {"n0": 4, "n1": 4, "n2": 2}})
    gang = fabric.gang("g", 6, wish=hard(1))
    assert placed(fabric.run(), gang) == {"n0": 4, "n2": 2}


def test_members_that_come_later_go_to_the_domain_of_those_that_run() -> None:
    fabric = Fabric(leaves(2, 2))
    gang = fabric.gang("g", 2, wish=hard(1), on=["n10"])
    assert placed(fabric.run(), gang) == {"n11": 1}
    full = Fabric(leaves(2, 1))
    gang = full.gang("g", 2, wish=hard(1), on=["n00"])
    assert not placed(full.run(), gang)


def test_a_soft_gang_grows_in_its_own_leaf_first() -> None:
    fabric = Fabric(leaves(3, 2))
    gang = fabric.gang("g", 3, wish=SOFT, on=["n10"])
    assert placed(fabric.run(), gang)["n11"] == 1


def test_large_members_are_placed_before_small_ones() -> None:
    """The leader alone would go to the larger node and leave too little for the workers."""
    fabric = Fabric({"s0": {"n0": 8}, "s1": {"n1": 3}})
    gang = fabric.gang("g", 6, wish=SOFT, cores=[1, 2, 2, 2, 2, 2])
    assert placed(fabric.run(), gang) == {"n0": 4, "n1": 2}


def test_a_domain_whose_sum_is_enough_and_whose_nodes_are_not_is_passed_over() -> None:
    fabric = Fabric({"s0": {"n0": 3, "n1": 3}, "s1": {"n2": 8}})
    gang = fabric.gang("g", 2, wish=hard(1), cores=[4, 2])
    assert placed(fabric.run(), gang) == {"n2": 2}


def test_an_elastic_gang_starts_with_its_minimum_and_grows_as_far_as_its_domain() -> None:
    fabric = Fabric(leaves(2, 3))
    gang = fabric.gang("g", 5, wish=hard(1), least=2)
    report = fabric.run()
    assert placed(report, gang).total() == 3
    assert len(fabric.leaves_used(placed(report, gang))) == 1


def test_a_gang_gets_places_that_will_be_free_only_where_none_are_free_now() -> None:
    fabric = Fabric(leaves(2, 2))
    old = fabric.gang("old", 2, on=["n00", "n10"])
    old.members[0].status = Status.RELEASING
    gang = fabric.gang("g", 2, wish=hard(1))
    report = fabric.run()
    assert not placed(report, gang)
    assert sorted(report.nominations.values()) == ["n00", "n01"]


def test_an_elastic_gang_that_waits_is_promised_no_more_than_its_minimum() -> None:
    fabric = Fabric(leaves(1, 4))
    old = fabric.gang("old", 4, on=["n00", "n01", "n02", "n03"])
    for member in old.members:
        member.status = Status.RELEASING
    fabric.gang("g", 4, wish=hard(1), least=2)
    assert len(fabric.run().nominations) == 2


def test_pods_that_stay_apart_take_the_leaves_with_the_most_nodes() -> None:
    shape = {"s0": {"n0": 9}, "s1": {"n1": 1, "n2": 1}, "s2": {"n3": 1, "n4": 1, "n5": 1}}
    fabric = Fabric(shape, above={"top": list(shape)})
    gang = fabric.gang("g", 5, wish=SOFT, constraints=apart("g"))
    got = placed(fabric.run(), gang)
    assert fabric.leaves_used(got) == {"s1", "s2"}
    assert set(got.values()) == {1}


def test_a_hard_gang_whose_pods_stay_apart_needs_a_leaf_with_as_many_nodes() -> None:
    fabric = Fabric({"s0": {"n0": 9}, "s1": {"n1": 1, "n2": 1}})
    gang = fabric.gang("g", 2, wish=hard(1), constraints=apart("g"))
    assert fabric.leaves_used(placed(fabric.run(), gang)) == {"s1"}


def test_nodes_in_no_hypernode_are_leaves_of_their_own() -> None:
    fabric = Fabric({"s0": {"n0": 2, "n1": 1}}, loose={"x": 3, "y": 1})
    gang = fabric.gang("g", 3, wish=SOFT)
    assert len(fabric.leaves_used(placed(fabric.run(), gang))) == 1
    many = Fabric({"s0": {"n0": 2}}, loose={"x": 1, "y": 1})
    gang = many.gang("g", 4, wish=SOFT)
    assert placed(many.run(), gang) == {"n0": 2, "x": 1, "y": 1}


def test_each_sub_gang_has_a_domain_of_its_own_in_that_of_the_gang() -> None:
    fabric = Fabric(leaves(4, 2), above={"a": ["s0", "s1"], "b": ["s2", "s3"]})
    fabric.gang("old", 1, on=["n00"])
    gang = fabric.gang(
        "g",
        4,
        wish=hard(2),
        policies=[SubGangPolicy("pair", labels=("pair",), size=2, topology=hard(1))],
        labels=[{"pair": "x"}, {"pair": "x"}, {"pair": "y"}, {"pair": "y"}],
    )
    report = fabric.run()
    assert fabric.leaves_used(placed(report, gang)) == {"s2", "s3"}
    assert gang.allocated_domain == "b"
    assert sorted(sub_gang.allocated_domain for sub_gang in gang.sub_gangs) == ["s2", "s3"]


def test_a_small_sub_gang_does_not_take_the_leaf_that_a_large_one_needs() -> None:
    fabric = Fabric({"s0": {"n0": 1, "n1": 1}, "s1": {"n2": 1}})
    gang = fabric.gang(
        "g",
        3,
        wish=SOFT,
        policies=[
            SubGangPolicy("one", labels=("one",), size=1, topology=hard(1)),
            SubGangPolicy("two", labels=("two",), size=2, topology=hard(1)),
        ],
        labels=[{"one": "x"}, {"two": "y"}, {"two": "y"}],
    )
    report = fabric.run()
    assert {bound.member.name: bound.node for bound in report.bindings}["g-000"] == "n2"
    assert placed(report, gang).total() == 3


def test_equal_sub_gangs_are_packed_as_units() -> None:
    """Three units fit on n0, two on n1 and on n2 (one pod too many), one on n3: six units take the three that fit best."""
    fabric = Fabric({"s0": {"n0": 6}, "s1": {"n1": 5}, "s2": {"n2": 4}, "s3": {"n3": 2}}, above={"a": ["s0", "s1", "s2", "s3"]})
    gang = fabric.gang(
        "g",
        12,
        wish=hard(2),
        policies=[SubGangPolicy("slice", labels=("slice",), size=2, topology=hard(1))],
        labels=[{"slice": str(i // 2)} for i in range(12)],
    )
    assert placed(fabric.run(), gang) == {"n0": 6, "n2": 4, "n3": 2}


def test_as_many_sub_gangs_as_the_policy_asks_for_are_placed_or_none() -> None:
    fabric = Fabric(leaves(2, 2))
    gang = fabric.gang(
        "g",
        6,
        wish=SOFT,
        least=4,
        policies=[SubGangPolicy("pair", labels=("pair",), size=2, min_sub_gangs=3, topology=hard(1))],
        labels=[{"pair": str(i // 2)} for i in range(6)],
    )
    assert not placed(fabric.run(), gang)


def test_kueue_takes_the_tightest_domain_of_the_level_that_was_asked_for() -> None:
    fabric = Fabric(
        {"r0": {"n0": 1}, "r1": {"n1": 1, "n2": 1, "n3": 1}, "r2": {"n4": 1}, "r3": {"n5": 2}},
        above={"a": ["r0", "r1"], "b": ["r2", "r3"]},
    )
    gang = fabric.gang("g", 1, wish=hard(2), annotations={KUEUE + "required-topology": "block"})
    assert placed(fabric.run(), gang) == {"n4": 1}


def test_kueue_counts_blocks_and_then_racks_over_all_blocks() -> None:
    """Both blocks are needed; filled one after the other they would use three racks."""
    fabric = Fabric({"r0": {"n0": 3}, "r1": {"n1": 2}, "r2": {"n2": 4}}, above={"a": ["r0", "r1"], "b": ["r2"]})
    gang = fabric.gang("g", 6, wish=SOFT, annotations={KUEUE + "preferred-topology": "block"})
    assert fabric.leaves_used(placed(fabric.run(), gang)) == {"r1", "r2"}


def test_ranks_follow_the_fabric() -> None:
    fabric = Fabric({"s0": {"n0": 1, "n2": 1}, "s1": {"n1": 1, "n3": 1}})
    fabric.gang("g", 4, wish=SOFT)
    assert [bound.node for bound in fabric.run().bindings] == ["n0", "n2", "n1", "n3"]


# Partitions of Volcano's jobs (PartitionPolicy): of the HyperNodes that do, the fullest. As the end-to-end tests of Volcano 1.16 have it (cases 4.1 to 9.2).


def partitions(
    used: dict[str, int],
    *,
    job: TopologyWish | None,
    partition: TopologyWish,
    cores: int,
    pods: int = 4,
    least: int | None = None,
) -> dict[str, int]:
    """Where the pods of a job with partitions of two go: leaf -> pods. Eight nodes of 8 cores in a binary tree; `used`: cores by node."""
    nodes = {f"s{i}": {f"n{2 * i}": 8, f"n{2 * i + 1}": 8} for i in range(4)}
    fabric = Fabric(nodes, above={"s4": ["s0", "s1"], "s5": ["s2", "s3"], "s6": ["s4", "s5"]})
    for node, busy in used.items():
        fabric.gang(f"on-{node}", 1, cores=busy, on=[node])
    policy = SubGangPolicy("task", labels=("partition",), size=2, min_sub_gangs=pods // 2, topology=partition)
    labels = [{"partition": str(i // 2)} for i in range(pods)]
    gang = fabric.gang("job", pods, wish=job, cores=cores, least=least, policies=[policy], labels=labels)
    by_leaf: Counter[str] = Counter()
    for node, count in placed(fabric.run(), gang).items():
        by_leaf[fabric.leaf_of[node]] += count
    return dict(by_leaf)


S1_IS_FULLER = {"n2": 1, "n3": 1}


@pytest.mark.parametrize(
    ("used", "job", "partition", "cores"),
    [
        (S1_IS_FULLER, hard(1), hard(1), 2),
        (S1_IS_FULLER, hard(2), hard(1), 2),
        (S1_IS_FULLER | {"n0": 6, "n1": 6}, hard(2), hard(1), 2),
        (S1_IS_FULLER, hard(2), SOFT, 2),
        (S1_IS_FULLER, SOFT, hard(1), 2),
        (S1_IS_FULLER, hard(1), hard(1), 3),
    ],
)
def test_all_partitions_go_to_the_fullest_leaf_that_holds_them(
    used: dict[str, int], job: TopologyWish, partition: TopologyWish, cores: int
) -> None:
    assert partitions(used, job=job, partition=partition, cores=cores) == {"s1": 4}


@pytest.mark.parametrize(
    ("used", "job", "cores", "expected"),
    [
        ({"n0": 3, "n2": 3, "n4": 6, "n5": 6, "n6": 6, "n7": 6}, hard(2), 3, {"s0": 2, "s1": 2}),
        ({"n0": 4, "n4": 4, "n2": 6, "n3": 6, "n6": 6, "n7": 6}, SOFT, 3, {"s0": 2, "s2": 2}),
        ({"n0": 4, "n4": 4, "n2": 6, "n3": 6, "n6": 6, "n7": 6}, None, 3, {"s0": 2, "s2": 2}),
    ],
)
def test_each_partition_is_whole_in_its_own_leaf_where_no_leaf_holds_two(
    used: dict[str, int], job: TopologyWish | None, cores: int, expected: dict[str, int]
) -> None:
    assert partitions(used, job=job, partition=hard(1), cores=cores) == expected


def test_one_partition_goes_to_the_fullest_leaf_though_it_takes_more_nodes_there() -> None:
    used = {"n4": 4, "n5": 4}
    assert partitions(used, job=hard(2), partition=hard(1), cores=4, pods=2) == {"s2": 2}


def test_the_fullest_domain_of_a_higher_tier_is_taken_where_no_leaf_holds_the_job() -> None:
    used = {"n0": 3, "n1": 3, "n2": 3, "n3": 5, "n4": 2, "n6": 2}
    assert partitions(used, job=hard(2), partition=SOFT, cores=4) == {"s2": 2, "s3": 2}


def test_reason_of_a_gang_beyond_every_domain_lasts_on_a_full_cluster() -> None:
    """Two leaves of two nodes; two of the four nodes are in use."""
    fabric = Fabric(leaves(2, 2))
    fabric.gang("first", 2, wish=hard(1))
    fabric.gang("three", 3, wish=hard(1))
    fabric.gang("two", 2, wish=hard(1))
    assert fabric.run().pending["ns/three-000"].message == (
        "TopologyFull: 3 pods have to be in one domain of tier 1 or lower; the best, s0, has room for no more than 2 even when empty"
    )
