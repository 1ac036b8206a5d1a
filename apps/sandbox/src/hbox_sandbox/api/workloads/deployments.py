"""k8s.io/kubernetes pkg/controller/deployment: a ReplicaSet for each pod template, scaled by the strategy; revisions for `kubectl rollout`."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import Json
from ..resources import DEPLOYMENTS, PODS, REPLICA_SETS
from ..store import Version
from .world import World, condition, conditions_after, hash_of, or_none, share, without_empty

REVISION = "deployment.kubernetes.io/revision"
_HASH = "pod-template-hash"
_NOT_COPIED = ("kubectl.kubernetes.io/last-applied-configuration", REVISION)


def reconcile_deployment(world: World, version: Version) -> bool:
    if version.deleting:
        return True
    top = version.load()
    sets = world.controlled(version, REPLICA_SETS)
    newest = _set_of(top, sets)
    if newest is None and not top["spec"].get("paused"):
        _create_set(world, top, sets)
        return False
    if newest is not None:
        version = _number(world, version, newest, sets)
        newest = _latest(world, newest)
        sets = world.controlled(version, REPLICA_SETS)
    if newest is not None and not top["spec"].get("paused"):
        _roll(world, top, newest, [each for each in sets if each.uid != newest.uid])
        _clean_up(world, top, newest, sets)
    sets = world.controlled(version, REPLICA_SETS)
    _write_status(world, version, _set_of(top, sets), sets)
    return True


def _latest(world: World, one: Version) -> Version | None:
    return world.cluster.store.get(REPLICA_SETS.storage, one.key)


def _set_of(top: Json, sets: Sequence[Version]) -> Version | None:
    """The ReplicaSet of the Deployment's present template: the oldest one."""
    wanted = top["spec"]["template"]
    same = [each for each in sets if _comparable(each.load()["spec"]["template"]) == _comparable(wanted)]
    return min(same, key=lambda each: each.load()["metadata"]["creationTimestamp"], default=None)


def _without_hash(template: Json) -> Json:
    meta = dict(template.get("metadata") or {})
    meta["labels"] = {key: value for key, value in (meta.get("labels") or {}).items() if key != _HASH}
    meta.pop("creationTimestamp", None)
    return {**template, "metadata": meta}


def _comparable(template: Json) -> Json:
    pruned: Json = without_empty(_without_hash(template))
    return pruned


def _create_set(world: World, top: Json, sets: Sequence[Version]) -> None:
    spec, meta = top["spec"], top["metadata"]
    code = hash_of(_comparable(spec["template"]))
    template = _without_hash(spec["template"])
    template["metadata"]["labels"][_HASH] = code
    selector = dict(spec["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), _HASH: code}
    total, wanted = sum(_replicas(each) for each in sets), spec["replicas"]
    most = wanted + _surge(spec)
    count = wanted if not sets else 0 if _recreates(spec) else max(0, min(most - total, wanted))
    annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key not in _NOT_COPIED}
    annotations[REVISION] = str(max(map(_revision, sets), default=0) + 1)
    labels = template["metadata"]["labels"]
    one = {"metadata": {"name": f"{meta['name']}-{code}", "labels": dict(labels), "annotations": annotations}}
    body = {"replicas": count, "selector": selector, "template": template}
    made = world.create(REPLICA_SETS, top, {"apiVersion": "apps/v1", "kind": "ReplicaSet", **one, "spec": body})
    if made is not None:
        text = f"Scaled up replica set {made.name} from 0 to {count}"
        world.record(top, "Normal", "ScalingReplicaSet", text)


def _revision(one: Version) -> int:
    return int((one.load()["metadata"].get("annotations") or {}).get(REVISION, 0))


def _replicas(one: Version) -> int:
    return int(one.load()["spec"].get("replicas", 0))


def _number(world: World, version: Version, newest: Version, sets: Sequence[Version]) -> Version:
    """The present ReplicaSet has the highest revision, and the Deployment its number."""
    last = max((_revision(each) for each in sets if each.uid != newest.uid), default=0)
    number = _revision(newest) if _revision(newest) > last else last + 1

    def mark(obj: Json) -> None:
        obj["metadata"].setdefault("annotations", {})[REVISION] = str(number)

    if _revision(newest) != number:
        world.update(REPLICA_SETS, newest, mark)
    return world.update(DEPLOYMENTS, version, mark)


def _recreates(spec: Json) -> bool:
    return bool((spec.get("strategy") or {}).get("type") == "Recreate")


def _bounds(spec: Json) -> tuple[int, int]:
    """Pods above and below the wanted number (util/deployment_util.go ResolveFenceposts)."""
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    surge = share(rolling.get("maxSurge", "25%"), spec["replicas"], up=True)
    unavailable = share(rolling.get("maxUnavailable", "25%"), spec["replicas"], up=False)
    return surge, unavailable if surge or unavailable else 1


def _surge(spec: Json) -> int:
    return 0 if _recreates(spec) else _bounds(spec)[0]


def _roll(world: World, top: Json, newest: Version, others: Sequence[Version]) -> None:
    spec, old = top["spec"], [each for each in others if _replicas(each)]
    wanted, count = spec["replicas"], _replicas(newest)
    if _recreates(spec):
        for one in old:
            _scale(world, top, one, 0)
        if not old and not any(world.controlled(each, PODS) for each in others):
            _scale(world, top, newest, wanted)
        return
    total = count + sum(map(_replicas, old))
    surge, unavailable = _bounds(spec)
    if count > wanted or (not old and count != wanted):
        _scale(world, top, newest, wanted)
    elif count < wanted and total < wanted + surge:
        _scale(world, top, newest, count + min(wanted + surge - total, wanted - count))
    elif old:
        _scale_down(world, top, newest, old, surplus=total - wanted + unavailable, least=wanted - unavailable)


def _scale_down(world: World, top: Json, newest: Version, old: Sequence[Version], *, surplus: int, least: int) -> None:
    """Unready pods of older ReplicaSets first, then as many as may be unavailable (rolling.go reconcileOldReplicaSets)."""
    available = {each.uid: _available(each) for each in (*old, newest)}
    most = surplus - (_replicas(newest) - min(_replicas(newest), available[newest.uid]))
    for one in sorted(old, key=lambda each: each.load()["metadata"]["creationTimestamp"]):
        if most <= 0:
            return
        replicas = _replicas(one)
        unready = min(most, replicas - min(replicas, available[one.uid]))
        less = max(unready, min(most, sum(available.values()) - least, replicas))
        if less > 0:
            _scale(world, top, one, replicas - less)
            available[one.uid] = max(0, available[one.uid] - (less - unready))
            most -= less


def _available(one: Version) -> int:
    return int((one.load().get("status") or {}).get("availableReplicas", 0))


def _scale(world: World, top: Json, one: Version, replicas: int) -> None:
    before = _replicas(one)
    if before == replicas:
        return
    world.update(REPLICA_SETS, one, lambda obj: obj["spec"].update(replicas=replicas))
    way = "up" if replicas > before else "down"
    world.record(top, "Normal", "ScalingReplicaSet", f"Scaled {way} replica set {one.name} from {before} to {replicas}")


def _clean_up(world: World, top: Json, newest: Version, sets: Sequence[Version]) -> None:
    kept = top["spec"].get("revisionHistoryLimit", 10)
    empty = sorted((each for each in sets if each.uid != newest.uid and not _replicas(each)), key=_revision)
    for one in empty[: max(0, len(empty) - kept)]:
        if not (one.load().get("status") or {}).get("replicas"):
            world.remove(REPLICA_SETS, one)


def _write_status(world: World, version: Version, newest: Version | None, sets: Sequence[Version]) -> None:
    top, now = version.load(), world.cluster.now()
    spec, old = top["spec"], (top.get("status") or {}).get("conditions") or []
    counts = [each.load().get("status") or {} for each in sets]
    total, ready, available = (
        sum(each.get(name, 0) for each in counts) for name in ("replicas", "readyReplicas", "availableReplicas")
    )
    updated = (newest.load().get("status") or {}).get("replicas", 0) if newest is not None else 0
    least = spec["replicas"] - (0 if _recreates(spec) else _bounds(spec)[1])
    enough = available >= least
    done = updated == spec["replicas"] == available == total
    text = f"Deployment {'has' if enough else 'does not have'} minimum availability."
    reason = f"MinimumReplicas{'Available' if enough else 'Unavailable'}"
    new = [condition("Available", "True" if enough else "False", reason, text)]
    if newest is not None:
        reason = "NewReplicaSetAvailable" if done else "ReplicaSetUpdated"
        text = f'ReplicaSet "{newest.name}" {"has successfully progressed" if done else "is progressing"}.'
        new.insert(0, condition("Progressing", "True", reason, text))
    conditions = conditions_after(old, new, now)
    for each in conditions:
        same = next((one for one in old if all(one.get(key) == value for key, value in each.items())), None)
        each["lastUpdateTime"] = same["lastUpdateTime"] if same is not None else now
    status = {
        "observedGeneration": top["metadata"].get("generation", 1),
        "replicas": or_none(total),
        "updatedReplicas": or_none(updated),
        "readyReplicas": or_none(ready),
        "availableReplicas": or_none(available),
        "unavailableReplicas": or_none(max(0, max(total, spec["replicas"]) - available)),
        "conditions": conditions,
    }
    world.set_status(DEPLOYMENTS, version.key, version.uid, status)
