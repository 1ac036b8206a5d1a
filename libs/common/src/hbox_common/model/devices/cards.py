"""Cards, parts of them, and what a pod asks of them, whoever made them. What differs from maker to maker stands in its file (`vendor`)."""

from dataclasses import dataclass

#: The whole of a card's compute, in percent.
ALL_CORES = 100

#: Far above any node's: more is a slip, or a broken plugin's.
MAX_CARDS, MAX_INDEX = 1024, 65_535
MAX_MEMORY_MIB = 2**31 - 1


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


@dataclass(frozen=True, slots=True)
class CardRequest:
    """What each pod of a task asks for: `count` cards of one node, the same of each."""

    count: int
    cores: int = ALL_CORES  #: percent of each card's compute; 0 = no share promised
    memory_mib: int = 0  #: of each card; 0 = `memory_percent` counts
    memory_percent: int = 100  #: of each card's memory, where `memory_mib` is 0
    models: tuple[str, ...] = ()  #: the models allowed; empty = any

    @property
    def whole(self) -> bool:
        """Whether the cards are taken whole, with nobody beside."""
        return self.cores >= ALL_CORES or (self.memory_mib == 0 and self.memory_percent >= 100)

    def memory_on(self, card_memory_mib: int) -> int:
        """MiB that one card of this size has to give. Percents are rounded down, as in HAMi: 30 % and 70 % share any card."""
        if self.whole:
            return card_memory_mib
        return self.memory_mib or card_memory_mib * self.memory_percent // 100


@dataclass(frozen=True, slots=True)
class CardSlice:
    """A part of one card of a node, given to one pod. cores = 100 is the whole card, with nobody beside."""

    index: int
    cores: int
    memory_mib: int

    @property
    def whole(self) -> bool:
        return self.cores >= ALL_CORES


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
