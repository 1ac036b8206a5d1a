"""Cards, parts of them, and what a pod asks of them, whoever made them. What differs from maker to maker stands in its file (`vendor`)."""

from dataclasses import dataclass

#: The whole of a card's compute, in percent.
ALL_CORES = 100

#: Far above any node's: more is a slip, or a broken plugin's.
MAX_CARDS, MAX_INDEX = 1024, 65_535
MAX_MEMORY_MIB = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Profile:
    """A size into which a card can be divided: NVIDIA's MIG profiles, Enflame's DRS profiles."""

    name: str  #: `3g.20gb`
    memory_mib: int
    units: int = 0  #: of the card's compute, in percent
    placements: tuple[tuple[int, int], ...] = ()  #: (start, size) in the card's slices; empty: anywhere


@dataclass(frozen=True, slots=True)
class CardTraits:
    """What only some vendors' rules ask of a card. The defaults are those of a card of which nothing is said."""

    mode: str = ""  #: how it is shared: `hami-core`, `mig`, `mps`, `die`
    units: int = ALL_CORES  #: its compute in the vendor's own units (HAMi's devcore): AI cores, compute units, percent
    group: int = -1  #: of cards that are linked to each other: Ascend's NetworkID, MetaX's linkZone, Vastai's AIC; -1 = none
    cordoned: bool = False  #: takes no new work, and keeps what it has
    qos: str = ""  #: MetaX's qosPolicy
    profiles: tuple[Profile, ...] = ()
    links: tuple[
        int, ...
    ] = ()  #: how well it is linked to each card of its kind on the node, in the order of their indices; higher is better


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
    traits: CardTraits | None = None  #: None: nothing is said

    @property
    def says(self) -> CardTraits:
        """Its traits, the defaults where it has none."""
        return self.traits or _PLAIN


@dataclass(frozen=True, slots=True)
class CardSlice:
    """A part of one card of a node, given to one pod. cores = 100 is the whole card, with nobody beside."""

    index: int
    cores: int
    memory_mib: int
    part: str = ""  #: what it is to the vendor, where amounts do not say it all: a MIG profile and its place, a template, a mask of cores
    slots: int = 1  #: of the card's shares: one for each container on it at the same time

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


def format_slices(slices: tuple[CardSlice, ...]) -> str:
    """The value of the annotation `hbox.io/cards`: `index:cores:memory_mib`, joined by commas."""
    return ",".join([f"{s.index}:{s.cores}:{s.memory_mib}" for s in slices])


def parse_slices(text: str) -> tuple[CardSlice, ...]:
    """The reverse of `format_slices`. Raises ValueError for anything else, and for what no card can be: anybody may write it on a pod."""
    if not text:
        return ()
    if len(text) > MAX_CARDS * len("1023:100:2147483647,"):
        raise ValueError(f"{len(text)} characters of cards")
    slices = []
    for part in text.split(","):
        index, cores, memory_mib = (int(number) for number in part.split(":"))
        if not (0 <= index <= MAX_INDEX and 0 <= cores <= ALL_CORES and 0 <= memory_mib <= MAX_MEMORY_MIB):
            raise ValueError(f"no part of a card: {part[:60]}")
        slices.append(CardSlice(index, cores, memory_mib))
    if len(slices) > MAX_CARDS:
        raise ValueError(f"{len(slices)} cards of one node")
    return tuple(slices)
