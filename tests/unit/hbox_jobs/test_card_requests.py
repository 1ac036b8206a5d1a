from typing import Any

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import CardRequest
from hbox_jobs.core.cards import card_request
from hbox_jobs.core.requests import Container

NAMES = {
    "gpu": "nvidia.com/gpu",
    "cores": "nvidia.com/gpucores",
    "mem": "nvidia.com/gpumem",
    "percent": "nvidia.com/gpumem-percentage",
}


def asks(name: str = "main", **amounts: Any) -> Container:
    return Container(name, limits={NAMES[key]: value for key, value in amounts.items()})


@pytest.mark.parametrize(
    ("amounts", "request_"),
    [
        ({"gpu": 8}, CardRequest(8)),
        ({"gpu": "1", "mem": "3000", "cores": "30"}, CardRequest(1, cores=30, memory_mib=3000)),
        ({"gpu": 1, "mem": "3k"}, CardRequest(1, cores=0, memory_mib=3000)),
        ({"gpu": 2, "percent": 50}, CardRequest(2, cores=0, memory_percent=50)),
        ({"gpu": 2, "percent": 50, "cores": 50}, CardRequest(2, cores=50, memory_percent=50)),
        ({"gpu": 1, "percent": 100}, CardRequest(1)),
        ({"gpu": 1, "cores": 40}, CardRequest(1, cores=40)),
        ({"gpu": 1, "mem": 1000, "percent": 50}, CardRequest(1, cores=0, memory_mib=1000)),
        ({"gpu": 1, "mem": 0}, CardRequest(1)),
        ({"gpu": 0}, None),
        ({"gpu": 0, "mem": 0}, None),
        ({}, None),
    ],
)
def test_cards_are_read_as_hami_reads_them(amounts: Any, request_: Any) -> None:
    assert card_request([asks(**amounts)]) == request_


@pytest.mark.parametrize(
    ("amounts", "complaint"),
    [
        ({"gpu": 1, "percent": 150}, "gpumem-percentage is 150.*1 to 100"),
        ({"gpu": 1, "percent": 0}, "gpumem-percentage is 0"),
        ({"gpu": 1, "cores": 101}, "gpucores is 101.*0 to 100"),
        ({"gpu": 1, "cores": -1}, "gpucores is -1"),
        ({"gpu": -1}, "nvidia.com/gpu is -1"),
        ({"gpu": "500m"}, "nvidia.com/gpu is 500m.*whole number"),
        ({"gpu": "some"}, "not a quantity"),
        ({"gpu": 5000}, "at most"),
        ({"gpu": 1, "mem": "9e18"}, "gpumem is"),
        ({"mem": 3000}, "gpumem given without nvidia.com/gpu.*add nvidia.com/gpu: 1"),
        ({"gpu": 0, "percent": 50}, "gpumem-percentage given without"),
        ({"cores": 50}, "gpucores given without"),
    ],
)
def test_impossible_wishes_say_what_is_wrong_and_what_to_write(amounts: Any, complaint: Any) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        card_request([asks(**amounts)])
    assert refusal.match(f"container main: .*{complaint}")


def test_several_containers_with_cards_are_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match=r"\(a, b\): not supported yet"):
        card_request([asks("a", gpu=1), asks("c"), asks("b", gpu=1)])


def test_models_come_from_the_annotation() -> None:
    assert card_request([asks(gpu=1)], {"nvidia.com/use-gputype": " A100 , H100,,"}) == CardRequest(1, models=("A100", "H100"))
