"""What a pod asks of its node's devices: the same of some cards for one container, or container by container."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .cards import ALL_CORES


@dataclass(frozen=True, slots=True)
class Ask:
    """`count` distinct cards of one kind for one container, the same of each."""

    kind: str
    count: int
    cores: int = ALL_CORES  #: percent of each card's compute; 0 = no share promised
    memory_mib: int = 0  #: of each card; 0 = `memory_percent` counts
    memory_percent: int = 100  #: of each card's memory, where `memory_mib` is 0
    part: str = ""  #: a size that the vendor's rule chose already when it read the request: a template's name
    container: int = 0  #: which one asks, init containers first
    completed: tuple[str, ...] = ()  #: resources that the pod does not name, as HAMi's webhook would add them

    @property
    def whole(self) -> bool:
        """Whether the cards are allocated whole and exclusively."""
        return self.cores >= ALL_CORES or (self.memory_mib == 0 and self.memory_percent >= 100)

    def memory_on(self, card_memory_mib: int) -> int:
        """MiB that one card of this size has to give. Percents are rounded down, as in HAMi: 30 % and 70 % share any card."""
        if self.memory_mib:
            return self.memory_mib
        return card_memory_mib * min(self.memory_percent, 100) // 100


@dataclass(frozen=True, slots=True)
class PodDevices:
    """All that the containers of a pod ask for."""

    asks: tuple[Ask, ...]  #: in the order of their containers
    containers: int = 1  #: that the pod has, init containers first
    init: int = 0  #: how many of these are init containers
    sidecars: tuple[int, ...] = ()  #: those of the init containers that continue to run with the others
    #: annotations of the pod that vendors' rules read (`Vendor.wishes`), sorted by name
    wishes: tuple[tuple[str, str], ...] = ()
    default_policy: str = ""  #: card policy without an annotation: `binpack`, `spread`; empty: best fit

    def of(self, container: int) -> Iterator[Ask]:
        return (ask for ask in self.asks if ask.container == container)

    def ends_early(self, container: int) -> bool:
        """Whether this container has ended before the others start."""
        return container < self.init and container not in self.sidecars

    @property
    def wished(self) -> Mapping[str, str]:
        return dict(self.wishes)


@dataclass(frozen=True, slots=True)
class CardRequest:
    """What each pod of a task asks for: `count` cards of one node, the same of each."""

    count: int
    cores: int = ALL_CORES  #: percent of each card's compute; 0 = no share promised
    memory_mib: int = 0  #: of each card; 0 = `memory_percent` counts
    memory_percent: int = 100  #: of each card's memory, where `memory_mib` is 0
    models: tuple[str, ...] = ()  #: the models allowed; empty = any
    #: requests by container, if these fields do not determine them: they are then the sum, for masks and for counts
    devices: PodDevices | None = None
    container: int = 0  #: which one asks, init containers first
    containers: int = 1  #: that the pod has, init containers among them

    @property
    def whole(self) -> bool:
        """Whether the cards are allocated whole and exclusively."""
        return self.cores >= ALL_CORES or (self.memory_mib == 0 and self.memory_percent >= 100)

    def memory_on(self, card_memory_mib: int) -> int:
        """MiB that one card of this size has to give. Percents are rounded down, as in HAMi: 30 % and 70 % share any card."""
        if self.whole:
            return card_memory_mib
        return self.memory_mib or card_memory_mib * self.memory_percent // 100
