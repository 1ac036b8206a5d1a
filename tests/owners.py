"""Workload objects of other controllers, and the pods that these controllers create, for tests, campaigns and benchmarks.

Names, labels and owner references are those of training-operator 1.9, mpi-operator 0.6, JobSet 0.9, LeaderWorkerSet 0.7, KubeRay 1.4, spark-operator 2.2,
Trainer 2.0, Knative Serving 1.18 and Kubernetes 1.34, read in their sources. An object's `metadata.uid` is a local name here: API servers assign uids, so
`create` replaces it in owner references by the assigned one. `tests/owner_controllers.py` runs the controllers that a cluster of the tests does not have.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hbox_common.errors import Conflict, NotFound
from hbox_common.kube import CRDS, PODGROUPS, PODS, KubeClient, Resource

from .waiting import until

Json = dict[str, Any]

GPU = "nvidia.com/gpu"
MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
QUEUE = "scheduling.volcano.sh/queue-name"
_TRAINING, _JOBSET, _LWS = "training.kubeflow.org", "jobset.sigs.k8s.io", "leaderworkerset.sigs.k8s.io"

_TABLE = """
kubeflow.org/v1 PyTorchJob pytorchjobs
kubeflow.org/v1 TFJob tfjobs
kubeflow.org/v1 XGBoostJob xgboostjobs
kubeflow.org/v1 PaddleJob paddlejobs
kubeflow.org/v1 JAXJob jaxjobs
kubeflow.org/v2beta1 MPIJob mpijobs
jobset.x-k8s.io/v1alpha2 JobSet jobsets
trainer.kubeflow.org/v1alpha1 TrainJob trainjobs
leaderworkerset.x-k8s.io/v1 LeaderWorkerSet leaderworkersets
ray.io/v1 RayCluster rayclusters
ray.io/v1 RayJob rayjobs
sparkoperator.k8s.io/v1beta2 SparkApplication sparkapplications
serving.knative.dev/v1 Service services
serving.knative.dev/v1 Configuration configurations
serving.knative.dev/v1 Revision revisions
keda.sh/v1alpha1 ScaledObject scaledobjects
apps/v1 Deployment deployments
apps/v1 ReplicaSet replicasets
apps/v1 StatefulSet statefulsets
batch/v1 Job jobs
scheduler.grove.io/v1alpha1 PodGang podgangs
"""
#: Where each kind is served.
RESOURCES: Mapping[str, Resource] = {
    kind: Resource(version.partition("/")[0], version.partition("/")[2], plural, namespaced=True)
    for version, kind, plural in (line.split() for line in _TABLE.split("\n") if line)
} | {
    "Pod": PODS,
    "PodGroup": PODGROUPS,
    "KubernetesPodGroup": Resource("scheduling.k8s.io", "v1beta1", "podgroups", namespaced=True),
}


def api_version(kind: str) -> str:
    where = RESOURCES[kind]
    return f"{where.group}/{where.version}" if where.group else where.version


def path(kind: str, namespace: str, name: str | None = None, subresource: str | None = None) -> str:
    return RESOURCES[kind].path(namespace, name, subresource)


def definition(kind: str) -> Json:
    """A CustomResourceDefinition that keeps all fields."""
    where, served = RESOURCES[kind], kind.removeprefix("Kubernetes")
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{where.plural}.{where.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": where.group,
            "scope": "Namespaced",
            "names": {"kind": served, "listKind": f"{served}List", "plural": where.plural, "singular": served.lower()},
            "versions": [
                {
                    "name": where.version,
                    "served": True,
                    "storage": True,
                    "schema": schema,
                    "subresources": {"status": {}},
                }
            ],
        },
    }


async def install(client: KubeClient, *kinds: str) -> None:
    """Define those of the kinds that the API server does not serve, and wait until it does. The emulator's controllers of workloads stop: tests play them."""
    await client.json("POST", "/_sandbox/workloads?controllers=off", expect=(200, 403, 404))
    for kind in kinds:
        if not await _is_served(client, kind):
            await client.json("POST", CRDS.path(), body=definition(kind), expect=(201, 409))

    for kind in kinds:

        async def served(kind: str = kind) -> bool:
            return await _is_served(client, kind)

        await until(served, f"{kind} to be served")


async def uninstall(client: KubeClient, kind: str) -> None:
    """Delete the definition and with it all objects of the kind; returns when the kind is gone."""
    where = RESOURCES[kind]
    name = f"{where.plural}.{where.group}"
    await client.json("DELETE", CRDS.path(name=name), expect=(200, 202, 404))

    async def gone() -> bool:
        names = {one["metadata"]["name"] for one in (await client.json("GET", CRDS.path()))["items"]}
        return name not in names and not await _is_served(client, kind)

    await until(gone, f"the end of {name}", timeout_s=60)


async def _is_served(client: KubeClient, kind: str) -> bool:
    try:
        await client.json("GET", RESOURCES[kind].path("default"))
    except NotFound:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Tree:
    """One workload: its objects in an order in which they can be created, each after its owner."""

    objects: Sequence[Json]

    @property
    def pods(self) -> list[Json]:
        return [one for one in self.objects if one["kind"] == "Pod"]

    @property
    def owners(self) -> list[Json]:
        return [one for one in self.objects if one["kind"] != "Pod"]

    @property
    def top(self) -> Json:
        return self.objects[0]


async def create(
    client: KubeClient, namespace: str, objects: Iterable[Json], uids: dict[str, str] | None = None
) -> dict[str, str]:
    """Create the objects in their order; returns `uids`, the assigned uid by local name, extended by them."""
    uids = {} if uids is None else uids
    for one in objects:
        body = with_owners(one, uids)
        local = body["metadata"].pop("uid", None)
        made = await client.json("POST", path(one["kind"], namespace), body=body)
        if local:
            uids[local] = made["metadata"]["uid"]
    return uids


def with_owners(one: Json, uids: Mapping[str, str]) -> Json:
    """A copy whose owner references have the assigned uids."""
    body = copy.deepcopy(one)
    for reference in body["metadata"].get("ownerReferences", ()):
        reference["uid"] = uids.get(reference["uid"], reference["uid"])
    return body


def owned_by(owner: Json) -> list[Json]:
    """The owner reference that a controller writes."""
    meta = owner["metadata"]
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": meta["name"],
            "uid": meta.get("uid", ""),
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def make(
    kind: str, name: str, spec: Json, *, owner: Json | None = None, labels: Json | None = None, notes: Json | None = None
) -> Json:
    """An object with a local uid."""
    meta: Json = {"name": name, "uid": f"{kind}/{name}"}
    if labels:
        meta["labels"] = dict(labels)
    if notes:
        meta["annotations"] = dict(notes)
    if owner is not None:
        meta["ownerReferences"] = owned_by(owner)
    return {"apiVersion": api_version(kind), "kind": kind, "metadata": meta, "spec": spec}


def pod_spec(
    *, cards: int = 1, cpu: str = "100m", scheduler: str = "hbox", resources: Mapping[str, str] | None = None, **more: Any
) -> Json:
    """`resources`: more limits, such as RDMA devices."""
    limits = ({GPU: str(cards)} if cards else {}) | dict(resources or {})
    container: Json = {"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": cpu}}}
    if limits:
        container["resources"]["limits"] = limits
    return {"schedulerName": scheduler, "terminationGracePeriodSeconds": 1, "containers": [container], **more}


def template(labels: Json | None = None, notes: Json | None = None, **spec: Any) -> Json:
    """A pod template."""
    meta: Json = {}
    if labels:
        meta["labels"] = dict(labels)
    if notes:
        meta["annotations"] = dict(notes)
    return {"metadata": meta, "spec": pod_spec(**spec)}


def pod_of(owner: Json, name: str, of: Json, *, labels: Json | None = None, notes: Json | None = None) -> Json:
    """The pod that a controller creates from a template."""
    meta = of.get("metadata") or {}
    pod = make(
        "Pod",
        name,
        copy.deepcopy(of["spec"]),
        owner=owner,
        labels=(meta.get("labels") or {}) | (labels or {}),
        notes=(meta.get("annotations") or {}) | (notes or {}),
    )
    pod["metadata"]["uid"] = f"Pod/{name}"
    return pod


# --- Kubeflow training-operator 1.9: pkg/controller.v1/common/pod.go, pkg/apis/kubeflow.org/v1/*_defaults.go

REPLICA_SPECS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}


def training_job(
    name: str,
    roles: Mapping[str, int],
    *,
    kind: str = "PyTorchJob",
    of: Json | None = None,
    notes: Json | None = None,
    labels: Json | None = None,
    **spec: Any,
) -> Tree:
    """`roles`: replicas by replica type, such as Master and Worker; `of`: the pod template; `spec`: more of the job's spec."""
    of = of or template()
    replicas = {role: {"replicas": count, "restartPolicy": "OnFailure", "template": of} for role, count in roles.items()}
    job = make(kind, name, {REPLICA_SPECS[kind]: replicas, **spec}, notes=notes, labels=labels)
    return Tree([job, *training_pods(job)])


def training_pods(job: Json) -> list[Json]:
    """All pods of the job as its spec is now; none while it is suspended."""
    if (job["spec"].get("runPolicy") or {}).get("suspend"):
        return []
    name, kind = job["metadata"]["name"], job["kind"]
    return [
        pod_of(
            job,
            f"{name}-{role.lower()}-{index}",
            replica["template"],
            labels={
                f"{_TRAINING}/job-name": name,
                f"{_TRAINING}/operator-name": f"{kind.lower()}-controller",
                f"{_TRAINING}/replica-type": role.lower(),
                f"{_TRAINING}/replica-index": str(index),
                **({f"{_TRAINING}/job-role": "master"} if role in ("Master", "Chief") else {}),
            },
        )
        for role, replica in job["spec"][REPLICA_SPECS[kind]].items()
        for index in range(replica.get("replicas", 1))
    ]


# --- mpi-operator 0.6: pkg/controller/mpi_job_controller.go


def mpi_job(name: str, workers: int, *, of: Json | None = None, **spec: Any) -> Tree:
    """The launcher is the pod of a Job, the workers are the MPIJob's own pods."""
    of = of or template()
    roles = {"Launcher": {"replicas": 1, "template": of}, "Worker": {"replicas": workers, "template": of}}
    job = make("MPIJob", name, {"slotsPerWorker": 1, "mpiReplicaSpecs": roles, **spec})
    labels = {f"{_TRAINING}/job-name": name, f"{_TRAINING}/operator-name": "mpi-operator"}
    workers_labels = [
        labels
        | {f"{_TRAINING}/job-role": "worker", f"{_TRAINING}/replica-type": "worker", f"{_TRAINING}/replica-index": str(i)}
        for i in range(workers)
    ]
    own = [pod_of(job, f"{name}-worker-{i}", of, labels=each) for i, each in enumerate(workers_labels)]
    launches = make("Job", f"{name}-launcher", {"template": runnable(of)}, owner=job, labels=labels)
    launcher = pod_of(
        launches, f"{name}-launcher-x7k2p", of, labels=labels | {f"{_TRAINING}/job-role": "launcher"} | _job_labels(launches)
    )
    return Tree([job, *own, launches, launcher])


def runnable(of: Json, *, restart: str = "Never") -> Json:
    """The template of a Job: an API server refuses the restart policy Always there."""
    of = copy.deepcopy(of)
    of["spec"].setdefault("restartPolicy", restart)
    return of


# --- Kubernetes 1.34: pkg/controller/job, deployment, replicaset, statefulset


def _job_labels(job: Json) -> Json:
    name = job["metadata"]["name"]
    return {
        "job-name": name,
        "batch.kubernetes.io/job-name": name,
        "batch.kubernetes.io/controller-uid": job["metadata"]["uid"],
    }


def batch_job(
    name: str, parallelism: int, *, completions: int | None = None, indexed: bool = True, of: Json | None = None, owner: Json | None = None,
    labels: Json | None = None, notes: Json | None = None, **spec: Any,
) -> Tree:  # fmt: skip
    """`labels`: of the Job and of its pods."""
    of = runnable(of or template())
    completions = parallelism if completions is None else completions
    mode = "Indexed" if indexed else "NonIndexed"
    body = {"parallelism": parallelism, "completions": completions, "completionMode": mode, "template": of, **spec}
    job = make("Job", name, body, owner=owner, labels=labels, notes=notes)
    pods = []
    for index in range(min(parallelism, completions)):
        mark = {"batch.kubernetes.io/job-completion-index": str(index)} if indexed else {}
        pod_name = f"{name}-{index}-{index:05x}" if indexed else f"{name}-{index:05x}"
        pods.append(pod_of(job, pod_name, of, labels=_job_labels(job) | (labels or {}) | mark, notes=mark))
    return Tree([job, *pods])


def deployment(
    name: str,
    replicas: int,
    *,
    of: Json | None = None,
    revision: str = "7d9c",
    owner: Json | None = None,
    notes: Json | None = None,
    **spec: Any,
) -> Tree:
    """With its ReplicaSet of one revision, to which Kubernetes copies the annotations."""
    of = copy.deepcopy(of or template())
    of["metadata"].setdefault("labels", {})["app"] = name
    selector = {"matchLabels": {"app": name}}
    top = make(
        "Deployment", name, {"replicas": replicas, "selector": selector, "template": of, **spec}, owner=owner, notes=notes
    )
    replica_set = replica_set_of(top, revision)
    pods = [
        pod_of(replica_set, f"{name}-{revision}-{i:05x}", of, labels={"pod-template-hash": revision}) for i in range(replicas)
    ]
    return Tree([top, replica_set, *pods])


def replica_set_of(top: Json, revision: str, replicas: int | None = None) -> Json:
    """The ReplicaSet of the Deployment's present template."""
    spec = top["spec"]
    labels = {**spec["selector"]["matchLabels"], "pod-template-hash": revision}
    of = copy.deepcopy(spec["template"])
    of["metadata"]["labels"] = (of["metadata"].get("labels") or {}) | labels
    body = {"replicas": spec["replicas"] if replicas is None else replicas, "selector": {"matchLabels": labels}, "template": of}
    notes = top["metadata"].get("annotations")
    return make("ReplicaSet", f"{top['metadata']['name']}-{revision}", body, owner=top, labels=labels, notes=notes)


def stateful_set(
    name: str,
    replicas: int,
    *,
    of: Json | None = None,
    owner: Json | None = None,
    notes: Json | None = None,
    labels: Json | None = None,
    **spec: Any,
) -> Tree:
    of = copy.deepcopy(of or template())
    of["metadata"].setdefault("labels", {})["app"] = name
    body = {"replicas": replicas, "serviceName": name, "selector": {"matchLabels": {"app": name}}, "template": of, **spec}
    top = make("StatefulSet", name, body, owner=owner, notes=notes, labels=labels)
    return Tree([top, *(stateful_pod(top, i) for i in range(replicas))])


def stateful_pod(top: Json, index: int, revision: str = "1") -> Json:
    name = top["metadata"]["name"]
    labels = {
        "apps.kubernetes.io/pod-index": str(index),
        "statefulset.kubernetes.io/pod-name": f"{name}-{index}",
        "controller-revision-hash": f"{name}-{revision}",
    }
    return pod_of(top, f"{name}-{index}", top["spec"]["template"], labels=labels)


# --- JobSet 0.9: pkg/controllers/jobset_controller.go; Trainer 2.0: a TrainJob's JobSet has its name


def job_set(
    name: str,
    jobs: Mapping[str, tuple[int, int]],
    *,
    order: str = "",
    of: Json | None = None,
    owner: Json | None = None,
    **spec: Any,
) -> Tree:
    """`jobs`: replicas and parallelism by the name of the replicated job."""
    of = runnable(of or template())
    replicated = [
        {
            "name": each,
            "replicas": replicas,
            "template": {
                "spec": {"parallelism": parallel, "completions": parallel, "completionMode": "Indexed", "template": of}
            },
        }
        for each, (replicas, parallel) in jobs.items()
    ]
    policy = {"startupPolicy": {"startupPolicyOrder": order}} if order else {}
    top = make("JobSet", name, {"replicatedJobs": replicated, **policy, **spec}, owner=owner)
    objects = [top]
    for each, (replicas, parallel) in jobs.items():
        for index in range(replicas):
            labels = {
                f"{_JOBSET}/jobset-name": name,
                f"{_JOBSET}/jobset-uid": top["metadata"]["uid"],
                f"{_JOBSET}/replicatedjob-name": each,
                f"{_JOBSET}/replicatedjob-replicas": str(replicas),
                f"{_JOBSET}/job-index": str(index),
                f"{_JOBSET}/restart-attempt": "0",
            }
            labels[f"{_JOBSET}/jobset-uid"] = "0"  # the real one has characters that only the API server knows
            objects += batch_job(f"{name}-{each}-{index}", parallel, of=of, owner=top, labels=labels).objects
    return Tree(objects)


def train_job(name: str, nodes: int, *, of: Json | None = None) -> Tree:
    """Of a runtime with one replicated job `node`."""
    top = make("TrainJob", name, {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": nodes}})
    return Tree([top, *job_set(name, {"node": (1, nodes)}, of=of, owner=top).objects])


# --- LeaderWorkerSet 0.7: pkg/controllers/leaderworkerset_controller.go, pod_controller.go, pkg/webhooks/pod_webhook.go


def leader_worker_set(
    name: str,
    replicas: int,
    size: int,
    *,
    of: Json | None = None,
    startup: str = "LeaderCreated",
    rollout: Json | None = None,
    notes: Json | None = None,
) -> Tree:
    """`rollout`: `maxUnavailable` and `maxSurge`."""
    of = of or template()
    spec: Json = {"replicas": replicas, "startupPolicy": startup, "leaderWorkerTemplate": {"size": size, "workerTemplate": of}}
    if rollout is not None:
        spec["rolloutStrategy"] = {"type": "RollingUpdate", "rollingUpdateConfiguration": rollout}
    top = make("LeaderWorkerSet", name, spec, notes=notes)
    leaders = leader_set(top, "r1")
    objects: list[Json] = [top, leaders]
    for group in range(replicas):
        leader = leader_pod(leaders, group)
        objects.append(leader)
        if startup != "LeaderReady":
            workers = worker_set(top, leader)
            objects += [workers, *worker_pods(workers, leader)]
    return Tree(objects)


def _size(top: Json) -> int:
    return int(top["spec"]["leaderWorkerTemplate"]["size"])


def leader_set(top: Json, revision: str, replicas: int | None = None, partition: int = 0) -> Json:
    """The StatefulSet of the leaders."""
    name, within = top["metadata"]["name"], top["spec"]["leaderWorkerTemplate"]
    wanted = int(top["spec"]["replicas"])
    rollout = (top["spec"].get("rolloutStrategy") or {}).get("rollingUpdateConfiguration") or {}
    unavailable = max(1, min(wanted, int(rollout.get("maxSurge", 0))) + int(rollout.get("maxUnavailable", 1)))
    of = copy.deepcopy(within.get("leaderTemplate") or within["workerTemplate"])
    labels = {f"{_LWS}/name": name, f"{_LWS}/worker-index": "0", f"{_LWS}/template-revision-hash": revision}
    of["metadata"] = {
        "labels": (of["metadata"].get("labels") or {}) | labels,
        "annotations": (of["metadata"].get("annotations") or {}) | {f"{_LWS}/size": str(_size(top))},
    }
    body = {
        "replicas": wanted if replicas is None else replicas,
        "serviceName": name,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {f"{_LWS}/name": name, f"{_LWS}/worker-index": "0"}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition, "maxUnavailable": unavailable}},
        "template": of,
    }
    return make("StatefulSet", name, body, owner=top, labels={f"{_LWS}/name": name, f"{_LWS}/template-revision-hash": revision})


def leader_pod(leaders: Json, group: int) -> Json:
    """With the labels that LeaderWorkerSet's webhook adds to it."""
    leader = stateful_pod(leaders, group)
    leader["metadata"]["labels"] |= group_labels(leader["metadata"]["name"])
    return leader


def group_labels(leader: str) -> Json:
    return {f"{_LWS}/group-index": leader.rpartition("-")[2], f"{_LWS}/group-key": f"key-{leader}"}


def worker_set(top: Json, leader: Json) -> Json:
    """The StatefulSet of a leader's workers, whose owner is the leader's pod."""
    name, labels = leader["metadata"]["name"], leader["metadata"]["labels"]
    kept = {
        key: labels[key]
        for key in (f"{_LWS}/name", f"{_LWS}/group-index", f"{_LWS}/group-key", f"{_LWS}/template-revision-hash")
        if key in labels
    }
    of = copy.deepcopy(top["spec"]["leaderWorkerTemplate"]["workerTemplate"])
    of["metadata"] = {
        "labels": (of["metadata"].get("labels") or {}) | kept,
        "annotations": (of["metadata"].get("annotations") or {})
        | {f"{_LWS}/size": str(_size(top)), f"{_LWS}/leader-name": name},
    }
    body = {
        "replicas": _size(top) - 1,
        "serviceName": name,
        "podManagementPolicy": "Parallel",
        "ordinals": {"start": 1},
        "selector": {"matchLabels": {key: kept[key] for key in (f"{_LWS}/name", f"{_LWS}/group-index", f"{_LWS}/group-key")}},
        "template": of,
    }
    return make("StatefulSet", name, body, owner=leader, labels=kept) | {}


def worker_pods(workers: Json, leader: Json) -> list[Json]:
    """With the index that LeaderWorkerSet's webhook adds to them."""
    pods = []
    for index in range(1, workers["spec"]["replicas"] + 1):
        pod = stateful_pod(workers, index)
        pod["metadata"]["labels"][f"{_LWS}/worker-index"] = str(index)
        pods.append(pod)
    assert leader["kind"] == "Pod"
    return pods


# --- KubeRay 1.4: ray-operator/controllers/ray/common/pod.go, rayjob_controller.go


def ray_cluster(
    name: str,
    groups: Mapping[str, tuple[int, int]],
    *,
    hosts: int = 1,
    of: Json | None = None,
    owner: Json | None = None,
    autoscaling: bool = False,
    labels: Json | None = None,
) -> Tree:
    """`groups`: replicas and minReplicas by the name of the worker group; `hosts`: numOfHosts of each replica."""
    of = of or template()
    spec: Json = {
        "headGroupSpec": {"rayStartParams": {}, "template": of},
        "workerGroupSpecs": [
            {
                "groupName": each,
                "replicas": count,
                "minReplicas": least,
                "maxReplicas": count,
                "numOfHosts": hosts,
                "template": of,
            }
            for each, (count, least) in groups.items()
        ],
    }
    if autoscaling:
        spec["enableInTreeAutoscaling"] = True
    top = make("RayCluster", name, spec, owner=owner, labels=labels)

    def ray(role: str, group: str) -> Json:
        return {
            "ray.io/cluster": name, "ray.io/node-type": role, "ray.io/group": group, "ray.io/is-ray-node": "yes",
            "ray.io/identifier": f"{name}-{role}", "app.kubernetes.io/name": "kuberay", "app.kubernetes.io/created-by": "kuberay-operator",
        }  # fmt: skip

    pods = [pod_of(top, f"{name}-head-h1x2z", of, labels=ray("head", "headgroup"))]
    pods += [
        pod_of(top, f"{name}-{group}-worker-{i:05x}", of, labels=ray("worker", group))
        for group, (count, _) in groups.items()
        for i in range(count * hosts)
    ]
    return Tree([top, *pods])


def ray_job(name: str, groups: Mapping[str, tuple[int, int]], *, of: Json | None = None) -> Tree:
    """The submitter's Job comes once the cluster runs; it is not here."""
    top = make("RayJob", name, {"entrypoint": "python train.py", "submissionMode": "K8sJobMode"})
    return Tree([top, *ray_cluster(f"{name}-raycluster-x7k2p", groups, of=of, owner=top).objects])


# --- Spark 3.5: resource-managers/kubernetes; spark-operator 2.2: internal/controller/sparkapplication


def spark_application(name: str, executors: int, *, of: Json | None = None) -> Tree:
    """The driver is the application's, the executors are the driver pod's."""
    of = runnable(of or template())
    top = make(
        "SparkApplication", name, {"type": "Python", "mode": "cluster", "driver": {}, "executor": {"instances": executors}}
    )
    labels = {"spark-app-selector": f"spark-{name}", "sparkoperator.k8s.io/app-name": name, "spark-app-name": name}
    driver = pod_of(top, f"{name}-driver", of, labels=labels | {"spark-role": "driver"})
    pods = [
        pod_of(driver, f"{name}-exec-{i}", of, labels=labels | {"spark-role": "executor", "spark-exec-id": str(i)})
        for i in range(1, executors + 1)
    ]
    return Tree([top, driver, *pods])


# --- Knative Serving 1.18: pkg/reconciler/revision/resources


def knative_revision(name: str, replicas: int, *, least: int | None = None, of: Json | None = None) -> Tree:
    """`least`: the annotation min-scale."""
    of = of or template()
    notes = {"autoscaling.knative.dev/min-scale": str(least)} if least is not None else None
    labels = {"serving.knative.dev/revision": name, "serving.knative.dev/service": name.rpartition("-")[0]}
    containers = {"containers": copy.deepcopy(of["spec"]["containers"])}
    top = make("Revision", name, containers, notes=notes, labels=labels)
    of = copy.deepcopy(of)
    of["metadata"]["labels"] = (of["metadata"].get("labels") or {}) | labels
    return Tree([top, *deployment(f"{name}-deployment", replicas, of=of, owner=top, notes=notes).objects])


# --- what judges of these workloads ask an API server


async def placed_of(client: KubeClient, namespace: str, prefix: str = "") -> dict[str, str]:
    """Node of each pod that has one, neither ended nor terminating, by name."""
    return {
        one["metadata"]["name"]: one["spec"]["nodeName"]
        for one in (await client.json("GET", PODS.path(namespace)))["items"]
        if one["metadata"]["name"].startswith(prefix)
        and one["spec"].get("nodeName")
        and one.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        and "deletionTimestamp" not in one["metadata"]
    }


async def patch(client: KubeClient, kind: str, namespace: str, name: str, body: Json) -> None:
    """A merge patch; repeated on a conflict."""
    while True:
        try:
            await client.json("PATCH", path(kind, namespace, name), body=body, content_type="application/merge-patch+json")
        except Conflict:
            continue
        return
