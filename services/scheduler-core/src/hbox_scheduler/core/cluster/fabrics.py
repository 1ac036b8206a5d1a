"""What each source says of the fabric, and which of it is too old to promise anything on.

A gang that has to be in one domain is promised something about cables: when nobody has confirmed them for too long, it waits. Everybody else goes by what was
known last. Fabrics that are read from the cluster itself (HyperNodes) never age.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from hbox_common.model import HyperNode, NodeName


@dataclass(slots=True)
class Fabrics:
    _domains: dict[str, tuple[HyperNode, ...]] = field(default_factory=dict)  #: by fabric
    _versions: dict[str, int] = field(default_factory=dict)  #: likewise
    _fabric_of: dict[str, str] = field(default_factory=dict)  #: by domain
    _seen_at: dict[str, float] = field(default_factory=dict)  #: likewise, seconds since the epoch
    _too_old: frozenset[str] = frozenset()
    _degraded: dict[str, Mapping[NodeName, int]] = field(default_factory=dict)  #: by fabric
    #: Rails of nodes that are down, slow or at another leaf, by how many: to be read only.
    degraded: Mapping[NodeName, int] = field(default_factory=lambda: MappingProxyType({}))
    #: Domains of fabrics that are too old, and why: to be read only.
    old: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def put(self, fabric: str, hypernodes: Iterable[HyperNode], version: int = 0) -> list[HyperNode]:
        """All domains of a fabric, and the version of that; returns those of all. One that a fabric before by name has too is left out."""
        self._domains[fabric], self._versions[fabric] = tuple(hypernodes), version
        found: dict[str, HyperNode] = {}
        self._fabric_of.clear()
        for name in sorted(self._domains):
            for one in self._domains[name]:
                found.setdefault(one.name, one)
                self._fabric_of.setdefault(one.name, name)
        return list(found.values())

    def source_of(self, domain: str) -> tuple[str, int] | None:
        """The fabric that a domain is of, and its version. None = it is of none."""
        fabric = self._fabric_of.get(domain)
        return None if fabric is None else (fabric, self._versions[fabric])

    def put_degraded(self, fabric: str, rails: Mapping[NodeName, int]) -> bool:
        """How many rails of its nodes are not as they should be, all of them. Returns whether that is other than before."""
        if self._degraded.get(fabric, {}) == rails:
            return False
        self._degraded[fabric] = rails
        whole: dict[NodeName, int] = {}
        for of in self._degraded.values():
            for node, count in of.items():
                whole[node] = whole.get(node, 0) + count
        self.degraded = MappingProxyType(whole)
        return True

    def seen(self, fabric: str, at: float) -> None:
        """Its source confirmed it. `at`: seconds since the epoch."""
        self._seen_at[fabric] = at

    def forget_age(self, fabric: str) -> None:
        """It is of the cluster's own objects from now on."""
        self._seen_at.pop(fabric, None)

    def age(self, now: float, limit_s: float) -> bool:
        """Find out what is too old at `now`. Returns whether that is other than before."""
        too_old = frozenset(fabric for fabric, at in self._seen_at.items() if now - at > limit_s)
        if too_old == self._too_old:
            return False
        self._too_old = too_old
        self.relist(limit_s)
        return True

    def relist(self, limit_s: float) -> None:
        """The domains of fabrics that are too old, after either changed."""
        self.old = MappingProxyType(
            {
                one.name: f"fabric {fabric} was not confirmed by its source for more than {limit_s:g} s"
                for fabric in sorted(self._too_old)
                for one in self._domains.get(fabric, ())
                if self._fabric_of[one.name] == fabric
            }
        )

    @property
    def aging(self) -> bool:
        """Whether any fabric ages, or one that ages no more still counts as too old."""
        return bool(self._seen_at or self._too_old)
