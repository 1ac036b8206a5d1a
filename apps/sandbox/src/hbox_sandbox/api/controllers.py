"""The controllers that a cluster is expected to have: garbage collection by owner, namespace termination, CRD establishment, disruption budgets,
workloads.

One work queue of distinct items, filled by the store's listener, drained by one task a little at a time so that deleting a namespace of ten
thousand pods does not hold up requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

from .cluster import Cluster
from .errors import ApiError, Json
from .pods import is_ready
from .resources import CRDS, NAMESPACES, PDBS, PODS, ResourceType, custom_types
from .selectors import field_values, selector_object_test
from .store import Event, EventType, Version
from .workloads import RECONCILERS, World
from .writes import Deletion, Target, change, delete

log = logging.getLogger(__name__)

_BATCH = 50
_NAMES_ACCEPTED = {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"}
_ESTABLISHED = {
    "type": "Established",
    "status": "True",
    "reason": "InitialNamesAccepted",
    "message": "the initial names have been accepted",
}


class Work(StrEnum):
    OWNER_GONE = "owner gone"
    OWNER_DELETING = "owner deleting"
    NAMESPACE = "namespace"
    CRD = "crd"
    BUDGETS = "budgets"
    WORKLOAD = "workload"


Item: TypeAlias = tuple[Work, str, str]


class Controllers:
    """`run` until cancelled. `established_after_s`: how long a new CRD is not served, as on a real server."""

    def __init__(self, cluster: Cluster, *, established_after_s: float = 0.05) -> None:
        self._cluster = cluster
        self._delay_s = established_after_s
        self._items: dict[Item, None] = {}
        self._wake = asyncio.Event()
        self._dependents: dict[str, set[tuple[str, str]]] = {}
        """Objects by the uid of their owner: (storage, key)."""
        self._waiting: dict[str, Item] = {}
        """Owners in foreground deletion that wait for their last dependent to go: what to do then."""
        self._budgeted: set[str] = set()
        """Namespaces that have had a disruption budget."""
        self.runs_workloads = True
        """False: Deployments and the like have no controllers, as for tests that play them."""
        self._world = World(cluster, lambda uid: self._dependents.get(uid, ()), self._later)
        self._workloads: dict[str, tuple[str, str]] = {}
        """Collection and key of each workload, by uid."""
        cluster.store.listeners.append(self._note)

    def _note(self, storage: str, event: Event) -> None:
        version = event.version
        if version.owners or (event.previous is not None and event.previous.owners):
            self._index(storage, event)
        if event.type is EventType.DELETED:
            if version.uid in self._dependents:
                self._add((Work.OWNER_GONE, version.uid, ""))
            namespace = self._cluster.store.get(NAMESPACES.storage, version.namespace) if version.namespace else None
            if namespace is not None and namespace.deleting:
                self._add((Work.NAMESPACE, namespace.name, ""))
        elif version.deleting and (event.previous is None or not event.previous.deleting):
            if storage == NAMESPACES.storage:
                self._add((Work.NAMESPACE, version.name, ""))
            if b'"foregroundDeletion"' in version.body or b'"orphan"' in version.body:
                self._add((Work.OWNER_DELETING, storage, version.key))
        if storage == CRDS.storage:
            self._add((Work.CRD, version.key, ""))
        elif storage == PDBS.storage:
            self._budgeted.add(version.namespace)
            self._add((Work.BUDGETS, version.namespace, ""))
        elif storage == PODS.storage and version.namespace in self._budgeted:
            self._add((Work.BUDGETS, version.namespace, ""))
        self._note_workload(storage, event)

    def _note_workload(self, storage: str, event: Event) -> None:
        version = event.version
        if storage in RECONCILERS:
            if event.type is EventType.DELETED:
                self._workloads.pop(version.uid, None)
                self._world.ended.pop(version.uid, None)
            else:
                self._workloads[version.uid] = (storage, version.key)
                self._add((Work.WORKLOAD, storage, version.key))
        for owner in version.owners:
            if owner in self._workloads:
                self._add((Work.WORKLOAD, *self._workloads[owner]))

    def _later(self, seconds: float, resource: ResourceType, key: str) -> None:
        """Reconcile a workload in so many seconds of the cluster's clock."""
        asyncio.get_running_loop().call_later(seconds, self._add, (Work.WORKLOAD, resource.storage, key))

    def _reconcile(self, storage: str, key: str) -> bool:
        version = self._cluster.store.get(storage, key) if storage in self._cluster.store.collections() else None
        if version is None or not self.runs_workloads:
            return True
        return RECONCILERS[storage](self._world, version)

    def _index(self, storage: str, event: Event) -> None:
        place = (storage, event.version.key)
        for owner in event.previous.owners if event.previous is not None else ():
            places = self._dependents.get(owner, set())
            places.discard(place)
            if not places:
                self._dependents.pop(owner, None)
                if event.type is EventType.DELETED and owner in self._waiting:
                    self._add(self._waiting.pop(owner))
        if event.type is not EventType.DELETED:
            for owner in event.version.owners:
                self._dependents.setdefault(owner, set()).add(place)

    def _add(self, item: Item) -> None:
        self._items[item] = None
        self._wake.set()

    async def run(self) -> None:
        while True:
            if not self._items:
                self._wake.clear()
                await self._wake.wait()
            item = next(iter(self._items))
            del self._items[item]
            try:
                if not await self._do(item):
                    self._items[item] = None
            except (ApiError, AttributeError, KeyError, TypeError, ValueError) as error:
                # An object of the wrong shape (the emulator knows no schema of built-in kinds) must not end the control plane.
                log.warning("controllers left out %s: %s: %s", item, type(error).__name__, error)
            await asyncio.sleep(0)

    async def _do(self, item: Item) -> bool:
        """Take a piece of work; False when some of it is left."""
        work, first, second = item
        match work:
            case Work.OWNER_GONE:
                return self._collect(first)
            case Work.OWNER_DELETING:
                return self._release_owner(first, second)
            case Work.NAMESPACE:
                return self._terminate_namespace(first)
            case Work.BUDGETS:
                return self._count_budgets(first)
            case Work.WORKLOAD:
                return self._reconcile(first, second)
            case Work.CRD:
                await self._serve_crd(first)
                return True

    def _collect(self, owner: str) -> bool:
        """Delete what has no owner left; True when done."""
        pending = self._not_deleting(owner)
        for storage, version in pending[:_BATCH]:
            if not any(self._exists(uid) for uid in version.owners if uid != owner):
                self._delete(storage, version)
        return len(pending) <= _BATCH

    def _not_deleting(self, owner: str) -> list[tuple[str, Version]]:
        found = ((storage, self._cluster.store.get(storage, key)) for storage, key in self._dependents.get(owner, ()))
        return [(storage, version) for storage, version in found if version is not None and not version.deleting]

    def _exists(self, uid: str) -> bool:
        return any(each.uid == uid for found in self._cluster.store.collections().values() for each in found.entries.values())

    def _delete(self, storage: str, version: Version, *, propagation: str = "Background") -> None:
        resource = self._cluster.registry.stored_as(storage)
        if resource is None:
            return
        try:
            delete(
                self._cluster,
                Target(resource, version.namespace, version.name),
                Deletion(uid=version.uid, propagation=propagation),
            )
        except ApiError:
            return  # already gone, or replaced by a namesake: either way no longer ours to delete

    def _release_owner(self, storage: str, key: str) -> bool:
        """Foreground: delete the dependents, then let the owner go. Orphan: take the owner's reference out of them, then let it go."""
        resource = self._cluster.registry.stored_as(storage)
        owner = self._cluster.store.get(storage, key)
        if owner is None or resource is None:
            return True
        orphaning = "orphan" in (owner.load()["metadata"].get("finalizers") or ())
        pending = self._not_deleting(owner.uid)
        for dependent_storage, dependent in pending[:_BATCH]:
            dependent_type = self._cluster.registry.stored_as(dependent_storage)
            if orphaning and dependent_type is not None:
                change(self._cluster, dependent_type, dependent, _without_owner(owner.uid))
            else:
                self._delete(dependent_storage, dependent, propagation="Foreground")
        if len(pending) > _BATCH:
            return False
        if not orphaning and self._dependents.get(owner.uid):
            self._waiting[owner.uid] = (Work.OWNER_DELETING, storage, key)
            return True
        current = self._cluster.store.get(storage, key)
        if current is not None:
            change(self._cluster, resource, current, _without_finalizers("foregroundDeletion", "orphan"))
        return True

    def _terminate_namespace(self, name: str) -> bool:
        """Delete the objects in a namespace, then the namespace. Returns False if a further call has to delete more objects."""
        namespace = self._cluster.store.get(NAMESPACES.storage, name)
        if namespace is None or not namespace.deleting:
            return True
        remaining = deleted = 0
        for storage, collection in list(self._cluster.store.collections().items()):
            for version in list(collection.scan(prefix=f"{name}/", after="")):
                remaining += 1
                if not version.deleting and deleted < _BATCH:
                    self._delete(storage, version)
                    deleted += 1
        if remaining == 0:
            change(self._cluster, NAMESPACES, namespace, lambda obj: obj["spec"].update(finalizers=[]))
        return deleted < _BATCH

    async def _serve_crd(self, key: str) -> None:
        """Names are accepted at once, the resource is served a little later; a deleted CRD takes its objects along."""
        store, registry = self._cluster.store, self._cluster.registry
        version = store.get(CRDS.storage, key)
        plural, _, group = key.partition(".")
        if version is None:
            for custom in list(store.collections()[key].entries.values()) if key in store.collections() else ():
                self._delete(key, custom)
            registry.drop(group=group, plural=plural)
            store.close(key)
            return
        crd = version.load()
        types = custom_types(crd)
        if not any(each.get("type") == "Established" for each in (crd.get("status") or {}).get("conditions") or ()):
            await asyncio.sleep(self._delay_s)
        registry.drop(group=group, plural=plural)
        for each in types:
            registry.add(each)
        if types:
            store.open(types[0].storage, field_values(types[0]))
        current = store.get(CRDS.storage, key)
        if current is not None:
            change(self._cluster, CRDS, current, self._establish)

    def _establish(self, crd: Json) -> None:
        status = crd.setdefault("status", {})
        if status.get("acceptedNames") == crd["spec"]["names"] and status.get("conditions"):
            return
        status["acceptedNames"] = crd["spec"]["names"]
        status["storedVersions"] = [each["name"] for each in crd["spec"]["versions"] if each.get("storage")]
        status["conditions"] = [each | {"lastTransitionTime": self._cluster.now()} for each in (_NAMES_ACCEPTED, _ESTABLISHED)]

    def _count_budgets(self, namespace: str) -> bool:
        """The disruption controller: how many of its pods each budget may lose now."""
        budgets = list(self._cluster.store.collection(PDBS.storage).scan(prefix=f"{namespace}/", after=""))
        if not budgets:
            self._budgeted.discard(namespace)
            return True
        pods = list(self._cluster.store.collection(PODS.storage).scan(prefix=f"{namespace}/", after=""))
        for budget in budgets:
            spec = budget.load().get("spec") or {}
            test = selector_object_test(spec.get("selector") or {}) if spec.get("selector") is not None else None
            chosen = [pod.load() for pod in pods if test is not None and test(pod.labels)]
            expected = [pod for pod in chosen if pod["status"].get("phase") not in ("Succeeded", "Failed")]
            change(self._cluster, PDBS, budget, lambda obj, expected=expected: _count(obj, expected))  # type: ignore[misc]
        return True


def _count(budget: Json, pods: list[Json]) -> None:
    spec, status = budget.get("spec") or {}, budget.setdefault("status", {})
    present = {pod["metadata"]["name"]: pod for pod in pods}
    disrupted = {
        name: time
        for name, time in (status.get("disruptedPods") or {}).items()
        if name in present and "deletionTimestamp" not in present[name]["metadata"]
    }
    healthy = sum(
        is_ready(pod) and "deletionTimestamp" not in pod["metadata"] and pod["metadata"]["name"] not in disrupted
        for pod in pods
    )
    desired = (
        max(0, len(pods) - _share(spec["maxUnavailable"], len(pods)))
        if "maxUnavailable" in spec
        else _share(spec.get("minAvailable", 1), len(pods))
    )
    status.update(
        currentHealthy=healthy,
        desiredHealthy=desired,
        expectedPods=len(pods),
        disruptionsAllowed=max(0, healthy - desired) if pods else 0,
    )
    status["observedGeneration"] = budget["metadata"].get("generation", 1)
    status.pop("disruptedPods", None)
    if disrupted:
        status["disruptedPods"] = disrupted


def _share(amount: int | str, of: int) -> int:
    """An int, or a percentage rounded up (intstr.GetScaledValueFromIntOrPercent)."""
    if isinstance(amount, str) and amount.endswith("%"):
        return -(-int(amount[:-1]) * of // 100)
    return int(amount)


def _without_owner(uid: str) -> Callable[[Json], None]:
    def mutate(obj: Json) -> None:
        kept = [each for each in obj["metadata"].get("ownerReferences") or () if each["uid"] != uid]
        obj["metadata"].pop("ownerReferences", None)
        if kept:
            obj["metadata"]["ownerReferences"] = kept

    return mutate


def _without_finalizers(*names: str) -> Callable[[Json], None]:
    def mutate(obj: Json) -> None:
        kept = [each for each in obj["metadata"].get("finalizers") or () if each not in names]
        obj["metadata"].pop("finalizers", None)
        if kept:
            obj["metadata"]["finalizers"] = kept

    return mutate
