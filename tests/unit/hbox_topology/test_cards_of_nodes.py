import json
from typing import Any

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import Card
from hbox_common.model.devices import CardTraits, NodeReport
from hbox_common.model.devices.nvidia import NVIDIA


def registered(text: str) -> tuple[Card, ...]:
    return NVIDIA.register(NodeReport("n1", {NVIDIA.cards: 8}, {}, {"hami.io/node-nvidia-register": text}))


def test_the_json_form_of_the_register_is_read_in_full() -> None:
    text = json.dumps(
        [
            {
                "id": "GPU-a",
                "count": 10,
                "devmem": 81920,
                "devcore": 100,
                "type": "NVIDIA-NVIDIA A100-SXM4-80GB",
                "numa": 1,
                "health": True,
            },
            {"id": "GPU-b", "index": 1, "count": 4, "devmem": 40960, "type": "NVIDIA-A30", "health": False},
        ]
    )
    assert registered(text) == (
        Card(0, "GPU-a", "NVIDIA A100-SXM4-80GB", 81920, shares=10, numa=1, healthy=True),
        Card(1, "GPU-b", "A30", 40960, shares=4, numa=0, healthy=False),
    )


def test_names_in_the_json_form_are_read_without_regard_to_case_and_health_left_out_is_false() -> None:
    (card,) = registered('[{"ID":"GPU-a","Count":2,"DevMem":100,"Type":"T4"}]')
    assert (card.uuid, card.shares, card.memory_mib, card.healthy) == ("GPU-a", 2, 100, False)


def test_an_index_left_out_is_zero_where_other_cards_have_one() -> None:
    assert [c.index for c in registered('[{"id":"b","index":1,"health":true},{"id":"a","health":true}]')] == [1, 0]


def test_cards_without_any_index_are_numbered_in_order() -> None:
    assert [c.index for c in registered('[{"id":"b"},{"id":"a"}]')] == [0, 1]


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        ("GPU-a,10,15360,100,NVIDIA-Tesla T4,0,true:", (Card(0, "GPU-a", "Tesla T4", 15360, 10, 0, True),)),
        (
            "GPU-a,10,15360,100,NVIDIA-Tesla T4,0,true:GPU-b,10,15360,100,NVIDIA-Tesla T4,1,false:",
            (Card(0, "GPU-a", "Tesla T4", 15360, 10, 0, True), Card(1, "GPU-b", "Tesla T4", 15360, 10, 1, False)),
        ),
        (
            "GPU-c,5,24576,100,NVIDIA-A10,0,true,3,hami-core:",
            (Card(3, "GPU-c", "A10", 24576, 5, 0, True, traits=CardTraits(mode="hami-core")),),
        ),
        ("", ()),
        ("[]", ()),
    ],
)
def test_the_colon_form_of_the_register_is_read_with_seven_and_with_nine_fields(text: Any, cards: Any) -> None:
    assert registered(text) == cards


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"id":"a"}', "array"),
        ("[1]", "array of objects"),
        ('[{"count":1}]', "card 0: id"),
        ('[{"id":"a","devmem":"many"}]', "devmem"),
        ('[{"id":"a","devmem":1.5}]', "devmem"),
        ('[{"id":"a","devmem":-1}]', "out of range"),
        ('[{"id":"a","count":0}]', "out of range"),
        ('[{"id":"a","health":"yes"}]', "health"),
        ('[{"id":"a"},{"id":"a"}]', "same id"),
        ('[{"id":"a","index":1},{"id":"b","index":1}]', "same index"),
        ("GPU-a,10,15360", "3 fields"),
        ("GPU-a,10,x,100,T4,0,true", "devmem"),
        ("GPU-a,10,1,100,T4,0,perhaps", "health"),
        (",10,1,100,T4,0,true", "no id"),
    ],
)
def test_a_broken_register_is_refused_with_what_is_wrong(text: Any, complaint: Any) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        registered(text)


@pytest.mark.parametrize(
    ("labels", "memory_mib", "shares"),
    [
        ({"nvidia.com/gpu.memory": "40960", "nvidia.com/gpu.product": "A100-SXM4-80GB"}, 40960, 10),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}, 81920, 10),
        ({"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB-LS"}, 32768, 10),
        ({"nvidia.com/gpu.product": "Tesla-T4"}, 0, 1),
        ({"nvidia.com/gpu.memory": "lots"}, 0, 1),
        ({}, 0, 1),
    ],
)
def test_without_a_register_the_labels_say_memory_and_shares(labels: Any, memory_mib: Any, shares: Any) -> None:
    cards = NVIDIA.register(NodeReport("n1", {NVIDIA.cards: 2}, labels))
    assert [(c.uuid, c.memory_mib, c.shares) for c in cards] == [("n1-0", memory_mib, shares), ("n1-1", memory_mib, shares)]
