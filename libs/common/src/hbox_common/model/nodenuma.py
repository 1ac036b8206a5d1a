"""A node's hardware as node-agent reads it: its NUMA nodes, their devices, and the kubelet's allocation policies."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations

from .ids import NodeName
from .nodenvml import NodeNvml

#: Limits of one node, so that it fits into one message. Grace has 34 NUMA nodes, the largest machines some 40 cards and adapters.
MAX_ZONES, MAX_DEVICES, MAX_PROBLEMS = 128, 256, 16


#: Values that Go parses as true.
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})


class PciKind(StrEnum):
    CARD = "card"
    NIC = "nic"
    HCA = "hca"


@dataclass(frozen=True, slots=True)
class NumaZone:
    """A NUMA node. `cpus` as Linux writes a list; "": it has memory alone."""

    id: int
    cpus: str
    memory_mib: int
    distances: tuple[int, ...] = ()  #: to each zone, in their order; (): not known
    socket: int = -1  #: of its CPUs; -1: not known, none, or several


@dataclass(frozen=True, slots=True)
class PciDevice:
    """`numa` -1: unknown, as in most guests; never to be read as zone 0."""

    address: str
    kind: PciKind
    numa: int = -1
    name: str = ""  #: of an adapter, as the kernel calls it: mlx5_0
    vendor: str = ""  #: PCI vendor id: 0x10de
    path: str = ""  #: its bridges from the root on, itself last (`devices.adapters.pci_path`); "": not known
    down: bool = False  #: an adapter of which no port is active


class Redirect(StrEnum):
    """Whether a bridge turns transfers between devices below it to the root complex (PCI ACS)."""

    ON = "on"
    OFF = "off"
    NONE = "none"  #: it cannot
    UNREAD = "unread"  #: its configuration cannot be read


@dataclass(frozen=True, slots=True)
class PciBridge:
    address: str
    redirect: Redirect = Redirect.UNREAD


@dataclass(frozen=True, slots=True)
class KubeletRules:
    """From the kubelet's configuration; "": not set, so that Kubernetes' default applies."""

    cpu_manager: str = ""
    cpu_options: dict[str, str] = field(default_factory=dict)
    memory_manager: str = ""
    topology_manager: str = ""
    topology_scope: str = ""
    topology_options: dict[str, str] = field(default_factory=dict)
    reserved_cpus: str = ""

    def has(self, option: str) -> bool:
        """Whether this option of the CPU manager is on, as Go's strconv.ParseBool reads it."""
        return self.cpu_options.get(option, "") in _TRUE

    def prefers(self, option: str) -> bool:
        """Likewise of the topology manager."""
        return self.topology_options.get(option, "") in _TRUE


@dataclass(frozen=True, slots=True)
class NodeNuma:
    node: NodeName
    at: float  #: in seconds since the epoch
    zones: tuple[NumaZone, ...] = ()
    sockets: int = 0
    threads_per_core: int = 0
    devices: tuple[PciDevice, ...] = ()
    rules: KubeletRules | None = None  #: None: its configuration cannot be read
    cpu_state: str = ""  #: the policy by which its CPU manager's checkpoint was written
    memory_state: str = ""
    iommu_groups: int = 0
    lxcfs: bool = False
    problems: tuple[str, ...] = ()  #: what cannot be read, in words
    gone: bool = False
    nvml: NodeNvml | None = None  #: None: it is not asked
    bridges: tuple[PciBridge, ...] = ()  #: above cards and adapters
    guest: bool = False  #: of a hypervisor
    cut_cpus: str = ""  #: not reserved themselves, of cores that `reservedSystemCPUs` has in part; "": none, or not known

    @property
    def content(self) -> tuple[object, ...]:
        """All fields but the time."""
        machine = (
            self.zones,
            self.sockets,
            self.threads_per_core,
            self.devices,
            self.bridges,
            self.iommu_groups,
            self.lxcfs,
            self.guest,
            self.cut_cpus,
        )
        return machine, self.rules, self.cpu_state, self.memory_state, self.problems, self.gone, self.nvml


def redirecting(numa: NodeNuma) -> tuple[str, ...] | None:
    """Addresses of bridges that turn transfers between cards, or between cards and adapters, to the root complex; (): none does. None: there are no
    such bridges, it is not known, or the machine is a guest, whose hypervisor decides."""
    between = bridges_between(numa.devices)
    states = {one.address: one.redirect for one in numa.bridges if one.address in between}
    on = tuple(address for address, state in sorted(states.items()) if state is Redirect.ON)
    if numa.guest or not between or (not on and (Redirect.UNREAD in states.values() or not between <= states.keys())):
        return None
    return on


def bridges_between(devices: Iterable[PciDevice]) -> frozenset[str]:
    """Addresses of the bridges between cards, or between cards and adapters, below a common bridge: devices that are connected only through the root complex
    are left out, because ACS redirects nothing there."""
    cards, paths = set[str](), set[str]()
    for one in devices:
        if one.path and one.kind in (PciKind.CARD, PciKind.HCA):
            paths.add(one.path)
            if one.kind is PciKind.CARD:
                cards.add(one.path)
    found: set[str] = set()
    for here, there in combinations(sorted(paths), 2):
        a, b = here.split("/"), there.split("/")
        meet = next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        if meet > 1 and (here in cards or there in cards):
            found.update(a[meet:-1], b[meet:-1])
    return frozenset(found)
