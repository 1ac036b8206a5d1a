"""What a PersistentVolumeClaim that waits for its first consumer needs before its pod is bound: the rules of kube-scheduler's VolumeBinding."""

from dataclasses import dataclass
from enum import Enum, auto

from hbox_common.model import VolumeDemand


class Need(Enum):
    """What a claim needs next."""

    NOTHING = auto()  #: it is bound
    NODE = auto()  #: its provisioner has to be given the node
    TIME = auto()  #: its provisioner works on it
    VOLUME = auto()  #: the binder has to reserve a static volume for it: its class has no provisioner
    ANOTHER_NODE = auto()  #: its provisioner has rejected the node, or it can never be bound


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """One version of a PersistentVolumeClaim."""

    name: str
    resource_version: str
    volume: str = ""
    bound: bool = False  #: to `volume`, from both sides
    selected: str = ""  #: the node for which its volume is made
    problem: str = ""  #: why it will never be bound
    uid: str = ""
    demand: VolumeDemand = VolumeDemand()
    static_class: str = ""  #: its StorageClass, if that makes no volumes


def need_of(claim: VolumeClaim, *, waiting: bool) -> tuple[Need, str]:
    """What the claim needs, and why. `waiting`: an earlier call for the same decision found a node or a reserved volume for every claim, so that the
    provisioner of a claim without a node rejected it."""
    if claim.problem:
        return Need.ANOTHER_NODE, f"persistentvolumeclaim {claim.name} {claim.problem}"
    if claim.bound:
        return Need.NOTHING, ""
    if claim.volume or claim.selected or (claim.static_class and waiting):
        return Need.TIME, f"persistentvolumeclaim {claim.name} is not bound yet"
    if claim.static_class:
        return Need.VOLUME, f"persistentvolumeclaim {claim.name} is not bound yet"
    if waiting:
        return Need.ANOTHER_NODE, f"the provisioner of persistentvolumeclaim {claim.name} rejected the node"
    return Need.NODE, f"persistentvolumeclaim {claim.name} has no node yet"
