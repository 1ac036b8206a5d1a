"""MIG: which instance a request gets, by placement and by geometry; what stands on a pod about it, and what others may have beside it."""

import json

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS
from hbox_common.model.devices import (
    Ask,
    Card,
    CardAllocation,
    CardSlice,
    Fitted,
    NodeReport,
    PodDevices,
    Refused,
    effective,
)

NVIDIA, VOLCANO = VENDORS.kind("NVIDIA"), VENDORS.kind("volcano-vgpu")

A100 = [
    {"name": "1g.5gb", "memoryMB": 5120, "core": 14, "sliceCount": 1, "placements": [{"start": i, "size": 1} for i in range(7)]},
    {"name": "2g.10gb", "memoryMB": 10240, "core": 28, "placements": [{"start": i, "size": 2} for i in (0, 2, 4)]},
    {"name": "3g.20gb", "memoryMB": 20480, "core": 42, "placements": [{"size": 4}, {"start": 4, "size": 4}]},
    {"name": "7g.40gb", "memoryMB": 40960, "core": 100, "placements": [{"start": 0, "size": 8}]},
    {"name": "1g.5gb+me", "memoryMB": 5120, "core": 14, "placements": [{"start": 0, "size": 1}]},
]  # fmt: skip


def registered(count: int = 1, profiles: object = A100, model: str = "A100-SXM4-40GB", mode: str = "mig") -> tuple[Card, ...]:
    cards = [
        {
            "id": f"GPU-{i}", "index": i, "count": 7, "devmem": 40960, "devcore": 100, "type": f"NVIDIA-{model}", "mode": mode,
            "health": True, "migProfiles": profiles,
        }
        for i in range(count)
    ]  # fmt: skip
    return NVIDIA.register(NodeReport("n1", annotations={"hami.io/node-nvidia-register": json.dumps(cards)}))


def asked(*memories_mib: int, count: int = 1, kind: str = "NVIDIA", **wishes: str) -> PodDevices:
    asks = tuple(Ask(kind, count, cores=1, memory_mib=mib, container=i) for i, mib in enumerate(memories_mib))
    named = tuple((f"nvidia.com/{name}", text) for name, text in wishes.items())
    return PodDevices(asks, containers=len(asks), wishes=named)


def given(request: PodDevices, cards: tuple[Card, ...], used: dict[int, CardAllocation] | None = None) -> list[CardSlice]:
    found = VENDORS.fit(cards, used or {}, request, {})
    assert isinstance(found, Fitted), found
    return [s for container in found.layout for s in container]


def refused(request: PodDevices, cards: tuple[Card, ...], used: dict[int, CardAllocation] | None = None) -> str:
    found = VENDORS.fit(cards, used or {}, request, {})
    assert isinstance(found, Refused), found
    return str(found)


def on(*parts: str, mib: int = 5120, cores: int = 14) -> dict[int, CardAllocation]:
    held = CardAllocation()
    for part in parts:
        held.book(CardSlice(0, cores, mib, part))
    return {0: held}


def test_instances_stand_where_most_room_is_left() -> None:
    found = given(asked(20_000, 10_000, 5000, 1), registered())
    assert [s.part for s in found] == ["3g.20gb@4", "2g.10gb@0", "1g.5gb@3", "1g.5gb@2"]
    assert [(s.memory_mib, s.cores) for s in found] == [(20480, 42), (10240, 28), (5120, 14), (5120, 14)]


def test_where_a_size_is_full_the_next_one_is_taken() -> None:
    seven = tuple(f"1g.5gb@{i}" for i in (6, 5, 4))
    assert [s.part for s in given(asked(5000), registered(), on(*seven))] == ["1g.5gb@3"]
    high = registered(profiles=[{**A100[0], "placements": [{"start": 6, "size": 1}]}, A100[1]])
    assert [s.part for s in given(asked(5000), high, on("1g.5gb@6"))] == ["2g.10gb@0"]


@pytest.mark.parametrize(
    ("held", "memory_mib"),
    [(("2g.10gb@0", "2g.10gb@2", "2g.10gb@4"), 10_000), (("3g.20gb@0", "3g.20gb@4"), 900), (("1g.5gb@0",), 40_000 - 5120)],
)
def test_where_no_placement_is_free_the_label_says_so(held: tuple[str, ...], memory_mib: int) -> None:
    assert refused(asked(memory_mib), registered(), on(*held)) == "1/1 CardMigTopologyInfeasible"


def test_a_container_may_have_several_instances_of_one_card() -> None:
    assert [s.part for s in given(asked(5000, count=3), registered())] == ["1g.5gb@6", "1g.5gb@5", "1g.5gb@4"]
    assert len(given(asked(5000, count=14), registered(2))) == 14
    one = registered(profiles=[{**A100[0], "placements": [{"start": 6, "size": 1}]}])
    assert refused(asked(5000, count=2), one) == "1/1 AllocatedCardsInsufficientRequest, 1/1 CardMigTopologyInfeasible"
    most = "14/2 AllocatedCardsInsufficientRequest, 2/2 CardMigTopologyInfeasible"
    assert refused(asked(5000, count=15), registered(2)) == most


def test_more_cards_than_a_node_has_are_only_asked_of_cards_in_mig() -> None:
    shared = registered(mode="hami-core")
    assert refused(asked(5000, count=2), shared) == "NodeInsufficientDevice"
    wish = asked(5000, count=2, **{"vgpu-mode": "hami-core"})
    assert refused(wish, registered()) == "NodeInsufficientDevice"


def test_a_whole_card_is_its_largest_instance_and_needs_an_idle_card() -> None:
    whole = PodDevices((Ask("NVIDIA", 1),))
    assert given(whole, registered()) == [CardSlice(0, 100, 40960, "7g.40gb@0")]
    assert refused(whole, registered(), on("1g.5gb@6")) == "1/1 CardsInUse"


@pytest.mark.parametrize(
    "held", [("",), ("1g.5gb@6", ""), ("1g.5gb@7",), ("9g.1gb@0",), ("0-0",), ("what is this",), ("1g.5gb@-1",)]
)
def test_a_card_on_which_nobody_knows_what_is_taken_takes_nothing_more(held: tuple[str, ...]) -> None:
    assert refused(asked(5000), registered(), on(*held)) == "1/1 CardNotHealth"
    assert not NVIDIA.admits(registered()[0], on(*held)[0], CardSlice(0, 14, 5120, "1g.5gb@0"))


def test_a_card_that_is_not_divided_any_more_waits_for_its_instances_to_end() -> None:
    assert refused(asked(5000), registered(mode="hami-core"), on("1g.5gb@6")) == "1/1 CardNotHealth"


@pytest.mark.parametrize(
    ("part", "fits"),
    [
        ("1g.5gb@6", False), ("1g.5gb@4", True), ("2g.10gb@4", False), ("3g.20gb@4", False), ("3g.20gb@0", False), ("7g.40gb@0", False), ("2g.10gb@2", True),
        ("2g.10gb@0", False), ("2g.10gb@1", False), ("", False), ("1g.5gb@2+1g.5gb@3", True), ("1g.5gb@2+1g.5gb@6", False), ("0-0", False),
        ("x", False),
    ],
)  # fmt: skip
def test_the_ledger_admits_only_placements_that_overlap_nothing(part: str, fits: bool) -> None:
    held = on("1g.5gb@6", "2g.10gb@0+1g.5gb@5")[0]
    assert NVIDIA.admits(registered()[0], held, CardSlice(0, 14, 5120, part)) == fits


def test_a_card_that_is_not_divided_has_no_instances() -> None:
    card = registered(mode="hami-core")[0]
    assert NVIDIA.admits(card, CardAllocation(), CardSlice(0, 14, 5120))
    assert not NVIDIA.admits(card, CardAllocation(), CardSlice(0, 14, 5120, "1g.5gb@0"))


def test_what_plugins_round_never_gives_a_card_away_twice() -> None:
    fifteen = [{**A100[0], "core": 15, "memoryMB": 5900}]
    request = asked(*[5000] * 7)
    [sum_] = effective(tuple((s,) for s in given(request, registered(profiles=fifteen))), request)
    assert (sum_.cores, sum_.memory_mib, sum_.slots) == (100, 40960, 7)


@pytest.mark.parametrize(
    "profiles",
    [
        {}, [1], [{}], [{"name": "1g.5gb"}], [{"name": "x" * 33, "memoryMB": 1}], [{"name": "a;b", "memoryMB": 1}],
        [{"name": "1g", "memoryMB": -1}], [{"name": "1g", "memoryMB": 1e9}], [{"name": "1g", "memoryMB": True}],
        [{"name": "1g", "memoryMB": 1, "core": 101}], [{"name": "1g", "memoryMB": 1, "placements": {}}],
        [{"name": "1g", "memoryMB": 1, "placements": [{"start": 0}]}], [{"name": "1g", "memoryMB": 1, "placements": [[0, 1]]}],
        [{"name": "1g", "memoryMB": 1, "placements": [{"start": 10**9, "size": 1}]}],
        [{"name": "1g", "memoryMB": 1, "placements": [{"start": 0, "size": 1}] * 65}],
        [{"name": f"{i}g", "memoryMB": 1} for i in range(65)], [{"name": "1g", "memoryMB": 1}] * 2,
    ],
)  # fmt: skip
def test_profiles_that_are_none_are_refused_by_the_cards_place(profiles: object) -> None:
    with pytest.raises(InvalidRequest, match="card 0"):
        registered(profiles=profiles)


def test_profiles_of_media_extensions_are_left_out() -> None:
    assert [p.name for p in registered()[0].effective_traits.profiles] == ["1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb"]


def test_older_plugins_divide_by_geometry() -> None:
    cards = registered(profiles=None)
    assert [s.part for s in given(asked(5000, 5000), cards)] == ["0-0", "0-1"]
    assert [s.part for s in given(asked(6000, 5000, 6000), cards)] == ["1-0", "1-3", "1-1"]
    assert [s.memory_mib for s in given(asked(6000), cards)] == [10240]
    assert refused(asked(20_000), cards, on("0-3")) == "1/1 CardMigTopologyInfeasible"
    assert [s.part for s in given(asked(1000), cards, on("0-0", "0-1", "0-3"))] == ["0-2"]
    assert refused(asked(1000), registered(profiles=None, model="T4")) == "1/1 CardMigTopologyInfeasible"


@pytest.mark.parametrize(
    ("part", "fits"), [("1-0", False), ("1-1", True), ("1-3", True), ("1-4", False), ("0-1", False), ("9-9", False)]
)
def test_the_ledger_admits_one_geometry_at_a_time(part: str, fits: bool) -> None:
    assert NVIDIA.admits(registered(profiles=None)[0], on("1-0")[0], CardSlice(0, 1, 10_240, part)) == fits


def test_an_allocation_by_placement_is_read_back_as_it_was_written() -> None:
    cards = registered(2)
    layout = (
        (CardSlice(1, 42, 20_480, "3g.20gb@4"),),
        (),
        (CardSlice(0, 14, 5120, "1g.5gb@6"), CardSlice(0, 14, 5120, "1g.5gb@5")),
    )
    notes = NVIDIA.annotate(layout, {card.index: card for card in cards})
    assert notes["hami.io/vgpu-devices-allocated"] == "GPU-1,NVIDIA,20480,42:;;GPU-0,NVIDIA,5120,14:GPU-0,NVIDIA,5120,14:;"
    assert json.loads(notes["hami.io/vgpu-mig-allocations"])[2] == {
        "containerIndex": 2, "deviceIndex": 1, "gpuUUID": "GPU-0", "profile": "1g.5gb", "placement": {"start": 5, "size": 1},
    }  # fmt: skip
    assert NVIDIA.rebuild(NVIDIA.allocated(notes), cards, ()) == layout


def test_an_allocation_by_geometry_is_read_back_as_it_was_written() -> None:
    cards = registered(profiles=None)
    layout = ((CardSlice(0, 1, 10_240, "1-0"),),)
    notes = NVIDIA.annotate(layout, {0: cards[0]})
    assert notes["hami.io/vgpu-devices-allocated"] == "GPU-0[1-0],NVIDIA,10240,1:;"
    assert NVIDIA.rebuild(NVIDIA.allocated(notes), cards, ()) == layout


@pytest.mark.parametrize(
    "record",
    [
        "", "no", "{}", "[1]", "[" * 100_000, '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-1","profile":"1g.5gb","placement":{"start":6}}]',
        '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-0","profile":"1g],x","placement":{"start":6}}]',
        '[{"containerIndex":"0","deviceIndex":0,"gpuUUID":"GPU-0","profile":"1g.5gb","placement":{"start":6}}]',
        '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-0","profile":"1g.5gb","placement":{"start":1e400}}]',
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_read_leaves_the_card_to_nobody_else(record: str) -> None:
    cards = registered()
    notes = {"hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,5120,14:;", "hami.io/vgpu-mig-allocations": record}
    layout = NVIDIA.rebuild(NVIDIA.allocated(notes), cards, ())
    assert layout == ((CardSlice(0, 14, 5120),),)
    used = CardAllocation()
    used.book(layout[0][0])
    assert refused(asked(5000), cards, {0: used}) == "1/1 CardNotHealth"


def volcano(text: str) -> tuple[Card, ...]:
    return VOLCANO.register(NodeReport("n1", annotations={"volcano.sh/node-vgpu-register": text}))


def test_volcanos_cards_are_those_that_its_plugin_registered() -> None:
    cards = volcano("GPU-A,4,16384,NVIDIA-T4,true,hami-core:GPU-B,4,16384,NVIDIA-T4,false,hami-core:")
    assert [(c.index, c.uuid, c.model, c.memory_mib, c.shares, c.healthy) for c in cards] == [
        (0, "GPU-A", "T4", 16384, 4, True), (1, "GPU-B", "T4", 16384, 4, False),
    ]  # fmt: skip
    assert VOLCANO.register(NodeReport("n1", amounts={"volcano.sh/vgpu-number": 8})) == ()
    for wrong in ("GPU-A,4", "GPU-A,4,1,T4,true,hami-core,more", "GPU-A,x,1,T4,true,mig", ":" * 200_000):
        with pytest.raises(InvalidRequest, match=r"node-vgpu-register"):
            volcano(wrong)


@pytest.mark.parametrize(("policy", "chosen"), [("binpack", 1), ("spread", 0), ("", 2)])
def test_volcanos_policies_choose_its_cards(policy: str, chosen: int) -> None:
    cards = volcano("A,4,8000,T4,true,hami-core:B,4,8000,T4,true,hami-core:C,4,8000,T4,true,hami-core:")
    request = PodDevices((Ask("volcano-vgpu", 1, cores=5, memory_mib=1000),), default_policy=policy)
    used = {1: CardAllocation(10, 3000, 1), 2: CardAllocation(10, 1000, 2)}
    assert [s.index for s in given(request, cards, used)] == [chosen]


def test_volcanos_mode_is_one_word_and_a_container_has_one_instance_of_a_card() -> None:
    cards = volcano("A,7,40960,NVIDIA-A100-SXM4-40GB,true,mig:B,7,40960,NVIDIA-A100-SXM4-40GB,true,mig:")
    wish = (("volcano.sh/vgpu-mode", "mig"),)
    two = PodDevices((Ask("volcano-vgpu", 2, cores=0, memory_mib=5000),), wishes=wish)
    found = given(two, cards)
    assert [(s.index, s.part, s.memory_mib, s.cores) for s in found] == [(1, "0-0", 5120, 0), (0, "0-0", 5120, 0)]
    three = PodDevices((Ask("volcano-vgpu", 3, cores=0, memory_mib=5000),), wishes=wish)
    assert refused(three, cards) == "NodeInsufficientDevice"
    other = PodDevices((Ask("volcano-vgpu", 1, cores=0, memory_mib=5000),), wishes=(("volcano.sh/vgpu-mode", "mig,hami-core"),))
    assert refused(other, cards) == "2/2 CardTypeMismatch"


def test_volcanos_plugin_reads_containers_without_init_containers() -> None:
    cards = tuple(Card(0, "GPU-A", "T4", 8000, 4, kind="volcano-vgpu") for _ in range(1))
    layout = ((), (CardSlice(0, 25, 4096),), (CardSlice(0, 5, 100),))
    notes = VENDORS.annotate(layout, cards, ["volcano-vgpu"], node="n1", now=7.0, init=1)
    assert notes == {
        "volcano.sh/vgpu-ids-new": "GPU-A,NVIDIA,4096,25:;GPU-A,NVIDIA,100,5:",
        "volcano.sh/devices-to-allocate": "GPU-A,NVIDIA,4096,25:;GPU-A,NVIDIA,100,5:",
        "volcano.sh/vgpu-node": "n1",
        "volcano.sh/vgpu-time": "7",
        "volcano.sh/bind-phase": "allocating",
        "volcano.sh/bind-time": "7",
    }
