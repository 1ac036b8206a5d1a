"""Every other maker's cards: what each registers, asks for and gives, by HAMi's rules for it (sources: hami-vendors)."""

from dataclasses import replace

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS, Card, CardSlice
from hbox_common.model.devices import Ask, DeviceLabel, NodeReport, PodDevices
from hbox_common.model.devices.vendor import CARD_POLICY

from .vendorcases import asked, given, kind, labels, registered, score, tried, used_by

# Cambricon.


def mlus(count: int) -> tuple[Card, ...]:
    vendor = kind("MLU")
    report = NodeReport("n", {vendor.cards: 100 * count, vendor.cores: 100 * count, vendor.memory: 160 * count})
    return tuple(replace(card, kind="MLU") for card in vendor.register(report))


def mlu(count: int = 1, memory: int | None = None, cores: int | None = None) -> Ask:
    vendor = kind("MLU")
    amounts = {vendor.cards: count, vendor.memory: memory, vendor.cores: cores}
    ask = vendor.ask({name: str(units) for name, units in amounts.items() if units is not None})
    assert ask is not None
    return ask


def test_cambricons_cards_are_what_the_sums_of_the_plugin_make() -> None:
    assert [(c.uuid, c.memory_mib, c.shares) for c in mlus(2)] == [
        ("n-cambricon-mlu-0", 40_960, 100), ("n-cambricon-mlu-1", 40_960, 100),
    ]  # fmt: skip
    assert kind("MLU").register(NodeReport("n", {kind("MLU").cards: 2})) == ()


def test_cambricons_memory_is_in_units_of_256_mib() -> None:
    assert (mlu(1, 20, 30).memory_mib, mlu(1, 20, 30).cores) == (5120, 30)
    busy = used_by(CardSlice(0, 30, 150 * 256))
    assert given(tried(mlus(2), mlu(1, 20, 30), used=busy)) == [[1]]
    assert labels(tried(mlus(1), mlu(1, 10, 60), used=used_by(CardSlice(0, 50, 2560)))) == {DeviceLabel.CORE: 1}


def test_several_mlus_are_whole_ones() -> None:
    assert mlu(2, 40, 10) == Ask("MLU", 2)
    assert labels(tried(mlus(2), mlu(2), used=used_by(CardSlice(0, 10, 256)))) == {
        DeviceLabel.IN_USE: 1,
        DeviceLabel.TOO_FEW: 1,
    }


def test_cambricons_plugin_and_hamis_monitor_each_read_their_own_word() -> None:
    cards = {0: Card(0, "n-cambricon-mlu-3", "MLU", 16_384, kind="MLU")}
    notes = kind("MLU").annotate(((), (CardSlice(0, 30, 5120),)), cards)
    assert notes["CAMBRICON_DSMLU_PROFILE"] == "3_30_20"
    assert (notes["CAMBRICON_DSMLU_ASSIGHED"], notes["CAMBRICON_DSMLU_ASSIGNED"]) == ("false", "false")


# Iluvatar.

MR = "ILU-0,10,32768,100,MR-V100,0,true:"


@pytest.mark.parametrize("word", ["MR-V100", "MR-V50", "BI-V150", "BI-V100"])
def test_each_model_of_iluvatar_is_a_kind_with_resources_of_its_own(word: str) -> None:
    vendor = kind(word)
    cards = registered(word, MR.replace("MR-V100", word))
    assert [(c.model, c.memory_mib, c.shares) for c in cards] == [(word, 32_768, 10)]
    ask = vendor.ask({f"iluvatar.ai/{word}-vgpu": "1", f"iluvatar.ai/{word}.vMem": "100", f"iluvatar.ai/{word}.vCore": "10"})
    assert ask == Ask(word, 1, cores=10, memory_mib=25_600)
    assert labels(tried(cards, ask, used=used_by(CardSlice(0, 20, 24_576)))) == {DeviceLabel.MEMORY: 1}
    several = vendor.ask({vendor.cards: 2, vendor.memory: 4, vendor.cores: 10})
    assert several == Ask(word, 2)


def test_a_card_by_its_id_alone() -> None:
    cards = registered("MR-V100", "A,10,32768,100,MR-V100,0,true:B,10,32768,100,MR-V100,0,true:")
    [ask] = [kind("MR-V100").ask({"iluvatar.ai/MR-V100-vgpu": 1})]
    assert ask is not None
    pod = PodDevices((ask,), wishes=(("hami.io/use-MR-V100-uuid", "B"),))
    assert given(VENDORS.fit(cards, {}, pod, {})) == [[1]]
    pod = PodDevices((ask,), wishes=(("hami.io/no-use-MR-V100-uuid", "A, B"),))
    assert labels(VENDORS.fit(cards, {}, pod, {})) == {DeviceLabel.UUID: 2}


# Moore Threads.


def mtts(count: int = 1) -> tuple[Card, ...]:
    vendor = kind("Mthreads")
    report = NodeReport("n", {vendor.cards: 100, vendor.cores: 16 * count, vendor.memory: 96 * count})
    return tuple(replace(card, kind="Mthreads") for card in vendor.register(report))


def mtt(memory: int | None = None, cores: int | None = None, count: int = 1) -> Ask:
    vendor = kind("Mthreads")
    amounts = {vendor.cards: count, vendor.memory: memory, vendor.cores: cores}
    ask = vendor.ask({name: units for name, units in amounts.items() if units is not None})
    assert ask is not None
    return ask


def test_sixteenths_and_units_of_512_mib_share_a_card_of_moore_threads() -> None:
    assert [(c.uuid, c.memory_mib) for c in mtts(2)] == [("n-mthreads-0", 49_152), ("n-mthreads-1", 49_152)]
    held = kind("Mthreads").rebuild("n-mthreads-0,Mthreads,32768,8:;", mtts(), ())
    assert held == ((CardSlice(0, 50, 32_768),),)
    assert given(tried(mtts(), mtt(32, 8), used=used_by(*held[0]))) == [[0]]
    assert labels(tried(mtts(), mtt(32, 9), used=used_by(*held[0]))) == {DeviceLabel.CORE: 1}


@pytest.mark.parametrize("memory", [0, 1, 3, 10, 97, 192])
def test_sizes_that_moore_threads_has_not_are_refused_with_those_that_it_has(memory: int) -> None:
    with pytest.raises(InvalidRequest, match="sgpu-memory is") as e:
        mtt(memory, 4)
    assert "2, 4, 8, 16, 32, 64, 96" in str(e.value.hint)


def test_without_a_size_cards_of_moore_threads_are_whole() -> None:
    assert mtt() == Ask("Mthreads", 1)
    assert mtt(2, 2, count=3) == Ask("Mthreads", 3)
    with pytest.raises(InvalidRequest, match="sgpu-core is 17"):
        mtt(2, 17)


def test_all_containers_of_a_pod_are_on_one_card_of_moore_threads() -> None:
    assert given(tried(mtts(2), mtt(32, 4), mtt(32, 4))) == [[0], [0]]
    assert labels(tried(mtts(2), mtt(64, 4), mtt(64, 4))) == {DeviceLabel.MEMORY: 1, DeviceLabel.CUSTOM: 1}


def test_sixteenths_of_a_card_are_never_more_than_sixteen() -> None:
    percent = [units * 100 // 16 for units in range(17)]
    best = [0] + [-1] * 17
    for total in range(1, 18):
        best[total] = min(best[total - part] + percent[part] for part in range(1, min(total, 16) + 1))
    assert best[16] <= 100 < best[17]


# Biren, Vastai.


def biren(count: int, slots: int = 1) -> tuple[Card, ...]:
    records = ",".join(
        f'{{"id":"BR-{i}","index":{i},"count":{slots},"devmem":65536,"type":"Biren-BR106","health":true}}' for i in range(count)
    )
    return registered("Biren", f"[{records}]")


def test_birens_devices_have_slots_and_no_amounts() -> None:
    assert {(c.model, c.memory_mib) for c in biren(2)} == {("BR106", 65_536)}
    two = asked("Biren", {"birentech.com/gpu": 2})
    held = kind("Biren").rebuild("BR-0,Biren,0,0:;", biren(2), ())
    assert held == ((CardSlice(0, 0, 0),),)
    assert labels(tried(biren(2), two, used=used_by(*held[0]))) == {DeviceLabel.IN_USE: 1, DeviceLabel.TOO_FEW: 1}
    assert str(tried(biren(2), two, used=used_by(*held[0]))) == "1/2 AllocatedCardsInsufficientRequest, 1/2 CardsInUse"
    assert given(tried(biren(2, slots=2), two, used=used_by(*held[0]))) == [[0, 1]]


def dies(*groups: str, slots: int = 1) -> tuple[Card, ...]:
    records = ",".join(
        f'{{"id":"VA-{i}","index":{i},"count":{slots},"devmem":32768,"type":"Vastai-VA1","health":true,'
        f'"custominfo":{{"DeviceStrategy":"die","AIC":"{group}"}}}}'
        for i, group in enumerate(groups)
    )
    return registered("Vastai", f"[{records}]")


def va(count: int) -> Ask:
    return asked("Vastai", {"vastaitech.com/va": count})


def test_dies_come_from_the_card_with_the_most_that_are_free() -> None:
    cards = dies("a", "a", "b", "b")
    taken = tried(cards, va(3), used=used_by(CardSlice(0, 0, 0)))
    assert sorted(given(taken)[0]) == [1, 2, 3]
    assert score(taken) == pytest.approx(2 / 3)
    assert sorted(given(tried(cards, va(2), used=used_by(CardSlice(0, 0, 0))))[0]) == [2, 3]


def test_under_mutex_no_die_of_a_used_card_is_given() -> None:
    cards = dies("a", "a", "b", slots=2)
    held = used_by(CardSlice(0, 0, 0))
    assert given(VENDORS.fit(cards, held, PodDevices((va(1),), wishes=((CARD_POLICY, "mutex"),)), {})) == [[2]]
    refused = labels(VENDORS.fit(cards, held, PodDevices((va(2),), wishes=((CARD_POLICY, "mutex"),)), {}))
    assert refused == {DeviceLabel.EXCLUSIVE: 2, DeviceLabel.TOO_FEW: 1}


# AMD, Hygon, Gaudi.


def test_a_percentage_of_amds_compute_units_is_what_is_left_of_them() -> None:
    cards = registered(
        "AMD", '[{"id":"AMD-0","count":4,"devmem":196608,"devcore":304,"type":"AMD_Instinct_MI300X_VF","health":true}]'
    )
    half = kind("AMD").rebuild("AMD-0,AMD_Instinct_MI300X_VF,1000,152:;", cards, ())
    assert half == ((CardSlice(0, 50, 1000),),)
    amounts = {"amd.com/gpu": 1, "amd.com/gpumem": 1000}
    assert given(tried(cards, asked("AMD", {**amounts, "amd.com/gpucores": 50}), used=used_by(*half[0]))) == [[0]]
    more = asked("AMD", {**amounts, "amd.com/gpucores": 51})
    assert labels(tried(cards, more, used=used_by(*half[0]))) == {DeviceLabel.CORE: 1}
    with pytest.raises(InvalidRequest, match="gpucores is 0"):
        asked("AMD", {**amounts, "amd.com/gpucores": 0})


def test_types_and_ids_of_hygons_dcus_are_chosen_by_annotations() -> None:
    cards = registered("DCU", "A,4,32768,100,DCU-Z100L,0,true:B,4,65536,100,DCU-K100,0,true:")
    one = asked("DCU", {"hygon.com/dcunum": 1})
    for wish, chosen in (
        (("hygon.com/use-dcutype", "k100"), [[1]]), (("hygon.com/nouse-dcutype", "Z100"), [[1]]),
        (("hygon.com/use-gpuuuid", "B"), [[1]]), (("hygon.com/nouse-gpuuuid", "A"), [[1]]),
    ):  # fmt: skip
        assert given(VENDORS.fit(cards, {}, PodDevices((one,), wishes=(wish,)), {})) == chosen


def test_gaudis_are_taken_whole() -> None:
    cards = registered("Gaudi", amounts={"habana.ai/gaudi": 8})
    assert [card.uuid for card in cards][:2] == ["n-gaudi-0", "n-gaudi-1"]
    assert given(tried(cards, asked("Gaudi", {"habana.ai/gaudi": 2}), used=used_by(CardSlice(0, 100, 0)))) == [[1, 2]]
