"""How kinds of workloads are suspended: by the field of their own controllers, which then delete the pods and create them again later."""

from collections.abc import Mapping
from typing import Any

from hbox_common.errors import InvalidRequest

from .targets import Target

#: Gate of pods that were submitted held: Kubernetes lets gates be removed, never added.
HOLD_GATE = "hbox.io/hold"

#: By kind, where its controller reads that its pods are to go.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "Job": ("spec", "suspend"),
    "JobSet": ("spec", "suspend"),
    "TrainJob": ("spec", "suspend"),
    "RayJob": ("spec", "suspend"),
    "RayCluster": ("spec", "suspend"),
    "Workflow": ("spec", "suspend"),
    "PyTorchJob": ("spec", "runPolicy", "suspend"),
    "TFJob": ("spec", "runPolicy", "suspend"),
    "XGBoostJob": ("spec", "runPolicy", "suspend"),
    "PaddleJob": ("spec", "runPolicy", "suspend"),
    "JAXJob": ("spec", "runPolicy", "suspend"),
    "MPIJob": ("spec", "runPolicy", "suspend"),
}


def is_suspended(target: Target) -> bool:
    found: Any = target.root
    for name in _FIELDS.get(target.kind.kind, ("none",)):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found is True


def suspension(target: Target, *, suspended: bool) -> dict[str, Any]:
    """The merge patch. Raises InvalidRequest for a kind that cannot be suspended, with what to do instead."""
    path = _FIELDS.get(target.kind.kind)
    if path is None:
        raise InvalidRequest(f"{target.title}: a {target.kind.kind} cannot be suspended", hint=_instead(target))
    patch: Any = suspended
    for name in reversed(path):
        patch = {name: patch}
    found: dict[str, Any] = patch
    return found


def _instead(target: Target) -> str:
    where = f"-n {target.namespace}"
    match target.kind.kind:
        case "Pod" | "PodGroup":
            return "submit it as a Job (`hbox run`), whose controller creates its pods again; `hbox cancel` deletes it"
        case "Deployment" | "StatefulSet" | "ReplicaSet":
            return f"kubectl {where} scale {target.kind.plural} {target.name} --replicas 0"
        case _:
            return f"`hbox cancel {target.namespace}/{target.name}` deletes it; submit it again later"
