"""Whatever pods come and go, of whichever maker's cards: no card gives more than it has, parts on one card can stand together, and what is written on a pod for
its device plugin says again what the books say."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.errors import InvalidRequest
from hbox_common.model import VENDORS, Card, CardSlice, Vendor
from hbox_common.model.devices import Ask, CardAllocation, Fitted, NodeReport, PodDevices, effective
from hbox_common.model.devices.ascend import CHIPS, MODE, SOFT, SOFT_NODE
from hbox_common.model.devices.kunlun import HANDLES, SIZES_MIB
from hbox_common.model.devices.metax import APP_CLASS, CLASSES, POLICIES, QOS
from hbox_common.model.devices.mthreads import MEMORY_SIZES
from hbox_common.model.devices.neuron import INSTANCE_TYPE
from hbox_common.model.devices.vendor import CARD_POLICY

from ..searching import examples

Amounts = Mapping[str, str | float]

NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class Kind:
    """A node with cards of one kind, and what containers may ask of them."""

    word: str
    amounts: Mapping[str, int]
    annotations: Mapping[str, str]
    asks: st.SearchStrategy[Amounts]
    wishes: st.SearchStrategy[Mapping[str, str]] = st.just(NOTHING)
    facts: Mapping[str, str] | None = None

    @property
    def vendor(self) -> Vendor:
        return VENDORS.kind(self.word)

    @property
    def cards(self) -> tuple[Card, ...]:
        found = self.vendor.register(NodeReport("n", self.amounts, {}, self.annotations))
        return tuple(replace(card, kind=self.word) for card in found)


def records(cards: int, **fields: object) -> str:
    return json.dumps([{"id": f"C-{i}", "index": i, "health": True, **fields} for i in range(cards)])


def amounts(
    vendor: Vendor, count: int, memory: st.SearchStrategy[int] | None = None, cores: int | None = 100
) -> st.SearchStrategy[Amounts]:
    optional = {}
    if memory is not None:
        optional[vendor.memory] = memory
    if cores is not None and vendor.cores:
        optional[vendor.cores] = st.integers(1, cores)
    return st.fixed_dictionaries({vendor.cards: st.integers(1, count)}, optional=optional)


def kinds() -> list[Kind]:
    of = VENDORS.kind
    mib = st.integers(1, 70_000)
    found = [
        Kind("NVIDIA", {}, {"hami.io/node-nvidia-register": records(4, count=10, devmem=40_960, type="NVIDIA-A100")}, amounts(of("NVIDIA"), 3, mib)),
        Kind("AMD", {}, {"hami.io/node-amd-register": records(3, count=4, devmem=65_536, devcore=304, type="MI300X")}, amounts(of("AMD"), 2, mib)),
        Kind("DCU", {}, {"hami.io/node-dcu-register": "".join(f"D-{i},4,32768,100,DCU-Z100L,0,true:" for i in range(3))}, amounts(of("DCU"), 2, mib)),
        Kind("MLU", {"cambricon.com/vmlu": 300, of("MLU").cores: 300, of("MLU").memory: 480}, {}, amounts(of("MLU"), 2, st.integers(1, 170))),
        Kind(
            "Mthreads", {of("Mthreads").cores: 48, of("Mthreads").memory: 288}, {}, amounts(of("Mthreads"), 2, st.sampled_from(MEMORY_SIZES), 16)
        ),
        Kind("Biren", {}, {"hami.io/node-biren-register": records(3, count=2, devmem=65_536, type="Biren-BR106")}, amounts(of("Biren"), 3)),
        Kind(
            "Vastai", {}, {"hami.io/node-va-register": records(4, count=2, devmem=32_768, type="VA1", custominfo={"DeviceStrategy": "die", "AIC": "a"})},
            amounts(of("Vastai"), 3),
        ),
        Kind("Gaudi", {"habana.ai/gaudi": 4}, {}, amounts(of("Gaudi"), 3)),
        Kind("cGPU", {of("cGPU").cards: 3, of("cGPU").memory: 46}, {}, st.builds(lambda gib: {of("cGPU").memory: gib}, st.integers(1, 15))),
        Kind(
            "cGPU", {of("cGPU").cards: 3, of("cGPU").memory: 46, of("cGPU").cores: 300}, {},
            st.builds(lambda gib, cores: {of("cGPU").memory: gib, of("cGPU").cores: cores}, st.integers(1, 15), st.integers(1, 100)),
        ),
        Kind("Metax-GPU", {"metax-tech.com/gpu": 3}, {}, amounts(of("Metax-GPU"), 2)),
        Kind("kunlun", {"kunlunxin.com/xpu": 8}, {}, amounts(of("kunlun"), 8)),
        Kind(
            "XPU", {}, {"hami.io/node-register-xpu": records(8, count=4, devmem=98_304, type="XPU-P800")},
            amounts(of("XPU"), 8, st.sampled_from((*SIZES_MIB, 20_000))),
        ),
        Kind(
            "AWSNeuron", {"aws.amazon.com/neuron": 16, "aws.amazon.com/neuroncore": 32}, {},
            st.one_of(amounts(of("AWSNeuron"), 8), st.builds(lambda n: {"aws.amazon.com/neuroncore": n}, st.sampled_from((1, 2, 4, 8)))),
            facts={INSTANCE_TYPE: "inf2.48xlarge"},
        ),
        Kind("GCU", {"enflame.com/gcu": 3}, {}, amounts(of("GCU"), 2)),
        Kind(
            "Enflame", {"enflame.com/gcu-count": 3, "enflame.com/shared-gcu": 18}, {},
            st.builds(lambda n, p: {"enflame.com/vgcu": n, "enflame.com/vgcu-percentage": p}, st.integers(1, 2), st.integers(1, 100)),
        ),
        Kind(
            "Enflame", {},
            {
                "enflame.com/gcu-drs-capacity": json.dumps(
                    {"devices": [{"index": str(i), "capacity": 6} for i in range(2)], "profiles": {"1g.6gb": "0", "3g.20gb": "1", "6g.40gb": "2"}}
                )
            },
            st.one_of(
                st.builds(lambda n: {"enflame.com/drs-gcu": n}, st.sampled_from((1, 3, 6))),
                st.builds(lambda m, c: {"enflame.com/gcu-memory": m, "enflame.com/gcu-core": c}, st.integers(1, 40), st.integers(1, 100)),
            ),
        ),
        Kind(
            "Metax-SGPU", {},
            {
                "metax-tech.com/node-gpu-devices": json.dumps(
                    [{"uuid": f"M-{i}", "totalDevCount": 16, "totalCompute": 100, "totalVRam": 65_536, "healthy": True, "linkZone": i // 2} for i in range(4)]
                )
            },
            amounts(of("Metax-SGPU"), 1, st.integers(1, 64)),
            st.fixed_dictionaries({}, optional={QOS: st.sampled_from(POLICIES), APP_CLASS: st.sampled_from(CLASSES)}),
        ),
    ]  # fmt: skip
    for word in ("MR-V100", "BI-V150"):
        note = {f"hami.io/node-{word}-register": "".join(f"I-{i},10,32768,100,{word},0,true:" for i in range(3))}
        found.append(Kind(word, {}, note, amounts(of(word), 2, st.integers(1, 140))))
    for chip in CHIPS:
        note = {
            f"hami.io/node-register-{chip.word}": records(
                4, count=7, devmem=chip.memory_mib, devcore=chip.cores, type=chip.word, custominfo={"NetworkID": 0}
            )
        }
        found.append(
            Kind(
                chip.word, {}, note, amounts(of(chip.word), 2, st.integers(1, chip.capacity_mib)),
                st.sampled_from((NOTHING, {MODE: SOFT})), {SOFT_NODE: "true"},
            )
        )  # fmt: skip
    return found


KINDS = kinds()


def test_every_vendor_is_tried() -> None:
    words = {kind.word for kind in KINDS}
    alike = {"MR-V50": "MR-V100", "BI-V100": "BI-V150"}
    # A register and names of its own for NVIDIA's cards: tests of MIG and of the handshake. And one that is never given out.
    elsewhere = {"volcano-vgpu", "qGPU"}
    assert {alike.get(vendor.kind, vendor.kind) for vendor in VENDORS} - elsewhere == words


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
@examples(25, dear=True)
@given(data=st.data())
def test_no_card_gives_more_than_it_has_and_annotations_say_what_the_books_say(kind: Kind, data: st.DataObject) -> None:
    vendor, cards = kind.vendor, kind.cards
    by_index = {card.index: card for card in cards}
    used: dict[int, CardAllocation] = {}
    alone: set[int] = set()
    running: list[tuple[CardSlice, ...]] = []
    for _ in range(data.draw(st.integers(1, 8))):
        leaves: bool = data.draw(st.booleans())
        if running and leaves:
            for s in running.pop(data.draw(st.integers(0, len(running) - 1))):
                used[s.index].book(s, -1)
                alone.discard(s.index)
            continue
        wishes = dict(data.draw(kind.wishes))
        asks = [
            ask
            for i in range(data.draw(st.integers(1, 3)))
            if (ask := _ask(vendor, data.draw(kind.asks), wishes, i)) is not None
        ]
        if not asks:
            continue
        if data.draw(st.booleans()):
            wishes[CARD_POLICY] = data.draw(st.sampled_from(("binpack", "spread", "mutex", "numa,binpack")))
        init = data.draw(st.integers(0, 1))
        pod = PodDevices(tuple(asks), containers=4, init=init, wishes=tuple(sorted(wishes.items())))
        found = VENDORS.fit(cards, used, pod, kind.facts or {})
        shuffled = Random(7).sample(cards, len(cards))
        assert VENDORS.fit(shuffled, used, pod, kind.facts or {}) == found
        if not isinstance(found, Fitted):
            assert found.cards
            continue
        _as_asked(asks, found)
        assert _again(vendor, found, by_index, asks, wishes) == found.layout
        taken = effective(found.layout, pod)
        for s in taken:
            held = used.setdefault(s.index, CardAllocation())
            assert vendor.admits(by_index[s.index], held, s), (s, held)
            assert s.index not in alone
            if s.whole:
                assert held.pods == 0
                alone.add(s.index)
            held.book(s)
            card = by_index[s.index]
            assert held.cores <= 100
            assert held.memory_mib <= card.memory_mib
            assert held.pods <= card.shares
        running.append(taken)
        _particular(kind, used)
    for pods in running:
        for s in pods:
            used[s.index].book(s, -1)
    assert all(held == CardAllocation() for held in used.values())


def _ask(vendor: Vendor, asked: Amounts, wishes: Mapping[str, str], container: int) -> Ask | None:
    """None where the vendor refuses it."""
    with suppress(InvalidRequest):
        ask = vendor.ask(asked, wishes)
        return None if ask is None else replace(ask, container=container)
    return None


def _as_asked(asks: list[Ask], found: Fitted) -> None:
    for ask in asks:
        own = found.layout[ask.container]
        assert len({s.index for s in own}) == len(own) == ask.count


def _again(
    vendor: Vendor, found: Fitted, cards: Mapping[int, Card], asks: list[Ask], wishes: Mapping[str, str]
) -> tuple[tuple[CardSlice, ...], ...]:
    """The layout that the annotations of the pod say."""
    notes = vendor.annotate(found.layout, cards, node="n", now=1.5)
    if not vendor.allocated_annotation:
        return found.layout
    layout = vendor.rebuild(notes[vendor.allocated_annotation], tuple(cards.values()), asks, wishes)
    return layout + ((),) * (len(found.layout) - len(layout))  # JSON by container says nothing of those behind the last


def _particular(kind: Kind, used: Mapping[int, CardAllocation]) -> None:
    """What amounts do not say."""
    if kind.word == "XPU":
        sizes = {i: held.memory_mib // held.pods for i, held in used.items() if held.pods}
        assert all(used[i].memory_mib == used[i].pods * size for i, size in sizes.items())
        divided = sum({SIZES_MIB[0]: 4, SIZES_MIB[1]: 2}.get(size, 0) for size in sizes.values())
        assert len(kind.cards) + divided <= HANDLES
    if kind.word == "Ascend910C":
        assert all((i ^ 1) in {j for j, held in used.items() if held.pods} for i, held in used.items() if held.pods)
