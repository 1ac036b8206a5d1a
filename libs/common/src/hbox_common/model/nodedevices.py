"""The kubelet's allocations on a node (PodResources): devices, CPUs and memory of containers, and the node's inventory.

With device plugins the kubelet chooses a container's devices among the free ones; a scheduler knows only their number. This data is the truth that books can be
compared with. It does not identify cards: device ids are the plugin's own, of whole cards (`GPU-<uuid>`), of replicas (`GPU-<uuid>::3`), or of slots without
meaning because the plugin chooses again (HAMi).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from .devices import VENDORS
from .devices.identity import made_up
from .ids import CardId, NodeName, PodUid
from .node import NodeState

T = TypeVar("T")

#: Limits of one node, so that it fits into one message: the rest is omitted, and `left_out` is set.
MAX_CONTAINERS, MAX_IDS = 512, 2048

#: Between a device's id and the number of its replica, where a vendor's plugin shares cards by time or by MPS.
REPLICA = "::"


@dataclass(frozen=True, slots=True)
class DeviceIds:
    """Devices of one resource that are at the same place."""

    resource: str
    ids: tuple[str, ...]
    numa: tuple[int, ...] = ()  #: NUMA nodes; empty: unknown


@dataclass(frozen=True, slots=True)
class HeldMemory:
    kind: str  #: memory, hugepages-2Mi, ...
    size_bytes: int
    numa: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerHolds:
    """Exclusive resources of one container on its node. Shared CPUs belong to no container."""

    namespace: str
    pod: str
    container: str
    devices: tuple[DeviceIds, ...] = ()
    cpus: str = ""  #: those that are its alone, as Linux writes a list: "1-4,8"
    memory: tuple[HeldMemory, ...] = ()
    uid: str = ""  #: of the pod, from the kubelet's checkpoint; "": unknown


@dataclass(frozen=True, slots=True)
class ZoneMemory:
    """Allocations of the memory manager (Static) from one NUMA node, in bytes by kind: memory, hugepages-2Mi, ... `cells`: the NUMA nodes of its group, itself
    among them; `assigned`: number of blocks from this node."""

    zone: int
    most: dict[str, int] = field(default_factory=dict)  #: that containers may have
    free: dict[str, int] = field(default_factory=dict)
    assigned: int = 0
    cells: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """The state reported by one node's kubelet. `problem`: why it may be stale; "": it is current as of `at`."""

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
    def content(self) -> tuple[object, ...]:
        """All fields but the time: a message is published when one of them changes."""
        return self.allocatable, self.cpus, self.holds, self.left_out, self.problem, self.gone, self.memory, self.problems


def card_of(id_: str, cards: Mapping[str, T]) -> T | None:
    """The value in `cards` (by UUID) for the card that a device id names; None if the id is no card's, such as a slot whose card the plugin chooses later."""
    found = cards.get(id_)
    if found is None and REPLICA in id_:
        found = cards.get(id_.partition(REPLICA)[0])
    return found


def cards_by_pod(devices: NodeDevices, node: NodeState) -> dict[PodUid, frozenset[CardId]]:
    """The cards that the kubelet gave each pod, cards that the node lost since among them. Pods of unknown uid are omitted, since a pod name may be reused, and
    pods with a device that is no known card: a slot, or a card whose id HBox generated."""
    known = (*node.cards, *node.lost)
    cards = {card.uuid: card.id for card in known if not made_up(node.name, card, node.registered)}
    found: dict[PodUid, set[CardId]] = {}
    unknown: set[PodUid] = set()
    for one in devices.holds if cards else ():
        uid = PodUid(one.uid)
        for id_ in (id_ for part in one.devices if part.resource in VENDORS.cards for id_ in part.ids):
            card = card_of(id_, cards)
            if card is None:
                unknown.add(uid)
            else:
                found.setdefault(uid, set()).add(card)
    return {uid: frozenset(own) for uid, own in found.items() if uid and uid not in unknown}


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
    """The inverse of `cpu_list`. Raises ValueError for any other text, and if ranges overlap so often that expanding them takes long."""
    found: set[int] = set()
    count = 0
    for part in text.strip().split(","):
        if not part.strip():
            continue
        first, dash, last = part.strip().partition("-")
        if not (first.isascii() and first.isdigit()) or (dash and not (last.isascii() and last.isdigit())):
            raise ValueError(f"{part[:40]!r} is no range of CPUs")
        low, high = int(first), int(last) if dash else int(first)
        if not 0 <= low <= high < MAX_CPUS:
            raise ValueError(f"{part[:40]!r} is no range of CPUs")
        count += high - low + 1
        if count > 2 * MAX_CPUS:
            raise ValueError(f"its ranges have more than {2 * MAX_CPUS} CPUs together")
        found.update(range(low, high + 1))
    return tuple(sorted(found))
