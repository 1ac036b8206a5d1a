"""`volcano.sh/vgpu-podgroup-policy: spread`: no card that another pod of the group has (Volcano's deviceshare)."""

from dataclasses import replace

import pytest

from hbox_common.model import VENDORS, Card, CardRequest
from hbox_common.model.devices import Ask, CardAllocation, DeviceLabel, Fitted, NodeReport, PodDevices, Refused, effective
from hbox_common.model.devices.volcano import GROUP_POLICY, in_group, spreads

VOLCANO = VENDORS.kind("volcano-vgpu")


def cards(mode: str = "hami-core", count: int = 2) -> tuple[Card, ...]:
    text = "".join(f"GPU-{i},7,40960,NVIDIA-A100-SXM4-40GB,true,{mode}:" for i in range(count))
    return VENDORS.cards_of(NodeReport("n1", annotations={"volcano.sh/node-vgpu-register": text}), print)


def a_pod(
    group: str = "ns/a", *, spread: bool = True, containers: int = 1, init: int = 0, memory_mib: int = 4096
) -> PodDevices:
    asks = tuple(Ask("volcano-vgpu", 1, cores=10, memory_mib=memory_mib, container=i) for i in range(init + containers))
    plain = CardRequest(containers, 10, memory_mib, devices=PodDevices(asks, init + containers, init=init))
    assert plain.devices is not None
    if spread:
        plain = replace(plain, devices=replace(plain.devices, wishes=((GROUP_POLICY, "spread"),)))
    assert spreads(plain) is spread
    request = in_group(plain, group, VOLCANO.models_annotation) if group else plain
    assert request is not None
    assert request.devices is not None
    return request.devices


def place(pods: list[PodDevices], on: tuple[Card, ...]) -> list[tuple[int, ...] | None]:
    """The cards that each pod gets, one after the other; judged as the ledger does."""
    books: dict[int, CardAllocation] = {}
    got: list[tuple[int, ...] | None] = []
    for pod in pods:
        found = VENDORS.fit(on, books, pod, {})
        if isinstance(found, Refused):
            got.append(None)
            continue
        slices = effective(found.layout, pod)
        by_index = {card.index: card for card in on}
        assert all(VOLCANO.admits(by_index[s.index], books.get(s.index, CardAllocation()), s) for s in slices)
        for s in slices:
            books.setdefault(s.index, CardAllocation()).book(s)
        got.append(tuple(s.index for s in slices))
    return got


@pytest.mark.parametrize("mode", ["hami-core", "mig"])
def test_pods_of_one_group_have_cards_of_their_own(mode: str) -> None:
    assert place([a_pod(), a_pod(), a_pod()], cards(mode)) == [(1,), (0,), None]


def test_pods_of_other_groups_and_of_none_share() -> None:
    one = cards(count=1)
    assert place([a_pod("ns/a"), a_pod("ns/b"), a_pod("", spread=True), a_pod("", spread=False)], one) == [(0,)] * 4
    assert place([a_pod("ns/a"), a_pod("other/a")], one) == [(0,), (0,)]


def test_only_those_who_ask_for_it_keep_off_and_everybody_counts() -> None:
    one = cards(count=1)
    assert place([a_pod(spread=True), a_pod(spread=False)], one) == [(0,), (0,)]
    assert place([a_pod(spread=False), a_pod(spread=True)], one) == [(0,), None]


def test_containers_of_one_pod_may_share_a_card() -> None:
    one = cards(count=1)
    assert place([a_pod(containers=2)], one) == [(0,)]
    assert place([a_pod(containers=2, init=1), a_pod()], one) == [(0,), None]
    assert place([a_pod(spread=False), a_pod(containers=1, init=1)], one) == [(0,), None], "its init container is no other pod"


def test_the_label_says_a_rule_of_the_vendor() -> None:
    held = {0: CardAllocation()}
    first = VENDORS.fit(cards(count=1), {}, a_pod(), {})
    assert isinstance(first, Fitted)
    held[0].book(first.layout[0][0])
    refused = VENDORS.fit(cards(count=1), held, a_pod(), {})
    assert isinstance(refused, Refused)
    assert refused.cards == {DeviceLabel.CUSTOM: 1}


def test_the_ledger_refuses_what_would_share() -> None:
    [card] = cards(count=1)
    found = VENDORS.fit((card,), {}, a_pod(), {})
    assert isinstance(found, Fitted)
    taken = found.layout[0][0]
    held = CardAllocation()
    held.book(taken)
    assert not VOLCANO.admits(card, held, taken)
    assert VOLCANO.admits(card, held, replace(taken, part=""))
    assert VOLCANO.admits(card, held, replace(taken, part="spread=000000000000"))
    assert not VOLCANO.admits(card, held, replace(taken, part="anything"))


@pytest.mark.parametrize("mode", ["hami-core", "mig"])
def test_plugins_read_no_group_and_a_restart_knows_it(mode: str) -> None:
    on = cards(mode, 1)
    pod = a_pod()
    found = VENDORS.fit(on, {}, pod, {})
    assert isinstance(found, Fitted)
    notes = VOLCANO.annotate(found.layout, {0: on[0]})
    assert "spread=" not in notes["volcano.sh/vgpu-ids-new"]
    assert VOLCANO.device_id(on[0], found.layout[0][0]) == ("GPU-0[0-0]" if mode == "mig" else "GPU-0")
    assert VOLCANO.rebuild(VOLCANO.allocated(notes), on, pod.asks, pod.wished) == found.layout


def test_a_request_without_wishes_says_its_group_too() -> None:
    request = in_group(CardRequest(2, 10, 4096, models=("A100",), container=1, containers=3), "ns/a", VOLCANO.models_annotation)
    assert request is not None
    assert request.devices is not None
    assert request.devices.asks == (Ask("volcano-vgpu", 2, 10, 4096, container=1),)
    assert request.devices.wished[VOLCANO.models_annotation] == "A100"
    assert in_group(None, "ns/a", "") is None
    others = CardRequest(1, devices=PodDevices((Ask("NVIDIA", 1),)))
    assert in_group(others, "ns/a", "") == others


def test_no_annotation_makes_somebody_a_member_of_a_group() -> None:
    """The group is what job-controller says."""
    assert "group" not in VENDORS.pod_annotations
    assert VENDORS.fit(cards(count=1), {}, a_pod(), {}) != VENDORS.fit(cards(count=1), {}, a_pod("ns/b"), {})
