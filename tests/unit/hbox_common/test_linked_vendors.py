"""Makers whose cards go together by links, and those that divide cards into fixed sizes (sources: hami-vendors)."""

import json
from dataclasses import replace
from itertools import combinations

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS, Card, CardRequest, CardSlice, cards_held
from hbox_common.model.devices import Ask, CardAllocation, DeviceLabel, NodeReport, PodDevices
from hbox_common.model.devices.ascend import CHIPS, MODE, SOFT, SOFT_NODE, Chip
from hbox_common.model.devices.kunlun import FOURS, PAIRS, choose_linked
from hbox_common.model.devices.metax import APP_CLASS, LOSSES, QOS, SCORES, TOPOLOGY
from hbox_common.model.devices.neuron import INSTANCE_TYPE
from hbox_common.model.devices.vendor import CARD_POLICY, NODE_POLICY

from .vendorcases import (
    asked,
    divided_gcus,
    given,
    kind,
    labels,
    neurons,
    npus,
    registered,
    score,
    sgpus,
    shared_gcus,
    shared_xpus,
    tried,
    used_by,
    xpus,
)  # fmt: skip


def whole(*indices: int, memory_mib: int = 98_304) -> dict[int, CardAllocation]:
    return used_by(*(CardSlice(i, 100, memory_mib) for i in indices))


# Kunlunxin.


def xpu(count: int) -> Ask:
    return asked("kunlun", {"kunlunxin.com/xpu": count})


@pytest.mark.parametrize(
    ("used", "count", "chosen"),
    [
        ((5,), 1, [4]),  # three left on the right: a single card comes from the odd wing
        ((4, 5, 6), 1, [7]),
        ((5,), 2, [4, 6]),
        ((0, 1, 2, 4, 5, 6), 2, [3, 7]),
        ((), 4, [0, 1, 2, 3]),
        ((2,), 4, [4, 5, 6, 7]),
        ((2, 3, 7), 4, [0, 1, 4, 5]),
        ((3, 6), 4, [0, 1, 4, 5]),
        ((), 8, [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_xpus_come_from_one_wing_or_across_its_links(used: tuple[int, ...], count: int, chosen: list[int]) -> None:
    assert given(tried(xpus(), xpu(count), used=whole(*used))) == [chosen]


@pytest.mark.parametrize(("used", "count"), [((5,), 8), ((0, 1, 2, 4, 5, 7), 2), ((), 3), ((), 6), ((0, 1, 4, 6), 4)])
def test_xpus_that_do_not_go_together_are_refused_once(used: tuple[int, ...], count: int) -> None:
    found = tried(xpus(), xpu(count), used=whole(*used))
    assert labels(found) == {DeviceLabel.NUMA: 1}
    assert str(found) == "1/8 NumaNotFit"


def test_what_links_allow_is_always_found() -> None:
    wings = [set(range(4)), set(range(4, 8))]
    for size in range(9):
        for free in combinations(range(8), size):
            pairs = any(len(wing & set(free)) > 1 for wing in wings) or any(set(pair) <= set(free) for pair in PAIRS)
            fours = any(wing <= set(free) for wing in wings) or any(set(four) <= set(free) for four in FOURS)
            for count, can in ((1, size > 0), (2, pairs), (4, fours), (8, size == 8)):
                found = choose_linked(free, count)
                assert bool(found) == can, (free, count)
                assert set(found) <= set(free)
                assert len(found) in (0, count)


def test_a_wing_that_is_broken_costs_the_node() -> None:
    idle, used = tried(xpus(), xpu(1)), tried(xpus(), xpu(1), used=whole(3, 4, 5, 6, 7))
    assert score(idle) == 0.0
    assert score(used) == pytest.approx(3000.0 + 50 / 800)
    barred = tried(xpus(), xpu(1), wishes={"hami.io/no-use-xpu-uuid": ",".join(f"n-kunlun-{i}" for i in range(8))})
    assert labels(barred) == {DeviceLabel.UUID: 8}


def vxpu(count: int, memory: int | None = None) -> Ask:
    amounts = {"kunlunxin.com/vxpu": count} | ({} if memory is None else {"kunlunxin.com/vxpu-memory": memory})
    return asked("XPU", amounts)


@pytest.mark.parametrize(
    ("memory", "size", "cores"), [(1, 24_576, 25), (24_577, 49_152, 50), (49_153, 98_304, 100), (None, 98_304, 100)]
)
def test_parts_of_xpus_are_quarters_halves_and_whole_ones(memory: int | None, size: int, cores: int) -> None:
    ask = vxpu(1, memory)
    assert (ask.memory_mib, ask.cores) == (size, cores)
    with pytest.raises(InvalidRequest, match="vxpu-memory is 98305"):
        vxpu(1, 98_305)


def test_parts_of_one_xpu_are_alike() -> None:
    [[quarter]] = kind("XPU").rebuild("KL-0,XPU,24576,25:;", shared_xpus(), ())
    halves = [CardSlice(i, 50, 49_152, "49152") for i in range(1, 8)]
    assert given(tried(shared_xpus(), vxpu(1, 20_000), used=used_by(quarter, *halves))) == [[0]]
    assert labels(tried(shared_xpus(1), vxpu(1, 49_152), used=used_by(quarter))) == {DeviceLabel.NUMA: 1}
    card = shared_xpus()[0]
    assert kind("XPU").admits(card, used_by(quarter)[0], quarter)
    assert not kind("XPU").admits(card, used_by(quarter)[0], CardSlice(0, 50, 49_152, "49152"))
    assert not kind("XPU").admits(card, CardAllocation(), CardSlice(0, 25, 20_000, "20000"))


def test_the_drivers_handles_bound_how_many_xpus_are_divided() -> None:
    assert len(given(tried(shared_xpus(), vxpu(6, 24_576)))[0]) == 6
    assert labels(tried(shared_xpus(), vxpu(8, 24_576))) == {DeviceLabel.CUSTOM: 2}
    assert len(given(tried(shared_xpus(), vxpu(8, 49_152)))[0]) == 8
    assert len(given(tried(shared_xpus(), vxpu(8)))[0]) == 8
    six = used_by(*(CardSlice(i, 25, 24_576, "24576") for i in range(6)))
    assert given(tried(shared_xpus(), vxpu(1, 24_576), used=six))[0][0] < 6
    shared = used_by(CardSlice(0, 25, 24_576, "24576"))
    assert labels(tried(shared_xpus(1), vxpu(1, 24_576), used=shared, wishes={CARD_POLICY: "mutex"})) == {
        DeviceLabel.EXCLUSIVE: 1
    }


# AWS Neuron.

INF, TRN = {INSTANCE_TYPE: "inf2.48xlarge"}, {INSTANCE_TYPE: "trn1.32xlarge"}


def neuron(count: int) -> Ask:
    return asked("AWSNeuron", {"aws.amazon.com/neuron": count})


def core(count: int) -> Ask:
    return asked("AWSNeuron", {"aws.amazon.com/neuroncore": count})


def test_neuron_devices_follow_one_another_and_on_trainium_from_a_multiple() -> None:
    used = whole(5, 14, memory_mib=0)
    assert given(tried(neurons(), neuron(8), used=used, facts=INF)) == [list(range(6, 14))]
    assert labels(tried(neurons(), neuron(8), used=used, facts=TRN)) == {DeviceLabel.NUMA: 1}
    assert given(tried(neurons(), neuron(4), used=used, facts=TRN)) == [[0, 1, 2, 3]]
    assert given(tried(neurons(), neuron(4), used=whole(0, memory_mib=0), facts=TRN)) == [[4, 5, 6, 7]]
    assert labels(tried(neurons(), neuron(2), facts=TRN)) == {DeviceLabel.NUMA: 1}
    assert labels(tried(neurons(), neuron(2))) == {DeviceLabel.NUMA: 1}
    assert given(tried(neurons(), neuron(16), facts=INF)) == [list(range(16))]


def test_a_pod_that_was_found_holds_what_its_node_would_give_and_not_any_other() -> None:
    request = CardRequest(8, devices=PodDevices((neuron(8),), 1))
    used = {card.id: on for card in neurons() if (on := whole(5, 14, memory_mib=0).get(card.index))}
    assert [s.index for s in cards_held(request, neurons(), used, facts=INF)] == list(range(6, 14))


def test_two_pods_with_one_core_share_a_neuron_device() -> None:
    [[first]] = kind("AWSNeuron").rebuild("n-AWSNeuron-0,AWSNeuron,0,1:;", neurons(1), [core(1)])
    assert first == CardSlice(0, 50, 0, "1")
    second = tried(neurons(1), core(1), used=used_by(first))
    assert given(second) == [[0]]
    assert second.layout[0][0].part == "2"  # type: ignore[union-attr]
    assert labels(tried(neurons(1), neuron(1), used=used_by(first))) == {DeviceLabel.CORE: 1}
    both = used_by(first, CardSlice(0, 50, 0, "2"))
    assert labels(tried(neurons(1), core(1), used=both)) == {DeviceLabel.SLOTS: 1}
    admits = kind("AWSNeuron").admits
    assert admits(neurons(1)[0], used_by(first)[0], CardSlice(0, 50, 0, "2"))
    assert not admits(neurons(1)[0], used_by(first)[0], CardSlice(0, 50, 0, "1"))
    assert not admits(neurons(1)[0], CardAllocation(), CardSlice(0, 50, 0, ""))


def test_cores_are_one_or_whole_devices() -> None:
    assert (core(4).count, core(4).cores) == (2, 100)
    with pytest.raises(InvalidRequest, match="neuroncore is 3") as e:
        core(3)
    assert "1, or a multiple of 2" in str(e.value.hint)
    assert kind("AWSNeuron").offered(neurons(2), 2) == 4


# Enflame.


def test_whole_gcus_are_alone() -> None:
    cards = registered("GCU", amounts={"enflame.com/gcu": 2})
    held = kind("GCU").rebuild("n-GCU-0,GCU,100,100:;", cards, ())
    found = tried(cards, asked("GCU", {"enflame.com/gcu": 2}), used=used_by(*held[0]))
    assert str(found) == "1/2 AllocatedCardsInsufficientRequest, 1/2 ExclusiveDeviceAllocateConflict"


@pytest.mark.parametrize(
    ("slices", "percent", "given_percent"), [(6, 1, 16), (6, 16, 16), (6, 25, 33), (4, 25, 25), (4, 26, 50), (6, 100, 100)]
)
def test_percentages_of_gcus_are_rounded_up_to_slices(slices: int, percent: int, given_percent: int) -> None:
    found = tried(shared_gcus(1, slices), asked("Enflame", {"enflame.com/vgcu": 1, "enflame.com/vgcu-percentage": percent}))
    assert given(found) == [[0]]
    assert found.layout[0][0].cores == given_percent  # type: ignore[union-attr]


def test_percentages_share_a_gcu_until_it_is_used_up() -> None:
    quarter = asked("Enflame", {"enflame.com/vgcu": 1, "enflame.com/vgcu-percentage": 25})
    cards = shared_gcus(2)
    assert given(tried(cards, quarter, wishes={"enflame.com/use-gpuuuid": "n-enflame-1"})) == [[1]]
    [[three]] = kind("Enflame").rebuild("n-enflame-0,Enflame,75,0:;", cards, ())
    assert given(tried(cards[:1], quarter, used=used_by(three))) == [[0]]
    half = asked("Enflame", {"enflame.com/vgcu": 1, "enflame.com/vgcu-percentage": 50})
    assert labels(tried(cards[:1], half, used=used_by(three))) == {DeviceLabel.MEMORY: 1}
    assert asked("Enflame", {"enflame.com/vgcu": 2, "enflame.com/vgcu-percentage": 10}).cores == 100
    assert kind("Enflame").offered(cards, 0) == 8


def drs(**amounts: int) -> Ask:
    return asked("Enflame", {f"enflame.com/{name.replace('_', '-')}": units for name, units in amounts.items()})


@pytest.mark.parametrize(
    ("ask", "profile"),
    [
        (drs(drs_gcu=3), "3g.20gb"),
        (drs(gcu_memory=20_480, gcu_core=40), "3g.20gb"),
        (drs(gcu_memory=20), "3g.20gb"),
        (drs(gcu_memory=6), "1g.6gb"),
        (drs(gcu_memory=6, gcu_core=18), "3g.20gb"),
        (drs(gcu_core=51), "6g.40gb"),
    ],
)
def test_the_smallest_profile_that_has_both_is_given(ask: Ask, profile: str) -> None:
    found = tried(divided_gcus(), ask)
    taken = found.layout[0][0]  # type: ignore[union-attr]
    sizes = {"1g.6gb": (17, 6144, 1), "3g.20gb": (50, 20_480, 3), "6g.40gb": (100, 40_960, 6)}
    assert (taken.part, (taken.cores, taken.memory_mib, taken.slots)) == (profile, sizes[profile])


def test_a_gcu_without_such_a_profile_or_divided_otherwise_is_none() -> None:
    for ask in (drs(drs_gcu=2), drs(gcu_memory=41)):
        assert str(tried(divided_gcus(), ask)) == "1/1 ModeNotFit"
    assert labels(tried(shared_gcus(), drs(drs_gcu=1))) == {DeviceLabel.MODE: 1}
    assert labels(tried(divided_gcus(), asked("Enflame", {"enflame.com/vgcu": 1}))) == {DeviceLabel.MODE: 1}
    for wrong in ({"gcu_memory": 0}, {"gcu_core": 101}, {"gcu_core": 0}, {"drs_gcu": 0}):
        with pytest.raises(InvalidRequest):
            drs(**wrong)


def test_slices_of_a_gcu_are_what_others_left() -> None:
    [[three]] = kind("Enflame").rebuild("n-enflame-drs-0,Enflame,20480,50:;", divided_gcus(), ())
    assert (three.part, three.slots) == ("3g.20gb", 3)
    assert given(tried(divided_gcus(), drs(drs_gcu=3), used=used_by(three))) == [[0]]
    assert labels(tried(divided_gcus(), drs(drs_gcu=6), used=used_by(three))) == {DeviceLabel.MEMORY: 1}
    assert labels(tried(divided_gcus(), drs(drs_gcu=3), used=used_by(three), wishes={CARD_POLICY: "mutex"})) == {
        DeviceLabel.EXCLUSIVE: 1
    }
    card, admits = divided_gcus()[0], kind("Enflame").admits
    assert admits(card, used_by(three)[0], three)
    assert not admits(card, CardAllocation(), CardSlice(0, 50, 20_000, "3g.20gb", 3))
    assert not admits(card, CardAllocation(), CardSlice(0, 10, 1000, "2g.10gb"))
    assert not admits(card, used_by(three, three)[0], CardSlice(0, 17, 6144, "1g.6gb"))


def test_the_plugin_reads_which_instance_each_container_is_to_have() -> None:
    """By HAMi v2.10's names and forms; the device file has a number of its own."""
    devices = [{"index": "0", "minor": "4", "capacity": 6}]
    profiles = {"1g.6gb": "0", "3g.20gb.large": "1"}
    cards = registered("Enflame", json.dumps({"devices": devices, "profiles": profiles}))
    layout = ((), (CardSlice(0, 100, 20_480, "3g.20gb.large", 3),), (CardSlice(0, 34, 6144, "1g.6gb"),))
    named = [replace(card, kind="Enflame") for card in cards]
    assert VENDORS.by_name(layout[1], named, ["Enflame"])
    assert not VENDORS.by_name(layout[1], named, [])
    notes = VENDORS.annotate(layout, named, ["Enflame"], node="n", now=2.0, containers=("prepare", "work", "aside"))
    assert notes["assigned-containers"] == (
        '{"aside":{"allocated":false,"request":1,"profileID":"0","profileName":"1g.6gb"},'
        '"work":{"allocated":false,"request":3,"profileID":"1","profileName":"3g.20gb.large"}}'
    )
    own = {name.removeprefix("enflame.com/gcu-"): text for name, text in notes.items() if name.startswith("enflame.com/")}
    assert own == {
        "assigned": "false", "assigned-time": "2000000000", "assigned-id": "0", "assigned-index": "0", "assigned-minor": "4",
        "request-size": "3",
    }  # fmt: skip


def test_what_hamis_webhook_writes_on_pods_is_written_with_the_binding() -> None:
    cards = {
        i: replace(card, kind="Mthreads")
        for i, card in enumerate(
            registered("Mthreads", amounts={"mthreads.com/sgpu-core": 32, "mthreads.com/sgpu-memory": 192})
        )
    }
    whole = kind("Mthreads").annotate(((CardSlice(0, 100, 49_152), CardSlice(1, 100, 49_152)),), cards, node="n")
    assert (whole["mthreads.com/gpu-index"], whole["mthreads.com/request-gpu-num"]) == ("0,1", "2")
    one = kind("Mthreads").annotate(((CardSlice(0, 100, 49_152),),), cards, node="n")
    assert "mthreads.com/request-gpu-num" not in one
    sgpu = {0: Card(0, "M-0", "C500", 65_536, 16, kind="Metax-SGPU")}
    for part, policy in (("best-effort", "best-effort"), ("offline/fixed-share", "fixed-share"), ("online", None), ("", None)):
        notes = kind("Metax-SGPU").annotate(((CardSlice(0, 40, 8192, part),),), sgpu, node="n")
        assert notes.get("metax-tech.com/sgpu-qos-policy") == policy


# Ascend.


def npu(word: str, count: int | None = 1, memory: int | None = None, cores: int | None = None, *, soft: bool = False) -> Ask:
    name = f"huawei.com/{word}"
    amounts = {name: count, f"{name}-memory": memory, f"{name}-core": cores}
    return asked(word, {n: units for n, units in amounts.items() if units is not None}, {MODE: SOFT} if soft else {})


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.word)
def test_memory_becomes_the_smallest_template_that_has_it(chip: Chip) -> None:
    before = 0
    for template in chip.templates:
        for memory in (before + 1, template.memory_mib):
            ask = npu(chip.word, 1, memory)
            assert (ask.part, ask.memory_mib, ask.cores) == (template.name, template.memory_mib, 0)
        before = template.memory_mib
    for memory in (before + 1, chip.capacity_mib):
        assert npu(chip.word, 1, memory).whole
    for memory in (0, chip.capacity_mib + 1):
        with pytest.raises(InvalidRequest, match="-memory is"):
            npu(chip.word, 1, memory)


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.word)
def test_templates_that_fit_by_memory_fit_by_ai_cores(chip: Chip) -> None:
    """Which is why the books hold memory alone."""
    stack = [(0, 0, 0)]
    while stack:
        memory, cores, first = stack.pop()
        assert cores <= chip.cores
        for i, template in enumerate(chip.templates[first:], first):
            if memory + template.memory_mib <= chip.memory_mib:
                stack.append((memory + template.memory_mib, cores + template.cores, i))


def test_what_templates_do_not_have_is_refused_with_what_to_write() -> None:
    with pytest.raises(InvalidRequest, match="-core is 10") as e:
        npu("Ascend910B3", 1, 16_384, 10)
    assert f"{MODE}: {SOFT}" in str(e.value.hint)
    with pytest.raises(InvalidRequest, match="of 2 cards"):
        npu("Ascend910B3", 2, 16_384)
    assert npu("Ascend910B3", 2, 65_536).whole
    with pytest.raises(InvalidRequest, match="Ascend910C is 3"):
        npu("Ascend910C", 3)


def test_software_shares_only_where_the_node_has_it() -> None:
    ask = npu("Ascend910B3", 1, 8000, 20, soft=True)
    assert (ask.memory_mib, ask.cores, ask.part) == (8000, 20, "")
    wishes = {MODE: SOFT}
    cards = npus("Ascend910B3", 1)
    assert str(tried(cards, ask, wishes=wishes)) == "1/1 ModeNotFit"
    assert labels(tried(cards, ask, wishes=wishes, facts={SOFT_NODE: "false"})) == {DeviceLabel.MODE: 1}
    assert given(tried(cards, ask, wishes=wishes, facts={SOFT_NODE: "true"})) == [[0]]
    assert given(tried(cards, npu("Ascend910B3", 1, 8000), facts={SOFT_NODE: "true"})) == [[0]]


def test_a_310p_above_its_largest_template_is_taken_whole() -> None:
    cards = npus("Ascend310P", 2, memory_mib=21_527, slots=7)
    [[small]] = kind("Ascend310P").rebuild("N-0,Ascend310P,3072,0:;", cards, ())
    assert small == CardSlice(0, 0, 3072, "vir01")
    found = tried(cards, npu("Ascend310P", 1, 13_000), used=used_by(small), wishes={CARD_POLICY: "binpack"})
    assert given(found) == [[1]]
    assert found.layout[0][0].memory_mib == 21_527  # type: ignore[union-attr]


def test_several_910s_come_from_one_hccs_group_and_then_from_the_next() -> None:
    cards, used = npus("Ascend910B3"), used_by(CardSlice(0, 0, 65_536), CardSlice(1, 0, 65_536))
    four = tried(cards, npu("Ascend910B3", 4), used=used)
    assert given(four) == [[4, 5, 6, 7]]
    assert sorted(given(tried(cards, npu("Ascend910B3", 6), used=used))[0]) == [2, 3, 4, 5, 6, 7]
    base = score(four) - 10.0
    assert score(tried(cards, npu("Ascend910B3", 6), used=used)) == pytest.approx(base + 10 * 4 / 6)


def test_a_910c_is_given_by_modules() -> None:
    assert npu("Ascend910C", 1).count == 2
    assert given(tried(npus("Ascend910C", 4, slots=1), npu("Ascend910C", 1))) == [[0, 1]]
    odd = npus("Ascend910C", slots=1, indices=(0, 1, 2, 4, 6))
    assert labels(tried(odd, npu("Ascend910C", 4))) == {DeviceLabel.TOO_FEW: 2}
    assert given(tried(odd, npu("Ascend910C", 2))) == [[0, 1]]
    assert given(tried(npus("Ascend910C", 8, slots=1), npu("Ascend910C", 4), used=used_by(CardSlice(2, 0, 65_536)))) == [
        [0, 1, 4, 5]
    ]


def test_only_templates_of_the_chip_are_admitted() -> None:
    card, admits = npus("Ascend910B3")[0], kind("Ascend910B3").admits
    assert admits(card, CardAllocation(), CardSlice(0, 0, 16_384, "vir05_1c_16g"))
    assert admits(card, CardAllocation(), CardSlice(0, 0, 32_768, "vir05_1c_16g+vir05_1c_16g", 2))
    assert not admits(card, CardAllocation(), CardSlice(0, 0, 16_000, "vir05_1c_16g"))
    assert not admits(card, CardAllocation(), CardSlice(0, 0, 8192, "vir05_1c_8g"))


# MetaX.


def metaxes(count: int) -> tuple[Card, ...]:
    return registered("Metax-GPU", amounts={"metax-tech.com/gpu": count})


def metax(count: int) -> Ask:
    return asked("Metax-GPU", {"metax-tech.com/gpu": count})


def test_the_plugins_words_on_links_are_a_nodes_score() -> None:
    facts = {LOSSES: '{"1":100,"2":200}', SCORES: '{"2":300}'}
    assert score(tried(metaxes(2), metax(2), facts=facts)) == 1800.0
    assert score(tried(metaxes(2), metax(2), facts=facts, wishes={NODE_POLICY: "spread"})) == 1700.0
    for text in ("", "[]", "{", '{"2":"x"}', '{"2":1e400}', "[" * 100_000):
        assert score(tried(metaxes(2), metax(2), facts={LOSSES: text})) == 2000.0
    assert score(tried(metaxes(2), metax(2))) == 0.0


def test_one_container_of_a_pod_has_whole_gpus_of_metax() -> None:
    assert labels(tried(metaxes(2), metax(1), metax(1))) == {DeviceLabel.IN_USE: 1, DeviceLabel.CUSTOM: 1}
    assert given(tried(metaxes(2), metax(1), metax(1), init=1)) == [[0], [0]]
    assert labels(tried(metaxes(1), metax(1), used=whole(0, memory_mib=65_536))) == {DeviceLabel.IN_USE: 1}


def sgpu(count: int = 1, cores: int | None = None, memory: str | None = None, **wishes: str) -> Ask:
    amounts: dict[str, str | float] = {"metax-tech.com/sgpu": count}
    if cores is not None:
        amounts["metax-tech.com/vcore"] = cores
    if memory is not None:
        amounts["metax-tech.com/vmemory"] = memory
    names = {"qos": QOS, "app": APP_CLASS}
    return asked("Metax-SGPU", amounts, {names[name]: text for name, text in wishes.items()})


@pytest.mark.parametrize(("text", "mib"), [("4", 4096), ("500Mi", 500), ("2Gi", 2048), ("2G", 1907)])
def test_a_bare_number_of_memory_is_gib(text: str, mib: int) -> None:
    assert sgpu(memory=text).memory_mib == mib


def test_what_metax_does_not_know_is_refused() -> None:
    for wrong in (
        {"memory": "1e3"},
        {"memory": "x"},
        {"memory": "-1"},
        {"cores": 101},
        {"qos": "gold"},
        {"app": "batch"},
        {"count": 2, "app": "online"},
    ):
        with pytest.raises(InvalidRequest) as e:
            sgpu(**wrong)
        assert e.value.hint
    assert sgpu() == Ask("Metax-SGPU", 1, 100, 0, 100)
    assert sgpu(cores=40, memory="8").part == "best-effort"


def test_pods_of_one_card_have_one_quality_of_service() -> None:
    held = CardSlice(0, 40, 8192, "best-effort")
    fixed = sgpu(cores=40, memory="8", qos="fixed-share")
    assert labels(tried(sgpus(1), fixed, used=used_by(held))) == {DeviceLabel.QOS: 1}
    assert given(tried(sgpus(1, qos="best-effort"), fixed)) == [[0]]
    assert given(tried(sgpus(1, 1), sgpu(cores=40, memory="8"), used=used_by(held, CardSlice(1, 10, 2048, "fixed-share")))) == [
        [0]
    ]
    unsaid = used_by(CardSlice(0, 40, 8192))
    assert labels(tried(sgpus(1, qos="burst-share"), fixed, used=unsaid)) == {DeviceLabel.QOS: 1}
    assert labels(tried(sgpus(1), sgpu(), used=used_by(held))) == {DeviceLabel.IN_USE: 1}


def test_online_and_offline_pods_have_cards_to_themselves() -> None:
    online, offline = (sgpu(cores=20, memory="4", app=app) for app in ("online", "offline"))
    normal = sgpu(cores=20, memory="4")
    on_online, on_offline, on_normal = (
        used_by(CardSlice(0, 20, 4096, part)) for part in ("online", "offline/best-effort", "best-effort")
    )
    for ask, used, fits in (
        (online, on_online, True), (online, on_offline, True), (online, on_normal, False), (offline, on_online, False),
        (offline, on_offline, True), (offline, on_normal, False), (normal, on_online, False), (normal, on_offline, False), (normal, on_normal, True),
    ):  # fmt: skip
        found = tried(sgpus(1), ask, used=used)
        assert labels(found) == {DeviceLabel.APP_CLASS: 1} if not fits else given(found) == [[0]]
        assert kind("Metax-SGPU").admits(sgpus(1)[0], used[0], CardSlice(0, ask.cores, 4096, ask.part)) == fits
    assert tried(sgpus(1), online).layout[0][0].cores == 0  # type: ignore[union-attr]
    crowded = used_by(CardSlice(0, 0, 4096, "online"), CardSlice(1, 20, 4096, "offline/best-effort"))
    assert given(tried(sgpus(1, 1), online, used=crowded)) == [[0]]
    assert kind("Metax-SGPU").rebuild("M-0,Metax-SGPU,4096,0:;", sgpus(1), (), {APP_CLASS: "online"}) == (
        (CardSlice(0, 0, 4096, "online"),),
    )


@pytest.mark.parametrize(
    ("zones", "used", "count", "chosen"),
    [
        ((1, 1, 1, 1, 2, 2, 2, 2), (2, 3, 5, 6, 7), 1, [4]),
        ((0, 0, 0, 0, 1, 1, 1, 1), (2, 3, 4, 5), 2, [6, 7]),
        ((1, 1, 1, 1, 2, 2, 2, 2), (2, 3), 4, [4, 5, 6, 7]),
        ((1, 1, 1, 1, 2, 2, 2, 2), (2, 3, 7), 4, [0, 1, 4, 5]),
        ((0, 0, 1), (), 2, [0, 2]),
    ],
)
def test_whole_sgpus_come_from_one_link_zone(
    zones: tuple[int, ...], used: tuple[int, ...], count: int, chosen: list[int]
) -> None:
    assert sorted(given(tried(sgpus(*zones), sgpu(count), used=whole(*used, memory_mib=65_536)))[0]) == chosen


@pytest.mark.parametrize(
    ("zones", "used", "count", "points"),
    [
        ((1, 1, 1, 1), (0, 1, 2), 1, 0), ((1, 1, 1, 1), (), 1, -30), ((1, 1, 1, 1), (), 2, 60), ((1, 2), (), 2, 0),
        ((1, 1, 1, 1, 2), (), 4, 600), ((1, 1, 1, 2, 2), (), 4, 180), ((1, 1, 1, 1, 2, 2, 2, 2), (), 8, 1200),
    ],
)  # fmt: skip
def test_links_that_are_kept_whole_are_worth_more_than_any_usage(
    zones: tuple[int, ...], used: tuple[int, ...], count: int, points: int
) -> None:
    held = whole(*used, memory_mib=65_536)
    plain = score(tried(sgpus(*zones), sgpu(count), used=held))
    by_links = score(tried(sgpus(*zones), sgpu(count), used=held, wishes={TOPOLOGY: "true"})) - plain
    spread = score(tried(sgpus(*zones), sgpu(count), used=held, wishes={TOPOLOGY: "true", NODE_POLICY: "spread"})) - plain
    assert spread == pytest.approx(-by_links)
    assert by_links == pytest.approx(10_000.0 * points)


def test_registers_that_cannot_be_read_are_named() -> None:
    for word, annotation in (("Metax-SGPU", "metax-tech.com/node-gpu-devices"), ("Enflame", "enflame.com/gcu-drs-capacity")):
        for text in ("{", "[1]", "7", '{"devices":[{"capacity":0}],"profiles":{"1g.6gb":"0"}}', '[{"uuid":1}]', "[" * 100_000):
            with pytest.raises(InvalidRequest, match=annotation):
                kind(word).register(NodeReport("n", {}, {}, {annotation: text}))
