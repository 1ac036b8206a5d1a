"""Whether a node's cards can take a pod, container by container; the layout that comes out, as text and in the books."""

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS
from hbox_common.model.devices import (
    Ask,
    Card,
    CardAllocation,
    CardSlice,
    CardTraits,
    DeviceLabel,
    Fitted,
    PodDevices,
    Refused,
    effective,
    format_layout,
    parse_layout,
)
from hbox_common.model.devices.vendor import CARD_POLICY, WEIGHTS

TWO = tuple(Card(i, f"GPU-{i}", "A100-SXM4-40GB", 8000, 10, kind="NVIDIA") for i in range(2))


def slice_of(memory_mib: int, cores: int = 10, container: int = 0, count: int = 1) -> Ask:
    return Ask("NVIDIA", count, cores=cores, memory_mib=memory_mib, container=container)


def fitted(request: PodDevices, cards: tuple[Card, ...] = TWO, used: dict[int, CardAllocation] | None = None) -> Fitted:
    found = VENDORS.fit(cards, used or {}, request, {})
    assert isinstance(found, Fitted), found
    return found


def refused(request: PodDevices, cards: tuple[Card, ...] = TWO, used: dict[int, CardAllocation] | None = None) -> Refused:
    found = VENDORS.fit(cards, used or {}, request, {})
    assert isinstance(found, Refused), found
    return found


def test_containers_stand_beside_each_other_and_init_containers_before_them() -> None:
    asks = (slice_of(8000, container=0), slice_of(8000, container=1), slice_of(8000, container=2))
    request = PodDevices(asks, containers=4, init=1)
    layout = fitted(request).layout
    assert layout == ((CardSlice(0, 10, 8000),), (CardSlice(0, 10, 8000),), (CardSlice(1, 10, 8000),), ())
    assert effective(layout, request) == (CardSlice(0, 10, 8000), CardSlice(1, 10, 8000))
    sidecar = PodDevices(asks, containers=4, init=1, sidecars=(0,))
    assert refused(sidecar).cards == {DeviceLabel.MEMORY: 2}


def test_a_card_counts_the_most_that_is_needed_of_it_at_one_time() -> None:
    request = PodDevices((slice_of(6000, 80), slice_of(1000, 20, 1), slice_of(2000, 30, 2)), containers=3, init=1)
    layout = ((CardSlice(0, 80, 6000),), (CardSlice(0, 20, 1000),), (CardSlice(0, 30, 2000),))
    assert effective(layout, request) == (CardSlice(0, 80, 6000, slots=2),)
    assert effective(layout, PodDevices(request.asks, containers=3)) == (CardSlice(0, 100, 9000, slots=3),)


def test_a_layout_survives_its_text() -> None:
    layout = ((CardSlice(0, 30, 3000),), (), (CardSlice(1, 0, 5, "3g.20gb@4"), CardSlice(7, 100, 80_000)))
    for init in range(4):
        text = format_layout(layout, init)
        assert parse_layout(text) == (layout, init)
    assert format_layout(layout, 1) == "0:30:3000;|;1:0:5:3g.20gb@4,7:100:80000;"


@pytest.mark.parametrize(
    "text", ["0:1:2", "0:1;", "a:1:2;", "0:101:2;", "70000:1:2;", "0:1:2:" + "x" * 65 + ";", ";" * 300, "-1:0:0;"]
)
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_layout(text)


def test_each_card_has_the_first_label_that_applies() -> None:
    cards = (
        Card(0, "GPU-0", "T4", 8000, 10, healthy=False, kind="NVIDIA"),
        Card(1, "GPU-1", "T4", 8000, 10, kind="NVIDIA", traits=CardTraits(cordoned=True)),
        Card(2, "GPU-2", "T4", 8000, 2, kind="NVIDIA"),
        Card(3, "GPU-3", "T4", 8000, 10, kind="NVIDIA"),
        Card(4, "GPU-4", "T4", 8000, 10, kind="NVIDIA"),
        Card(5, "GPU-5", "T4", 8000, 10, kind="NVIDIA"),
    )
    used = {2: CardAllocation(1, 1, 2), 3: CardAllocation(10, 7500, 1), 4: CardAllocation(95, 100, 1)}
    found = refused(PodDevices((slice_of(1000, count=2),)), cards, used)
    assert found.cards == {
        DeviceLabel.NOT_HEALTHY: 1, DeviceLabel.CORDONED: 1, DeviceLabel.SLOTS: 1, DeviceLabel.MEMORY: 1, DeviceLabel.CORE: 1, DeviceLabel.TOO_FEW: 1,
    }  # fmt: skip
    assert "1/6 CardInsufficientCore" in str(found)
    assert refused(PodDevices((slice_of(1000, count=7),)), cards).cards == {DeviceLabel.NODE_INSUFFICIENT: 0}


@pytest.mark.parametrize(("policy", "card"), [("binpack", 1), ("spread", 0)])
def test_the_pods_policy_chooses_among_cards(policy: str, card: int) -> None:
    request = PodDevices((slice_of(1000),), wishes=((CARD_POLICY, policy),))
    [[taken]] = fitted(request, used={1: CardAllocation(25, 2000, 1)}).layout
    assert taken.index == card


def test_weights_that_are_none_are_refused_by_name() -> None:
    request = PodDevices((slice_of(1000),), wishes=((WEIGHTS, "slot=1,core=1"),))
    with pytest.raises(InvalidRequest, match="device-scoring-weights"):
        VENDORS.fit(TWO, {}, request, {})


def test_a_nodes_score_is_what_was_used_before() -> None:
    used = {0: CardAllocation(50, 4000, 5)}
    assert fitted(PodDevices((slice_of(1000, 30),)), TWO[:1], used).score == pytest.approx(15.0)
    assert fitted(PodDevices((slice_of(1000, 30),)), TWO, used).score == pytest.approx(7.5)


def test_what_is_given_away_is_not_changed_by_a_question() -> None:
    used = {0: CardAllocation(50, 4000, 5)}
    fitted(PodDevices((slice_of(1000),)), TWO, used)
    assert used == {0: CardAllocation(50, 4000, 5)}
