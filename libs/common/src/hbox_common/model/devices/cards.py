"""Cards, parts of them, and a pod's requests for them, independent of the vendor. Vendor-specific rules are in the vendor's file (`vendor`)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..ids import CardId
from .adapters import NearAdapters
from .cardids import CARD_ID_BYTES, card_id, is_card_id, number_in, numbered

#: The whole of a card's compute, in percent.
ALL_CORES = 100

#: Far above any node's: more is a slip, or a broken plugin's.
MAX_CARDS, MAX_INDEX = 1024, 65_535
MAX_MEMORY_MIB = 2**31 - 1

#: Of one card that one pod has: containers on it together, and characters of `CardSlice.part`.
MAX_SLOTS, PART_CHARS = 10_000, 1024

_PART = re.compile(r"[A-Za-z0-9.+@_/=-]+")


@dataclass(frozen=True, slots=True)
class Profile:
    """A size into which a card can be divided: NVIDIA's MIG profiles, Enflame's DRS profiles."""

    name: str  #: `3g.20gb`
    memory_mib: int
    units: int = 0  #: of the card's compute, in percent
    placements: tuple[tuple[int, int], ...] = ()  #: (start, size) in the card's slices; empty: anywhere
    id: str = ""  #: as the plugin calls it, where that is not its name


@dataclass(frozen=True, slots=True)
class CardTraits:
    """Properties of a card that only some vendors' rules use. The defaults apply if nothing is reported."""

    mode: str = ""  #: how it is shared: `hami-core`, `mig`, `mps`, `die`
    units: int = ALL_CORES  #: its compute in the vendor's own units (HAMi's devcore): AI cores, compute units, percent
    group: int = -1  #: of cards that are linked to each other: Ascend's NetworkID, MetaX's linkZone, Vastai's AIC; -1 = none
    cordoned: bool = False  #: takes no new work, and keeps what it has
    qos: str = ""  #: MetaX's qosPolicy
    profiles: tuple[Profile, ...] = ()
    #: how well it is linked to each card of its kind on the node, in the order of their indices; higher is better
    links: tuple[int, ...] = ()
    minor: int = -1  #: of its device file, where that is another number than its plugin's index


_PLAIN = CardTraits()


@dataclass(frozen=True, slots=True)
class Card:
    """One accelerator of a node."""

    index: int
    uuid: str
    model: str
    memory_mib: int  #: 0 = unknown: the card can then only be taken whole
    shares: int = 1  #: pods that may use it at once; HAMi's deviceSplitCount
    numa: int = -1
    healthy: bool = True  #: as the node reports it; health.verdict may say otherwise
    kind: str = ""  #: HAMi's common word (`Vendor.kind`); empty where the node has cards of one kind, which its resources name
    traits: CardTraits | None = None  #: None: not reported
    adapters: NearAdapters | None = None  #: the nearest RDMA adapters; None: unknown
    former: str = ""  #: the UUID that the inventory generated before the kubelet reported the real one
    parent: str = ""  #: of a MIG instance (`mig:UUID`): the UUID of the card that it is a part of; "": unknown

    @property
    def id(self) -> CardId:
        """The id of the card in claims, verdicts and messages. `index` only orders the cards of a node: another card may have the same index later."""
        return card_id(self.uuid)

    @property
    def parent_id(self) -> CardId:
        """The id of the card of which this is a MIG instance; "" if it is none, or its card is unknown."""
        return card_id(self.parent) if self.parent else CardId("")

    @property
    def effective_traits(self) -> CardTraits:
        """`traits`, or the defaults if the vendor reported none."""
        return self.traits or _PLAIN


@dataclass(frozen=True, slots=True)
class CardSlice:
    """A part of one card of a node, allocated to one pod. cores = 100 is the whole card, exclusively.

    `card` is the identity of the card. If it is not set, it is the index, which is valid only with one state of one node (`name_slices`); older programs write
    such slices. `index` is for display and for older programs; -1 = unknown.
    """

    index: int = field(compare=False)
    cores: int
    memory_mib: int
    part: str = ""  #: what it is to the vendor, where amounts do not say it all: a MIG profile and its place, a template, a mask of cores
    slots: int = 1  #: of the card's shares: one for each container on it at the same time
    card: CardId = CardId("")

    def __post_init__(self) -> None:
        if not self.card:
            object.__setattr__(self, "card", numbered(self.index))

    @property
    def whole(self) -> bool:
        return self.cores >= ALL_CORES


@dataclass(slots=True)
class CardAllocation:
    """What is given away of one card."""

    cores: int = 0  #: percent
    memory_mib: int = 0
    pods: int = 0  #: of the card's shares
    parts: tuple[str, ...] = ()  #: of the slices that have one, in the order in which they came

    def copy(self) -> "CardAllocation":
        return CardAllocation(self.cores, self.memory_mib, self.pods, self.parts)

    def plus(self, other: "CardAllocation") -> "CardAllocation":
        """The sum of both."""
        return CardAllocation(
            self.cores + other.cores, self.memory_mib + other.memory_mib, self.pods + other.pods, self.parts + other.parts
        )

    def book(self, taken: "CardSlice", times: int = 1) -> None:
        """Give a slice away (`times=1`), or take it back (`times=-1`)."""
        self.cores += times * taken.cores
        self.memory_mib += times * taken.memory_mib
        self.pods += times * taken.slots
        if taken.part:
            parts = list(self.parts)
            if times > 0:
                parts.append(taken.part)
            elif taken.part in parts:
                parts.remove(taken.part)
            self.parts = tuple(parts)


def is_slice(s: CardSlice) -> bool:
    """Whether it can be a part of a card at all, and be written as one."""
    within = (
        -1 <= s.index <= MAX_INDEX and is_card_id(s.card) and 0 <= s.cores <= ALL_CORES and 0 <= s.memory_mib <= MAX_MEMORY_MIB
    )
    return (
        within
        and 1 <= s.slots <= MAX_SLOTS
        and (not s.part or (len(s.part) <= PART_CHARS and _PART.fullmatch(s.part) is not None))
    )


def format_slices(slices: tuple[CardSlice, ...]) -> str:
    """The value of the annotation `hbox.io/cards`: `CARD:cores:memory_mib` for each slice, with `:part:slots` if one of them is not the default."""
    return ",".join([_slice_text(s) for s in slices])


def format_numbered(slices: Sequence[CardSlice]) -> str:
    """As `format_slices`, with `CardSlice.index` instead of the card's id, as older programs read it."""
    return ",".join([_slice_text(s, str(s.index)) for s in slices])


def _slice_text(s: CardSlice, card: str = "") -> str:
    plain = f"{card or s.card}:{s.cores}:{s.memory_mib}"
    return plain if not s.part and s.slots == 1 else f"{plain}:{s.part}:{s.slots}"


def parse_slices(text: str) -> tuple[CardSlice, ...]:
    """The reverse of `format_slices` and `format_numbered`. Any user may write the annotation: raises ValueError for other text, and for values that no card
    can have."""
    if not text:
        return ()
    if len(text) > MAX_CARDS * (CARD_ID_BYTES + len(":100:2147483647:") + PART_CHARS):
        raise ValueError(f"{len(text)} characters of cards")
    slices = []
    for one in text.split(","):
        kind, colon, uuid_first = one.partition(":")
        named = bool(colon) and kind.isalpha()
        fields = (uuid_first if named else one).split(":")
        if len(fields) not in (3, 5):
            raise ValueError(f"no part of a card: {one[:60]}")
        part, slots = (fields[3], int(fields[4])) if len(fields) > 3 else ("", 1)
        cores, memory_mib = map(int, fields[1:3])
        card = CardId(f"{kind}:{fields[0]}" if named else str(int(fields[0])))
        found = CardSlice(-1 if named else int(card), cores, memory_mib, part, slots, card)
        if not is_slice(found):
            raise ValueError(f"no part of a card: {one[:60]}")
        slices.append(found)
    if len(slices) > MAX_CARDS:
        raise ValueError(f"{len(slices)} cards of one node")
    return tuple(slices)


def find_card(cards: Sequence[Card], card: CardId, at: int = -1) -> Card | None:
    """The card with this id among the cards of a node, or None. An id may contain the UUID, the generated UUID that the card had before (`Card.former`), or
    the index alone. `at`: the position to try first."""
    if 0 <= at < len(cards):
        one = cards[at]
        if (one.index == at and card == numbered(at)) or one.id == card:
            return one
    number = number_in(card)
    if number is not None:
        if number < len(cards) and cards[number].index == number:
            return cards[number]
        return next((one for one in cards if one.index == number), None)
    return next((one for one in cards if one.id == card), None) or next(
        (one for one in cards if one.former and card_id(one.former) == card), None
    )


def name_slices(slices: Sequence[CardSlice], cards: Sequence[Card]) -> tuple[CardSlice, ...]:
    """The slices with the id and the current index of each card. `cards`: those of the node.

    If the node does not have a slice's card, the slice keeps its id, and its index becomes -1; a slice that has an index alone stays as it is."""
    found: list[CardSlice] = []
    for s in slices:
        card = find_card(cards, s.card, s.index)
        if card is None:
            found.append(s if s.index < 0 or number_in(s.card) is not None else replace(s, index=-1))
        elif card.index == s.index and card.id == s.card:
            found.append(s)
        else:
            found.append(
                CardSlice(card.index, s.cores, s.memory_mib, s.part, s.slots, card.id)
            )  # `replace` takes 8 times as long
    return tuple(found)


def by_index(held: Mapping[CardId, CardAllocation], cards: Iterable[Card]) -> dict[int, CardAllocation]:
    """Allocations of these cards by index, as the rules of vendors (`Vendor.fit`) read them."""
    return {card.index: held[card.id] for card in cards if card.id in held}
