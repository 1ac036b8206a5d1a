"""Gangs of several kinds of pods: how near the search comes to the best."""

import random
from collections.abc import Sequence
from itertools import combinations

import pytest

from hbox_common.model import TopologyWish

from .fabric_world import SOFT, Fabric, hard, placed


def packs(free: tuple[int, ...], sizes: Sequence[int]) -> bool:
    """Whether pods of these sizes, largest first, fit on nodes with so much free: every way is tried."""
    if not sizes:
        return True
    return any(
        packs((*free[:i], room - sizes[0], *free[i + 1 :]), sizes[1:])
        for i, room in enumerate(free)
        if room >= sizes[0] and room not in free[:i]
    )


def test_mixtures_use_hardly_ever_more_leaves_than_needed_and_are_hardly_ever_refused() -> None:
    dice = random.Random(7)
    gangs = more = refused = 0
    while gangs < 80:
        leaves = {
            f"s{i}": {f"n{i}{j}": dice.randint(1, 6) for j in range(dice.randint(1, 3))} for i in range(dice.randint(2, 4))
        }
        sizes = sorted((dice.choice((1, 2, 2, 3, 4)) for _ in range(dice.randint(2, 6))), reverse=True)
        least = next(
            (
                count
                for count in range(1, len(leaves) + 1)
                for some in combinations(leaves.values(), count)
                if packs(tuple(room for leaf in some for room in leaf.values()), sizes)
            ),
            None,
        )
        fabric = Fabric(leaves, above={"top": list(leaves)})
        gang = fabric.gang("g", len(sizes), cores=sizes, wish=SOFT)
        got = placed(fabric.run(), gang)
        assert got.total() in (0, len(sizes))
        if least is None:
            assert not got
            continue
        gangs += 1
        refused += not got
        more += len(fabric.leaves_used(got)) > least
    assert more <= 1
    assert refused <= 1


@pytest.mark.parametrize("wish", [hard(2), SOFT])
def test_pods_of_several_shapes_go_to_the_domain_where_fewer_leaves_do(wish: TopologyWish) -> None:
    """Pods of 4, 4, 2 and 2 cores: three leaves of one node below `first`, two leaves below `second`, each with room for three of the large."""
    fabric = Fabric(
        {"f0": {"f00": 4}, "f1": {"f10": 4}, "f2": {"f20": 4}, "s0": {"s00": 4, "s01": 4}, "s1": {"s10": 4}},
        above={"first": ["f0", "f1", "f2"], "second": ["s0", "s1"], "top": ["first", "second"]},
    )
    gang = fabric.gang("g", 4, cores=[4, 4, 2, 2], wish=wish)
    assert fabric.leaves_used(placed(fabric.run(), gang)) == {"s0", "s1"}
