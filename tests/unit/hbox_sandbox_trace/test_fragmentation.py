"""FGD's fragmentation, against the definition worked out by hand."""

from hbox_sandbox.replay.fragmentation import FreeNode, Shape, fragmented_milli, shapes_of
from hbox_sandbox.trace import TracePod

WHOLE = Shape(4000, 1, 1000)
HALF = Shape(4000, 1, 500)
CPU_ONLY = Shape(4000, 0, 0)


def test_an_empty_card_is_no_fragment_for_who_can_use_it() -> None:
    assert fragmented_milli([FreeNode(8000, "T4", [1000, 1000])], {WHOLE: 1}) == 0


def test_slices_too_small_are_fragments() -> None:
    assert fragmented_milli([FreeNode(8000, "T4", [1000, 300])], {HALF: 1}) == 300


def test_all_is_a_fragment_where_the_pod_does_not_fit_at_all() -> None:
    short_of_cpu = FreeNode(1000, "T4", [1000, 600])
    assert fragmented_milli([short_of_cpu], {HALF: 1}) == 1600
    wrong_model = Shape(1000, 1, 500, ("P100",))
    assert fragmented_milli([FreeNode(8000, "T4", [1000, 600])], {wrong_model: 1}) == 1600


def test_all_is_a_fragment_for_pods_without_cards() -> None:
    assert fragmented_milli([FreeNode(8000, "T4", [700])], {CPU_ONLY: 1}) == 700


def test_kinds_weigh_as_often_as_they_come() -> None:
    node = FreeNode(8000, "T4", [500, 500])
    assert fragmented_milli([node], {HALF: 3, WHOLE: 1}) == 250


def test_a_full_cluster_has_none() -> None:
    assert fragmented_milli([FreeNode(0, "T4", [0, 0])], {WHOLE: 1}) == 0
    assert fragmented_milli([], {}) == 0


def test_pods_without_cards_are_part_of_the_mix() -> None:
    pods = [TracePod("a", 4000, 1), TracePod("b", 4000, 1, 1, 500), TracePod("c", 4000, 9, 1, 500)]
    assert shapes_of(pods) == {CPU_ONLY: 1, HALF: 2}
