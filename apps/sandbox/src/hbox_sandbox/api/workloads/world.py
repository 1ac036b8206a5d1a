"""What the controllers of workloads share: the objects of an owner, and the writes of kube-controller-manager.

Writes are those of any client (`writes`), so admission, generations and garbage collection apply; a status is written as a kubelet's is.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..cluster import Cluster
from ..errors import ApiError, Json
from ..pods import is_ready
from ..resources import EVENTS, PODS, ResourceType
from ..store import Version
from ..writes import Deletion, Options, Target, change, commit, create, delete

#: Pods that one step creates or deletes at most: the event loop serves requests in between.
BATCH = 50
#: Seconds until a failed creation is tried again.
RETRY_S = 1.0
_HASH_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_MANAGER = Options(manager="kube-controller-manager")


@dataclass(slots=True)
class World:
    """`dependents(uid)`: collection and key of the objects with this owner. `later(seconds, resource, key)`: reconcile an object then."""

    cluster: Cluster
    dependents: Callable[[str], Iterable[tuple[str, str]]]
    later: Callable[[float, ResourceType, str], None]
    ended: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of Jobs, by uid: the phases of the pods that ended, by uid. They count after the pods are deleted."""

    def controlled(self, owner: Version, resource: ResourceType) -> list[Version]:
        """The objects of a kind whose controller is `owner`, in the order of their names."""
        keys = sorted(key for storage, key in self.dependents(owner.uid) if storage == resource.storage)
        found = (self.cluster.store.get(resource.storage, key) for key in keys)
        return [each for each in found if each is not None and _controller(each) == owner.uid]

    def create(self, resource: ResourceType, owner: Json, obj: Json) -> Version | None:
        """Create an object that `owner` controls; None, with an event, where the server refuses it."""
        meta = owner["metadata"]
        reference = {name: meta[name] for name in ("name", "uid")} | {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
        obj["metadata"]["ownerReferences"] = [reference | {"controller": True, "blockOwnerDeletion": True}]
        try:
            return create(self.cluster, Target(resource, meta["namespace"], ""), obj, _MANAGER).version
        except ApiError as error:
            self.record(owner, "Warning", "FailedCreate", f"Error creating: {error.message}")
            return None

    def create_pod(self, owner: Json, template: Json, meta: Json, spec: Json | None = None) -> bool:
        """Create a pod of a template; `meta` is added to the template's metadata, `spec` to its spec. False: the server refuses it."""
        of = template.get("metadata") or {}
        merged: Json = {key: value for key, value in of.items() if key in ("labels", "annotations", "finalizers")} | meta
        for name in ("labels", "annotations"):
            if of.get(name) and meta.get(name):
                merged[name] = {**of[name], **meta[name]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": merged, "spec": {**template["spec"], **(spec or {})}}
        made = self.create(PODS, owner, msgspec.json.decode(msgspec.json.encode(body)))
        if made is None:
            return False
        name, ordered = owner["metadata"]["name"], owner["kind"] == "StatefulSet"
        text = f"create Pod {made.name} in StatefulSet {name} successful" if ordered else f"Created pod: {made.name}"
        self.record(owner, "Normal", "SuccessfulCreate", text)
        return True

    def delete_pod(self, owner: Json, pod: Version) -> None:
        self.remove(PODS, pod)
        name, ordered = owner["metadata"]["name"], owner["kind"] == "StatefulSet"
        text = f"delete Pod {pod.name} in StatefulSet {name} successful" if ordered else f"Deleted pod: {pod.name}"
        self.record(owner, "Normal", "SuccessfulDelete", text)

    def remove(self, resource: ResourceType, version: Version) -> None:
        target = Target(resource, version.namespace, version.name)
        try:
            delete(self.cluster, target, Deletion(uid=version.uid, propagation="Background"))
        except ApiError:
            return  # it is gone, or another object of this name

    def update(self, resource: ResourceType, version: Version, mutate: Callable[[Json], None]) -> Version:
        """Change an object but for its status, if `mutate` changes it."""
        obj = version.load()
        mutate(obj)
        return commit(self.cluster, Target(resource, version.namespace, version.name), version, obj, _MANAGER)

    def set_status(self, resource: ResourceType, key: str, uid: str, status: Json) -> None:
        """Write a status; zeros that Kubernetes omits are None."""
        version = self.cluster.store.get(resource.storage, key)
        if version is not None and version.uid == uid:
            kept = {name: value for name, value in status.items() if value is not None}
            change(self.cluster, resource, version, lambda obj: obj.update(status=kept))

    def record(self, about: Json, kind: str, reason: str, message: str) -> None:
        """Create an event of the object's controller."""
        meta, now = about["metadata"], self.cluster.now()
        component = f"{about['kind'].lower()}-controller"
        name = f"{meta['name']}.{self.cluster.random.getrandbits(64):016x}"
        involved = {name: meta[name] for name in ("name", "namespace", "uid", "resourceVersion") if name in meta}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name},
            "involvedObject": {"kind": about["kind"], "apiVersion": about["apiVersion"], **involved},
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": component},
            "reportingComponent": component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            create(self.cluster, Target(EVENTS, meta["namespace"], ""), event, _MANAGER)
        except ApiError:
            return  # the namespace is being deleted


def _controller(version: Version) -> str:
    owners = version.load()["metadata"].get("ownerReferences") or ()
    return next((each["uid"] for each in owners if each.get("controller")), "")


def hash_of(value: Any, *, letters: int = 10) -> str:
    """A name part that changes with `value`."""
    digest = hashlib.sha256(msgspec.json.encode(value, order="sorted")).digest()
    return "".join(_HASH_LETTERS[byte % len(_HASH_LETTERS)] for byte in digest[:letters])


def without_empty(value: Any) -> Any:
    """A value without its empty fields: a client that decodes and encodes an object adds and drops such fields."""
    if isinstance(value, list):
        return [without_empty(each) for each in value]
    if not isinstance(value, dict):
        return value
    fields = ((name, without_empty(inner)) for name, inner in value.items())
    return {name: inner for name, inner in fields if inner not in (None, {}, [], "")}


def share(value: object, of: int, *, up: bool) -> int:
    """An int, or a percentage of `of`."""
    if isinstance(value, str) and value.endswith("%"):
        part = int(value[:-1]) * of / 100
        return math.ceil(part) if up else math.floor(part)
    return int(str(value))


def is_ended(pod: Version) -> bool:
    return pod.fields["status.phase"] in ("Succeeded", "Failed")


def is_available(pod: Version) -> bool:
    return not pod.deleting and is_ready(pod.load())


def or_none(number: int) -> int | None:
    """None for 0: Kubernetes omits the field."""
    return number or None


def conditions_after(old: Iterable[Json], new: Iterable[Json], now: str) -> list[Json]:
    """New conditions with their times of transition: those of the old ones, where the status is the same."""
    before = {each["type"]: each for each in old}
    return [each | {"lastTransitionTime": _since(before.get(each["type"]), each, now)} for each in new]


def _since(old: Json | None, new: Json, now: str) -> str:
    return old["lastTransitionTime"] if old is not None and old["status"] == new["status"] else now


def condition(kind: str, status: str, reason: str, message: str) -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message}
