"""Which static PersistentVolumes (no provisioner makes them) satisfy which PersistentVolumeClaims: the rules of Kubernetes' FindMatchingVolume.

The nodes that reach a volume are not looked at here: callers ask among the volumes that one node reaches.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .podconstraints import Selector, selects

FILESYSTEM = "Filesystem"


@dataclass(frozen=True, slots=True)
class VolumeDemand:
    """What a PersistentVolumeClaim asks of a volume."""

    size: int = 0  #: bytes
    volume_mode: str = FILESYSTEM
    access_modes: tuple[str, ...] = ()
    selector: Selector | None = None  #: of the labels of volumes; None = any


@dataclass(frozen=True, slots=True)
class VolumeSupply:
    """A PersistentVolume that is not bound yet."""

    name: str
    storage_class: str
    size: int  #: bytes
    volume_mode: str = FILESYSTEM
    access_modes: frozenset[str] = frozenset()
    labels: tuple[tuple[str, str], ...] = ()
    claim: str = ""  #: the claim (namespace/name) that it is reserved for
    claim_uid: str = ""  #: that claim's uid; empty = any claim of that name


def reserved(supplies: Iterable[VolumeSupply], claim: str, uid: str, demand: VolumeDemand) -> VolumeSupply | None:
    """The volume that is reserved for the claim: no other is taken then."""
    return _smallest(s for s in supplies if s.claim == claim and s.claim_uid in ("", uid) and _holds(s, demand))


def assign(demands: Mapping[str, VolumeDemand], supplies: Iterable[VolumeSupply]) -> dict[str, VolumeSupply]:
    """For each claim a volume of its own, which is reserved for none: the smallest that fits, the smallest claim first. Claims without one are left out. The
    volumes are all of the class that the claims name."""
    free = {s.name: s for s in supplies if not s.claim}
    found: dict[str, VolumeSupply] = {}
    for claim, demand in sorted(demands.items(), key=lambda one: (one[1].size, one[0])):
        fitting = _smallest(
            s
            for s in free.values()
            if _holds(s, demand) and (demand.selector is None or selects(demand.selector, dict(s.labels)))
        )
        if fitting is not None:
            found[claim] = free.pop(fitting.name)
    return found


def _holds(supply: VolumeSupply, demand: VolumeDemand) -> bool:
    return (
        supply.size >= demand.size
        and supply.volume_mode == demand.volume_mode
        and supply.access_modes.issuperset(demand.access_modes)
    )


def _smallest(supplies: Iterable[VolumeSupply]) -> VolumeSupply | None:
    return min(supplies, key=lambda s: (s.size, s.name), default=None)
