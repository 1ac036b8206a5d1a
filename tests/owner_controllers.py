"""Controllers of workloads for clusters that have none: they create, replace and delete the pods of `tests/owners.py`.

The rules are those of Kubernetes 1.34 (Deployment: pkg/controller/deployment/rolling.go and util/deployment_util.go; StatefulSet:
pkg/controller/statefulset/stateful_set_control.go, with `max_unavailable` that of its feature gate MaxUnavailableStatefulSet, which is off by default up to
1.36, but for 1.35.0 to 1.35.3, and on from 1.37), LeaderWorkerSet 0.7 (pkg/controllers/leaderworkerset_controller.go, pod_controller.go) and
training-operator 1.9 (pkg/controller.v1/common). One pass lists a namespace and corrects what differs; each write names the uid that the pass has seen.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from hbox_common.errors import Conflict, HBoxError, InvalidRequest, NotFound
from hbox_common.kube import KubeClient

from .owners import (
    REPLICA_SPECS,
    RESOURCES,
    Json,
    group_labels,
    leader_set,
    patch,
    path,
    pod_of,
    replica_set_of,
    stateful_pod,
    training_pods,
    worker_set,
)

#: Seconds between two passes.
PASS_S = 0.1
#: The kinds that a cluster with kube-controller-manager has controllers for.
BUILT_IN = ("Deployment", "ReplicaSet", "StatefulSet")
FOREIGN = ("PyTorchJob", "LeaderWorkerSet")
_LWS = "leaderworkerset.sigs.k8s.io"


def revision_of(of: Json) -> str:
    """A hash of a pod template."""
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:8]


def is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions) and not is_leaving(pod)


def is_leaving(one: Json) -> bool:
    return "deletionTimestamp" in one["metadata"]


def is_ended(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def amount(value: object, of: int, *, up: bool) -> int:
    """An int-or-percent."""
    if isinstance(value, str) and value.endswith("%"):
        part = int(value[:-1]) * of / 100
        return math.ceil(part) if up else math.floor(part)
    return int(str(value))


@dataclass
class Controllers:
    """Of `kinds` in one namespace, until cancelled."""

    client: KubeClient
    namespace: str
    kinds: Sequence[str] = (*FOREIGN, *BUILT_IN)
    pass_s: float = PASS_S
    max_unavailable: bool = False  #: the feature gate MaxUnavailableStatefulSet
    creations: Counter[str] = field(default_factory=Counter)  #: names of pods, each time that they were created
    _names: Counter[str] = field(default_factory=Counter)
    _templates: dict[str, dict[str, Json]] = field(
        default_factory=lambda: defaultdict(dict)
    )  #: of StatefulSets: by uid and revision
    _current: dict[str, str] = field(default_factory=dict)  #: the revision below a StatefulSet's partition, by its uid
    _sizes: dict[str, int] = field(default_factory=dict)  #: replicas of a LeaderWorkerSet in the last pass, by its uid

    async def run(self) -> NoReturn:
        while True:
            try:
                await self.step()
            except HBoxError:
                pass  # a fault of the API server, or a definition that is absent: the next pass repeats it
            await asyncio.sleep(self.pass_s)

    async def step(self) -> None:
        """One pass over all kinds."""
        objects = {kind: await self._list(kind) for kind in self.kinds}
        pods = await self._list("Pod")
        by_owner: dict[str, list[Json]] = defaultdict(list)
        sets_by_owner: dict[str, list[Json]] = defaultdict(list)
        for pod in pods:
            by_owner[_owner(pod)].append(pod)
        for kind in ("ReplicaSet", "StatefulSet"):
            for one in objects.get(kind) or await self._list(kind):
                sets_by_owner[_owner(one)].append(one)
        for job in objects.get("PyTorchJob", ()):
            await self._training_job(job, by_owner[job["metadata"]["uid"]])
        for top in objects.get("Deployment", ()):
            await self._deployment(top, sets_by_owner[top["metadata"]["uid"]], by_owner)
        for one in objects.get("ReplicaSet", ()):
            await self._replica_set(one, by_owner[one["metadata"]["uid"]])
        for top in objects.get("LeaderWorkerSet", ()):
            await self._leader_worker_set(top, sets_by_owner, by_owner)
        for one in objects.get("StatefulSet", ()):
            await self._stateful_set(one, by_owner[one["metadata"]["uid"]])

    # --- training-operator

    async def _training_job(self, job: Json, pods: Sequence[Json]) -> None:
        if is_leaving(job) or job["kind"] not in REPLICA_SPECS:
            return
        wanted = {pod["metadata"]["name"]: pod for pod in training_pods(job)}
        for pod in pods:
            name = pod["metadata"]["name"]
            failed = pod.get("status", {}).get("phase") == "Failed"
            if (name not in wanted or failed) and not is_leaving(pod):
                await self._delete(pod)
            wanted.pop(name, None)
        for pod in wanted.values():
            await self._create(pod)

    # --- Deployment

    async def _deployment(self, top: Json, sets: Sequence[Json], pods: dict[str, list[Json]]) -> None:
        if is_leaving(top):
            return
        spec = top["spec"]
        wanted = int(spec["replicas"])
        revision = revision_of(spec["template"])
        new = next((one for one in sets if one["metadata"]["name"].endswith(f"-{revision}")), None)
        old = [one for one in sets if one is not new and one["spec"]["replicas"] > 0]
        rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
        surge = amount(rolling.get("maxSurge", "25%"), wanted, up=True)
        unavailable = amount(rolling.get("maxUnavailable", "25%"), wanted, up=False)
        if surge == unavailable == 0:
            unavailable = 1
        total = sum(one["spec"]["replicas"] for one in sets)
        if new is None:
            await self._create(replica_set_of(top, revision, max(0, min(wanted + surge - total, wanted))))
            return
        count = new["spec"]["replicas"]
        if not old and count != wanted:
            await self._scale(new, wanted)
            return
        if count > wanted:
            await self._scale(new, wanted)
            return
        if count < wanted and total < wanted + surge:
            await self._scale(new, count + min(wanted + surge - total, wanted - count))
            return
        least = wanted - unavailable
        available = {one["metadata"]["uid"]: sum(map(is_ready, pods[one["metadata"]["uid"]])) for one in sets}
        most = total - least - (count - min(count, available[new["metadata"]["uid"]]))
        if not old or most <= 0:
            return
        for one in old:  # unready pods of older revisions first, then as many as may be unavailable
            replicas = one["spec"]["replicas"]
            sick = min(most, replicas - min(replicas, available[one["metadata"]["uid"]]))
            spare = sum(available.values()) - least
            less = max(sick, min(most, spare, replicas))
            if less > 0:
                await self._scale(one, replicas - less)
                return

    async def _scale(self, one: Json, replicas: int) -> None:
        if one["spec"]["replicas"] != replicas:
            await patch(self.client, one["kind"], self.namespace, one["metadata"]["name"], {"spec": {"replicas": replicas}})

    async def _replica_set(self, one: Json, pods: Sequence[Json]) -> None:
        if is_leaving(one):
            return
        active = [pod for pod in pods if not is_leaving(pod) and not is_ended(pod)]
        wanted = one["spec"]["replicas"]
        for _ in range(wanted - len(active)):
            await self._create(pod_of(one, self._random(one), one["spec"]["template"]))
        active.sort(key=lambda pod: (bool(pod["spec"].get("nodeName")), is_ready(pod)))
        for pod in active[: max(0, len(active) - wanted)]:
            await self._delete(pod)

    def _random(self, one: Json) -> str:
        name: str = one["metadata"]["name"]
        self._names[name] += 1
        return f"{name}-{self._names[name]:05x}"

    # --- StatefulSet

    async def _stateful_set(self, one: Json, pods: Sequence[Json]) -> None:
        if is_leaving(one):
            return
        uid, spec = one["metadata"]["uid"], one["spec"]
        newest = revision_of(spec["template"])
        self._templates[uid][newest] = spec["template"]
        current = self._current.setdefault(uid, newest)
        partition = (spec.get("updateStrategy") or {}).get("rollingUpdate", {}).get("partition", 0)
        start = (spec.get("ordinals") or {}).get("start", 0)
        at = {int(pod["metadata"]["name"].rpartition("-")[2]): pod for pod in pods}
        wanted = range(start, start + spec["replicas"])
        ordered = spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
        for index in wanted:
            there = at.get(index)
            if there is None:
                revision = current if index - start < partition else newest
                source = one | {"spec": spec | {"template": self._templates[uid][revision]}}
                await self._create(stateful_pod(source, index, revision))
            elif is_ended(there) and not is_leaving(there):
                await self._delete(there)
            if ordered and (there is None or not is_ready(there)):
                return
        for index in sorted((index for index in at if index not in wanted), reverse=True):
            if not is_leaving(at[index]):
                await self._delete(at[index])
                if ordered:
                    return
        name = f"{one['metadata']['name']}-{newest}"
        if self.max_unavailable:
            await self._update_up_to_max_unavailable(one, [at.get(index) for index in wanted], partition, name)
            wanted = range(0)
        for index in reversed(wanted):
            if index - start < partition:
                break
            there = at.get(index)
            if there is None or is_leaving(there):
                return
            if there["metadata"]["labels"].get("controller-revision-hash") != name:
                await self._delete(there)
                return
            if not is_ready(there):
                return
        if partition == 0 and len(at) == spec["replicas"]:
            self._current[uid] = newest

    async def _update_up_to_max_unavailable(
        self, one: Json, pods: Sequence[Json | None], partition: int, revision: str
    ) -> None:
        """Delete pods of other revisions, the last one first, as long as so few pods are unavailable."""
        rolling = (one["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
        most = max(1, amount(rolling.get("maxUnavailable", 1), len(pods), up=True))
        left = most - sum(pod is None or not is_ready(pod) for pod in pods)
        for pod in reversed(pods[partition:]):
            if left <= 0:
                return
            if (
                pod is not None
                and not is_leaving(pod)
                and pod["metadata"]["labels"].get("controller-revision-hash") != revision
            ):
                await self._delete(pod)
                left -= 1

    # --- LeaderWorkerSet

    async def _leader_worker_set(self, top: Json, sets: dict[str, list[Json]], pods: dict[str, list[Json]]) -> None:
        if is_leaving(top):
            return
        uid, wanted = top["metadata"]["uid"], int(top["spec"]["replicas"])
        leaders = next(iter(sets[uid]), None)
        revision = revision_of(top["spec"]["leaderWorkerTemplate"])
        if leaders is None:
            await self._create(leader_set(top, revision))
            return
        at = {int(pod["metadata"]["name"].rpartition("-")[2]): pod for pod in pods[leaders["metadata"]["uid"]]}
        for leader in at.values():
            await self._group(top, leader, sets[leader["metadata"]["uid"]], pods)
        rollout = (top["spec"].get("rolloutStrategy") or {}).get("rollingUpdateConfiguration") or {}
        surge = min(wanted, amount(rollout.get("maxSurge", 0), wanted, up=True))
        step = amount(rollout.get("maxUnavailable", 1), wanted, up=False)
        now = leaders["spec"]["replicas"]
        partition = leaders["spec"]["updateStrategy"]["rollingUpdate"]["partition"]
        is_new = leaders["metadata"]["labels"][f"{_LWS}/template-revision-hash"] != revision
        states = [self._state(at.get(index), revision, sets, pods) for index in range(max(now, wanted))]
        unready = sum(1 for ready, updated in states[:wanted] if not (ready and updated))
        most = wanted + max(0, unready - 1) if unready <= surge else wanted + surge
        if is_new:
            await self._roll(top, leaders, revision, min(wanted, now), most if surge else wanted)
        elif self._sizes.get(uid, wanted) != wanted:
            await self._roll(top, leaders, revision, min(partition, wanted + surge) if now != wanted else 0, wanted)
        elif partition or now != wanted:
            step += surge - (wanted + surge - now)
            await self._roll(top, leaders, revision, _partition(states[:now], step, partition), most)
        self._sizes[uid] = wanted

    async def _roll(self, top: Json, leaders: Json, revision: str, partition: int, replicas: int) -> None:
        new = leader_set(top, revision, replicas, partition)
        body = {
            "metadata": {"labels": new["metadata"]["labels"]},
            "spec": {k: new["spec"][k] for k in ("replicas", "updateStrategy", "template")},
        }
        if any(leaders["spec"][k] != v for k, v in body["spec"].items()):
            await patch(self.client, "StatefulSet", self.namespace, leaders["metadata"]["name"], body)

    def _state(
        self, leader: Json | None, revision: str, sets: dict[str, list[Json]], pods: dict[str, list[Json]]
    ) -> tuple[bool, bool]:
        """Whether a replica is ready as a whole, and whether it is of this revision."""
        if leader is None:
            return False, False
        updated = leader["metadata"]["labels"].get(f"{_LWS}/template-revision-hash") == revision
        workers = next(iter(sets[leader["metadata"]["uid"]]), None)
        if workers is None:
            return is_ready(leader) and leader["metadata"]["annotations"].get(f"{_LWS}/size") == "1", updated
        own = pods[workers["metadata"]["uid"]]
        return is_ready(leader) and sum(map(is_ready, own)) >= workers["spec"]["replicas"], updated

    async def _group(self, top: Json, leader: Json, sets: Sequence[Json], pods: dict[str, list[Json]]) -> None:
        """One replica: its labels, its workers, and its restart as a whole."""
        if is_leaving(leader):
            return
        labels, name = leader["metadata"]["labels"], leader["metadata"]["name"]
        if f"{_LWS}/group-index" not in labels:  # the webhook's part, where the cluster has other controllers of StatefulSets
            await patch(self.client, "Pod", self.namespace, name, {"metadata": {"labels": group_labels(name)}})
            return
        size = int(top["spec"]["leaderWorkerTemplate"]["size"])
        if not sets:
            if size > 1 and (top["spec"].get("startupPolicy") != "LeaderReady" or is_ready(leader)):
                of = top["spec"]["leaderWorkerTemplate"]
                if labels[f"{_LWS}/template-revision-hash"] == revision_of(of):
                    await self._create(worker_set(top, leader))
            return
        own = [pod for workers in sets for pod in pods[workers["metadata"]["uid"]]]
        if any(is_leaving(pod) or pod.get("status", {}).get("phase") == "Failed" for pod in own) and not any(
            map(is_leaving, sets)
        ):
            await self._delete(leader)

    # --- writes

    async def _list(self, kind: str) -> list[Json]:
        try:
            listed = await self.client.json("GET", path(kind, self.namespace))
        except NotFound:
            return []  # not defined at present
        where = RESOURCES[kind]
        version = f"{where.group}/{where.version}" if where.group else where.version
        return [one | {"apiVersion": version, "kind": kind} for one in listed["items"]]

    async def _create(self, one: Json) -> None:
        body = _with_index(one)
        body["metadata"] = {key: value for key, value in body["metadata"].items() if key != "uid"}
        try:
            await self.client.json("POST", path(one["kind"], self.namespace), body=body)
        except (Conflict, NotFound):
            return  # its predecessor is not gone, or its kind is
        if one["kind"] == "Pod":
            self.creations[one["metadata"]["name"]] += 1

    async def _delete(self, one: Json) -> None:
        meta = one["metadata"]
        body = {"preconditions": {"uid": meta["uid"]}, "propagationPolicy": "Background"}
        try:
            await self.client.json("DELETE", path(one["kind"], self.namespace, meta["name"]), body=body, expect=(200, 202))
        except (Conflict, NotFound, InvalidRequest):
            return


def _with_index(one: Json) -> Json:
    """With what LeaderWorkerSet's webhook adds to pods of its StatefulSets."""
    labels = one["metadata"].get("labels") or {}
    if one["kind"] != "Pod" or f"{_LWS}/name" not in labels:
        return dict(one)
    name = one["metadata"]["name"]
    leader = labels.get(f"{_LWS}/worker-index") == "0"
    more = group_labels(name) if leader else {f"{_LWS}/worker-index": name.rpartition("-")[2]}
    return one | {"metadata": one["metadata"] | {"labels": labels | more}}


def _owner(one: Json) -> str:
    return next((each["uid"] for each in one["metadata"].get("ownerReferences") or () if each.get("controller")), "")


def _partition(states: Sequence[tuple[bool, bool]], step: int, current: int) -> int:
    """Of the leaders' StatefulSet: replicas from it on are updated. It falls only."""
    continuous = 0
    for ready, updated in reversed(states):
        if not (ready and updated):
            break
        continuous += 1
    lowest = max(0, len(states) - continuous - step)
    partition = lowest + sum(not ready for ready, _ in states[:lowest])
    for index in range(min(partition, len(states) - 1), -1, -1):
        ready, updated = states[index]
        if ready and not updated:
            break
        partition = index
    return min(partition, current)
