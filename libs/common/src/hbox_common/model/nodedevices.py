"""What a node's kubelet gave to whom, as it says itself (PodResources): devices, CPUs and memory of containers, and what the node has of them.

Under device plugins the kubelet chooses which devices a container gets, out of those that are free; a scheduler knows how many. What stands here is the truth
that books can be held against. It says nothing of which card an id is: ids are the plugin's own words, of whole cards (`GPU-<uuid>`), of replicas
(`GPU-<uuid>::3`), or of slots that mean nothing because the plugin chooses anew (HAMi).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from .ids import NodeName

T = TypeVar("T")

#: Of one node, so that it goes into one message: what is beyond is left out, and `left_out` says so.
MAX_CONTAINERS, MAX_IDS = 512, 2048

#: Between a device's id and the number of its replica, where a vendor's plugin shares cards by time or by MPS.
REPLICA = "::"


@dataclass(frozen=True, slots=True)
class DeviceIds:
    """Devices of one resource that are at the same place."""

    resource: str
    ids: tuple[str, ...]
    numa: tuple[int, ...] = ()  #: NUMA nodes; none: nobody says


@dataclass(frozen=True, slots=True)
class HeldMemory:
    kind: str  #: memory, hugepages-2Mi, ...
    size_bytes: int
    numa: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerHolds:
    """What one container has of its node. Only what is its alone: shared CPUs are nobody's."""

    namespace: str
    pod: str
    container: str
    devices: tuple[DeviceIds, ...] = ()
    cpus: str = ""  #: those that are its alone, as Linux writes a list: "1-4,8"
    memory: tuple[HeldMemory, ...] = ()
    uid: str = ""  #: of the pod, by the kubelet's checkpoint; "": nobody says


@dataclass(frozen=True, slots=True)
class ZoneMemory:
    """What the memory manager (Static) gives of one NUMA node, in bytes by kind: memory, hugepages-2Mi, ... `cells`: with which NUMA nodes together, itself
    among them; `assigned`: how many blocks are from there."""

    zone: int
    most: dict[str, int] = field(default_factory=dict)  #: that containers may have
    free: dict[str, int] = field(default_factory=dict)
    assigned: int = 0
    cells: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """What one node's kubelet says. `problem`: why it may be old, in words; "": it is as of `at`."""

    node: NodeName
    at: float  #: when the kubelet was asked, in seconds since the epoch
    allocatable: tuple[DeviceIds, ...] = ()
    cpus: str = ""  #: that containers may have alone
    holds: tuple[ContainerHolds, ...] = ()
    left_out: int = 0  #: containers and ids beyond what one message takes
    problem: str = ""
    gone: bool = False  #: the node was deleted; the last word on it
    memory: tuple[ZoneMemory, ...] = ()  #: by its checkpoint; none: it has no memory manager, or it cannot be read
    problems: tuple[str, ...] = ()  #: what of the kubelet's checkpoints cannot be read, in words

    @property
    def said(self) -> tuple[object, ...]:
        """All but the time: what has to differ for others to hear of it."""
        return self.allocatable, self.cpus, self.holds, self.left_out, self.problem, self.gone, self.memory, self.problems


def card_of(id_: str, cards: Mapping[str, T]) -> T | None:
    """The value in `cards` (by UUID) for the card that a device id names; None if the id is no card's, such as a slot whose card the plugin chooses later."""
    found = cards.get(id_)
    if found is None and REPLICA in id_:
        found = cards.get(id_.partition(REPLICA)[0])
    return found


def cpu_list(cpus: Iterable[int]) -> str:
    """Numbers as Linux writes a list of CPUs: "0-3,8"."""
    parts: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if parts and cpu == parts[-1][1] + 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


#: Of one list: more than any machine has.
MAX_CPUS = 65_536


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The reverse of `cpu_list`. Raises ValueError for anything else, and where ranges lie over each other so often that to read them takes long."""
    found: set[int] = set()
    told = 0
    for part in text.strip().split(","):
        if not part.strip():
            continue
        first, dash, last = part.strip().partition("-")
        if not (first.isascii() and first.isdigit()) or (dash and not (last.isascii() and last.isdigit())):
            raise ValueError(f"{part[:40]!r} is no range of CPUs")
        low, high = int(first), int(last) if dash else int(first)
        if not 0 <= low <= high < MAX_CPUS:
            raise ValueError(f"{part[:40]!r} is no range of CPUs")
        told += high - low + 1
        if told > 2 * MAX_CPUS:
            raise ValueError(f"its ranges have more than {2 * MAX_CPUS} CPUs together")
        found.update(range(low, high + 1))
    return tuple(sorted(found))
