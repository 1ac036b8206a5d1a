"""The tree that machines and switches form: units (leaf groups), pods, roots, and what about it is not as it should be."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from hbox_common.model.fabric import HostLink, Switch


class Kind(StrEnum):
    """Of a finding."""

    LINK_DOWN = "link-down"  #: a rail of a host has no link
    RAIL_SWAP = "rail-swap"  #: cables of a host are on each other's leaf
    MISWIRE = "miswire"  #: a cable ends at a leaf of another unit
    UNNAMED = "unnamed"  #: a card that does not say whose it is
    SLOW = "slow"
    NARROW = "narrow"
    UPLINK_MISSING = "uplink-missing"  #: a leaf has fewer cables to the spines than its siblings
    OTHER_LEAF = "other-leaf"  #: a leaf of management or storage; makes no unit


#: Kinds that say that something is broken; the others are for information.
FAULTS = frozenset(Kind) - {Kind.OTHER_LEAF}


class Role(StrEnum):
    """Of a card's port."""

    COMPUTE = "compute"  #: its leaf is one of its host's unit
    OTHER = "other"  #: management or storage
    UNKNOWN = "unknown"  #: owner of the card is unknown


@dataclass(frozen=True, slots=True)
class Finding:
    """`switch`, `peer`: names. `rails`: from 1 on, those concerned."""

    kind: Kind
    host: str = ""
    hca: str = ""
    rails: tuple[int, ...] = ()
    switch: str = ""
    peer: str = ""
    expected: str = ""
    actual: str = ""
    unit: str = ""
    card: str = ""  #: GUID, where one is known

    def __str__(self) -> str:
        rails = " and ".join(map(str, self.rails))
        match self.kind:
            case Kind.LINK_DOWN:
                return f"{self.host} has no link on rail {rails}" + (f" ({self.hca})" if self.hca else "")
            case Kind.RAIL_SWAP:
                return f"{self.host}: cables of rails {rails} are swapped"
            case Kind.MISWIRE:
                return f"{self.host} {self.hca} (rail {rails}) is cabled to {self.actual} instead of {self.expected}"
            case Kind.UNNAMED:
                owner = f"; by elimination of {self.host}" if self.host else ""
                return f"card {self.card} at {self.switch} does not say whose it is{owner}"
            case Kind.SLOW | Kind.NARROW:
                where = f"{self.host} {self.hca} (rail {rails})" if self.host else f"{self.switch} to {self.peer}"
                return f"{where} runs at {self.actual} instead of {self.expected}"
            case Kind.UPLINK_MISSING:
                to = f" to {self.peer}" if self.peer else ""
                return f"{self.switch} has {self.actual} uplinks instead of {self.expected}: missing{to or ' some'}"
            case Kind.OTHER_LEAF:
                return f"{self.switch} carries management or storage" + (f" ({self.hca})" if self.hca else "")


@dataclass(frozen=True, slots=True)
class Port:
    """A host's link, and what it is for."""

    link: HostLink
    role: Role
    rail: int = 0  #: from 1 on; 0 = of no rail
    unit: str = ""  #: of the leaf behind it


@dataclass(frozen=True, slots=True)
class Unit:
    """Machines that share their leaves: a scalable unit where rails have a leaf each, else the machines of one leaf."""

    name: str
    leaves: tuple[str, ...]  #: GUIDs, in order of rails
    hosts: tuple[str, ...]
    rails: int = 1  #: links that a host has
    rail_optimised: bool = False  #: each rail has a leaf of its own


@dataclass(frozen=True, slots=True)
class Pod:
    """Units below the same spines."""

    name: str
    units: tuple[str, ...]
    spines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Root:
    """Pods that reach each other."""

    name: str
    pods: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    switches: Mapping[str, Switch]
    units: tuple[Unit, ...]
    pods: tuple[Pod, ...]
    roots: tuple[Root, ...]
    ports: tuple[Port, ...]
    findings: tuple[Finding, ...] = ()
    levels: Mapping[str, int] = field(default_factory=dict)  #: of switches: 1 = leaf; those that no unit reaches are left out
    others: tuple[str, ...] = ()  #: hosts that are in no unit: logins, storage, management
    degraded: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  #: rails of a host that are down, slow or miswired
    problems: tuple[str, ...] = ()  #: of the source's text
    cables: int = 0  #: between switches

    @cached_property
    def unit_of(self) -> Mapping[str, str]:
        """Name of the unit of each host."""
        return {host: unit.name for unit in self.units for host in unit.hosts}

    @property
    def hosts(self) -> int:
        return sum(len(unit.hosts) for unit in self.units)

    @property
    def tiers(self) -> int:
        """Of switches: 1 = leaves alone, 2 = with spines, 3 = with cores over pods."""
        return 3 if len(self.pods) > len(self.roots) else min(2, max(self.levels.values(), default=1))
