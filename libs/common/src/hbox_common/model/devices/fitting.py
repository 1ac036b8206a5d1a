"""Whether a pod fits a node's cards, container by container, and which cards it gets. Pure: the same answer for placing, reasons and what-if questions.

The order is HAMi's (sources: hami-fit): each container by itself, the init containers first, each in addition to the node's allocations and the sidecars
started before it; then all others together. Rules of a kind of device are its vendor's (`Vendor.fit`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .asking import PodDevices
from .cards import Card, CardAllocation, CardSlice
from .layout import Layout
from .offer import Offer, Refused
from .vendor import Vendor


@dataclass(frozen=True, slots=True)
class Fitted:
    layout: Layout
    score: float = 0.0  #: the node's, by HAMi's formula and its vendors' additions: more is fuller


def fit(
    cards: Sequence[Card],
    used: Mapping[int, CardAllocation],
    request: PodDevices,
    facts: Mapping[str, str],
    vendor_of: Callable[[str], Vendor],
) -> Fitted | Refused:
    """The layout of the pod on a node, or why there is none. `cards`: of the node, of all kinds; `used`: what is given away of each, by index; not changed."""
    wishes = request.wished
    lasting = dict(used)
    layout: list[tuple[CardSlice, ...]] = []
    score = 0.0
    by_kind = {kind: _of_kind(cards, kind) for kind in {ask.kind for ask in request.asks}}
    for kind, own in by_kind.items():
        score += vendor_of(kind).usage_score(Offer(own, used, facts, wishes, request.default_policy))
    mine: dict[str, tuple[CardSlice, ...]] = dict.fromkeys(by_kind, ())
    for container in range(request.containers):
        on = dict(lasting)
        slices: list[CardSlice] = []
        for ask in request.of(container):
            vendor = vendor_of(ask.kind)
            offer = Offer(by_kind[ask.kind], on, facts, wishes, request.default_policy, mine[ask.kind], used)
            found = vendor.fit(offer, ask)
            if isinstance(found, Refused):
                return Refused(found.cards, found.of, container)
            score += vendor.choice_score(offer, ask, found)
            on = booked(on, found)
            slices += found
            mine[ask.kind] += found
        if not request.ends_early(container):
            lasting = on
        layout.append(tuple(slices))
    return Fitted(tuple(layout), score)


def booked(used: Mapping[int, CardAllocation], slices: Sequence[CardSlice]) -> dict[int, CardAllocation]:
    """`used` with these slices given away too; `used` itself is not changed."""
    after = dict(used)
    for s in slices:
        card = after[s.index].copy() if s.index in after else CardAllocation()
        card.book(s)
        after[s.index] = card
    return after


def _of_kind(cards: Sequence[Card], kind: str) -> tuple[Card, ...]:
    """Where cards say no kind, they are of the only one there is."""
    return tuple(sorted((card for card in cards if card.kind in ("", kind)), key=lambda card: card.index))
