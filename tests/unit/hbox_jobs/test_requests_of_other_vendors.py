"""Pods whose resources count something else than cards, and asks that annotations change."""

from collections.abc import Mapping

import pytest

from hbox_jobs.core.requests import Container
from hbox_jobs.core.spec import PodSpec, Shape, shape_of


def shape(*containers: Mapping[str, str | float], init: int = 0, notes: dict[str, str] | None = None) -> Shape:
    made = tuple(Container(f"c{i}", limits=limits) for i, limits in enumerate(containers))
    return shape_of("s", PodSpec(made[init:], init_containers=made[:init], device_annotations=notes or {}))


@pytest.mark.parametrize(
    ("limits", "resource", "cards"),
    [
        ({"enflame.com/drs-gcu": "3"}, "enflame.com/vgcu", 1),
        ({"enflame.com/gcu-memory": "20480", "enflame.com/gcu-core": "40"}, "enflame.com/vgcu", 1),
        ({"aws.amazon.com/neuroncore": "1"}, "aws.amazon.com/neuron", 1),
        ({"aws.amazon.com/neuroncore": "4"}, "aws.amazon.com/neuron", 2),
        ({"huawei.com/Ascend910C": "1"}, "huawei.com/Ascend910C", 2),
        ({"huawei.com/Ascend910C": "4"}, "huawei.com/Ascend910C", 4),
        ({"kunlunxin.com/xpu": "4"}, "kunlunxin.com/xpu", 4),
    ],
)
def test_a_pod_counts_the_cards_that_it_gets(limits: dict[str, str | float], resource: str, cards: int) -> None:
    found = shape(limits)
    assert not found.problem
    assert found.requests == {"pods": 1, resource: cards}
    assert found.cards is not None
    assert found.cards.count == cards


def test_init_containers_count_for_the_most_that_is_had_at_one_time() -> None:
    two, one = {"aws.amazon.com/neuroncore": "4"}, {"aws.amazon.com/neuroncore": "1"}
    assert shape(two, one, init=1).requests["aws.amazon.com/neuron"] == 2
    assert shape(two, one, one, one, init=1).requests["aws.amazon.com/neuron"] == 3


def test_annotations_say_how_an_ascend_is_shared() -> None:
    limits: dict[str, str | float] = {
        "huawei.com/Ascend910B3": "1",
        "huawei.com/Ascend910B3-memory": "8192",
        "huawei.com/Ascend910B3-core": "20",
    }
    assert "-core is 20" in shape(limits).problem
    soft = shape(limits, notes={"huawei.com/vnpu-mode": "hami-core"})
    assert not soft.problem
    assert soft.cards is not None
    assert (soft.cards.memory_mib, soft.cards.cores) == (8192, 20)


@pytest.mark.parametrize(
    ("limits", "annotations", "words"),
    [
        ({"metax-tech.com/sgpu": "2"}, {"metax-tech.com/sgpu-app-class": "online"}, "sgpu is 2"),
        ({"metax-tech.com/sgpu": "1"}, {"metax-tech.com/sgpu-qos-policy": "gold"}, "sgpu-qos-policy is 'gold'"),
        ({"mthreads.com/vgpu": "1", "mthreads.com/sgpu-memory": "10"}, {}, "2, 4, 8, 16, 32, 64, 96"),
        ({"aws.amazon.com/neuroncore": "3"}, {}, "a multiple of 2"),
        ({"huawei.com/Ascend910B3": "2", "huawei.com/Ascend910B3-memory": "16384"}, {}, "several cards are whole cards"),
    ],
)
def test_what_no_vendor_can_do_is_refused_with_what_to_write(
    limits: dict[str, str | float], annotations: dict[str, str], words: str
) -> None:
    problem = shape(limits, notes=annotations).problem
    assert words in problem
