"""Which cards the pods of a saved cluster hold."""

from hbox_cli.simulate.cards import Holder, slices_of
from hbox_common.model import VENDORS, Card, CardRequest, CardSlice, Generation, NodeName, NodeState

NODE = NodeState(
    name=NodeName("n"),
    uid="u",
    generation=Generation(1),
    ready=True,
    cards=tuple(Card(index=i, uuid=f"GPU-{i}", model="A", memory_mib=1000, shares=10) for i in range(4)),
)


def held(*holders: Holder) -> list[tuple[CardSlice, ...]]:
    return slices_of([NODE], holders)


def holder(request: CardRequest, *, slices: tuple[CardSlice, ...] = (), allocated: str = "", node: str = "n") -> Holder:
    return Holder(NodeName(node), request, slices, VENDORS.default, allocated)


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
