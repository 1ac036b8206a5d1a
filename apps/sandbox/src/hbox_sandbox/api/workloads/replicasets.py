"""k8s.io/kubernetes pkg/controller/replicaset: as many pods as `spec.replicas`."""

from __future__ import annotations

from ..resources import PODS, REPLICA_SETS
from ..store import Version
from .world import BATCH, RETRY_S, World, is_available, is_ended, or_none


def reconcile_replica_set(world: World, version: Version) -> bool:
    one = version.load()
    pods = world.controlled(version, PODS)
    active = [pod for pod in pods if not pod.deleting and not is_ended(pod)]
    wanted: int = one["spec"].get("replicas", 1)
    missing = 0 if version.deleting else wanted - len(active)
    for _ in range(min(missing, BATCH)):
        if not world.create_pod(one, one["spec"]["template"], {"generateName": f"{version.name}-"}):
            world.later(RETRY_S, REPLICA_SETS, version.key)
            missing = 0
            break
    # The pods to lose first: not bound, not ready, the newest (controller_utils.go ActivePodsWithRanks).
    active.sort(key=lambda pod: (bool(pod.fields["spec.nodeName"]), is_available(pod), -pod.revision))
    surplus = active[: max(0, -missing)]
    for pod in surplus[:BATCH]:
        world.delete_pod(one, pod)
    ready = sum(map(is_available, active))
    status = {
        "replicas": len(active),
        "fullyLabeledReplicas": or_none(len(active)),
        "readyReplicas": or_none(ready),
        "availableReplicas": or_none(ready),
        "observedGeneration": one["metadata"].get("generation", 1),
    }
    world.set_status(REPLICA_SETS, version.key, version.uid, status)
    return abs(missing) <= BATCH
