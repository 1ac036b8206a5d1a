"""The manifests of docs/guides/workloads, each with the objects and pods that its controllers create from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from . import owners
from .owners import Json, Tree

FOLDER = Path(__file__).parents[1] / "docs" / "guides" / "workloads"
#: Kinds of which no controller creates pods: the manifest is all.
ALONE = ("Pod", "ScaledObject")


def manifests(name: str) -> list[Json]:
    """The documents of one file, each with a local uid (see `owners.create`)."""
    found: list[Json] = list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))
    for one in found:
        one["metadata"].setdefault("uid", f"{one['kind']}/{one['metadata']['name']}")
    return found


def objects_of(name: str) -> list[Json]:
    """Everything that the file leads to, each object after its owner."""
    return [_storable(each) for one in manifests(name) for each in _BUILDERS.get(one["kind"], _alone)(one)]


def cards_of(pod: Json) -> int:
    limits = [each.get("resources", {}).get("limits") or {} for each in pod["spec"]["containers"]]
    return sum(int(one.get(owners.GPU, 0)) for one in limits)


def _storable(one: Json) -> Json:
    """Without labels that quote a local uid, which no label may have as its value."""
    labels = {key: value for key, value in (one["metadata"].get("labels") or {}).items() if "/" not in value}
    return one | {"metadata": one["metadata"] | {"labels": labels}}


def _alone(one: Json) -> list[Json]:
    assert one["kind"] in ALONE, f"no controller for {one['kind']}"
    return [one]


def _with(top: Json, tree: Tree, spec_of: Callable[[Json], Json]) -> list[Json]:
    """The tree below the manifest, with the pod specs of the manifest's templates. `spec_of`: a pod -> its spec."""
    rest = [one | {"spec": dict(spec_of(one))} if one["kind"] == "Pod" else one for one in tree.objects[1:]]
    return [top, *rest]


def _training(top: Json) -> list[Json]:
    return [top, *owners.training_pods(top)]


def _mpi(top: Json) -> list[Json]:
    roles = top["spec"]["mpiReplicaSpecs"]

    def spec_of(pod: Json) -> Json:
        role = "Launcher" if pod["metadata"]["labels"]["training.kubeflow.org/job-role"] == "launcher" else "Worker"
        return dict(roles[role]["template"]["spec"])

    return _with(top, owners.mpi_job(top["metadata"]["name"], roles["Worker"]["replicas"]), spec_of)


def _ray(top: Json) -> list[Json]:
    spec = top["spec"]
    groups = {each["groupName"]: each for each in spec["workerGroupSpecs"]}

    def spec_of(pod: Json) -> Json:
        labels = pod["metadata"]["labels"]
        of = spec["headGroupSpec"] if labels["ray.io/node-type"] == "head" else groups[labels["ray.io/group"]]
        return dict(of["template"]["spec"])

    counts = {name: (each["replicas"], each["minReplicas"]) for name, each in groups.items()}
    return _with(top, owners.ray_cluster(top["metadata"]["name"], counts), spec_of)


def _leader_worker_set(top: Json) -> list[Json]:
    spec = top["spec"]
    of = spec["leaderWorkerTemplate"]
    tree = owners.leader_worker_set(top["metadata"]["name"], spec["replicas"], of["size"])
    return _with(top, tree, lambda _: of["workerTemplate"]["spec"])


def _job_set(top: Json) -> list[Json]:
    jobs = {each["name"]: each["template"]["spec"] | {"replicas": each["replicas"]} for each in top["spec"]["replicatedJobs"]}
    tree = owners.job_set(
        top["metadata"]["name"], {name: (each["replicas"], each["parallelism"]) for name, each in jobs.items()}
    )

    def spec_of(pod: Json) -> Json:
        return dict(jobs[pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"]]["template"]["spec"])

    return _with(top, tree, spec_of)


def _train(top: Json) -> list[Json]:
    """Its runtime is the administrator's: here one card a pod."""
    return [top, *owners.train_job(top["metadata"]["name"], top["spec"]["trainer"]["numNodes"]).objects[1:]]


def _spark(top: Json) -> list[Json]:
    """Resources of its pods are those that spark-submit writes by the cores."""
    tree = owners.spark_application(
        top["metadata"]["name"], top["spec"]["executor"]["instances"], of=owners.template(cards=0, cpu="1")
    )
    return [top, *tree.objects[1:]]


def _knative(top: Json) -> list[Json]:
    """The Service makes a Configuration, that one a Revision with the annotations of the template, whose name has the generation."""
    name, of = top["metadata"]["name"], top["spec"]["template"]
    configuration = owners.make("Configuration", name, {"template": of}, owner=top)
    notes = of["metadata"]["annotations"]
    least = int(notes["autoscaling.knative.dev/min-scale"])
    revision, *rest = owners.knative_revision(
        f"{name}-00001", least, least=least, of={"metadata": {}, "spec": of["spec"]}
    ).objects
    revision["metadata"]["ownerReferences"] = owners.owned_by(configuration)
    return [top, configuration, revision, *_with(top, Tree([top, *rest]), lambda _: of["spec"])[1:]]


def _deployment(top: Json) -> list[Json]:
    spec, notes = top["spec"], top["metadata"].get("annotations")
    return [
        top,
        *owners.deployment(top["metadata"]["name"], spec["replicas"], of=spec["template"], notes=notes).objects[1:],
    ]


def _stateful_set(top: Json) -> list[Json]:
    return [top, *(owners.stateful_pod(top, index) for index in range(top["spec"]["replicas"]))]


_BUILDERS: Mapping[str, Callable[[Json], list[Json]]] = {
    "PyTorchJob": _training,
    "MPIJob": _mpi,
    "RayCluster": _ray,
    "LeaderWorkerSet": _leader_worker_set,
    "JobSet": _job_set,
    "TrainJob": _train,
    "SparkApplication": _spark,
    "Service": _knative,
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
}
