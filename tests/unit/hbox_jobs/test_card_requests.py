from dataclasses import replace
from typing import Any

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import CardRequest
from hbox_common.model.devices import Ask, PodDevices
from hbox_jobs.core.cards import as_admitted, card_request
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
        ({"gpu": 1, "mem": 1000, "cores": 150}, CardRequest(1, cores=100, memory_mib=1000)),
        ({"gpu": 1, "mem": 1000, "percent": 50}, CardRequest(1, cores=0, memory_mib=1000)),
        ({"gpu": 1, "mem": 0}, CardRequest(1)),
        ({"gpu": 1, "percent": 0}, CardRequest(1)),
        ({"gpu": 1, "mem": 1000, "cores": 101}, CardRequest(1, cores=100, memory_mib=1000)),
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


def test_a_plain_request_says_which_container_it_is() -> None:
    found = card_request([asks("a"), asks("b", gpu=2, mem=3000)], [asks("setup")])
    assert found == CardRequest(2, cores=0, memory_mib=3000, container=2, containers=3)


def test_several_containers_ask_each_by_itself() -> None:
    found = card_request([asks("a", gpu=1, mem=1000), asks("c"), asks("b", gpu=2, mem=2000, cores=20)])
    assert found is not None
    assert found.devices == PodDevices((Ask("NVIDIA", 1, 0, 1000), Ask("NVIDIA", 2, 20, 2000, container=2)), containers=3)
    assert (found.count, found.cores, found.memory_mib) == (3, 0, 1000), "the sum of the cards, the least that any asks for"


def test_init_containers_come_first_and_count_no_more_than_they_need_at_a_time() -> None:
    sidecar = replace(asks("proxy", gpu=1, mem=10), sidecar=True)
    found = card_request([asks("a", gpu=1, mem=1000)], [asks("load", gpu=4, mem=500), sidecar])
    assert found is not None
    assert found.devices is not None
    assert [ask.container for ask in found.devices.asks] == [0, 1, 2]
    assert (found.devices.init, found.devices.sidecars) == (2, (1,))
    assert found.count == 4, "four for the first init container, then one for the side-car beside the other"


def test_what_an_init_container_alone_asks_for_is_no_plain_request() -> None:
    found = card_request([asks("a")], [asks("load", gpu=1)])
    assert found is not None
    assert found.devices is not None


def test_cards_of_two_kinds_are_one_request() -> None:
    dcu = Container("b", limits={"hygon.com/dcunum": "1", "hygon.com/dcumem": "1000"})
    found = card_request([asks("a", gpu=1), dcu])
    assert found is not None
    assert found.devices is not None
    assert [(ask.kind, ask.container) for ask in found.devices.asks] == [("NVIDIA", 0), ("DCU", 1)]


def test_a_wish_of_all_vendors_makes_a_request_one_by_containers() -> None:
    found = card_request(
        [asks(gpu=1)], annotations={"hami.io/gpu-scheduler-policy": "spread", "nvidia.com/use-gputype": "A100"}
    )
    assert found is not None
    assert found.devices is not None
    assert found.devices.wishes == (("hami.io/gpu-scheduler-policy", "spread"), ("nvidia.com/use-gputype", "A100"))


def test_weights_that_nobody_understands_are_refused_when_the_pod_comes() -> None:
    with pytest.raises(InvalidRequest, match="device-scoring-weights"):
        card_request([asks(gpu=1)], annotations={"hami.io/device-scoring-weights": "slot=1"})


def test_a_privileged_container_has_no_cards_beside_it() -> None:
    with pytest.raises(InvalidRequest, match="container setup is privileged"):
        card_request([asks(gpu=1)], [replace(asks("setup"), privileged=True)])
    assert card_request([replace(asks("plain"), privileged=True)]) is None


def test_parts_of_cards_without_a_number_are_completed_as_hamis_webhook_does() -> None:
    admitted = as_admitted(asks(mem=3000))
    assert card_request([admitted]) == CardRequest(1, cores=0, memory_mib=3000)
    assert as_admitted(asks(gpu=2, mem=3000)) == asks(gpu=2, mem=3000)
    assert as_admitted(asks(mem="much")) == asks(mem="much"), "what is wrong stays wrong"


def test_models_come_from_the_annotation() -> None:
    assert card_request([asks(gpu=1)], annotations={"nvidia.com/use-gputype": " A100 , H100,,"}) == CardRequest(
        1, models=("A100", "H100")
    )
