"""The built-in day has the published day's statistics, and is the same for the same seed."""

from collections import Counter

import pytest

from hbox_common.errors import NotFound
from hbox_sandbox.profile import generate


def test_nodes_are_those_of_the_published_cluster() -> None:
    day = generate("alibaba-2023", seed=1)
    cards: Counter[str] = Counter()
    for node in day.nodes:
        cards[node.model] += node.cards
    assert len(day.nodes) == 1213
    assert cards == {"G2": 4392, "T4": 842, "G3": 312, "P100": 265, "V100M32": 204, "V100M16": 195, "A10": 2}


def test_pods_come_in_the_published_kinds() -> None:
    day = generate("alibaba-2023", seed=1)
    kinds = Counter("share" if pod.cards == 1 and pod.card_milli < 1000 else pod.cards for pod in day.pods)
    assert kinds == {0: 1088, "share": 3078, 1: 3911, 2: 16, 4: 15, 8: 44}
    # Published: 98.0 % of the cards, 85,436 cores.
    assert 97.5 < 100 * day.demand_milli / day.capacity_milli < 98.8
    assert 84_500 < sum(pod.cpu_milli for pod in day.pods) / 1000 < 86_500


def test_every_pod_fits_some_node() -> None:
    day = generate("alibaba-2023", seed=1)
    for pod in set(day.pods):
        assert any(
            node.cpu_milli >= pod.cpu_milli and node.memory_mib >= pod.memory_mib and node.cards >= pod.cards
            for node in day.nodes
        ), pod


def test_pods_of_several_cards_are_gangs_and_stay_together() -> None:
    day = generate("alibaba-2023", seed=3)
    assert all(bool(pod.gang) == (pod.cards > 1) for pod in day.pods)
    runs = [gang for i, gang in enumerate(p.gang for p in day.pods) if gang and (i == 0 or day.pods[i - 1].gang != gang)]
    assert len(runs) == len(set(runs)) == len({pod.gang for pod in day.pods} - {""})


def test_the_seed_decides_the_order_and_nothing_else() -> None:
    first, again, other = (generate("alibaba-2023", seed=seed) for seed in (7, 7, 8))
    assert first == again
    assert first.pods != other.pods
    assert set(first.pods) == set(other.pods)


def test_a_limit_cuts_no_gang_in_two_and_keeps_the_mix_of_nodes() -> None:
    day = generate("alibaba-2023", seed=42)
    whole = Counter(pod.gang for pod in day.pods if pod.gang)
    for limit in (10, 300, 301, 302, 303, 304, 5000):
        cut = day.limited(pods=limit, nodes=40)
        assert limit - 4 <= len(cut.pods) <= limit
        assert all(whole[gang] == n for gang, n in Counter(pod.gang for pod in cut.pods if pod.gang).items())
        assert len({node.name for node in cut.nodes}) == 40
        assert len({node.model for node in cut.nodes}) >= 3


def test_an_unknown_profile_is_told() -> None:
    with pytest.raises(NotFound, match="alibaba-2023"):
        generate("alibaba-2032", seed=1)
