"""Data of NVIDIA's management library on a node's cards, collected by node-agent: identities, links and states that /sys does not have. Counters are left out:
they change all the time, and exporters publish them."""

from dataclasses import dataclass, field

#: A baseboard has at most 16 cards, each with at most 36 links (NVML_NVLINK_MAX_LINKS) and 7 instances.
MAX_CARDS, MAX_LINKS, MAX_INSTANCES, MAX_PROBLEMS = 64, 36, 8, 8


@dataclass(frozen=True, slots=True)
class MigInstance:
    uuid: str
    profile: str = ""  #: as the name of the instance ends: 1g.5gb


@dataclass(frozen=True, slots=True)
class NvmlCard:
    """Modes are "on" or "off", "" where the card knows none; `..._pending`: it is to change at the next reset of the card."""

    index: int  #: as NVML counts, and nvidia-smi
    uuid: str = ""
    address: str = ""  #: PCI, as in /sys: 0000:18:00.0
    model: str = ""
    memory_mib: int = 0  #: 0: it does not say
    numa: int = -1  #: -1: it does not say, or several
    mig: str = ""
    mig_pending: bool = False
    instances: tuple[MigInstance, ...] = ()
    #: NVLinks that are up: to a card by its address, to an NVSwitch ("switch"), to another kind ("other")
    links: dict[str, int] = field(default_factory=dict)
    links_down: tuple[int, ...] = ()  #: numbers of those that are there and not up
    clique: str = ""  #: <ClusterUUID>.<CliqueID>, as the node's label has it; "": of no multi-node NVLink domain
    fabric: str = ""  #: state reported by the fabric manager: not-started, in-progress, completed, failed; "": none
    ecc: str = ""
    ecc_pending: bool = False
    remap_pending: bool = False  #: rows of memory, or pages, are to be replaced at the next reset
    remap_failed: bool = False  #: there are no more rows to replace them by
    lost: bool = False  #: NVML: GPU is lost; nothing else is known of it
    problems: tuple[str, ...] = ()  #: what it would not say, in words


@dataclass(frozen=True, slots=True)
class NodeNvml:
    driver: str = ""
    cards: tuple[NvmlCard, ...] = ()  #: of the last whole answer
    problem: str = ""  #: why there is no newer one; "": there is

    @property
    def clique(self) -> str:
        """The NVLink domain of the node: the one that all of its cards are in; "" where there is none."""
        found = {card.clique for card in self.cards if not card.lost}
        return found.pop() if len(found) == 1 else ""
