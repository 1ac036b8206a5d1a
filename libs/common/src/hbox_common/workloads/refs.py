"""References to owners and to declared groups, as they stand on pods and objects. All of them are written by tenants."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hbox_common.model.bounds import NAME_BYTES, is_name, is_plain

#: Of a uid; Kubernetes' own have 36.
UID_BYTES = 128
#: Of an apiVersion: a group, a slash and a version.
API_VERSION_BYTES = NAME_BYTES + 1 + 63
KIND_BYTES = 63

#: Labels and annotations that name a declared group.
COSCHEDULING_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_COUNT = "kueue.x-k8s.io/pod-group-total-count"
GROVE_GANG = "grove.io/podgang"


def group_of(api_version: str) -> str:
    """The API group; empty for the core one."""
    return api_version.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """One object of the pod's own namespace. An empty uid: the object is meant that has this name now."""

    api_version: str
    kind: str
    name: str
    uid: str = ""

    @property
    def group(self) -> str:
        return group_of(self.api_version)

    @property
    def title(self) -> str:
        """For messages: `PyTorchJob train`."""
        return f"{self.kind} {self.name}"


class GroupBy(StrEnum):
    """By what a pod names a group that was declared for it."""

    POD_GROUP = "PodGroup"  #: Volcano's annotation `group-name`: job-controller reads these PodGroups itself
    KUBERNETES = "schedulingGroup"  #: `spec.schedulingGroup.podGroupName`
    COSCHEDULING = "coscheduling"
    KUEUE = "Kueue"  #: no object: the pods carry name and count
    GROVE = "Grove"


@dataclass(frozen=True, slots=True)
class GroupRef:
    """A declared group in the pod's namespace."""

    by: GroupBy
    name: str
    count: int = 0  #: of Kueue: pods that the group has in total

    @property
    def object(self) -> OwnerRef | None:
        """The object that declares it; None where there is none to read (Kueue), or job-controller reads it (PodGroup)."""
        match self.by:
            case GroupBy.KUBERNETES:
                return OwnerRef("scheduling.k8s.io/v1beta1", "PodGroup", self.name)
            case GroupBy.COSCHEDULING:
                return OwnerRef("scheduling.x-k8s.io/v1alpha1", "PodGroup", self.name)
            case GroupBy.GROVE:
                return OwnerRef("scheduler.grove.io/v1alpha1", "PodGang", self.name)
        return None


def controller_of(owner_references: Iterable[Any]) -> OwnerRef | None:
    """The reference with `controller: true`; None without one, or if its fields are no valid ones.

    owner_references: mappings as in JSON, or values with the attributes api_version, kind, name, uid, controller.
    """
    for each in owner_references:
        if isinstance(each, Mapping):
            fields = each.get("apiVersion"), each.get("kind"), each.get("name"), each.get("uid"), each.get("controller")
        else:
            fields = each.api_version, each.kind, each.name, each.uid, each.controller
        texts: list[Any]
        *texts, controller = fields
        if controller is not True:
            continue
        if not all(isinstance(text, str) and text for text in texts):
            return None
        api_version, kind, name, uid = texts
        fits = is_plain(api_version, API_VERSION_BYTES) and is_plain(kind, KIND_BYTES) and is_plain(uid, UID_BYTES)
        return OwnerRef(api_version, kind, name, uid) if fits and is_name(name) else None
    return None


def group_ref_of(
    labels: Mapping[str, str], annotations: Mapping[str, str], *, pod_group: str = "", scheduling_group: str = ""
) -> GroupRef | None:
    """The declared group of a pod, by precedence: PodGroup, schedulingGroup, coscheduling, Kueue, Grove; None without a valid name.

    pod_group: as named by Volcano's annotation; scheduling_group: `spec.schedulingGroup.podGroupName`.
    """
    if pod_group:
        return GroupRef(GroupBy.POD_GROUP, pod_group)
    if scheduling_group:
        return GroupRef(GroupBy.KUBERNETES, scheduling_group) if is_name(scheduling_group) else None
    for label in COSCHEDULING_LABELS:
        if (name := labels.get(label)) and is_name(name):
            return GroupRef(GroupBy.COSCHEDULING, name)
    if (name := labels.get(KUEUE_GROUP)) and is_name(name):
        written = annotations.get(KUEUE_COUNT, "")
        count = int(written) if written.isascii() and written.isdecimal() and len(written) <= 10 else 0
        return GroupRef(GroupBy.KUEUE, name, min(count, 2**31 - 1))
    if (name := labels.get(GROVE_GANG)) and is_name(name):
        return GroupRef(GroupBy.GROVE, name)
    return None
