"""A job by its name, as the Kubernetes objects of which it consists, also while it has no pods."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hbox_common.errors import InvalidRequest, NotFound
from hbox_common.model.annotations import GROUP_NAME

from ..access.cluster import JOB, POD, POD_GROUP, ClusterApi, Kind, Object

#: Another name of the same annotation, and the label that Jobs put on their pods.
_VOLCANO_GROUP = "scheduling.volcano.sh/group-name"
_MOST_OWNERS = 8
#: Kinds by the first part of `kind/name`.
_SHORT = {"job": JOB, "jobs": JOB, "podgroup": POD_GROUP, "pg": POD_GROUP, "pod": POD, "pods": POD, "po": POD}


@dataclass(frozen=True, slots=True)
class Target:
    """One job. `root`: the object that makes its pods: its topmost controller, else its PodGroup, else its only pod."""

    root: Object
    kind: Kind
    pods: tuple[Object, ...]  #: also those that have ended
    group: Object | None = None

    @property
    def namespace(self) -> str:
        return str(self.root["metadata"].get("namespace", ""))

    @property
    def name(self) -> str:
        return str(self.root["metadata"]["name"])

    @property
    def title(self) -> str:
        """`job ml/train`, for messages."""
        return f"{self.kind.kind.lower()} {self.namespace}/{self.name}"

    @property
    def live(self) -> tuple[Object, ...]:
        return tuple(pod for pod in self.pods if phase_of(pod) not in ENDED and "deletionTimestamp" not in pod["metadata"])

    @property
    def bound(self) -> tuple[Object, ...]:
        return tuple(pod for pod in self.live if pod["spec"].get("nodeName"))

    @property
    def single_objects(self) -> tuple[tuple[Kind, Object], ...]:
        """Objects whose deletion ends the job."""
        if self.kind is POD_GROUP:
            loose = [pod for pod in self.pods if controller_of(pod) is None]
            return ((POD_GROUP, self.root), *((POD, pod) for pod in loose))
        if self.group is not None and not self.group["metadata"].get("ownerReferences"):
            return ((self.kind, self.root), (POD_GROUP, self.group))
        return ((self.kind, self.root),)


ENDED = ("Succeeded", "Failed")


def phase_of(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def controller_of(one: Object) -> Mapping[str, Any] | None:
    owners: Sequence[Mapping[str, Any]] = one["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def group_of(pod: Object) -> str:
    """Name of the PodGroup that the pod names; empty if none."""
    notes = pod["metadata"].get("annotations") or {}
    return str(notes.get(GROUP_NAME) or notes.get(_VOLCANO_GROUP) or "")


def target_of(api: ClusterApi, named: str, *, namespace: str | None, listed: Callable[[str], Mapping[str, Any]]) -> Target:
    """The job `named`: name, namespace/name, kind/name, namespace/kind/name, or a pod's name. `listed`: its item of `hbox jobs`, for kinds whose objects are
    not named alone. Raises NotFound."""
    space, kind, name = _parts(named, namespace or api.namespace)
    for one in [kind] if kind is not None else [JOB, POD_GROUP, POD]:
        if (found := _found(api, one, space, name)) is not None:
            return _whole(api, one, found)
    item = listed(named)
    space = str(item["name"]).partition("/")[0]
    for pod in (*item["placed"], *item["waiting"]):
        if (found := api.find(POD, space, pod)) is not None:
            return _whole(api, POD, found)
    raise NotFound(f"job {item['name']} has no pod in Kubernetes", hint="hbox jobs")


def _parts(named: str, namespace: str) -> tuple[str, Kind | None, str]:
    parts = named.split("/")
    if len(parts) == 3 and parts[1] in _SHORT:
        return parts[0], _SHORT[parts[1]], parts[2]
    if len(parts) == 2 and parts[0] in _SHORT:
        return namespace, _SHORT[parts[0]], parts[1]
    if len(parts) == 2:
        return parts[0], None, parts[1]
    if not all(parts) or len(parts) > 3:
        raise InvalidRequest(f"{named!r} is no name of a job", hint="write NAME, NAMESPACE/NAME or NAMESPACE/KIND/NAME")
    return namespace, None, parts[-1]


def _found(api: ClusterApi, kind: Kind, namespace: str, name: str) -> Object | None:
    """None also where the cluster does not serve the kind."""
    found = api.find(kind, namespace, name)
    return None if found is None else {"apiVersion": kind.api_version, "kind": kind.kind, **found}


def _whole(api: ClusterApi, kind: Kind, found: Object) -> Target:
    namespace = str(found["metadata"].get("namespace", ""))
    root, root_kind = _topmost(api, kind, found)
    group = None
    if root_kind is POD and (name := group_of(root)) and (group := _found(api, POD_GROUP, namespace, name)) is not None:
        root, root_kind = _topmost(api, POD_GROUP, group)
    pods = tuple(_pods(api, root, root_kind))
    if root_kind is POD_GROUP and (owned := next((pod for pod in pods if controller_of(pod) is not None), None)) is not None:
        group, (root, root_kind) = root, _topmost(api, POD, owned)
    elif root_kind is not POD_GROUP and group is None and pods and (name := group_of(pods[0])):
        group = _found(api, POD_GROUP, namespace, name)
    return Target(root, root_kind, pods, group)


def _topmost(api: ClusterApi, kind: Kind, found: Object) -> tuple[Object, Kind]:
    """Follows controllers as far as they exist and the user may read them."""
    for _ in range(_MOST_OWNERS):
        owner = controller_of(found)
        if owner is None:
            break
        try:
            above = api.kind(str(owner["apiVersion"]), str(owner["kind"]))
            higher = _found(api, above, str(found["metadata"].get("namespace", "")), str(owner["name"]))
        except InvalidRequest:
            break
        if higher is None or higher["metadata"].get("uid") != owner.get("uid"):
            break
        found, kind = higher, above
    return found, kind


def _pods(api: ClusterApi, root: Object, kind: Kind) -> Iterator[Object]:
    """Oldest first."""
    namespace, name, uid = (str(root["metadata"].get(key, "")) for key in ("namespace", "name", "uid"))
    if kind is POD:
        yield root
        return
    if kind is JOB:
        found = api.listed(POD, namespace, labelSelector=f"job-name={name}")
        yield from sorted((pod for pod in found if (controller_of(pod) or {}).get("uid") == uid), key=_age)
        return
    under: dict[str, bool] = {uid: True}
    for pod in sorted(api.listed(POD, namespace), key=_age):
        owner = controller_of(pod)
        if kind is POD_GROUP:
            if group_of(pod) == name:
                yield pod
        elif owner is not None:
            key = str(owner.get("uid"))
            if key not in under:
                under[key] = str(_topmost(api, POD, pod)[0]["metadata"].get("uid")) == uid
            if under[key]:
                yield pod


def _age(pod: Object) -> tuple[str, str]:
    return str(pod["metadata"].get("creationTimestamp", "")), str(pod["metadata"]["name"])
