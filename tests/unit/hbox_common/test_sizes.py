"""Standard sizes: the catalogue, and what a size becomes where these cards are."""

from dataclasses import replace

import pytest
import yaml

from hbox_common.errors import InvalidRequest
from hbox_common.model.devices import Card, CardTraits, Profile
from hbox_common.model.devices.sizes import DEFAULT, Choice, Size, Way, as_content, choose, parse_sizes

SHARED = tuple(
    Card(i, f"GPU-{i}", "A100-SXM4-80GB", 81_920, 10, kind="NVIDIA", traits=CardTraits(mode="hami-core")) for i in range(4)
)
MIG = tuple(
    Card(
        i,
        f"MIG-{i}",
        "A100-SXM4-80GB",
        81_920,
        7,
        kind="NVIDIA",
        traits=CardTraits(mode="mig", profiles=(Profile("1g.10gb", 9728),)),
    )
    for i in range(2)
)
DCU = tuple(Card(i, f"DCU-{i}", "Z100L", 32_768, 4, kind="DCU") for i in range(2))
WHOLE_ONLY = (Card(0, "n-0", "MI210", 0, 1, kind="AMD"),)
EIGHT = Size("8GB-compute", "compute", (Way.SHARE, Way.PARTITION), 8192, 25)


def chosen(size: Size, *cards: Card) -> Choice:
    found = choose(size, cards)
    assert found is not None
    return found


def test_a_share_is_written_in_the_vendors_own_resources() -> None:
    assert chosen(EIGHT, *SHARED).resources == {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8192, "nvidia.com/gpucores": 25}
    assert chosen(EIGHT, *DCU).resources == {"hygon.com/dcunum": 1, "hygon.com/dcumem": 8192, "hygon.com/dcucores": 25}
    assert chosen(EIGHT, *SHARED, *DCU).kind == "NVIDIA", "there are more of these"
    assert chosen(replace(EIGHT, kinds=("DCU", "NVIDIA")), *SHARED, *DCU).kind == "DCU"


def test_hardware_partitions_are_taken_where_the_size_wants_them() -> None:
    strict = Size("strict", "", (Way.PARTITION,), 9000)
    found = chosen(strict, *SHARED, *MIG)
    assert (found.way, found.cards, found.annotations) == (Way.PARTITION, 2, {"nvidia.com/vgpu-mode": "mig"})
    assert choose(strict, SHARED) is None
    assert choose(replace(strict, memory_mib=20_000), MIG) is None, "no profile is as large"
    assert chosen(EIGHT, *SHARED, *MIG).annotations == {"nvidia.com/vgpu-mode": "hami-core"}, "its share is not one of MIG's"


def test_whole_cards_are_of_models_that_are_large_enough() -> None:
    large = Size("40GB", "", (Way.WHOLE,), 40_960, cards=2)
    assert chosen(large, *SHARED).resources == {"nvidia.com/gpu": 2}
    assert chosen(large, *SHARED).annotations == {}
    small = Card(9, "GPU-9", "T4", 15_360, 10, kind="NVIDIA")
    assert chosen(large, *SHARED, small).annotations == {"nvidia.com/use-gputype": "A100-SXM4-80GB"}
    assert choose(large, [small, *WHOLE_ONLY]) is None, "a card of unknown memory may be too small"
    assert chosen(Size("any", "", (Way.WHOLE,)), *WHOLE_ONLY).kind == "AMD"


def test_cards_that_take_no_new_work_do_not_count() -> None:
    sick = [
        replace(SHARED[0], healthy=False),
        replace(SHARED[1], traits=CardTraits(cordoned=True)),
        replace(SHARED[2], kind="Unknown"),
    ]
    assert choose(EIGHT, sick) is None


def test_the_default_catalogue_reads_back() -> None:
    assert parse_sizes(yaml.safe_dump(as_content(DEFAULT))) == DEFAULT
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"sizes.yaml": yaml.safe_dump(as_content(DEFAULT[:2]))}}
    assert parse_sizes(yaml.safe_dump(config_map)) == DEFAULT[:2]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{}", "a list of sizes"),
        ("- 5", "size 1: a mapping"),
        ("- {name: 'a b', ways: [whole]}", "name is 'a b'"),
        ("- {name: a, ways: [half]}", "size a: ways"),
        ("- {name: a, ways: [share]}", "without memoryMiB"),
        ("- {name: a, ways: [whole], cards: 0}", "cards is 0"),
        ("- {name: a, ways: [whole], cards: true}", "cards is True"),
        ("- {name: a, ways: [whole], kinds: [Nobody]}", "kinds are"),
        ("- {name: a, ways: [whole], memory: 5}", "unknown field 'memory'"),
        ("- {name: a, ways: [share], memoryMiB: 99999999999}", "memoryMiB is"),
        ("- {name: a, ways: [whole]}\n- {name: a, ways: [whole]}", "duplicate size"),
    ],
)
def test_a_wrong_catalogue_is_refused_by_name(text: str, complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        parse_sizes(text)
