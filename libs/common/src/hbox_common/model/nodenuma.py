"""How a node is made: its NUMA nodes, what hangs on them, and by which rules its kubelet gives them out. As node-agent reads it."""

from dataclasses import dataclass, field
from enum import StrEnum

from .ids import NodeName
from .nodenvml import NodeNvml

#: Of one node, so that it goes into one message. Grace has 34 NUMA nodes, the largest boxes some 40 cards and adapters.
MAX_ZONES, MAX_DEVICES, MAX_PROBLEMS = 128, 256, 16


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


@dataclass(frozen=True, slots=True)
class PciDevice:
    """`numa` -1: nobody says, as in most guests; that is never zone 0."""

    address: str
    kind: PciKind
    numa: int = -1
    name: str = ""  #: of an adapter, as the kernel calls it: mlx5_0
    vendor: str = ""  #: PCI vendor id: 0x10de
    path: str = ""  #: its bridges from the root on, itself last (`devices.adapters.pci_path`); "": not known
    down: bool = False  #: an adapter of which no port is active


@dataclass(frozen=True, slots=True)
class KubeletRules:
    """As its configuration says; "": it does not say, so that Kubernetes' own default holds."""

    cpu_manager: str = ""
    cpu_options: dict[str, str] = field(default_factory=dict)
    memory_manager: str = ""
    topology_manager: str = ""
    topology_scope: str = ""
    topology_options: dict[str, str] = field(default_factory=dict)
    reserved_cpus: str = ""


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

    @property
    def said(self) -> tuple[object, ...]:
        """All but the time."""
        machine = self.zones, self.sockets, self.threads_per_core, self.devices, self.iommu_groups, self.lxcfs
        return machine, self.rules, self.cpu_state, self.memory_state, self.problems, self.gone, self.nvml
