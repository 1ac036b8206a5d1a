"""Input and rejection of a vendor's fit: the cards of one kind that a node offers, and why none of them can be used."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from .cards import Card, CardAllocation, CardSlice
from .labels import DeviceLabel


@dataclass(frozen=True, slots=True)
class Offer:
    """The cards of one kind of a node, and their allocations at a step of a fit."""

    cards: tuple[Card, ...]  #: by index
    used: Mapping[int, CardAllocation]  #: by index; a card that is not in it is idle
    facts: Mapping[str, str] = field(default_factory=dict)  #: of the node (`NodeState.device_facts`)
    wishes: Mapping[str, str] = field(default_factory=dict)  #: of the pod
    policy: str = ""  #: for cards, if no annotation names one
    mine: tuple[CardSlice, ...] = ()  #: what earlier containers of the pod got of these cards
    others: Mapping[int, CardAllocation] = field(default_factory=dict)  #: what is given away to other pods, by index

    def of(self, card: Card) -> CardAllocation:
        return self.used.get(card.index) or CardAllocation()


@dataclass(frozen=True, slots=True)
class Refused:
    """`cards`: how many cards each label keeps out; 0 where it is the node as a whole. `of`: cards looked at."""

    cards: Mapping[DeviceLabel, int]
    of: int = 0
    container: int = 0

    def __str__(self) -> str:
        """As HAMi writes it of a node: `1/8 CardInsufficientCore, 7/8 CardInsufficientMemory`."""
        return ", ".join(sorted(f"{count}/{self.of} {label}" if count else str(label) for label, count in self.cards.items()))


def refused(offer: Offer, labels: Counter[DeviceLabel]) -> Refused:
    return Refused(dict(labels), len(offer.cards))
