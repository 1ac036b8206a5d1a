"""Rules of `place` and `gang_of`: which gang a pod belongs to by its owners, and what it needs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import TopologyMode, TopologyWish
from hbox_common.workloads import (
    Alone,
    GroupBy,
    GroupRef,
    InGang,
    Kinds,
    Missing,
    Owner,
    OwnerGang,
    OwnerRef,
    Submitted,
    Unread,
    gang_of,
    group_ref_of,
    indexed_gang,
    place,
    read_owner,
)
from hbox_common.workloads.owner import LWS_SUB_GROUP, Defaults
from hbox_common.workloads.placing import MAX_STEPS
from hbox_common.workloads.schema import MAX_KINDS

KINDS = Kinds.builtin()
WORKFLOW, TRAIN = "argoproj.io/v1alpha1", "kubeflow.org/v1"
REF = OwnerRef(TRAIN, "PyTorchJob", "train", "uid-train")
ROLES = {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}
DECLARED = OwnerRef("scheduling.x-k8s.io/v1alpha1", "PodGroup", "g", "uid-g")


def owner(ref: OwnerRef, parent: OwnerRef | None = None, spec: Any = None, *, namespace: str = "ml", **meta: Any) -> Owner:
    read = read_owner(
        KINDS,
        {
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            "metadata": {"name": ref.name, "uid": ref.uid, "namespace": namespace, **meta},
            "spec": spec or {},
        },
    )
    return replace(read, parent=parent)


def training(minimum: int | None = None, roles: Any = ROLES, **more: Any) -> Owner:
    policy = {"runPolicy": {"schedulingPolicy": {"minAvailable": minimum}}} if minimum is not None else {}
    return owner(REF, spec={"pytorchReplicaSpecs": roles, **policy, **more})


def found(*owners: Owner, ref: OwnerRef | None = REF, group: GroupRef | None = None, **labels: str) -> InGang | Alone | Unread:
    by_name = {(one.ref.kind, one.ref.name): one for one in owners}
    names = {name.replace("_", "-"): text for name, text in labels.items()}

    def lookup(_: str, wanted: OwnerRef) -> Owner | Missing | None:
        return by_name.get((wanted.kind, wanted.name))

    return place(Submitted("uid-pod", "ml", "pod", ref, names, group=group), lookup, KINDS)


def gang(*owners: Owner, present: Mapping[str, int] | None = None, **more: Any) -> OwnerGang:
    placed = found(*owners, **more)
    assert isinstance(placed, InGang)
    return gang_of(placed, present or {})


def test_declared_group_counts_before_owners() -> None:
    placed = found(training(), owner(DECLARED, spec={"minMember": 2}), group=GroupRef(GroupBy.COSCHEDULING, "g"))
    assert isinstance(placed, InGang)
    assert placed.owner.ref == DECLARED


@pytest.mark.parametrize("given", range(5))
def test_precedence_of_declared_groups(given: int) -> None:
    """Each counts if those before it are absent."""
    order = [GroupBy.POD_GROUP, GroupBy.KUBERNETES, GroupBy.COSCHEDULING, GroupBy.KUEUE, GroupBy.GROVE]
    labels = {"scheduling.x-k8s.io/pod-group": "g", "kueue.x-k8s.io/pod-group-name": "g", "grove.io/podgang": "g"}
    present = dict(list(labels.items())[max(0, given - 2) :])
    group = group_ref_of(present, {}, pod_group="g" if given == 0 else "", scheduling_group="g" if given <= 1 else "")
    assert group is not None
    assert group.by is order[given]


def test_declared_group_that_is_not_read_keeps_its_pods_waiting() -> None:
    assert isinstance(found(training(), group=GroupRef(GroupBy.COSCHEDULING, "g")), Unread)


def test_topmost_kind_that_forms_a_gang_decides() -> None:
    job_set = OwnerRef("jobset.x-k8s.io/v1alpha2", "JobSet", "set", "uid-set")
    upper = owner(job_set, spec={"replicatedJobs": [{"name": "a", "replicas": 2}]})
    placed = found(upper, replace(training(), parent=job_set))
    assert isinstance(placed, InGang)
    assert (placed.owner.ref, [one.ref for one in placed.chain]) == (job_set, [job_set, REF])


def test_kind_without_a_gang_leaves_the_decision_to_the_kind_below() -> None:
    workflow = OwnerRef(WORKFLOW, "Workflow", "w", "uid-w")
    placed = found(owner(workflow), replace(training(), parent=workflow))
    assert isinstance(placed, InGang)
    assert placed.owner.ref == REF


def test_object_of_another_uid_is_not_the_owner() -> None:
    assert isinstance(found(replace(training(), ref=replace(REF, uid="uid-again"))), Alone)


def test_object_of_another_namespace_is_not_the_owner() -> None:
    assert isinstance(found(replace(training(), namespace="other")), Alone)


def test_owners_that_own_each_other_make_no_gang() -> None:
    one, other = OwnerRef(WORKFLOW, "Workflow", "a", "uid-a"), OwnerRef(TRAIN, "PyTorchJob", "b", "uid-b")
    placed = found(owner(one, other), owner(other, one, {"pytorchReplicaSpecs": ROLES}), ref=one)
    assert placed == Alone("its owners form a cycle")


@pytest.mark.parametrize(("length", "in_gang"), [(MAX_STEPS, True), (MAX_STEPS + 1, False)])
def test_owners_are_followed_up_to_a_limit(length: int, in_gang: bool) -> None:
    refs = [OwnerRef(TRAIN, "PyTorchJob", f"j{n}", f"uid-j{n}") for n in range(length)]
    chain = [owner(ref, refs[n - 1] if n else None, {"pytorchReplicaSpecs": ROLES}) for n, ref in enumerate(refs)]
    assert isinstance(found(*chain, ref=refs[-1]), InGang) is in_gang


def test_all_pods_of_all_roles_are_the_minimum_if_none_is_written() -> None:
    made = gang(training())
    assert (made.min_member, made.min_by_role) == (4, {"Master": 1, "Worker": 3})


def test_written_minimum_counts_and_leading_roles_are_whole_within_it() -> None:
    made = gang(training(2))
    assert (made.min_member, made.min_by_role) == (2, {"Master": 1})
    large = {"Master": {"replicas": 3}, "Worker": {"replicas": 3}}
    assert gang(training(2, large)).min_by_role == {}, "a leading role larger than the minimum"


def test_minimum_is_at_most_the_number_of_pods_and_at_least_one() -> None:
    assert gang(training(9)).min_member == 4
    assert gang(training(0)).min_member == 1
    assert gang(training(roles={})).min_member == 1


def test_queue_and_priority_class_of_the_topmost_owner_count() -> None:
    workflow = OwnerRef(WORKFLOW, "Workflow", "w", "uid-w")
    key = "scheduling.volcano.sh/queue-name"
    upper = owner(workflow, annotations={key: "upper"})
    policy = {"runPolicy": {"schedulingPolicy": {"queue": "lower", "priorityClass": "high"}}}
    made = gang(upper, replace(owner(REF, spec={"pytorchReplicaSpecs": ROLES, **policy}), parent=workflow))
    assert (made.queue, made.priority_class) == ("upper", "high")


def test_leader_is_the_gang_until_the_controller_makes_workers() -> None:
    ref = OwnerRef("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", "uid-lws")
    one = owner(ref, spec={"leaderWorkerTemplate": {"size": 4}, "startupPolicy": "LeaderReady"})
    assert gang(one, ref=ref).min_member == 1
    assert gang(one, ref=ref, present={"worker": 1}).min_member == 4


KIND = "group: example.com\nversions: [v1]\nkind: K{n}\nplural: k{n}s\n"


def test_number_of_kinds_is_limited() -> None:
    with pytest.raises(InvalidRequest, match=f"at most {MAX_KINDS}"):
        KINDS.with_files({"many.yaml": "---\n".join(KIND.format(n=n) for n in range(MAX_KINDS))})


def test_label_of_a_further_kind_names_the_queue() -> None:
    kinds = KINDS.with_files({"k.yaml": KIND.format(n=1) + "queueLabels: [example.com/queue]\n"})
    metadata = {"name": "a", "labels": {"example.com/queue": "research"}}
    read = read_owner(kinds, {"apiVersion": "example.com/v1", "kind": "K1", "metadata": metadata})
    assert (read.declared.queue, read.declared.queue_from) == ("research", "label example.com/queue")


@pytest.mark.parametrize("text", ["four", "-1", "", "9" * 13])
def test_minimum_in_an_annotation_that_is_no_number_counts_as_one(text: str) -> None:
    key = "scheduling.volcano.sh/group-min-member"
    ref = OwnerRef("apps/v1", "Deployment", "web", "uid-web")
    gang = found(owner(ref, annotations={key: text}), ref=ref)
    assert isinstance(gang, InGang)
    assert (gang_of(gang, {}).min_member, gang_of(gang, {}).problem) == (1, "")
    assert gang.owner.ignored.startswith(f"annotation {key} is ")


JOB = OwnerRef("batch/v1", "Job", "sweep", "uid-sweep")


def batch_job(**spec: Any) -> Owner:
    return owner(JOB, spec={"parallelism": 3, "completions": 5, "completionMode": "Indexed", **spec})


@pytest.mark.parametrize(("policy", "minimum"), [({"gang": {"minCount": 2}}, 2), ({"gang": {}}, 3)])
def test_job_is_a_gang_by_its_own_scheduling_field(policy: dict[str, Any], minimum: int) -> None:
    made = gang(batch_job(scheduling={"schedulingPolicy": policy}), ref=JOB)
    assert made.min_member == minimum
    assert made.reasons[0].startswith(f"minimum {minimum}: spec.scheduling.schedulingPolicy.gang")


@pytest.mark.parametrize("scheduling", [None, {"schedulingPolicy": {"basic": {}}}, "gang"])
def test_pods_of_a_job_without_a_gang_are_single(scheduling: Any) -> None:
    assert isinstance(found(batch_job(scheduling=scheduling), ref=JOB), Alone)


@pytest.mark.parametrize(("spec", "minimum"), [({}, 3), ({"parallelism": 9}, 5), ({"completionMode": "NonIndexed"}, None)])
def test_indexed_job_is_a_gang_of_the_pods_that_run_together(spec: dict[str, Any], minimum: int | None) -> None:
    assert indexed_gang(batch_job(**spec)).declared.minimum == minimum


def test_minimum_that_an_indexed_job_declares_counts() -> None:
    declared = batch_job(scheduling={"schedulingPolicy": {"gang": {"minCount": 2}}})
    assert indexed_gang(declared).declared.minimum == 2


POD_GANG = OwnerRef("scheduler.grove.io/v1alpha1", "PodGang", "serve-0", "uid-gang")


def pod_gang(**prefill: Any) -> Owner:
    groups = [{"name": "serve-0-prefill", "minReplicas": 2, **prefill}, {"name": "serve-0-decode", "minReplicas": 3}]
    return owner(POD_GANG, spec={"podgroups": groups, "priorityClassName": "high"})


def test_pod_groups_of_a_podgang_are_sub_groups_with_their_minima() -> None:
    made = gang(pod_gang(), group=GroupRef(GroupBy.GROVE, "serve-0"), ref=None)
    assert (made.min_member, made.min_by_role) == (5, {"serve-0-prefill": 2, "serve-0-decode": 3})
    assert made.priority_class == "high"


def test_pod_of_a_podgang_has_the_role_of_its_pod_group() -> None:
    pod = Submitted(
        "uid-pod", "ml", "pod", None, {"grove.io/podclique": "serve-0-decode"}, group=GroupRef(GroupBy.GROVE, "serve-0")
    )
    placed = place(pod, lambda namespace, ref: pod_gang(), KINDS)
    assert isinstance(placed, InGang)
    assert placed.role == "serve-0-decode"


def test_pack_constraint_of_a_pod_group_names_its_tier() -> None:
    pack = {"topologyConstraint": {"packConstraint": {"required": "example.org/rack"}}}
    (policy,) = gang(pod_gang(**pack), group=GroupRef(GroupBy.GROVE, "serve-0"), ref=None).sub_gangs
    assert (policy.selector, policy.size, policy.min_sub_gangs) == ({"grove.io/podclique": "serve-0-prefill"}, 2, 1)
    assert policy.topology == TopologyWish(TopologyMode.HARD, None, "example.org/rack")


@pytest.mark.parametrize("wrong", [7, "a\nb", {"x": 1}, "k" * 400])
def test_pack_constraint_that_is_no_label_is_a_problem(wrong: Any) -> None:
    read = pod_gang(topologyConstraint={"packConstraint": {"required": wrong}})
    assert read.problem.startswith("spec.podgroups.topologyConstraint.packConstraint.required is ")


LWS = OwnerRef("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", "uid-lws")


def lws(size: int, part: Any, kind: str | None = None, **spec: Any) -> Owner:
    policy = {"subGroupSize": part} | ({"subGroupPolicyType": kind} if kind else {})
    return owner(LWS, spec={"leaderWorkerTemplate": {"size": size, "subGroupPolicy": policy}, **spec})


@pytest.mark.parametrize(
    ("size", "part", "kind", "parts"),
    [(8, 4, None, 2), (5, 2, "LeaderExcluded", 2), (5, 2, "LeaderWorker", 2), (5, 4, "LeaderExcluded", 1)],
)
def test_sub_groups_of_a_replica_are_domains(size: int, part: int, kind: str | None, parts: int) -> None:
    made = gang(lws(size, part, kind), ref=LWS)
    (policy,) = made.sub_gangs
    assert (policy.labels, policy.size, policy.min_sub_gangs) == ((LWS_SUB_GROUP,), part, parts)
    assert policy.topology == TopologyWish(TopologyMode.SOFT)
    assert made.min_member == size


def test_sub_groups_without_the_leader_are_fewer() -> None:
    (policy,) = gang(lws(5, 1, "LeaderExcluded"), ref=LWS).sub_gangs
    assert policy.min_sub_gangs == 4


def test_leader_alone_needs_no_whole_sub_group() -> None:
    one = lws(4, 2, startupPolicy="LeaderReady")
    (alone,) = gang(one, ref=LWS).sub_gangs
    (whole,) = gang(one, ref=LWS, present={"worker": 3}).sub_gangs
    assert [(policy.size, policy.min_sub_gangs) for policy in (alone, whole)] == [(1, 0), (2, 2)]


@pytest.mark.parametrize("part", [0, -1, "two", True])
def test_sub_group_of_no_size_divides_nothing(part: Any) -> None:
    assert gang(lws(4, part), ref=LWS).sub_gangs == ()


def test_roles_that_differ_in_case_are_different() -> None:
    ray = OwnerRef("ray.io/v1", "RayCluster", "ray", "uid-ray")
    groups = [{"groupName": "GPU", "replicas": 2}, {"groupName": "gpu", "replicas": 3}]
    pod = Submitted("uid-pod", "ml", "pod", ray, {"ray.io/group": "gpu"})
    placed = place(pod, lambda namespace, ref: owner(ray, spec={"workerGroupSpecs": groups}), KINDS)
    assert isinstance(placed, InGang)
    assert placed.role == "gpu"


def test_annotations_about_the_fabric_on_an_owner_count() -> None:
    notes = {"volcano.sh/network-topology-mode": "hard", "volcano.sh/network-topology-highest-tier": "1"}
    made = gang(owner(LWS, spec={"leaderWorkerTemplate": {"size": 2}}, annotations=notes), ref=LWS)
    assert (made.mode, made.highest_tier) == ("hard", "1")
    made = gang(owner(LWS, annotations={"hbox.io/network-topology": "singleSwitch"}), ref=LWS)
    assert made.annotations == {"hbox.io/network-topology": "singleSwitch"}


DEFAULTS = """
defaultsFor: ["*"]
defaults: {queue: batch, preemptable: true}
---
defaultsFor: [pytorchjobs.kubeflow.org]
defaults: {queue: training, priorityClass: low, minimum: 2}
"""


def test_defaults_of_files_count_for_built_in_kinds_and_the_last_one_wins() -> None:
    kinds = KINDS.with_files({"defaults.yaml": DEFAULTS})
    content = {"apiVersion": TRAIN, "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": ROLES}}
    declared = read_owner(kinds, content).declared
    assert declared.defaults == Defaults("training", "low", preemptable=True, minimum=2)
    assert (declared.minimum, declared.minimum_from) == (2, "defaults.minimum")
    written = content | {"spec": {"pytorchReplicaSpecs": ROLES, "elasticPolicy": {"minReplicas": 3}}}
    assert read_owner(kinds, written).declared.minimum == 3
    job = read_owner(kinds, {"apiVersion": "batch/v1", "kind": "Job", "spec": {}}).declared
    assert (job.defaults.queue, job.minimum) == ("batch", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defaultsFor: []\ndefaults: {}\n", "defaultsFor"),
        ("defaultsFor: [Py]\ndefaults: {}\n", "is no kind"),
        ("defaultsFor: ['*']\ndefaults: {queue: A b}\n", "is no name of an object"),
        ("defaultsFor: ['*']\ndefaults: {minimum: 0}\n", "defaults.minimum"),
        ("defaultsFor: ['*']\ndefaults: {colour: red}\n", "allowed: minimum, preemptable, priorityClass, queue"),
    ],
)
def test_wrong_defaults_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        KINDS.with_files({"d.yaml": text})
    assert message in f"{raised.value.message} {raised.value.hint}"


@pytest.mark.parametrize("name", ["", "serve-0-prefill"])
def test_pod_groups_with_a_constraint_have_names_of_their_own(name: str) -> None:
    pack = {"topologyConstraint": {"packConstraint": {"preferred": "example.org/rack"}}}
    groups = [{"name": "serve-0-prefill", "minReplicas": 2, **pack}, {"name": name, "minReplicas": 3, **pack}]
    made = gang(owner(POD_GANG, spec={"podgroups": groups}), group=GroupRef(GroupBy.GROVE, "serve-0"), ref=None)
    assert len(made.sub_gangs) == 1
    assert "write a name of its own" in made.problem
