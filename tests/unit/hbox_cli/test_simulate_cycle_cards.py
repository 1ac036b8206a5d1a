"""Which cards the pods of a saved cluster hold."""

from dataclasses import replace

from hbox_cli.simulate.cards import Holder, slices_of
from hbox_common.model import VENDORS, Card, CardId, CardRequest, CardSlice, Generation, NodeName, NodeState
from hbox_common.model.devices import Ask, PodDevices
from hbox_scheduler.core.devices import devices_of

NODE = NodeState(
    name=NodeName("n"),
    uid="u",
    generation=Generation(1),
    ready=True,
    cards=tuple(Card(index=i, uuid=f"GPU-{i}", model="A", memory_mib=1000, shares=10) for i in range(4)),
)


def held(*holders: Holder) -> list[tuple[CardSlice, ...]]:
    """Slices by the indices of cards; each has the id of its card."""
    found = slices_of([NODE], holders)
    assert all(s.card == NODE.cards[s.index].id for own in found for s in own)
    return [tuple(replace(s, card=CardId(str(s.index))) for s in own) for own in found]


def holder(request: CardRequest, *, slices: tuple[CardSlice, ...] = (), allocated: str = "", node: str = "n") -> Holder:
    written = ((VENDORS.default, allocated),) if allocated else ()
    return Holder(NodeName(node), devices_of(request, "NVIDIA"), request, slices, written)


def test_what_hbox_wrote_counts() -> None:
    own = (CardSlice(2, 100, 1000), CardSlice(3, 100, 1000))
    assert held(holder(CardRequest(2), slices=own, allocated="GPU-0,NVIDIA,1000,100:;")) == [own]


def test_what_hami_wrote_is_found_by_the_cards_ids() -> None:
    two_containers = "GPU-1,NVIDIA,300,30:GPU-3,NVIDIA,300,30:;GPU-1,NVIDIA,100,5:;"
    assert held(holder(CardRequest(2, cores=30, memory_mib=300), allocated=two_containers)) == [
        (CardSlice(1, 35, 400, slots=2), CardSlice(3, 30, 300))
    ]


def test_a_note_that_cannot_be_true_is_passed_over() -> None:
    nobody = (CardSlice(9, 100, 1000),)
    for note in ("GPU-9,NVIDIA,1,1:;", "GPU-0,NVIDIA,much,1:;", "GPU-0;:,,"):
        assert held(holder(CardRequest(1), slices=nobody, allocated=note)) == [(CardSlice(0, 100, 1000),)]


def test_pods_without_a_note_take_the_lowest_cards_that_the_others_left() -> None:
    written = holder(CardRequest(1), slices=(CardSlice(0, 100, 1000),))
    assert held(holder(CardRequest(2)), written, holder(CardRequest(1))) == [
        (CardSlice(1, 100, 1000), CardSlice(2, 100, 1000)),
        (CardSlice(0, 100, 1000),),
        (CardSlice(3, 100, 1000),),
    ]


def test_shares_without_a_note_are_put_together() -> None:
    share = CardRequest(1, cores=40, memory_mib=400)
    assert [s[0].index for s in held(holder(share), holder(share), holder(share))] == [0, 0, 1]


def test_a_pod_holds_no_more_than_there_is() -> None:
    assert len(held(holder(CardRequest(8)))[0]) == 4
    assert held(holder(CardRequest(1), node="elsewhere")) == [()]


def by_containers(allocated: str, *, started: bool = False) -> Holder:
    """600 MiB for an init container, 300 and 100 MiB for the two that run."""
    asks = tuple(Ask("NVIDIA", 1, cores=10, memory_mib=mib, container=place) for place, mib in enumerate((600, 300, 100)))
    devices = PodDevices(asks, containers=3, init=1)
    return Holder(NodeName("n"), devices, CardRequest(2, devices=devices), (), ((VENDORS.default, allocated),), started)


def test_an_init_container_counts_until_it_has_ended() -> None:
    written = "GPU-0,NVIDIA,600,10:;GPU-0,NVIDIA,300,10:;GPU-1,NVIDIA,100,10:;"
    assert held(by_containers(written)) == [(CardSlice(0, 10, 600), CardSlice(1, 10, 100))]
    assert held(by_containers(written, started=True)) == [(CardSlice(0, 10, 300), CardSlice(1, 10, 100))]


def test_containers_on_one_card_have_a_share_of_it_each() -> None:
    assert held(by_containers("GPU-2,NVIDIA,300,10:;GPU-2,NVIDIA,100,10:;")) == [(CardSlice(2, 20, 400, slots=2),)], (
        "as HAMi wrote it before v2.10, without init containers"
    )


def test_who_has_nothing_written_on_it_takes_what_its_containers_need() -> None:
    assert held(by_containers("")) == [(CardSlice(0, 20, 600, slots=2),)]


def test_annotations_of_the_pod_say_what_its_part_is() -> None:
    vendor = VENDORS.kind("Metax-SGPU")
    node = NodeState(
        NodeName("n"), "u", Generation(1), ready=True, cards=(Card(0, "M-0", "MXC500", 65_536, 16, kind=vendor.kind),)
    )
    wishes = (("metax-tech.com/sgpu-qos-policy", "fixed-share"),)
    devices = PodDevices((Ask(vendor.kind, 1, cores=10, memory_mib=2048),), wishes=wishes)
    request = CardRequest(1, cores=10, memory_mib=2048, devices=devices)
    own = Holder(NodeName("n"), devices, request, (), ((vendor, "M-0,Metax-SGPU,2048,10:;"),))
    assert slices_of([node], [own]) == [(CardSlice(0, 10, 2048, "fixed-share", card=CardId("gpu:M-0")),)]
