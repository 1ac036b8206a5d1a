"""Partitions of cards and whole cards count together against a queue's limit on cards."""

import pytest

from hbox_common.model import Queue, QueueName, QueueTree, Resources
from hbox_common.model.cardparts import CARD, in_parts, parts_of_card
from hbox_common.model.devices.nvidia import GPU

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
