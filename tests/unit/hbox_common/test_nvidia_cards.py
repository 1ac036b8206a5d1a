"""NVIDIA's own rules: what a pod may say of its cards, which order they are taken in, cards that are cordoned, and how they are linked."""

import itertools
import json

import pytest

from hbox_common.model import VENDORS, Generation, NodeAllocation, NodeName, NodeState, validate_claim
from hbox_common.model.devices import (
    Ask,
    Card,
    CardAllocation,
    CardSlice,
    CardTraits,
    DeviceLabel,
    Fitted,
    NodeReport,
    PodDevices,
    Refused,
    linkscore,
)
from hbox_common.model.devices.vendor import CARD_POLICY

NVIDIA = VENDORS.kind("NVIDIA")


def cards(count: int = 4, *, numa: tuple[int, ...] = (0, 0, 1, 1), traits: CardTraits | None = None) -> tuple[Card, ...]:
    return tuple(
        Card(i, f"GPU-{i}", "NVIDIA A100-SXM4-40GB", 8000, 10, numa=numa[i % len(numa)], kind="NVIDIA", traits=traits)
        for i in range(count)
    )


def asked(count: int = 1, memory_mib: int = 1000, cores: int = 10, **wishes: str) -> PodDevices:
    names = {
        "policy": CARD_POLICY, "use_uuid": "nvidia.com/use-gpuuuid", "nouse_uuid": "nvidia.com/nouse-gpuuuid",
        "use_type": "nvidia.com/use-gputype", "nouse_type": "nvidia.com/nouse-gputype",
        "numa": "nvidia.com/numa-bind", "mode": "nvidia.com/vgpu-mode",
    }  # fmt: skip
    ask = Ask("NVIDIA", count, cores=cores, memory_mib=memory_mib)
    return PodDevices((ask,), wishes=tuple(sorted((names[name], text) for name, text in wishes.items())))


def taken(request: PodDevices, on: tuple[Card, ...], used: dict[int, CardAllocation] | None = None) -> list[int]:
    found = VENDORS.fit(on, used or {}, request, {})
    assert isinstance(found, Fitted), found
    return [s.index for container in found.layout for s in container]


def labels(request: PodDevices, on: tuple[Card, ...], used: dict[int, CardAllocation] | None = None) -> dict[DeviceLabel, int]:
    found = VENDORS.fit(on, used or {}, request, {})
    assert isinstance(found, Refused), found
    return dict(found.cards)


BUSY = {1: CardAllocation(25, 2000, 1), 2: CardAllocation(50, 4000, 2)}


@pytest.mark.parametrize(
    ("wishes", "chosen"),
    [
        ({"use_uuid": "GPU-3, GPU-9"}, 3),
        ({"nouse_uuid": "GPU-2,GPU-1"}, 0),
        ({"use_type": "a100,h100"}, 2),
        ({"mode": "hami-core"}, 2),
    ],
)
def test_a_pod_chooses_among_cards_by_id_model_and_mode(wishes: dict[str, str], chosen: int) -> None:
    assert taken(asked(1, 1000, 10, **wishes), cards(traits=CardTraits(mode="hami-core")), BUSY) == [chosen]


@pytest.mark.parametrize(
    ("wishes", "label"),
    [
        ({"use_uuid": "GPU-9"}, DeviceLabel.UUID),
        ({"use_uuid": "gpu-0"}, DeviceLabel.UUID),
        ({"nouse_uuid": "GPU-0,GPU-1,GPU-2,GPU-3"}, DeviceLabel.UUID),
        ({"use_type": "H100"}, DeviceLabel.TYPE),
        ({"nouse_type": "a100"}, DeviceLabel.TYPE),
        ({"mode": "mig"}, DeviceLabel.TYPE),
    ],
)
def test_cards_that_a_pod_may_not_have_say_why(wishes: dict[str, str], label: DeviceLabel) -> None:
    assert labels(asked(1, 1000, 10, **wishes), cards(traits=CardTraits(mode="hami-core"))) == {label: 4}


def test_a_word_for_the_mode_may_name_several() -> None:
    assert taken(asked(mode="mig,mps"), cards(traits=CardTraits(mode="mps"))) == [0]


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [
        ("binpack", [2]),
        ("spread", [3]),  # of two idle cards the one of the higher NUMA node, as HAMi takes it
        ("numa", [3]),
        ("numa,binpack", [2]),
        ("spread,numa", [3]),
        ("binpack,numa", [2]),
        ("mutex", [3]),
        ("mutex,binpack", [3]),
        ("topology-aware", [3]),
        ("what-is-this", [3]),
        ("", [2]),
    ],
)
def test_policies_order_the_cards(policy: str, chosen: list[int]) -> None:
    assert taken(asked(policy=policy), cards(), BUSY) == chosen


def test_mutex_takes_only_cards_that_nobody_is_on() -> None:
    everybody = {i: CardAllocation(1, 1, 1) for i in range(4)}
    assert labels(asked(policy="topology-aware,mutex"), cards(), everybody) == {DeviceLabel.EXCLUSIVE: 4}
    assert labels(asked(2, policy="mutex"), cards(), {i: CardAllocation(1, 1, 1) for i in range(3)}) == {
        DeviceLabel.EXCLUSIVE: 3, DeviceLabel.TOO_FEW: 1,
    }  # fmt: skip


def test_cards_bound_to_numa_are_of_one_node_of_it() -> None:
    assert taken(asked(2, numa="true"), cards()) == [2, 3]
    assert taken(asked(2, numa="true", policy="binpack"), cards()) == [0, 1]
    assert taken(asked(2, numa="true"), cards(), {3: CardAllocation(100, 8000, 1)}) == [0, 1]
    assert taken(asked(3, numa="no"), cards()) == [0, 1, 2]


def test_of_numa_nodes_with_enough_cards_the_one_with_fewest_is_taken() -> None:
    on = cards(5, numa=(0, 0, 1, 1, 1))
    assert taken(asked(2, numa="True"), on) == [0, 1]


def test_cards_of_several_numa_nodes_are_too_few_on_each() -> None:
    assert labels(asked(3, numa="true"), cards()) == {DeviceLabel.NUMA: 2, DeviceLabel.TOO_FEW: 2}
    assert labels(asked(3, numa="true"), cards(6, numa=(0, 0, 1, 1, 2, 2))) == {DeviceLabel.NUMA: 4, DeviceLabel.TOO_FEW: 2}


def report(**annotations: str) -> NodeReport:
    registered = [
        {"id": f"GPU-{i}", "index": i, "count": 10, "devmem": 8000, "type": "NVIDIA-A100", "mode": "hami-core", "health": True}
        for i in range(3)
    ]
    return NodeReport("n1", annotations={"hami.io/node-nvidia-register": json.dumps(registered), **annotations})


def test_cards_are_cordoned_one_by_one() -> None:
    found = NVIDIA.register(report(**{"hami.io/device-cordon": " GPU-0 ,GPU-2,,GPU-9,"}))
    assert [card.effective_traits.cordoned for card in found] == [True, False, True]
    assert [card.effective_traits.mode for card in found] == ["hami-core"] * 3


def test_the_mode_is_read_of_old_registers_too() -> None:
    old = "GPU-0,10,8000,100,NVIDIA-T4,0,true,0,mps:GPU-1,10,8000,100,NVIDIA-T4,0,true,1,hami-core:"
    found = NVIDIA.register(NodeReport("n1", annotations={"hami.io/node-nvidia-register": old}))
    assert [card.effective_traits.mode for card in found] == ["mps", "hami-core"]


def test_links_are_read_and_a_pair_that_disagrees_counts_nothing() -> None:
    score = [
        {"uuid": "GPU-0", "score": {"GPU-1": 100, "GPU-2": 20}},
        {"uuid": "GPU-1", "score": {"GPU-0": 100, "GPU-2": 30}},
        {"uuid": "GPU-2", "score": {"GPU-0": 10, "GPU-1": 30}},
    ]
    found = NVIDIA.register(report(**{"hami.io/node-nvidia-score": json.dumps(score)}))
    assert [card.effective_traits.links for card in found] == [(0, 100, 0), (100, 0, 30), (0, 30, 0)]


@pytest.mark.parametrize(
    "text",
    [
        "no", "{}", "[1]", "[" * 100_000, '[{"uuid": 1}]', '[{"uuid": "GPU-0", "score": {"GPU-1": "x"}}]', "[" + " " * 400_000 + "]",
        '[{"uuid": "GPU-0", "score": {"GPU-1": -5}}, {"uuid": "GPU-1", "score": {"GPU-0": -5}}]',
        '[{"uuid": "GPU-0", "score": {"GPU-1": true}}, {"uuid": "GPU-1", "score": {"GPU-0": true}}]',
    ],
)  # fmt: skip
def test_a_matrix_that_cannot_be_read_takes_no_card_out_of_use(text: str) -> None:
    found = NVIDIA.register(report(**{"hami.io/node-nvidia-score": text}))
    assert [card.effective_traits.links for card in found] == [(), (), ()]


def joined(count: int, pairs: dict[tuple[int, int], int], other: int = 0) -> tuple[Card, ...]:
    def row(i: int) -> tuple[int, ...]:
        return tuple(0 if i == j else pairs.get((min(i, j), max(i, j)), other) for j in range(count))

    return tuple(
        Card(i, f"GPU-{i}", "A100", 8000, 10, numa=0, kind="NVIDIA", traits=CardTraits(links=row(i))) for i in range(count)
    )


def test_several_cards_are_those_that_are_linked_best() -> None:
    on = joined(4, {(0, 1): 200, (2, 3): 100}, other=20)
    assert taken(asked(2, policy="topology-aware"), on) == [0, 1]
    assert taken(asked(2, policy="topology-aware"), on, {0: CardAllocation(100, 8000, 1)}) == [2, 3]
    assert sorted(taken(asked(4, policy="topology-aware"), on)) == [0, 1, 2, 3]
    assert taken(asked(2, policy="spread"), on) == [0, 1]


def test_one_card_is_the_one_that_the_others_miss_least() -> None:
    on = joined(4, {(0, 1): 100, (0, 2): 100, (1, 2): 100}, other=1)
    assert taken(asked(policy="topology-aware"), on) == [3]
    assert taken(asked(policy="topology-aware"), on, {3: CardAllocation(100, 8000, 1)}) == [0]


def test_the_links_of_cards_that_do_not_fit_do_not_count() -> None:
    on = joined(4, {(0, 3): 500, (1, 2): 10, (0, 1): 5, (0, 2): 5})
    full = {3: CardAllocation(100, 8000, 1)}
    assert taken(asked(2, policy="topology-aware"), on, full) == [1, 2]
    assert taken(asked(1, policy="topology-aware"), on, full) == [0]


def test_equal_links_leave_the_choice_to_how_full_cards_are() -> None:
    on = joined(3, {}, other=1)
    used = {0: CardAllocation(50, 4000, 2), 2: CardAllocation(25, 2000, 1)}
    assert taken(asked(policy="topology-aware"), on, used) == [1]
    assert taken(asked(policy="topology-aware,binpack"), on, used) == [0]


def test_the_best_group_is_found_among_all_groups_in_their_order() -> None:
    dgx1 = {
        (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
        (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
    }  # fmt: skip
    matrix = tuple(card.effective_traits.links for card in joined(8, dgx1, other=0))
    for count in range(2, 8):
        every = itertools.combinations(range(8), count)
        best = max(every, key=lambda group: sum(matrix[a][b] for a, b in itertools.combinations(group, 2)))
        assert linkscore.nearest(matrix, count) == best


def test_a_matrix_of_no_machine_is_searched_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = tuple(tuple(0 if i == j else (i * j * 7919 + (i ^ j) * 104_729) % 997 for j in range(32)) for i in range(32))
    found = linkscore.nearest(matrix, 16)
    assert len(set(found)) == 16
    monkeypatch.setattr(linkscore, "STEPS", 3000)
    longer = linkscore.nearest(matrix, 16)
    assert linkscore.worth(matrix, longer) >= linkscore.worth(matrix, found)


def test_the_ledger_gives_nothing_of_a_cordoned_card_away() -> None:
    cordoned = cards(2, traits=CardTraits(cordoned=True))
    node = NodeState(NodeName("n1"), "", Generation(1), ready=True, cards=(cordoned[0], *cards(2)[1:]))
    refusals = [validate_claim(node, None, NodeAllocation(), {}, (CardSlice(i, 10, 1000),)) for i in range(2)]
    assert [refusal and refusal.message for refusal in refusals] == ["n1 card GPU-0 is cordoned", None]
