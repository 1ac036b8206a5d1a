"""What ResourceQuotas say of cards, and what counts against them."""

import pytest

from hbox_common.kube import ResourceQuota, ResourceQuotaSpec
from hbox_common.kube.objects import Metadata, ScopeSelector, ScopeSelectorTerm
from hbox_common.model import VENDORS, CardQuota, CardQuotas, CardSlice, charge, charge_all
from hbox_common.model.devices.nvidia import GPU, GPU_CORES, GPU_MEMORY
from hbox_ledger.adapters.quotas import card_quota

MEM, CORES = "limits.nvidia.com/gpumem", "limits.nvidia.com/gpucores"
ASKED = {GPU: 2}
TWO_CARDS = (CardSlice(0, 0, 2000), CardSlice(1, 0, 2000))


def read(hard: dict[str, str | float], **more: object) -> CardQuota | None:
    found = ResourceQuota(Metadata("cards", "uid", "team"), ResourceQuotaSpec(hard=hard, **more))  # type: ignore[arg-type]
    return card_quota(found)


def limited(*quotas: CardQuota) -> CardQuotas:
    made = CardQuotas()
    made.adopt(quotas, ())
    return made


def memory(limit: int, name: str = "cards") -> CardQuota:
    return CardQuota("team", name, {GPU_MEMORY: limit})


def test_each_card_of_a_pod_counts() -> None:
    assert charge(ASKED, TWO_CARDS) == {GPU: 2, GPU_CORES: 0, GPU_MEMORY: 4000}
    assert charge(ASKED, [CardSlice(0, 100, 40_960)], times=2) == {GPU: 2, GPU_CORES: 200, GPU_MEMORY: 81_920}


def test_pods_that_are_placed_alike_count_each() -> None:
    other = (CardSlice(2, 30, 500),)
    assert charge_all(ASKED, [TWO_CARDS, other, TWO_CARDS, TWO_CARDS]) == {GPU: 7, GPU_CORES: 30, GPU_MEMORY: 12_500}
    assert charge_all(ASKED, ()) == charge(ASKED, ())
    quotas = limited(memory(100_000))
    quotas.book_all("team", ASKED, [TWO_CARDS, other])
    quotas.book_all("other", ASKED, [TWO_CARDS])
    assert quotas.used("team") == {GPU: 3, GPU_CORES: 30, GPU_MEMORY: 4500}


def test_two_cards_of_2000_mib_fill_4000() -> None:
    quotas = limited(memory(4000))
    assert quotas.headroom("team", charge(ASKED, TWO_CARDS)).times == 1
    quotas.book("team", ASKED, TWO_CARDS)
    headroom = quotas.headroom("team", charge(ASKED, TWO_CARDS))
    assert headroom.times == 0
    assert headroom.message == (
        "ResourceQuota cards of namespace team allows 4000 of limits.nvidia.com/gpumem, 4000 are in use and 4000 more are asked for"
    )
    quotas.book("team", ASKED, TWO_CARDS, -1)
    assert quotas.headroom("team", charge(ASKED, TWO_CARDS)).times == 1


def test_all_quotas_of_a_namespace_hold_and_those_of_others_do_not() -> None:
    quotas = limited(memory(9000), memory(4000, "tighter"), CardQuota("other", "cards", {GPU_MEMORY: 0}))
    headroom = quotas.headroom("team", charge(ASKED, TWO_CARDS), {GPU_MEMORY: 2000})
    assert (headroom.times, "ResourceQuota tighter" in headroom.message) == (0, True)
    assert quotas.headroom("nobody's", charge(ASKED, TWO_CARDS)).times is None


def test_0_lets_nobody_have_any_and_what_is_not_asked_for_is_not_limited() -> None:
    quotas = limited(CardQuota("team", "cards", {GPU_CORES: 0}))
    assert quotas.headroom("team", charge(ASKED, [CardSlice(0, 30, 2000)])).times == 0
    assert quotas.headroom("team", charge(ASKED, TWO_CARDS)).times is None


def test_a_quota_below_what_is_in_use_takes_nothing_and_gives_nothing() -> None:
    quotas = limited(memory(8000))
    quotas.book("team", ASKED, TWO_CARDS)
    assert quotas.adopt([memory(1000)], [("team", ASKED, TWO_CARDS)]) == {"team"}
    assert quotas.left("team") == {GPU_MEMORY: -3000}
    assert quotas.headroom("team", charge(ASKED, [CardSlice(0, 0, 1)])).times == 0


def test_what_is_held_is_counted_when_a_namespace_gets_its_first_quota() -> None:
    quotas = limited()
    quotas.book("team", ASKED, TWO_CARDS)  # nobody asks
    held = [("team", ASKED, TWO_CARDS), ("team", ASKED, TWO_CARDS), ("other", ASKED, TWO_CARDS)]
    assert quotas.adopt([memory(8000)], held) == {"team"}
    assert quotas.left("team") == {GPU_MEMORY: 0}
    assert quotas.adopt([memory(8000)], held) == set()
    assert quotas.adopt([], held) == {"team"}
    assert "team" not in quotas


def test_keys_of_a_quota_that_are_not_about_cards_are_kubernetes_business() -> None:
    assert read({"requests.cpu": "4", "requests.nvidia.com/gpu": "2", "pods": 3}) is None
    both = read({MEM: "4k", CORES: 150, "limits.nvidia.com/gpu": "3", "limits.cpu": "1"})
    assert both == CardQuota("team", "cards", {GPU: 3, GPU_CORES: 150, GPU_MEMORY: 4000})


@pytest.mark.parametrize(
    ("hard", "more", "said"),
    [
        ({MEM: "4Gi"}, {}, f"{MEM} is 4Gi; write a plain number (of MiB for memory, of percent for compute)"),
        ({MEM: "-1"}, {}, f"{MEM}: -1 is negative"),
        ({MEM: "much"}, {}, f"{MEM}: 'much' is not a quantity"),
        ({"limits.nvidia.com/gpumem-percentage": "50"}, {}, "limits.nvidia.com/gpumem-percentage means nothing over cards of several sizes"),
        ({MEM: 1}, {"scopes": ("BestEffort",)}, "scopes are not supported where cards are limited"),
        (
            {MEM: 1},
            {"scope_selector": ScopeSelector((ScopeSelectorTerm("PriorityClass", "In", ("high",)),))},
            "scopes are not supported where cards are limited",
        ),
    ],
)  # fmt: skip
def test_a_quota_that_cannot_be_kept_as_written_lets_nobody_have_cards(
    hard: dict[str, str | float], more: dict[str, object], said: str
) -> None:
    quota = read(hard, **more)
    assert quota is not None
    assert quota.fault.startswith(said)
    headroom = limited(quota).headroom("team", charge(ASKED, [CardSlice(0, 0, 0)]))
    assert (headroom.times, headroom.message) == (
        0,
        f"ResourceQuota cards of namespace team allows no cards: {quota.fault}",
    )
    assert limited(quota).left("team") == dict.fromkeys(VENDORS.limits.values(), 0)


def test_of_several_quotas_of_a_namespace_the_one_that_leaves_least_counts() -> None:
    quotas = limited(memory(4000, "a"), memory(10_000, "b"))
    assert quotas.headroom("team", charge(ASKED, [CardSlice(0, 0, 2000)])).times == 2


def test_a_limit_of_memory_is_in_its_vendors_unit() -> None:
    found = read({"limits.cambricon.com/mlu.smlu.vmemory": "60", MEM: "60"})
    assert found is not None
    assert found.limits == {"cambricon.com/mlu.smlu.vmemory": 60 * 256, GPU_MEMORY: 60}
    unreadable = read({"limits.cambricon.com/mlu.smlu.vmemory": "60Gi"})
    assert unreadable is not None
    assert "of 256 MiB for memory" in unreadable.fault
