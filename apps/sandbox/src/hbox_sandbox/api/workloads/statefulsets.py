"""k8s.io/kubernetes pkg/controller/statefulset: numbered pods, and revisions for `kubectl rollout`. It makes no volume claims."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import Json
from ..resources import CONTROLLER_REVISIONS, PODS, STATEFUL_SETS
from ..store import Version
from .world import RETRY_S, World, hash_of, is_available, is_ended, or_none

_REVISION = "controller-revision-hash"


def reconcile_stateful_set(world: World, version: Version) -> bool:
    one = version.load()
    pods = {_ordinal(pod): pod for pod in world.controlled(version, PODS)}
    if not version.deleting:
        revisions = _revisions(world, version, one)
        _step(world, version, one, pods, revisions)
        _write_status(world, version, revisions)
    return True


def _ordinal(pod: Version) -> int:
    return int(pod.name.rpartition("-")[2])


def _revisions(world: World, version: Version, one: Json) -> tuple[Json, Json]:
    """The ControllerRevisions of the current and of the newest template; the newest is created."""
    data = {"spec": {"template": {**one["spec"]["template"], "$patch": "replace"}}}
    found = sorted((each.load() for each in world.controlled(version, CONTROLLER_REVISIONS)), key=lambda each: each["revision"])
    newest = next((each for each in found if each["data"] == data), None)
    number = found[-1]["revision"] + 1 if found else 1
    if newest is None:
        meta = {
            "name": f"{version.name}-{hash_of(data)}",
            "labels": dict(one["spec"]["template"]["metadata"].get("labels") or {}),
        }
        body = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": meta, "data": data, "revision": number}
        made = world.create(CONTROLLER_REVISIONS, one, body)
        newest = made.load() if made is not None else body
        found.append(newest)
    elif newest is not found[-1]:
        current = world.cluster.store.get(CONTROLLER_REVISIONS.storage, f"{version.namespace}/{newest['metadata']['name']}")
        assert current is not None
        newest = world.update(CONTROLLER_REVISIONS, current, lambda obj: obj.update(revision=number)).load()
    named = (one.get("status") or {}).get("currentRevision")
    return next((each for each in found if each["metadata"]["name"] == named), newest), newest


def _step(world: World, version: Version, one: Json, pods: Mapping[int, Version], revisions: tuple[Json, Json]) -> None:
    spec = one["spec"]
    start = (spec.get("ordinals") or {}).get("start", 0)
    wanted = range(start, start + spec["replicas"])
    ordered = spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
    strategy = spec.get("updateStrategy") or {}
    partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
    current, newest = revisions
    for index in wanted:
        pod = pods.get(index)
        if pod is None and not _create(world, one, index, current if index - start < partition else newest):
            world.later(RETRY_S, STATEFUL_SETS, version.key)
            return
        if pod is not None and is_ended(pod) and not pod.deleting:
            world.delete_pod(one, pod)
        if ordered and (pod is None or not is_available(pod)):
            return
    for index in sorted((index for index in pods if index not in wanted), reverse=True):
        if not pods[index].deleting:
            world.delete_pod(one, pods[index])
        if ordered:
            return
    if strategy.get("type") == "OnDelete":
        return
    for index in reversed(wanted[partition:]):
        pod = pods.get(index)
        if pod is None or pod.deleting:
            return
        if pod.labels.get(_REVISION) != newest["metadata"]["name"]:
            world.delete_pod(one, pod)
            return
        if not is_available(pod):
            return


def _create(world: World, one: Json, index: int, revision: Json) -> bool:
    name = f"{one['metadata']['name']}-{index}"
    labels = {"apps.kubernetes.io/pod-index": str(index), "statefulset.kubernetes.io/pod-name": name}
    meta = {"name": name, "labels": labels | {_REVISION: revision["metadata"]["name"]}}
    template = revision["data"]["spec"]["template"]
    return world.create_pod(one, template, meta, {"hostname": name, "subdomain": one["spec"].get("serviceName", "")})


def _write_status(world: World, version: Version, revisions: tuple[Json, Json]) -> None:
    latest = world.cluster.store.get(STATEFUL_SETS.storage, version.key)
    if latest is None:
        return
    one, (current, newest) = latest.load(), (each["metadata"]["name"] for each in revisions)
    pods = [pod for pod in world.controlled(version, PODS) if not is_ended(pod)]
    ready = sum(map(is_available, pods))
    updated = sum(pod.labels.get(_REVISION) == newest and not pod.deleting for pod in pods)
    if updated == len(pods) == one["spec"]["replicas"] == ready:
        current = newest
    status = {
        "observedGeneration": one["metadata"].get("generation", 1),
        "replicas": len(pods),
        "readyReplicas": or_none(ready),
        "availableReplicas": ready,
        "currentReplicas": or_none(sum(pod.labels.get(_REVISION) == current for pod in pods)),
        "updatedReplicas": or_none(updated),
        "currentRevision": current,
        "updateRevision": newest,
        "collisionCount": 0,
    }
    world.set_status(STATEFUL_SETS, version.key, version.uid, status)
