"""What the volume controller, provisioners and schedulers write on claims and volumes; which nodes reach a volume, and what it offers."""

from collections.abc import Mapping, Sequence

from hbox_common.errors import InvalidRequest
from hbox_common.model import VolumeDemand, VolumeSupply, capacity_units, request_units

from .objects import KubeObject, PersistentVolume, PersistentVolumeClaim, Requirement
from .selectors import selector_of

#: Written by the volume controller when claim and volume name each other.
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
#: The node for which a provisioner makes the volume: written by a scheduler, removed by a provisioner that cannot make it there.
SELECTED_NODE = "volume.kubernetes.io/selected-node"
#: Written on a volume by a scheduler that reserved it for a claim: the volume controller removes the reservation with the claim.
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
#: The class before `spec.storageClassName`, which still counts first.
OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
#: The provisioner of classes that make no volumes: an administrator creates them beforehand.
NO_PROVISIONER = "kubernetes.io/no-provisioner"

_STORAGE = "storage"


def storage_class_of(thing: KubeObject, named: str | None) -> str:
    """The class of a claim or a volume, of which `named` is the class in its spec."""
    return thing.metadata.annotations.get(OLD_CLASS) or named or ""


def demand_of(claim: PersistentVolumeClaim) -> VolumeDemand | None:
    """What a claim asks of a volume; None for what cannot be read."""
    spec = claim.spec
    try:
        size = request_units(_STORAGE, spec.resources.requests.get(_STORAGE, 0))
        return VolumeDemand(size, spec.volume_mode, tuple(sorted(spec.access_modes)), selector_of(spec.selector))
    except (InvalidRequest, ValueError):
        return None


def supply_of(volume: PersistentVolume) -> VolumeSupply | None:
    """What a volume offers to claims that have none; None where it is in use, being deleted, or cannot be read."""
    meta, spec, claim = volume.metadata, volume.spec, volume.spec.claim_ref
    if meta.deletion_timestamp is not None or volume.status.phase in ("Released", "Failed"):
        return None
    if claim is None and volume.status.phase != "Available":
        return None
    try:
        size = capacity_units(_STORAGE, spec.capacity.get(_STORAGE, 0))
    except InvalidRequest:
        return None
    return VolumeSupply(
        name=meta.name,
        storage_class=storage_class_of(volume, spec.storage_class_name),
        size=size,
        volume_mode=spec.volume_mode,
        access_modes=frozenset(spec.access_modes),
        labels=tuple(sorted(meta.labels.items())),
        claim=f"{claim.namespace}/{claim.name}" if claim is not None else "",
        claim_uid=claim.uid if claim is not None else "",
    )


def reaches(volume: PersistentVolume, node: str, labels: Mapping[str, str]) -> bool:
    """Whether the node of this name and with these labels satisfies the node affinity of the volume. An empty term matches nothing."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    fields = {"metadata.name": node}
    return any(
        bool(term.match_expressions or term.match_fields)
        and _all_hold(term.match_expressions, labels)
        and _all_hold(term.match_fields, fields)
        for term in affinity.required.node_selector_terms
    )


def _all_hold(requirements: Sequence[Requirement], labels: Mapping[str, str]) -> bool:
    return all(_holds(one, labels.get(one.key)) for one in requirements)


def _holds(one: Requirement, value: str | None) -> bool:
    match one.operator:
        case "In":
            return value in one.values
        case "NotIn":
            return value not in one.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            try:
                number, bound = int(value or ""), int(one.values[0])
            except (ValueError, IndexError):
                return False
            return number > bound if one.operator == "Gt" else number < bound
    return False
