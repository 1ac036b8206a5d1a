"""Which pairs of nodes are tested, and what their results say about nodes, leaf switches and links above them."""

from collections import Counter

import pytest

from hbox_cli.health.pairtests import PEER, ROUND, Hardware, Run, by_hardware, conclude, manifests, plan, results
from hbox_common.health.nccl import Pair

LEAVES = {f"n{number}": f"leaf-{number // 4}" for number in range(8)}


def measured(slow: dict[str, float], rounds: int = 3, across: float = 1.0) -> list[Pair]:
    """Results of a plan: a pair is as fast as its slower node, and slower by `across` if it crosses leaves."""
    return [
        Pair(
            test.round,
            test.one,
            test.other,
            min(slow.get(test.one, 380.0), slow.get(test.other, 380.0))
            * (1.0 if LEAVES[test.one] == LEAVES[test.other] else across),
            True,
        )
        for test in plan(LEAVES, rounds)
    ]


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8])
def test_a_node_is_in_at_most_one_pair_of_a_round(count: int) -> None:
    tests = plan({f"n{number}": "" for number in range(count)}, 5)
    for number in range(1, 6):
        nodes = Counter(node for test in tests if test.round == number for node in (test.one, test.other))
        assert nodes, f"round {number} of {count} nodes is empty"
        assert max(nodes.values()) == 1


@pytest.mark.parametrize("sizes", [(4, 4), (2, 2, 4), (3, 5), (3, 3, 3), (1, 6), (5, 4, 2)])
def test_neighbours_come_first_and_leaves_are_crossed_later(sizes: tuple[int, ...]) -> None:
    leaves = {f"n{leaf}-{number}": f"leaf-{leaf}" for leaf, size in enumerate(sizes) for number in range(size)}
    tests = plan(leaves, 4)
    within = [sum(test.round == number and leaves[test.one] == leaves[test.other] for test in tests) for number in range(1, 5)]
    most = max(max(sizes) - sum(sizes) // 2 - sum(sizes) % 2, 0)
    assert within[0] == sum(size // 2 for size in sizes)
    assert within[1] == sum(size // 2 for size in sizes if size != 2)
    assert all(count <= most for count in within[2:]), "no more than those for which there is no node of another leaf"
    for number in range(1, 5):
        assert sum(test.round == number for test in tests) >= len(leaves) // 2 - (len(sizes) // 2 if number <= 2 else 0)


def test_each_round_has_other_pairs() -> None:
    for leaves in (LEAVES, {f"n{number}": f"leaf-{number}" for number in range(8)}):
        tests = plan(leaves, 5)
        assert len({frozenset((test.one, test.other)) for test in tests}) == len(tests) == 20


H100, L40 = Hardware("H100", "nvidia.com/gpu", 8), Hardware("L40", "nvidia.com/gpu", 8)
ASCEND = Hardware("Ascend910B", "huawei.com/Ascend910B", 8)


def test_only_nodes_with_the_same_hardware_are_paired() -> None:
    hardware = {name: (H100, L40, ASCEND)[number % 3] for number, name in enumerate(sorted(LEAVES))}
    tests = plan(LEAVES, 4, hardware)
    assert {node for test in tests for node in (test.one, test.other)} == set(LEAVES)
    assert all(hardware[test.one] == hardware[test.other] for test in tests)


def test_nodes_are_compared_with_the_same_hardware() -> None:
    hardware = {name: L40 if name in {"n6", "n7"} else H100 for name in LEAVES}
    pairs = [
        Pair(test.round, test.one, test.other, 380.0 if hardware[test.one] == H100 else 24.0, True)
        for test in plan(LEAVES, 2, hardware)
    ]
    found = {name: conclude(part, LEAVES) for name, part in by_hardware(pairs, hardware).items()}
    assert {name: (one.slow, one.leaves, one.uplinks) for name, one in found.items()} == {
        "8 x H100": ((), (), False),
        "8 x L40": ((), (), False),
    }
    mixed = Pair(3, "n0", "n7", 24.0, True)
    assert by_hardware([mixed], hardware) == {"8 x H100 / 8 x L40": [mixed]}
    assert by_hardware([mixed], {}) == {"": [mixed]}


def test_one_node_has_no_pair() -> None:
    assert plan({"n1": ""}, 3) == []


def test_a_slow_node_is_named_alone_and_its_partners_are_not() -> None:
    found = conclude(measured({"n2": 250.0}), LEAVES)
    assert (found.slow, found.leaves, found.uplinks) == (("n2",), (), False)
    [retest] = found.retests
    assert (retest.one, retest.round) == ("n2", 4)
    assert LEAVES[retest.other] == "leaf-0", "a node of its leaf, with which it was not tested"


def test_a_leaf_whose_nodes_are_slow_together_is_named_in_their_place() -> None:
    leaves = LEAVES | {f"n{number}": f"leaf-{number // 4}" for number in range(8, 16)}
    pairs = [
        Pair(test.round, test.one, test.other, 250.0 if "leaf-0" in (leaves[test.one], leaves[test.other]) else 380.0, True)
        for test in plan(leaves, 3)
    ]
    found = conclude(pairs, leaves)
    assert (found.slow, found.leaves, found.retests) == ((), ("leaf-0",), ())


def test_slow_pairs_across_leaves_alone_are_the_links_above_them() -> None:
    found = conclude(measured({}, across=0.5), LEAVES)
    assert (found.slow, found.leaves, found.uplinks) == ((), (), True)
    assert not conclude(measured({}), LEAVES).uplinks


def test_a_node_whose_pairs_all_failed_is_tested_again() -> None:
    pairs = [Pair(1, "n0", "n1", 0.0, False), Pair(1, "n2", "n3", 380.0, True), Pair(2, "n1", "n2", 380.0, True)]
    found = conclude(pairs, LEAVES)
    assert (found.slow, [test.one for test in found.retests]) == ((), ["n0"])


def test_pods_are_pinned_preemptible_gangs_of_two() -> None:
    run = Run("r", "ml", "image", ("run",), "offline", rail="mlx5_3")
    service, group, *pods = manifests(run, plan(LEAVES, 1)[:1], dict.fromkeys(LEAVES, ASCEND))
    assert (service["kind"], group["spec"]) == ("Service", {"minMember": 2, "priorityClassName": "offline"})
    assert [pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] for pod in pods] == ["n0", "n1"]
    assert [pod["metadata"]["annotations"][PEER] for pod in pods] == ["n1", "n0"]
    for rank, pod in enumerate(pods):
        env = {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"]}
        assert (env["NODE_RANK"], env["MASTER_ADDR"], env["NCCL_IB_HCA"]) == (str(rank), "r-1-0-0.r", "=mlx5_3")
        assert pod["spec"]["priorityClassName"] == "offline"
        assert pod["spec"]["containers"][0]["resources"]["limits"] == {"huawei.com/Ascend910B": "8"}


def pod(name: str, phase: str, message: str = "") -> dict[str, object]:
    terminated = {"terminated": {"exitCode": 0, "message": message}} if message else {}
    return {
        "metadata": {"name": name, "labels": {ROUND: "1"}, "annotations": {PEER: "n1"}},
        "spec": {"nodeName": "n0", "nodeSelector": {"kubernetes.io/hostname": "n0"}},
        "status": {"phase": phase, "containerStatuses": [{"state": terminated}]},
    }


OUTPUT = """#                                                              out-of-place                       in-place
  1073741824     268435456     float     sum      -1    5300.1  202.59  {busbw}      {wrong}    5290.0  202.9  380.5      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : {busbw}
"""


def test_results_are_those_of_rank_0_and_wrong_or_unfinished_runs_are_not_ok() -> None:
    pods = [
        pod("r-1-0-0", "Succeeded", OUTPUT.format(busbw="379.8", wrong="0")),
        pod("r-1-0-1", "Succeeded", OUTPUT.format(busbw="1.0", wrong="0")),
        pod("r-1-1-0", "Succeeded", OUTPUT.format(busbw="379.8", wrong="3")),
        pod("r-1-2-0", "Failed"),
        pod("r-1-3-0", "Running"),
    ]
    pairs, waiting = results(pods)
    assert waiting == 1
    assert [(pair.busbw, pair.ok) for pair in pairs] == [(379.8, True), (379.8, False), (0.0, False)]
