"""Partitions of cards and whole cards count together against a queue's limit on cards."""

from dataclasses import replace
from fractions import Fraction

import pytest

from hbox_common.model import Card, CardSlice, Generation, NodeName, NodeState, Queue, QueueName, QueueTree, Resources
from hbox_common.model.cardmodels import cards_by_model, is_model
from hbox_common.model.cardparts import PartsOnNode, in_cards, in_parts, parts_of_card, parts_on, share_on, share_resource
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.devices.partitions import CARD
from hbox_common.model.reclaimpreview import effect_of

TEAM = QueueName("team")
SLICE, THREE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"


def headroom(used: Resources, each: Resources, capability: Resources | None = None) -> tuple[int | None, str]:
    tree = QueueTree({TEAM: used})
    tree[TEAM] = Queue(TEAM, capability={GPU: 2} if capability is None else capability)
    found = tree.headroom(TEAM, each)
    return found.times, found.message


@pytest.mark.parametrize(
    ("resource", "sevenths"),
    [
        (SLICE, 1),
        (THREE, 3),
        ("nvidia.com/mig-7g.80gb", 7),
        ("nvidia.com/mig-1g.10gb.me", 1),
        ("nvidia.com/mig-1c.3g.20gb", 1),
        ("nvidia.com/mig-1g.6gb", 7 / 4),
        ("nvidia.com/gpu", 7),
    ],
)
def test_a_partition_is_a_part_of_a_card_by_its_compute_slices(resource: str, sevenths: float) -> None:
    assert parts_of_card(resource) == (GPU, CARD * sevenths / 7)


@pytest.mark.parametrize("name", ["mig-", "mig-0g.5gb", "mig-9g.90gb", "mig--3g.5gb", "mig-1e9g.5gb", "mig-all", "gpu.shared"])
def test_a_partition_of_unknown_size_is_a_whole_card(name: str) -> None:
    assert parts_of_card(f"nvidia.com/{name}") == (GPU, CARD)


@pytest.mark.parametrize(
    "name", ["cpu", "memory", "nvidia.com/gpumem", "nvidia.com/gpu.A100-SXM4-80GB", "example.com/mig-1g.10gb"]
)
def test_other_resources_are_no_cards(name: str) -> None:
    assert parts_of_card(name) == ("", 0)


def test_a_limit_of_two_cards_is_fourteen_sevenths() -> None:
    assert headroom({}, {SLICE: 1})[0] == 14
    assert headroom({SLICE: 13}, {SLICE: 1})[0] == 1
    assert headroom({SLICE: 14}, {"cpu": 1, SLICE: 1}) == (
        0,
        "queue team may use 2 of nvidia.com/gpu, 2 are in use and 0.14 more are asked for",
    )


def test_whole_cards_and_partitions_count_together() -> None:
    assert headroom({GPU: 1}, {SLICE: 1})[0] == 7
    assert headroom({GPU: 1, THREE: 2}, {SLICE: 1})[0] == 1
    assert headroom({GPU: 1, SLICE: 1}, {GPU: 1})[0] == 0
    assert headroom({GPU: 1}, {GPU: 1})[0] == 1


def test_a_queue_that_names_a_partition_limits_it_by_its_own_name() -> None:
    named = {GPU: 0, SLICE: 7}
    assert headroom({SLICE: 6}, {SLICE: 1}, named)[0] == 1
    assert headroom({SLICE: 7}, {SLICE: 1}, named)[0] == 0
    assert headroom({SLICE: 7}, {THREE: 1}, named)[0] == 0


def test_a_queue_without_a_limit_on_cards_limits_no_partitions() -> None:
    assert headroom({SLICE: 70}, {SLICE: 1}, {"cpu": 4000})[0] is None


def test_partitions_of_a_pool_count_in_their_pool() -> None:
    lab = {f"{GPU}@lab": 1}
    assert headroom({f"{SLICE}@lab": 7}, {f"{SLICE}@lab": 1}, lab)[0] == 0
    assert headroom({f"{SLICE}@lab": 7}, {SLICE: 1}, lab)[0] is None
    assert in_parts({f"{THREE}@lab": 1, GPU: 1}) == {f"{GPU}@lab": 3 * CARD // 7, GPU: CARD}


def test_partitions_that_leave_make_room() -> None:
    tree = QueueTree({TEAM: {SLICE: 14}})
    tree[TEAM] = Queue(TEAM, capability={GPU: 2})
    assert tree.headroom(TEAM, {GPU: 1}, {TEAM: {SLICE: 7}}).times == 1


def state(allocatable: Resources, **labels: str) -> NodeState:
    named = {f"nvidia.com/{name.replace('_', '.').replace('..', '-')}": value for name, value in labels.items()}
    return NodeState(NodeName("n"), "u", Generation(1), True, labels=named, allocatable=allocatable)


def on_node(allocatable: Resources, **labels: str) -> PartsOnNode | None:
    return parts_on(state(allocatable, **labels))


def test_a_replica_of_a_time_sliced_card_is_a_part_of_it() -> None:
    labels = {"gpu_count": "2", "gpu_replicas": "4", "gpu_sharing__strategy": "time-slicing"}
    for resource in (GPU, f"{GPU}.shared"):
        found = on_node({resource: 8}, **labels)
        assert found is not None
        assert (found.total, found.held({resource: 3, "cpu": 4000})) == (2, Fraction(3, 4))
    assert on_node({GPU: 2}, gpu_count="2", gpu_replicas="1", gpu_sharing__strategy="none") is None
    hami = replace(state({GPU: 8}, **labels), registered=("NVIDIA",))
    assert parts_on(hami) is None, "HAMi's register says how its cards are shared"


@pytest.mark.parametrize("replicas", ["0", "-3", "1e9", "1000000000", "four", "", "3", "\N{DEVANAGARI DIGIT FOUR}"])
def test_replicas_that_cannot_be_right_leave_cards_whole(replicas: str) -> None:
    assert on_node({GPU: 8}, gpu_replicas=replicas, gpu_product="A100-SXM4-80GB-SHARED") is None


def test_a_node_of_mixed_partitions_has_the_cards_of_its_label() -> None:
    found = on_node({SLICE: 14, THREE: 4}, mig_strategy="mixed", gpu_count="4", gpu_replicas="0")
    assert found is not None
    assert (found.total, found.held({SLICE: 2})) == (4, Fraction(2, 7))
    sliced = on_node({SLICE: 28}, **{"mig_strategy": "mixed", "mig__1g_10gb_replicas": "4"})
    assert sliced is not None
    assert (sliced.total, sliced.held({SLICE: 1, THREE: 1})) == (1, Fraction(1, 28) + Fraction(3, 7))
    without_label = on_node({SLICE: 14, THREE: 4}, gpu_count="garbage")
    assert without_label is not None
    assert without_label.total == 4


def test_the_single_strategy_counts_partitions_under_the_name_of_cards() -> None:
    found = on_node({GPU: 14}, mig_strategy="single", gpu_count="14", gpu_product="A100-SXM4-80GB-MIG-1g.10gb")
    assert found is not None
    assert (found.total, found.held({GPU: 3})) == (2, Fraction(3, 7))
    shared = on_node({GPU: 56}, mig_strategy="single", gpu_replicas="4", gpu_product="A100-SXM4-80GB-MIG-1g.10gb-SHARED")
    assert shared is not None
    assert (shared.total, shared.held({GPU: 1})) == (2, Fraction(1, 28))
    assert on_node({GPU: 2}, mig_strategy="single", gpu_count="0", gpu_product="A100-SXM4-80GB-MIG-INVALID") is None


QUARTER = share_resource(Fraction(1, 4))


def test_unit_of_a_time_sliced_card_counts_as_its_part_in_limits() -> None:
    assert headroom({}, {GPU: 1, QUARTER: 1})[0] == 8
    assert headroom({GPU: 7, QUARTER: 7}, {GPU: 1, QUARTER: 1})[0] == 1
    assert headroom({GPU: 8, QUARTER: 8}, {GPU: 1, QUARTER: 1}) == (
        0,
        "queue team may use 2 of nvidia.com/gpu, 2 are in use and 0.25 more are asked for",
    )
    assert headroom({GPU: 4, QUARTER: 4}, {GPU: 1})[0] == 1
    assert headroom({GPU: 5, QUARTER: 5}, {GPU: 1})[0] == 0
    assert headroom({GPU: 1, SLICE: 3}, {GPU: 1, QUARTER: 1})[0] == 2


@pytest.mark.parametrize("replicas", [3, 7, 17, 1000, 1024])
def test_limit_holds_for_every_number_of_replicas(replicas: int) -> None:
    share = share_resource(Fraction(1, replicas))
    assert headroom({}, {GPU: 1, share: 1})[0] == 2 * replicas


def test_limit_of_a_parent_counts_shares_of_its_children() -> None:
    child, other = QueueName("child"), QueueName("other")
    tree = QueueTree({child: {GPU: 4, QUARTER: 4}})
    tree[TEAM] = Queue(TEAM, capability={GPU: 2})
    tree[child] = Queue(child, parent=TEAM)
    tree[other] = Queue(other, parent=TEAM, capability={GPU: 1})
    assert tree.headroom(other, {GPU: 1}).times == 1
    assert tree.headroom(other, {GPU: 1, QUARTER: 1}).times == 4
    assert tree.left_of_shares(other, [QUARTER, share_resource(Fraction(1))]) == {QUARTER: 4, "nvidia.com/gpu:1/1": 1}
    assert QueueTree({}).left_of_shares(TEAM, [QUARTER]) == {}


def test_share_of_a_pool_counts_in_its_pool() -> None:
    lab = {f"{GPU}@lab": 1}
    assert headroom({f"{GPU}@lab": 4, f"{QUARTER}@lab": 4}, {f"{GPU}@lab": 1, f"{QUARTER}@lab": 1}, lab)[0] == 0
    assert headroom({f"{GPU}@lab": 3, f"{QUARTER}@lab": 3}, {f"{GPU}@lab": 1, f"{QUARTER}@lab": 1}, lab)[0] == 1


def test_amounts_for_people_are_cards() -> None:
    assert in_cards({"cpu": 5, GPU: 7, QUARTER: 7, SLICE: 7}) == {"cpu": 5, GPU: 2.75, SLICE: 7}
    assert in_cards({GPU: 8, QUARTER: 8}) == {GPU: 2}
    assert in_cards({GPU: 3}) == {GPU: 3}


def test_share_follows_the_labels_of_the_node() -> None:
    def share(allocatable: Resources, **labels: str) -> str:
        return share_on(state(allocatable, **labels))

    assert share({GPU: 8}, gpu_replicas="4", gpu_sharing__strategy="mps") == QUARTER
    assert share({GPU: 14}, mig_strategy="single", gpu_product="A100-SXM4-80GB-MIG-3g.40gb") == "nvidia.com/gpu:3/7"
    for replicas in ("0", "-1", "1", "1000000000", "four", "", "3"):
        assert share({GPU: 8}, gpu_replicas=replicas) == ""
    assert share({GPU: 8}) == ""
    assert share({SLICE: 8}, gpu_replicas="4") == ""
    assert share_on(replace(state({GPU: 8}, gpu_replicas="4"), registered=("NVIDIA",))) == ""


def test_slices_on_a_shared_node_count_as_shares_besides_their_model() -> None:
    cards = tuple(Card(i, f"n-{i}", "T4-SHARED", 16_384) for i in range(8))
    node = replace(state({GPU: 8}, gpu_replicas="4"), cards=cards)
    taken = [CardSlice(2, 100, 16_384), CardSlice(3, 100, 16_384)]
    assert cards_by_model(node, taken) == {"nvidia.com/gpu.T4-SHARED": 2, QUARTER: 2}
    assert not is_model(QUARTER)


@pytest.mark.parametrize(("limit", "excess"), [(3, []), (2, [(GPU, 3, 2)])])
def test_change_of_a_limit_is_compared_with_cards_in_use(limit: int, excess: list[tuple[str, int, int]]) -> None:
    tree = QueueTree({TEAM: {GPU: 9, QUARTER: 9, SLICE: 1}})
    tree[TEAM] = Queue(TEAM)
    found = effect_of(tree, [Queue(TEAM, capability={GPU: limit})], [])
    assert [(one.resource, one.used, one.limit) for one in found.over_capability] == excess
