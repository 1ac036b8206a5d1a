"""NVIDIA's cards under any sequence of pods: no card is given away twice, no instances of MIG overlap, and what is written on pods says it all."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import VENDORS
from hbox_common.model.devices import (
    Ask,
    Card,
    CardAllocation,
    CardSlice,
    CardTraits,
    Fitted,
    Layout,
    PodDevices,
    Profile,
    Refused,
    effective,
    format_layout,
    mig,
    parse_layout,
)
from hbox_common.model.devices.vendor import CARD_POLICY

NVIDIA, VOLCANO = VENDORS.kind("NVIDIA"), VENDORS.kind("volcano-vgpu")

#: Placements of an A100, with memory and compute as NVML rounds them.
PLACED = (
    Profile("1g.5gb", 4864, 14, tuple((i, 1) for i in range(7))),
    Profile("2g.10gb", 9856, 28, ((0, 2), (2, 2), (4, 2))),
    Profile("3g.20gb", 19_968, 42, ((0, 4), (4, 4))),
    Profile("7g.40gb", 40_192, 100, ((0, 8),)),
)
COUNTED = mig.known_profiles("A100-SXM4-40GB", mig.KNOWN_GEOMETRIES)

WAYS = (CardTraits("hami-core"), CardTraits("mig", profiles=COUNTED), CardTraits("mig", profiles=PLACED))
policies = st.sampled_from(
    ["", "binpack", "spread", "mutex", "topology-aware", "numa,binpack", "mutex,topology-aware", "spread,numa"]
)
kinds = st.sampled_from(["NVIDIA", "volcano-vgpu"])


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Card, ...]:
    """Cards of one kind, linked anyhow."""
    kind, count = draw(kinds), draw(st.integers(1, 5))
    links = {(i, j): draw(st.sampled_from([10, 20, 100, 200])) for i in range(count) for j in range(i)}
    rows = [tuple(links.get((max(i, j), min(i, j)), 0) for j in range(count)) for i in range(count)]
    # Volcano's plugin knows no placements.
    own = [draw(st.sampled_from(WAYS if kind == "NVIDIA" else WAYS[:2])) for _ in range(count)]
    return tuple(
        Card(
            i, f"GPU-{i}", "A100-SXM4-40GB", 40_960, draw(st.integers(1, 7)), i % 2, True, kind, replace(own[i], links=rows[i])
        )
        for i in range(count)
    )


@st.composite
def pods(draw: st.DrawFn, kind: str) -> PodDevices:
    containers = draw(st.integers(1, 3))
    asks = []
    for container in range(containers):
        if draw(st.booleans()) or container == 0:
            cores, memory = draw(
                st.sampled_from([(100, 0), (0, 4000), (30, 4000), (14, 9000), (50, 20_000), (100, 1000), (0, 40_960)])
            )
            asks.append(Ask(kind, draw(st.integers(1, 3)), cores=cores, memory_mib=memory, container=container))
    wishes = {CARD_POLICY: draw(policies)}
    if kind == "NVIDIA":
        wishes |= {"nvidia.com/numa-bind": draw(st.sampled_from(["true", "false"]))}
        if mode := draw(st.sampled_from(["", "mig", "hami-core", "mig,hami-core"])):
            wishes["nvidia.com/vgpu-mode"] = mode
    return PodDevices(tuple(asks), containers, draw(st.integers(0, containers - 1)), wishes=tuple(sorted(wishes.items())))


def check(cards: Sequence[Card], layouts: Sequence[tuple[Layout, PodDevices]]) -> None:
    """That these pods can stand beside each other, judged anew from what each of them has."""
    books: dict[int, CardAllocation] = {}
    users: dict[int, list[CardSlice]] = {}
    for layout, pod in layouts:
        for s in effective(layout, pod):
            books.setdefault(s.index, CardAllocation()).book(s)
            users.setdefault(s.index, []).append(s)
    for card in cards:
        held, own = books.get(card.index, CardAllocation()), users.get(card.index, [])
        assert held.memory_mib <= card.memory_mib
        assert held.cores <= 100
        assert held.pods <= card.shares
        # A container of a pod may share a card with another of the same pod, where neither asked for all of it.
        assert len(own) == 1 or not any(s.cores >= 100 for s in own)
        if card.effective_traits.mode == "mig":
            running = [part for layout, pod in layouts for part in lasting(layout, pod, card.index)]
            taken = mig.taken_of(card, running, 0)
            assert taken is not None
            slices = [place for begin, end in taken.spans for place in range(begin, end)]
            assert len(set(slices)) == len(slices)
            assert len(taken.positions) + len(taken.spans) == len(running)
        else:
            assert not held.parts


def lasting(layout: Layout, pod: PodDevices, index: int) -> list[str]:
    """The instances of a card that a pod has while its app containers run."""
    return [s.part for number, own in enumerate(layout) if number >= pod.init for s in own if s.index == index]


@given(st.data())
def test_no_sequence_of_pods_gives_anything_away_twice(data: st.DataObject) -> None:
    cards = data.draw(nodes())
    kind = cards[0].kind
    vendor = VENDORS.kind(kind)
    there: list[tuple[Layout, PodDevices]] = []
    for _ in range(data.draw(st.integers(1, 12))):
        if there and data.draw(st.integers(0, 3)) == 0:
            there.pop(data.draw(st.integers(0, len(there) - 1)))
            continue
        used: dict[int, CardAllocation] = {}
        for layout, pod in there:
            for s in effective(layout, pod):
                used.setdefault(s.index, CardAllocation()).book(s)
        asked = data.draw(pods(kind))
        found = VENDORS.fit(cards, used, asked, {})
        shuffled = data.draw(st.permutations(cards))
        assert VENDORS.fit(shuffled, used, asked, {}) == found
        if isinstance(found, Refused):
            assert found.cards
            continue
        for ask in asked.asks:
            assert len(found.layout[ask.container]) == ask.count
        by_index = {card.index: card for card in cards}
        for s in effective(found.layout, asked):
            assert vendor.admits(by_index[s.index], used.get(s.index, CardAllocation()), s)
        there.append((found.layout, asked))
        check(cards, there)
        written_and_read(cards, found, asked)


def written_and_read(cards: Sequence[Card], found: Fitted, asked: PodDevices) -> None:
    kind = cards[0].kind
    vendor = VENDORS.kind(kind)
    assert parse_layout(format_layout(found.layout, asked.init)) == (found.layout, asked.init)
    init = asked.init if vendor.without_init else 0
    notes = VENDORS.annotate(found.layout, cards, [kind], node="n1", now=0.0, init=asked.init)
    own = found.layout[init:]
    assert vendor.rebuild(vendor.allocated(notes), cards, ()) == (own if any(own) else ())
