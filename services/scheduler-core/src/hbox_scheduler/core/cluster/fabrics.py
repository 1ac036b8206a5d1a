"""Fabric domains by source, and detection of stale fabrics.

A gang that must be in one domain depends on the cabling: if the source of the fabric has not confirmed it for too long, the gang stays pending. All other pods
use the last known state. Fabrics that are read from the cluster itself (HyperNodes) never become stale.
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
    #: Number of degraded rails by node (down, slow or at another leaf); read-only.
    degraded: Mapping[NodeName, int] = field(default_factory=lambda: MappingProxyType({}))
    #: Domains of stale fabrics -> why they are stale; read-only.
    old: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def put(self, fabric: str, hypernodes: Iterable[HyperNode], version: int = 0) -> list[HyperNode]:
        """Replace all domains of a fabric. Returns the domains of all fabrics; a domain that several fabrics define belongs to the first fabric by name."""
        self._domains[fabric], self._versions[fabric] = tuple(hypernodes), version
        found: dict[str, HyperNode] = {}
        self._fabric_of.clear()
        for name in sorted(self._domains):
            for one in self._domains[name]:
                found.setdefault(one.name, one)
                self._fabric_of.setdefault(one.name, name)
        return list(found.values())

    def source_of(self, domain: str) -> tuple[str, int] | None:
        """The fabric of a domain, and its version; None if no fabric has it."""
        fabric = self._fabric_of.get(domain)
        return None if fabric is None else (fabric, self._versions[fabric])

    def put_degraded(self, fabric: str, rails: Mapping[NodeName, int]) -> bool:
        """Replace the numbers of degraded rails of a fabric's nodes. Returns whether they changed."""
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
        """Record that the fabric's source confirmed it. `at`: seconds since the epoch."""
        self._seen_at[fabric] = at

    def forget_age(self, fabric: str) -> None:
        """Record that the fabric now comes from the cluster's own objects, so that it never becomes stale."""
        self._seen_at.pop(fabric, None)

    def age(self, now: float, limit_s: float) -> bool:
        """Determine the stale fabrics at `now`. Returns whether they changed."""
        too_old = frozenset(fabric for fabric, at in self._seen_at.items() if now - at > limit_s)
        if too_old == self._too_old:
            return False
        self._too_old = too_old
        self.relist(limit_s)
        return True

    def relist(self, limit_s: float) -> None:
        """Rebuild `old` after the stale fabrics or their domains changed."""
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
        """Whether any fabric may become stale, or is marked as stale."""
        return bool(self._seen_at or self._too_old)
