"""Gangs that follow from the owners of pods, in any order of arrival."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from hbox_common.model import NodeName, PodPhase, PodUid, QueueName
from hbox_common.model.annotations import PREEMPTABLE, QUEUE_NAME
from hbox_common.workloads import GroupBy, GroupRef, Kinds, Owner, OwnerRef, Submitted, read_owner
from hbox_jobs.core.feedback import Feedback
from hbox_jobs.core.jobs import UNREAD_QUIET_S, Jobs
from hbox_jobs.core.owners import Wanted
from hbox_jobs.core.views import PodView

from .job_world import pod

WALL = 1_800_000_000.0
PYTORCH = ("kubeflow.org", "PyTorchJob")
REF = OwnerRef("kubeflow.org/v1", "PyTorchJob", "train", "uid-train")


def job(*, workers: int = 3, version: int = 5, uid: str = "uid-train", **meta: Any) -> Owner:
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}}
    metadata = {"name": "train", "namespace": "ml", "uid": uid, "resourceVersion": str(version), **meta}
    return read_owner(
        Kinds.builtin(), {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec}
    )


def member(name: str, *, ref: OwnerRef = REF, rv: str = "6", **fields: Any) -> PodView:
    labels = {"training.kubeflow.org/replica-type": "worker"}
    submitted = Submitted(f"uid-{name}", "ml", name, ref, labels)
    return pod(name, rv=rv, submitted=submitted, labels=labels, **fields)


def settled(jobs: Jobs, now: float) -> dict[str, tuple[int, int, str]]:
    """Members, minimum and problem of all jobs, by name."""
    jobs.take(now, WALL)
    jobs.validate()
    return {one.name: (one.members, one.min_member, one.problem) for one in jobs.jobs()}


@pytest.mark.parametrize("order", list(itertools.permutations(["owner", "a", "b", "c"])))
def test_members_form_one_gang_in_any_order_of_arrival(order: tuple[str, ...]) -> None:
    jobs = Jobs()
    published: list[tuple[int, int]] = []
    for at, what in enumerate(order):
        if what == "owner":
            jobs.owner(job(), 0.1 * at)
        else:
            jobs.pod(member(what), 0.1 * at)
        batch = jobs.take(0.1 * at, WALL)
        published += [(one.members, one.min_member) for one in batch.pending if not one.problem]
        jobs.validate()
    assert settled(jobs, 1.0) == {"pytorchjob/train": (3, 3, "")}
    assert all(minimum == 3 for _, minimum in published), "no pod was announced as a job of its own"


def test_owner_that_is_not_read_keeps_its_pods_waiting_with_a_reason() -> None:
    jobs = Jobs()
    jobs.pod(member("a"), 0.0)
    assert settled(jobs, 0.0) == {}, "most owners are read a moment later"
    assert settled(jobs, UNREAD_QUIET_S + 1.0) == {
        "pytorchjob/train": (1, 1, "OwnerNotRead: PyTorchJob train, which owns its pods, is not read yet")
    }
    jobs.owner(job(), 3.0)
    assert settled(jobs, 3.0) == {"pytorchjob/train": (1, 3, "")}


def test_kind_that_cannot_be_read_makes_single_pods_until_it_can() -> None:
    jobs = Jobs()
    for name in ("a", "b"):
        jobs.pod(member(name), 0.0)
    jobs.place_again(jobs.owners.kind_unreadable(PYTORCH, "HBox may not list pytorchjobs.kubeflow.org"), 0.1)
    assert settled(jobs, 0.1) == {"a": (1, 1, ""), "b": (1, 1, "")}
    jobs.pod(member("c"), 0.2)
    assert set(settled(jobs, 0.2)) == {"a", "b", "c"}
    jobs.owner(job(), 0.3)
    jobs.place_again(jobs.owners.kind_readable(PYTORCH), 0.3)
    assert settled(jobs, 0.3) == {"pytorchjob/train": (3, 3, "")}


def test_single_pod_of_an_unreadable_owner_states_why() -> None:
    jobs = Jobs()
    jobs.place_again(jobs.owners.kind_unreadable(PYTORCH, "the cluster does not serve pytorchjobs.kubeflow.org"), 0.0)
    jobs.pod(member("a", shape=pod("x").shape), 0.0)
    jobs.take(0.0, WALL)
    record = jobs.record("uid-a")
    assert record is not None
    record.held = "too many"
    assert record.reason == "too many; OwnerNotReadable: the cluster does not serve pytorchjobs.kubeflow.org"


def test_known_gang_stays_whole_when_its_kind_cannot_be_read_any_more() -> None:
    jobs = Jobs()
    jobs.owner(job(), 0.0)
    for name in ("a", "b"):
        jobs.pod(member(name), 0.0)
    jobs.place_again(jobs.owners.kind_unreadable(PYTORCH, "403"), 0.1)
    jobs.pod(member("c"), 0.2)
    assert settled(jobs, 0.2) == {"pytorchjob/train": (3, 3, "")}


def test_deleted_owner_keeps_its_gang_until_its_pods_are_gone() -> None:
    jobs = Jobs()
    jobs.owner(job(), 0.0)
    for name in ("a", "b", "c"):
        jobs.pod(member(name), 0.0)
    jobs.owner_gone("uid-train")
    jobs.pod(member("a", rv="7"), 0.1)
    assert settled(jobs, 0.1) == {"pytorchjob/train": (3, 3, "")}
    for name in ("a", "b", "c"):
        jobs.pod_gone(member(name).uid, 0.2)
    assert settled(jobs, 0.2) == {}
    assert len(jobs.owners) == 0


def test_recreated_owner_is_another_gang() -> None:
    jobs = Jobs()
    jobs.owner(job(), 0.0)
    jobs.pod(member("a"), 0.0)
    jobs.owner_gone("uid-train")
    again = OwnerRef(REF.api_version, REF.kind, REF.name, "uid-again")
    jobs.pod(member("b", ref=again), 0.1)
    jobs.owner(job(workers=2, uid="uid-again"), 0.1)
    jobs.take(1.0, WALL)
    jobs.validate()
    found = sorted((one.id, one.members, one.min_member) for one in jobs.jobs())
    assert found == [("uid-again", 1, 2), ("uid-train", 1, 3)], "pods of the former one do not count for it"


def proving() -> Jobs:
    """A gang of two; the watch of PyTorchJobs has delivered version 5, and the pods are newer."""
    jobs = Jobs(proves_groups=True)
    jobs.owner(job(workers=2), 0.0)
    jobs.owners_delivered(PYTORCH, "5")
    for name in ("a", "b"):
        jobs.pod(member(name, rv="20"), 0.0)
    return jobs


def test_minimum_raised_while_pods_arrive_never_places_a_part() -> None:
    jobs = proving()
    assert [one for one in jobs.take(0.0, WALL).pending if one.members == 2] == []
    owner = jobs.next_stale_owner()
    assert owner is not None
    assert owner.ref == REF
    assert jobs.next_stale_owner() is None, "at most one read of an owner in flight"
    jobs.owner_read("uid-train", job(workers=4, version=15), 0.1)
    assert settled(jobs, 0.1) == {"pytorchjob/train": (2, 4, "")}
    jobs.owner(job(workers=2, version=12), 0.2)
    assert settled(jobs, 0.2) == {"pytorchjob/train": (2, 4, "")}, "the watch is behind the read"


def test_owner_is_read_once_for_all_pods_that_arrived_before() -> None:
    jobs = proving()
    jobs.take(0.0, WALL)
    jobs.next_stale_owner()
    jobs.owner_read("uid-train", job(workers=2), 0.1)
    assert settled(jobs, 0.1) == {"pytorchjob/train": (2, 2, "")}
    assert jobs.next_stale_owner() is None


def test_failed_read_of_an_owner_keeps_its_gang_waiting_with_a_reason() -> None:
    jobs = proving()
    jobs.take(0.0, WALL)
    jobs.next_stale_owner()
    jobs.owner_read_failing("uid-train", "500", 0.1)
    assert settled(jobs, 0.1) == {"pytorchjob/train": (2, 2, "OwnerNotRead: 500")}
    jobs.owner_read_failed("uid-train", 0.5)
    jobs.take(0.5, WALL)
    assert jobs.next_stale_owner() is not None


def test_gang_that_the_watch_has_reached_needs_no_read() -> None:
    jobs = proving()
    jobs.owners_delivered(PYTORCH, "21")
    assert settled(jobs, 0.0) == {"pytorchjob/train": (2, 2, "")}
    assert jobs.next_stale_owner() is None


DRIVER = OwnerRef("v1", "Pod", "driver", "uid-driver")
SPARK = OwnerRef("sparkoperator.k8s.io/v1beta2", "SparkApplication", "app", "uid-app")


def plain(name: str, ref: OwnerRef | None = None, **fields: Any) -> PodView:
    return pod(name, submitted=Submitted(f"uid-{name}", "ml", name, ref) if ref is not None else None, **fields)


def owner_of(ref: OwnerRef, parent: OwnerRef | None = None, spec: Any = None, version: int = 5, **meta: Any) -> Owner:
    references = [] if parent is None else [{**reference(parent), "controller": True}]
    metadata = {"name": ref.name, "uid": ref.uid, "namespace": "ml", "resourceVersion": str(version)}
    content = {"apiVersion": ref.api_version, "kind": ref.kind, "spec": spec or {}}
    return read_owner(Kinds.builtin(), {**content, "metadata": {**metadata, "ownerReferences": references, **meta}})


def reference(ref: OwnerRef) -> dict[str, Any]:
    return {"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name, "uid": ref.uid}


def test_pod_that_is_listed_before_the_pod_that_owns_it_does_not_wait_for_ever() -> None:
    jobs = Jobs()
    jobs.pod(plain("executor", DRIVER), 0.0)
    assert settled(jobs, 5.0)["pod/driver"][2].startswith("OwnerNotRead")
    jobs.pod(plain("driver"), 6.0)
    assert settled(jobs, 6.0) == {"executor": (1, 1, ""), "driver": (1, 1, "")}


def test_pod_of_a_pod_that_does_not_exist_is_single_once_all_pods_are_listed() -> None:
    jobs = Jobs()
    jobs.pod(plain("executor", DRIVER), 0.0)
    jobs.pods_listed(1.0)
    assert settled(jobs, 1.0) == {"executor": (1, 1, "")}


@pytest.mark.parametrize("order", list(itertools.permutations(["application", "driver", "executor"])))
def test_pod_below_a_pod_joins_the_gang_of_the_upper_owner_in_any_order(order: tuple[str, ...]) -> None:
    jobs = Jobs()
    for what in order:
        match what:
            case "application":
                jobs.owner(owner_of(SPARK), 0.0)
            case "driver":
                jobs.pod(plain("driver", SPARK), 0.0)
            case _:
                jobs.pod(plain("executor", DRIVER), 0.0)
    assert settled(jobs, 0.0) == {"sparkapplication/app": (2, 1, "")}


KUEUE = GroupRef(GroupBy.KUEUE, "g", 2)


def of_kueue(name: str, *, queue: str = "research", group: GroupRef = KUEUE, **fields: Any) -> PodView:
    labels = {QUEUE_NAME: queue}
    submitted = Submitted(f"uid-{name}", "ml", name, group=group, labels=labels)
    return pod(name, submitted=submitted, labels=labels, **fields)


def test_kueue_group_is_as_old_as_its_oldest_pod() -> None:
    jobs = Jobs()
    jobs.pod(of_kueue("b", created_at=200.0), 0.0)
    jobs.pod(of_kueue("a", created_at=150.0), 0.0)
    jobs.take(0.0, WALL)
    assert [(one.created_at, one.queue, one.min_member) for one in jobs.jobs()] == [(150.0, "research", 2)]


def test_kueue_group_gets_its_events_on_a_pod_that_exists() -> None:
    jobs = Jobs()
    feedback = Feedback(jobs)
    for name in ("a", "b"):
        jobs.pod(of_kueue(name), 0.0)
    for record in jobs.take(0.0, WALL).settled:
        feedback.settled(record, 0.0)
    for name in ("a", "b"):
        jobs.pod(of_kueue(name, rv="8", node=NodeName("n")), 11.0)
    for record in jobs.take(12.0, WALL).settled:
        feedback.settled(record, 12.0)
    events = [one for one in feedback.events(20.0, 10) if one.reason == "Scheduled"]
    assert {(str(one.kind), one.name, one.uid) for one in events} <= {("Pod", "a", "uid-a"), ("Pod", "b", "uid-b")}
    assert events


def test_invalid_queue_of_a_kueue_group_is_its_problem() -> None:
    jobs = Jobs()
    jobs.pod(of_kueue("a", queue="Foo_Bar"), 0.0)
    (found,) = settled(jobs, 1.0).values()
    assert QUEUE_NAME in found[2]


def test_gang_of_pods_that_differ_follows_from_the_oldest_in_any_order() -> None:
    for names in itertools.permutations("abc"):
        jobs = Jobs()
        for name in names:
            group = GroupRef(GroupBy.KUEUE, "g", {"a": 2, "b": 3, "c": 7}[name])
            jobs.pod(of_kueue(name, group=group, created_at={"a": 9.0, "b": 8.0, "c": 8.0}[name]), 0.0)
        assert settled(jobs, 1.0)["pod/g"][1] == 3


def test_finished_spark_applications_leave_nothing_behind() -> None:
    jobs = Jobs()
    jobs.pods_listed(0.0)
    for number in range(3):
        app = OwnerRef(SPARK.api_version, SPARK.kind, f"app-{number}", f"uid-app-{number}")
        driver, executor = plain(f"driver-{number}", app), f"executor-{number}"
        jobs.owner(owner_of(app), 0.0)
        jobs.pod(driver, 0.0)
        jobs.pod(plain(executor, OwnerRef("v1", "Pod", driver.name, driver.uid)), 0.0)
        jobs.pod_gone(PodUid(f"uid-{executor}"), 1.0)
        jobs.pod_gone(driver.uid, 1.0)
        jobs.owner_gone(app.uid)
        assert settled(jobs, 2.0) == {}
    assert len(jobs.owners) == 0
    assert not jobs.owners._below


def test_owner_that_changes_its_own_owner_leaves_the_former_one() -> None:
    jobs = Jobs()
    replica_set = OwnerRef("apps/v1", "ReplicaSet", "r", "uid-r")
    for number in range(9):
        deployment = OwnerRef("apps/v1", "Deployment", "d", f"uid-d-{number}")
        jobs.owner(owner_of(replica_set, deployment, version=10 + number), 0.0)
        assert len(jobs.owners._below) == 1
    jobs.owner(owner_of(replica_set, None, version=9), 0.0)
    assert len(jobs.owners._below) == 1, "an old version changes nothing"
    jobs.owner_gone("uid-r")
    assert len(jobs.owners) == len(jobs.owners._below) == 0


@pytest.mark.parametrize("length", [1, 2, 40])
def test_owners_that_own_each_other_are_forgotten_once_they_are_deleted(length: int) -> None:
    jobs = Jobs()
    refs = [OwnerRef("argoproj.io/v1alpha1", "Workflow", f"w{n}", f"uid-w{n}") for n in range(length)]
    for n, ref in enumerate(refs):
        jobs.owner(owner_of(ref, refs[n - 1]), 0.0)
    jobs.pod(plain("a", refs[0]), 0.0)
    assert settled(jobs, 0.0) == {"a": (1, 1, "")}
    jobs.pod_gone(PodUid("uid-a"), 0.0)
    for ref in refs:
        jobs.owner_gone(ref.uid)
        jobs.validate()
    assert len(jobs.owners) == 0


CLUSTER = OwnerRef("ray.io/v1", "RayCluster", "c", "uid-c")
CLEANUP = OwnerRef("batch/v1", "Job", "c-redis-cleanup", "uid-job")
RAY = {"headGroupSpec": {}, "workerGroupSpecs": [{"groupName": "w", "replicas": 1}]}


def test_pod_that_cleans_up_after_a_deleted_owner_does_not_wait_for_its_gang() -> None:
    jobs = Jobs()
    jobs.owner(owner_of(CLUSTER, spec=RAY), 0.0)
    jobs.pod(plain("head", CLUSTER, created_at=100.0), 0.0)
    deleted = owner_of(CLUSTER, spec=RAY, version=6, deletionTimestamp="1970-01-01T00:02:00Z")
    jobs.owner(deleted, 0.1)
    jobs.owner(owner_of(CLEANUP, CLUSTER), 0.1)
    cleanup = plain("cleanup", CLEANUP, created_at=120.0)
    assert cleanup.submitted is not None
    jobs.pod(replace(cleanup, submitted=replace(cleanup.submitted, created_at=120.0)), 0.2)
    assert settled(jobs, 0.2) == {"raycluster/c": (1, 2, ""), "cleanup": (1, 1, "")}, "a pod from before stays in its gang"


def test_upper_kind_that_becomes_readable_decides_on_pods_of_a_lower_gang() -> None:
    jobs = Jobs()
    workflow = OwnerRef("argoproj.io/v1alpha1", "Workflow", "w", "uid-w")
    jobs.owner(owner_of(REF, workflow, {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}), 0.0)
    jobs.pod(plain("a", REF), 0.0)
    jobs.place_again(jobs.owners.kind_unreadable(("argoproj.io", "Workflow"), "403"), 0.1)
    assert settled(jobs, 0.1) == {"pytorchjob/train": (1, 1, "")}
    jobs.place_again(jobs.owners.kind_readable(("argoproj.io", "Workflow")), 0.2)
    assert jobs.owners.wanted(("argoproj.io", "Workflow")), "its queue counts before that of the PyTorchJob"


POD_GROUP = ("scheduling.x-k8s.io", "PodGroup")


def pod_group(*, least: int = 2, version: int = 5, uid: str = "uid-group") -> Owner:
    """Of scheduler-plugins, which its pods name without its uid."""
    metadata = {"name": "g", "namespace": "ml", "uid": uid, "resourceVersion": str(version)}
    content = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": metadata}
    return read_owner(Kinds.builtin(), {**content, "spec": {"minMember": least}})


def named(name: str, *, rv: str = "20", by: GroupBy = GroupBy.COSCHEDULING) -> PodView:
    return pod(name, rv=rv, submitted=Submitted(f"uid-{name}", "ml", name, group=GroupRef(by, "g")))


def proving_declared() -> Jobs:
    """As `proving`, with a declared group."""
    jobs = Jobs(proves_groups=True)
    for name in ("a", "b"):
        jobs.pod(named(name), 0.0)
    jobs.owner(pod_group(), 0.0)
    jobs.owners_delivered(POD_GROUP, "5")
    assert settled(jobs, 0.0) == {}
    return jobs


def test_declared_group_whose_pods_are_newer_than_its_watch_starts_after_a_read() -> None:
    jobs = proving_declared()
    owner = jobs.next_stale_owner()
    assert owner is not None
    jobs.owner_read(owner.ref.uid, owner, 0.1)
    assert settled(jobs, 0.1) == {"podgroup/g": (2, 2, "")}


def test_failed_read_of_a_declared_group_is_a_problem_of_its_gang() -> None:
    jobs = proving_declared()
    jobs.next_stale_owner()
    jobs.owner_read_failing("uid-group", "500", 0.1)
    assert settled(jobs, 0.1) == {"podgroup/g": (2, 2, "OwnerNotRead: 500")}
    jobs.owner_read_failed("uid-group", 0.5)
    jobs.take(0.5, WALL)
    assert jobs.next_stale_owner() is not None


def test_pods_of_a_deleted_declared_group_start_as_it_was_last_known() -> None:
    jobs = proving_declared()
    jobs.owner_gone("uid-group")
    owner = jobs.next_stale_owner()
    assert owner is not None
    jobs.owner_read(owner.ref.uid, None, 0.1)
    assert settled(jobs, 0.1) == {"podgroup/g": (2, 2, "")}
    for name in ("a", "b"):
        jobs.pod_gone(named(name).uid, 0.2)
    assert settled(jobs, 0.2) == {}
    assert len(jobs.owners) == 0


def test_declared_group_of_the_same_name_takes_over_pods_that_are_waiting() -> None:
    jobs = proving_declared()
    jobs.owner_gone("uid-group")
    jobs.owner(pod_group(least=3, version=30, uid="uid-again"), 0.1)
    jobs.owners_delivered(POD_GROUP, "30")
    jobs.owner_gone("uid-group")
    assert settled(jobs, 0.1) == {"podgroup/g": (2, 3, "")}
    assert [one.id for one in jobs.jobs()] == ["uid-again"]
    assert len(jobs.owners) == 2, "the former group is forgotten"
    jobs.pod(named("c", rv="29"), 0.2)
    assert settled(jobs, 0.2) == {"podgroup/g": (3, 3, "")}


def test_owner_whose_name_belongs_to_another_object_makes_single_pods() -> None:
    jobs = Jobs()
    jobs.pod(member("a"), 0.0)
    (wanted,) = jobs.owners.wanted(PYTORCH)
    assert wanted == Wanted("ml", REF, 0.0)
    jobs.place_again(jobs.owners.unreadable(wanted, "PyTorchJob train does not exist"), 0.4)
    assert settled(jobs, 0.4) == {"a": (1, 1, "")}


def test_owner_of_another_namespace_makes_no_gang() -> None:
    jobs = Jobs()
    jobs.owner(job(namespace="other"), 0.0)
    jobs.pod(member("a"), 0.0)
    assert settled(jobs, 0.0) == {"a": (1, 1, "")}


def test_bound_pods_name_the_gang_once_their_owner_is_read() -> None:
    jobs = Jobs()
    jobs.pod(member("a", node=NodeName("n"), status="Running"), 0.0)
    (fact,) = jobs.take(0.0, WALL).facts
    assert fact.job.startswith("podgroup:"), "the ledger moves no claim to it"
    jobs.owner(job(), 0.1)
    facts = jobs.take(1.0, WALL).facts
    assert [(fact.job, fact.phase) for fact in facts] == [("uid-train", PodPhase.RUNNING)]


def test_owner_gets_the_event_and_no_status() -> None:
    jobs = Jobs()
    feedback = Feedback(jobs)
    jobs.owner(job(), 0.0)
    for name in ("a", "b", "c"):
        jobs.pod(member(name), 0.0)
    for record in jobs.take(0.0, WALL).settled:
        feedback.settled(record, 0.0)
    assert feedback.statuses(10.0, 10, "2026-01-01T00:00:00Z") == []
    for name in ("a", "b", "c"):
        jobs.pod(member(name, rv="8", node=NodeName("n")), 11.0)
    for record in jobs.take(12.0, WALL).settled:
        feedback.settled(record, 12.0)
    found = [(one.kind, one.api_version, one.name, one.reason) for one in feedback.events(20.0, 10)]
    assert ("PyTorchJob", "kubeflow.org/v1", "train", "Scheduled") in found


def test_queue_of_the_namespace_counts_for_pods_that_name_none() -> None:
    jobs = Jobs()
    jobs.namespace("ml", {}, 0.0, terminating=False, queue="research")  # type: ignore[arg-type]
    jobs.pod(pod("a"), 0.0)
    jobs.pod(pod("b", queue="own"), 0.0)
    jobs.take(0.0, WALL)
    assert {one.name: one.queue for one in jobs.jobs()} == {"a": "research", "b": "own"}


JOB = OwnerRef("batch/v1", "Job", "sweep", "uid-sweep")


def indexed_job() -> Owner:
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    metadata = {"name": "sweep", "namespace": "ml", "uid": "uid-sweep", "resourceVersion": "5"}
    return read_owner(Kinds.builtin(), {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})


@pytest.mark.parametrize(
    ("setting", "label", "is_gang"),
    [(False, "", False), (True, "", True), (False, "gang", True), (True, "single", False), (True, "?", True)],
)
def test_indexed_jobs_are_gangs_by_setting_and_by_namespace(setting: bool, label: str, is_gang: bool) -> None:
    jobs = Jobs(indexed_gangs=setting)
    if label:
        jobs.namespace("ml", {"hbox.io/indexed-jobs": label}, 0.0, terminating=False)
    jobs.owner(indexed_job(), 0.0)
    for name in ("a", "b"):
        jobs.pod(member(name, ref=JOB), 0.0)
    assert settled(jobs, 0.0) == ({"job/sweep": (2, 2, "")} if is_gang else {"a": (1, 1, ""), "b": (1, 1, "")})


def test_label_of_a_namespace_that_changes_makes_gangs_of_its_indexed_jobs() -> None:
    jobs = Jobs()
    jobs.owner(indexed_job(), 0.0)
    for name in ("a", "b"):
        jobs.pod(member(name, ref=JOB), 0.0)
    assert set(settled(jobs, 0.0)) == {"a", "b"}
    jobs.namespace("ml", {"hbox.io/indexed-jobs": "gang"}, 1.0, terminating=False)
    assert settled(jobs, 1.0) == {"job/sweep": (2, 2, "")}
    jobs.namespace("ml", {}, 2.0, terminating=False)
    assert set(settled(jobs, 2.0)) == {"a", "b"}
    jobs.namespace("other", {"hbox.io/indexed-jobs": "gang"}, 3.0, terminating=False)
    assert set(settled(jobs, 3.0)) == {"a", "b"}


def test_sub_groups_of_a_leaderworkerset_are_published_with_their_pods() -> None:
    top = OwnerRef("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", "uid-lws")
    template = {"size": 3, "subGroupPolicy": {"subGroupSize": 1, "subGroupPolicyType": "LeaderExcluded"}}
    metadata = {"name": "lws", "namespace": "ml", "uid": "uid-lws", "resourceVersion": "5"}
    content = {
        "apiVersion": top.api_version,
        "kind": top.kind,
        "metadata": metadata,
        "spec": {"leaderWorkerTemplate": template},
    }
    jobs = Jobs()
    jobs.owner(read_owner(Kinds.builtin(), content), 0.0)
    of = "leaderworkerset.sigs.k8s.io"
    for index in range(3):
        labels = {f"{of}/group-index": "0", f"{of}/worker-index": str(index)} | (
            {f"{of}/subgroup-index": str(index - 1)} if index else {}
        )
        jobs.pod(
            pod(f"p{index}", rv="6", submitted=Submitted(f"uid-p{index}", "ml", f"p{index}", top, labels), labels=labels), 0.0
        )
    (one,) = jobs.take(1.0, WALL).pending
    assert [(policy.name, policy.min_sub_gangs) for policy in one.sub_gangs] == [("subgroup", 2)]
    assert [(task.name, task.labels.get(f"{of}/subgroup-index")) for task in one.tasks] == [
        ("leader", None),
        ("worker", "0"),
        ("worker", "1"),
    ]


def test_pod_beyond_the_declared_number_waits_for_the_gang_and_starts_alone() -> None:
    jobs = Jobs()
    jobs.owner(job(workers=2), 0.0)
    for name in ("a", "b"):
        jobs.pod(member(name, created_at=100.0), 0.0)
    jobs.pod(member("more", created_at=200.0), 0.0)
    found = settled(jobs, 0.0)
    assert found["pytorchjob/train"] == (2, 2, "")
    assert found["more"] == (
        1,
        1,
        "ExtraPod: PyTorchJob train declares fewer pods of role Worker, and its gang has no places yet",
    )
    for name in ("a", "b"):
        jobs.pod(member(name, created_at=100.0, node=NodeName("n")), 1.0)
    assert settled(jobs, 2.0) == {"pytorchjob/train": (2, 2, ""), "more": (1, 1, "")}


def test_pod_that_cannot_be_placed_takes_no_members_position() -> None:
    jobs = Jobs()
    jobs.owner(job(workers=2), 0.0)
    wrong = replace(pod("x").shape, problem="impossible")
    jobs.pod(member("a", created_at=100.0, shape=wrong), 0.0)
    for name in ("b", "c"):
        jobs.pod(member(name, created_at=200.0), 0.0)
    assert settled(jobs, 0.0)["pytorchjob/train"] == (2, 2, "")


def test_extra_pod_becomes_a_member_when_one_ends_or_the_owner_declares_more() -> None:
    jobs = Jobs()
    jobs.owner(job(workers=2), 0.0)
    for at, name in enumerate(("a", "b", "c", "d")):
        jobs.pod(member(name, created_at=100.0 + at), 0.0)
    assert set(settled(jobs, 0.0)) == {"pytorchjob/train", "c", "d"}
    jobs.pod_gone(PodUid("uid-a"), 1.0)
    assert set(settled(jobs, 1.0)) == {"pytorchjob/train", "d"}
    jobs.owner(job(workers=3, version=7), 2.0)
    assert settled(jobs, 2.0) == {"pytorchjob/train": (3, 3, "")}
    jobs.owner(job(workers=1, version=8), 3.0)
    assert set(settled(jobs, 3.0)) == {"pytorchjob/train", "c", "d"}


def test_pods_of_an_owner_that_is_scaled_to_0_are_not_placed_alone() -> None:
    jobs = Jobs()
    jobs.owner(job(), 0.0)
    for name in ("a", "b", "c"):
        jobs.pod(member(name), 0.0)
    jobs.owner(job(workers=0, version=7), 1.0)
    assert all(problem.startswith("ExtraPod") for *_, problem in settled(jobs, 1.0).values())
    jobs.owner(job(version=8), 2.0)
    assert settled(jobs, 2.0) == {"pytorchjob/train": (3, 3, "")}


def test_extra_pod_is_placed_only_with_an_owner_as_new_as_the_pod() -> None:
    jobs = proving()
    jobs.take(0.0, WALL)
    owner = jobs.next_stale_owner()
    assert owner is not None
    jobs.owner_read(owner.ref.uid, owner, 0.0)
    for name in ("a", "b"):
        jobs.pod(member(name, rv="20", node=NodeName("n")), 0.0)
    jobs.take(0.5, WALL)
    jobs.pod(member("c", rv="30", created_at=300.0), 1.0)
    assert [one.name for one in jobs.take(1.0, WALL).pending] == []
    again = jobs.next_stale_owner()
    assert again is not None, "the owner may declare a third pod by now"
    jobs.owner_read(again.ref.uid, job(workers=3, version=29), 1.1)
    assert settled(jobs, 1.5)["pytorchjob/train"] == (3, 3, "")


DEFAULTS = "defaultsFor: [pytorchjobs.kubeflow.org]\ndefaults: {queue: training, priorityClass: low, preemptable: true}\n"


def with_defaults(**fields: Any) -> Jobs:
    kinds = Kinds.builtin().with_files({"d.yaml": DEFAULTS})
    jobs = Jobs(kinds=kinds)
    jobs.priority_class("low", 7, 0.0)
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}
    metadata = {"name": "train", "namespace": "ml", "uid": "uid-train", "resourceVersion": "5"}
    jobs.owner(read_owner(kinds, {"apiVersion": REF.api_version, "kind": REF.kind, "metadata": metadata, "spec": spec}), 0.0)
    jobs.pod(member("a", **fields), 0.0)
    return jobs


def test_defaults_of_the_kind_count_if_nothing_else_sets_them() -> None:
    (one,) = with_defaults().take(1.0, WALL).pending
    assert (one.queue, one.priority_class, one.priority, one.preemptable) == ("training", "low", 7, True)


def test_what_pods_and_namespaces_set_counts_before_the_defaults_of_the_kind() -> None:
    (one,) = (
        with_defaults(queue="own", priority=9, priority_class="high", annotations={PREEMPTABLE: "false"})
        .take(1.0, WALL)
        .pending
    )
    assert (one.queue, one.priority_class, one.priority, one.preemptable) == ("own", "high", 9, False)
    jobs = with_defaults()
    jobs.namespace("ml", {}, 0.0, terminating=False, queue=QueueName("spaces"))
    (one,) = jobs.take(1.0, WALL).pending
    assert one.queue == "spaces"


def test_default_class_that_does_not_exist_stops_no_job() -> None:
    jobs = with_defaults()
    jobs.priority_class("low", None, 0.0)
    (one,) = jobs.take(1.0, WALL).pending
    assert (one.priority_class, one.problem) == ("", "")
    jobs.priority_class("low", 7, 1.0)
    (one,) = jobs.take(2.0, WALL).pending
    assert one.priority_class == "low"


def test_group_of_kueue_has_no_extra_pods_whatever_totals_its_pods_write() -> None:
    jobs = Jobs()
    for name, total in (("a", 1), ("b", 2)):
        group = GroupRef(GroupBy.KUEUE, "k", total)
        jobs.pod(pod(name, rv="6", submitted=Submitted(f"uid-{name}", "ml", name, None, {}, group=group)), 0.0)
    jobs.take(0.0, WALL)
    assert [one.members for one in jobs.jobs()] == [2]
