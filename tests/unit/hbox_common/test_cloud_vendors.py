"""Shared GPUs of clouds: Alibaba's cGPU, by what its plugins read; Tencent's qGPU, which is left to its own scheduler."""

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS, Card, CardSlice
from hbox_common.model.devices import Ask, CardAllocation, DeviceLabel, Fitted, NodeReport, PodDevices, Refused

CGPU, QGPU = VENDORS.kind("cGPU"), VENDORS.kind("qGPU")
MEM, CORE, COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage", "aliyun.com/gpu-count"


def cards(**amounts: int) -> tuple[Card, ...]:
    named = {"mem": MEM, "core": CORE, "count": COUNT}
    return VENDORS.cards_of(NodeReport("n1", {named[key]: n for key, n in amounts.items()}), print)


def pod(*asked: dict[str, int]) -> PodDevices:
    asks = [(i, CGPU.ask(each)) for i, each in enumerate(asked)]
    return PodDevices(
        tuple(Ask(a.kind, a.count, a.cores, a.memory_mib, container=i) for i, a in asks if a), containers=len(asked)
    )


def test_a_node_says_sums_and_its_cards_are_alike() -> None:
    assert [(c.uuid, c.memory_mib, c.shares, c.effective_traits.mode) for c in cards(mem=46, count=3)] == [
        (f"n1-cgpu-{i}", 15 * 1024, 15, "") for i in range(3)
    ]
    assert [c.effective_traits.mode for c in cards(mem=30, count=2, core=200)] == ["core_mem"] * 2
    assert cards(mem=30) == cards(count=2) == ()


@pytest.mark.parametrize(
    ("amounts", "said"), [({"mem": 32_768, "count": 2}, "no number of GiB"), ({"mem": 9000, "count": 5000}, "5000 cards")]
)
def test_a_node_whose_amounts_cannot_be_read_has_no_cards_and_says_so(amounts: dict[str, int], said: str) -> None:
    told: list[str] = []
    named = {"mem": MEM, "count": COUNT}
    assert VENDORS.cards_of(NodeReport("n1", {named[key]: n for key, n in amounts.items()}), told.append) == ()
    assert said in told[0]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({COUNT: 2}, "counts a node's cards"),
        ({CORE: 20}, "given without aliyun.com/gpu-mem"),
        ({MEM: 4, CORE: 101}, "percentage is 101"),
        ({MEM: 4, CORE: 0}, "percentage is 0"),
        ({MEM: "5.5"}, "gpu-mem is 5.5"),
        ({MEM: 10**12}, "gpu-mem is"),
        ({MEM: -1}, "gpu-mem is -1"),
    ],
)
def test_requests_that_mean_nothing_say_what_to_write(asked: dict[str, int], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as refused:
        CGPU.ask(asked)
    assert refused.value.hint


def test_what_asks_for_compute_goes_where_it_is_divided_and_nothing_else() -> None:
    divided, shared = cards(mem=16, count=1, core=100), cards(mem=16, count=1)
    for asked, on, fits in (
        ({MEM: 4}, shared, True),
        ({MEM: 4}, divided, False),
        ({MEM: 4, CORE: 20}, divided, True),
        ({MEM: 4, CORE: 20}, shared, False),
    ):
        found = VENDORS.fit(on, {}, pod(asked), {})
        assert isinstance(found, Fitted) is fits
        if isinstance(found, Refused):
            assert found.cards == {DeviceLabel.MODE: 1}


def test_containers_of_a_pod_are_on_one_card_and_both_plugins_are_told() -> None:
    on = cards(mem=32, count=2, core=200)
    held = {0: CardAllocation()}
    held[0].book(CardSlice(0, 50, 8 * 1024))
    asked = pod({MEM: 2, CORE: 10}, {}, {MEM: 3, CORE: 20})
    found = VENDORS.fit(on, held, asked, {})
    assert isinstance(found, Fitted)
    assert found.layout == ((CardSlice(0, 10, 2048),), (), (CardSlice(0, 20, 3072),)), "the fullest card that fits"
    assert VENDORS.annotate(found.layout, on, ["cGPU"], node="n1", now=2.0) == {
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_POD": "5",
        "ALIYUN_COM_GPU_MEM_DEV": "16",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "2000000000",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
        "scheduler.framework.gpushare.allocation": '{"0":{"0":2},"2":{"0":3}}',
        "scheduler.framework.gpushare.assume-time": "2000000000",
        "scheduler.framework.gpushare.assigned": "false",
        "gpushare.alibabacloud.com/core-percentage": '{"0":{"0":10},"2":{"0":20}}',
    }
    assert VENDORS.registered(NodeReport("n1", {COUNT: 2, MEM: 32})) == ("cGPU",)


def test_a_second_container_that_only_another_card_could_take_is_refused() -> None:
    on = cards(mem=16, count=2)
    refused = VENDORS.fit(on, {}, pod({MEM: 6}, {MEM: 4}), {})
    assert isinstance(refused, Refused)
    assert refused.cards == {DeviceLabel.MEMORY: 1, DeviceLabel.CUSTOM: 1}


@pytest.mark.parametrize(
    ("notes", "layout"),
    [
        ({"ALIYUN_COM_GPU_MEM_IDX": "1", "ALIYUN_COM_GPU_MEM_POD": "8"}, ((CardSlice(1, 0, 8192),),)),
        ({"scheduler.framework.gpushare.allocation": '{"1":{"0":7}}'}, ((), (CardSlice(0, 0, 7168),))),
        ({"scheduler.framework.gpushare.allocation": '{"0":{"9":7}}'}, ()),
        ({"scheduler.framework.gpushare.allocation": '{"0":{"0":-7}, "x":1, "99999999999":{}}'}, ()),
        ({"scheduler.framework.gpushare.allocation": '{"0":{"0":"7"}}'}, ()),
        ({"scheduler.framework.gpushare.allocation": "[" * 5000}, ()),
        ({"scheduler.framework.gpushare.allocation": '["0"]'}, ()),
        ({"ALIYUN_COM_GPU_MEM_IDX": "-1", "ALIYUN_COM_GPU_MEM_POD": "8"}, ()),
        ({"ALIYUN_COM_GPU_MEM_IDX": "1"}, ()),
    ],
)
def test_what_other_schedulers_wrote_is_read(notes: dict[str, str], layout: tuple[tuple[CardSlice, ...], ...]) -> None:
    on = cards(mem=32, count=2)
    text = CGPU.allocated(notes)
    assert (CGPU.rebuild(text, on, ()) if text else ()) == layout


def test_quotas_over_its_memory_are_in_gib() -> None:
    assert VENDORS.units[f"limits.{MEM}"] == 1024
    assert VENDORS.limits[f"limits.{COUNT}"] == COUNT


def test_cards_of_qgpu_are_known_and_never_asked_for() -> None:
    report = NodeReport("n1", {"tke.cloud.tencent.com/qgpu-core": 200, "tke.cloud.tencent.com/qgpu-memory": 30})
    assert [(c.uuid, c.memory_mib) for c in VENDORS.cards_of(report, print)] == [(f"n1-qgpu-{i}", 15 * 1024) for i in range(2)]
    assert VENDORS.registered(report) == ()
    for name in ("qgpu-core", "qgpu-memory", "qgpu-core-greedy"):
        with pytest.raises(InvalidRequest, match="only be allocated by TKE's qgpu-scheduler") as refused:
            QGPU.ask({f"tke.cloud.tencent.com/{name}": 20})
        assert "spec.schedulerName" in refused.value.hint
    assert QGPU.ask({}) is None
