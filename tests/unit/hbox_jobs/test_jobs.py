import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.events import JobPhase, JobVerdict
from hbox_common.model import DEFAULT_QUEUE, CardRequest, ClaimId, Job, JobId, NodeName, PodFact, PodPhase, PodRef, PodUid
from hbox_jobs.core.batch import Batch
from hbox_jobs.core.jobs import MAX_ITEMS, Jobs
from hbox_jobs.core.phases import group_status
from hbox_jobs.core.views import GroupStatus

from .job_world import BROKEN, CARD, group, pod

WALL = 1_800_000_000.0
LATER = 1000.0  #: everything lazy is due


TURNS = itertools.count()


def settle(jobs: Jobs, now: float | None = None) -> Batch:
    """What is to be said at `now`; without it, at a moment when everything is due."""
    jobs.validate()
    batch = jobs.take(LATER + next(TURNS) if now is None else now, WALL)
    jobs.validate()
    return batch


def phases(jobs: Jobs) -> list[JobPhase]:
    """Taken out, in order."""
    out = [p.phase for p in jobs.phases if not p.rejected]
    while jobs.take_phases(9, now=WALL):
        pass
    return out


def test_a_bare_pod_is_a_gang_of_one_in_the_default_queue() -> None:
    jobs = Jobs()
    jobs.pod(pod("a", priority=7, shape=CARD), 0.0)
    (job,) = jobs.take(0.0, WALL).pending
    assert (job.id, job.namespace, job.name, job.queue, job.priority) == ("uid-a", "ml", "a", "default", 7)
    assert (job.gang, job.min_member, job.members, job.bound, job.created_at) == (False, 1, 1, 0, 100.0)
    assert job.tasks[0].pods == (PodRef(PodUid("uid-a"), "a", "1"),)
    assert job.tasks[0].cards == CardRequest(1)
    assert job.tasks[0].requests == {"nvidia.com/gpu": 1, "pods": 1}


def test_a_bare_pod_names_its_queue_itself() -> None:
    jobs = Jobs()
    jobs.pod(pod("a", queue="research"), 0.0)
    assert settle(jobs).pending[0].queue == "research"


def test_pods_of_a_group_are_one_job_with_equal_pods_in_one_task() -> None:
    jobs = Jobs()
    jobs.group(group(min_member=3, queue="research"), 0.0)
    for name, shape in [("w-10", CARD), ("w-2", CARD), ("ps-0", None)]:
        jobs.pod(pod(name, group="g", **({"shape": shape} if shape else {})), 0.0)
    (job,) = jobs.take(0.0, WALL).pending
    assert (job.id, job.name, job.queue, job.gang, job.min_member, job.members) == ("uid-g", "g", "research", True, 3, 3)
    assert [[p.name for p in task.pods] for task in job.tasks] == [["w-2", "w-10"], ["ps-0"]]
    assert job.created_at == 90.0


@pytest.mark.parametrize("min_member", [0, -1, 1])
def test_a_group_without_a_minimum_needs_one_pod(min_member: Any) -> None:
    jobs = Jobs()
    jobs.group(group(min_member=min_member), 0.0)
    jobs.pod(pod("a", group="g"), 0.0)
    assert settle(jobs).pending[0].min_member == 1


def test_a_group_that_does_not_exist_is_a_problem_until_it_appears() -> None:
    jobs = Jobs()
    jobs.pod(pod("a", group="g"), 0.0)
    (job,) = settle(jobs).pending
    assert "PodGroup ml/g not found" in job.problem
    jobs.group(group(min_member=1), 0.0)
    batch = settle(jobs)
    assert [j for j, _ in batch.withdrawn] == [job.id]
    assert (batch.pending[0].id, batch.pending[0].problem) == ("uid-g", "")


def test_a_pod_that_asks_for_the_impossible_is_published_with_the_problem() -> None:
    jobs = Jobs()
    jobs.pod(pod("a", shape=BROKEN), 0.0)
    (job,) = settle(jobs).pending
    assert job.problem.startswith("pod a: container main: nvidia.com/gpumem given without nvidia.com/gpu")
    assert [v.message for v in jobs.verdicts()] == [job.problem]
    assert phases(jobs) == [JobPhase.WAITING]


def test_system_classes_count_as_the_highest_class_of_users_outside_the_systems_namespaces() -> None:
    jobs = Jobs(system_namespaces=("kube-system",))
    for name, value in (("system-node-critical", 2_000_001_000), ("high", 300), ("low", -100)):
        jobs.priority_class(name, value, 0.0)
    jobs.group(group(min_member=1, priority_class="system-node-critical"), 0.0)
    jobs.pod(pod("member", group="g", shape=CARD), 0.0)
    jobs.pod(pod("bare", priority=2_000_001_000, shape=CARD, priority_class="system-node-critical"), 0.0)
    jobs.pod(pod("own", priority=1_000_000_000, shape=CARD), 0.0)
    jobs.pod(pod("proxy", namespace="kube-system", priority=2_000_001_000, shape=CARD), 0.0)
    assert {job.name: job.priority for job in settle(jobs).pending} == {
        "g": 300,
        "bare": 300,
        "own": 1_000_000_000,
        "proxy": 2_000_001_000,
    }
    jobs.pod(pod("bare", rv="2", priority=2_000_001_000, shape=CARD, node="n1", claim="c1"), 0.0)
    assert [fact.priority for fact in settle(jobs).facts] == [300]

    jobs.priority_class("urgent", 5000, 0.0)
    assert {job.name: job.priority for job in settle(jobs).pending} == {"g": 5000}


def test_the_groups_priority_class_counts_before_its_pods() -> None:
    jobs = Jobs()
    jobs.group(group(min_member=1, priority_class="high"), 0.0)
    jobs.pod(pod("a", group="g", priority=3), 0.0)
    assert "PriorityClass high not found" in settle(jobs).pending[0].problem
    jobs.priority_class("high", 1000, 0.0)
    (job,) = settle(jobs).pending
    assert (job.priority, job.problem) == (1000, "")
    jobs.priority_class("high", None, 0.0)
    assert settle(jobs).pending[0].priority == 3


def test_job_in_a_namespace_that_is_being_deleted_has_a_problem_until_that_ends() -> None:
    jobs = Jobs()
    for namespace in ("ml", "other"):
        jobs.namespace(namespace, {}, 0.0, terminating=False)
        jobs.pod(pod(f"of-{namespace}", namespace=namespace), 0.0)
    jobs.pod(pod("runs", node="n1", status="Running"), 0.0)
    assert [job.problem for job in settle(jobs).pending] == ["", ""]
    jobs.namespace("ml", {}, 0.0, terminating=True)
    (job,) = settle(jobs).pending
    problem = "NamespaceTerminating: namespace ml is being deleted, and the API server binds no pod in it"
    assert (job.name, job.problem) == ("of-ml", problem)
    assert [verdict.message for verdict in jobs.verdicts()] == [problem]
    jobs.pod(pod("late"), 0.0)
    assert settle(jobs).pending[0].problem == problem
    jobs.namespace_gone("ml", 0.0)
    assert {job.name: job.problem for job in settle(jobs).pending} == {"of-ml": "", "late": ""}


def test_deleted_class_does_not_affect_a_started_gang() -> None:
    jobs = Jobs()
    jobs.priority_class("tmp", 50, 0.0)
    jobs.group(group(min_member=1, priority_class="tmp"), 0.0)
    jobs.pod(pod("a", group="g", priority=50, priority_class="tmp", node=NodeName("n")), 0.0)
    jobs.pod(pod("b", group="g", priority=0), 0.0)
    assert [(job.priority, job.problem) for job in settle(jobs).pending] == [(50, "")]
    jobs.priority_class("tmp", None, 0.0)
    settle(jobs)
    (job,) = jobs.jobs()
    assert (job.priority, job.priority_class, job.problem) == (50, "tmp", "")


def test_gang_admitted_under_a_deleted_class_keeps_its_priority() -> None:
    jobs = Jobs()
    jobs.group(group(min_member=1, priority_class="tmp"), 0.0)
    jobs.pod(pod("a", group="g", priority=50, priority_class="tmp"), 0.0)
    (job,) = settle(jobs).pending
    assert (job.priority, job.priority_class, job.problem) == (50, "tmp", "")


def test_condition_of_a_gang_with_a_problem_names_its_kind() -> None:
    jobs = Jobs()
    jobs.group(group(min_member=1, priority_class="nix"), 0.0)
    jobs.pod(pod("a", group="g"), 0.0)
    (record,) = settle(jobs).settled
    (condition,) = group_status(record, record.tally(), now="").conditions
    assert (condition.type, condition.reason) == ("Unschedulable", "PriorityClassNotFound")
    jobs.group(group(min_member=1, problem="spec.minMember is 9999999999"), 0.0)
    (record,) = settle(jobs).settled
    assert group_status(record, record.tally(), now="").conditions[0].reason == "InvalidSpec"


def test_pods_held_back_by_gates_or_leaving_are_no_members() -> None:
    jobs = Jobs()
    jobs.pod(pod("gated", gated=True), 0.0)
    jobs.pod(pod("leaving", deleting=True), 0.0)
    assert settle(jobs).pending == ()
    jobs.pod(pod("gated", rv="2"), 0.0)
    assert [j.name for j in settle(jobs).pending] == ["gated"]


def test_a_job_is_said_again_only_when_it_changed_and_with_a_higher_revision() -> None:
    jobs = Jobs()
    jobs.pod(pod("a"), 0.0)
    (first,) = settle(jobs).pending
    jobs.pod(pod("a"), 0.0)
    assert settle(jobs).pending == ()
    jobs.pod(pod("a", rv="2"), 0.0)
    (second,) = settle(jobs).pending
    assert second.revision > first.revision >= int(WALL * 1e6)
    assert second.tasks[0].pods[0].resource_version == "2"


def test_a_moved_resource_version_is_said_at_once_and_lazily_where_a_gangs_others_will_move_too() -> None:
    jobs = Jobs(lazy_s=0.25)
    jobs.pod(pod("bare"), 0.0)
    jobs.group(group(min_member=1), 0.0)
    jobs.pod(pod("a", group="g"), 0.0)
    assert len(jobs.take(0.0, WALL).pending) == 2
    jobs.pod(pod("bare", rv="2"), 1.0)
    assert jobs.take(1.0, WALL).pending
    jobs.pod(pod("a", rv="2", group="g"), 1.0)
    assert jobs.next_due() == 1.25
    assert not jobs.take(1.0, WALL).pending
    assert jobs.take(1.25, WALL).pending


def test_what_is_due_a_little_later_comes_along() -> None:
    jobs = Jobs(lazy_s=0.25)
    for name in ("a", "b", "c"):
        jobs.pod(pod(name), 0.0)
    settle(jobs, 0.5)
    for name, at in (("a", 1.0), ("b", 1.1), ("c", 1.21)):
        jobs.pod(pod(name, rv="2", node="n1"), at)
    assert not jobs.take(1.2, WALL).withdrawn
    assert {job for job, _ in jobs.take(1.25, WALL).withdrawn} == {"uid-a", "uid-b"}
    assert {job for job, _ in jobs.take(1.46, WALL).withdrawn} == {"uid-c"}


def test_a_large_gang_that_grows_is_said_less_often_and_again_when_asked_for() -> None:
    jobs = Jobs(lazy_s=0.25)
    jobs.group(group(min_member=2000), 0.0)
    for i in range(1024):
        jobs.pod(pod(f"p{i}", group="g"), 0.0)
    assert jobs.take(0.25, WALL).pending
    said = []
    for step in range(1, 24):
        now = 0.25 + step / 10
        jobs.pod(pod(f"q{step}", group="g"), now)
        said += [now for _ in jobs.take(now, WALL).pending]
    assert len(said) == 2
    assert said[1] - said[0] >= 1.0
    jobs.pod(pod("r", group="g"), 2.6)
    jobs.repeat(JobId("uid-g"), 2.6)
    assert jobs.take(2.85, WALL).pending
    for i in range(1, 2000 - 1024 - 24):
        jobs.pod(pod(f"s{i}", group="g"), 2.9)
    assert not jobs.take(2.9, WALL).pending
    jobs.pod(pod("last", group="g"), 2.9)
    assert jobs.take(2.9, WALL).pending


def test_a_growing_gang_is_said_lazily_and_at_once_when_it_is_complete() -> None:
    jobs = Jobs()
    jobs.group(group(min_member=2), 0.0)
    settle(jobs)
    jobs.pod(pod("a", group="g"), 1.0)
    assert not jobs.take(1.0, WALL).pending
    jobs.pod(pod("b", group="g"), 1.1)
    assert jobs.take(1.1, WALL).pending[0].members == 2


def test_when_all_pods_have_nodes_the_job_is_withdrawn_and_facts_are_told() -> None:
    jobs = Jobs()
    jobs.pod(pod("a", shape=CARD, priority=5), 0.0)
    (job,) = settle(jobs).pending
    jobs.pod(pod("a", rv="2", shape=CARD, priority=5, node="n1", claim="c1"), 0.0)
    batch = settle(jobs)
    assert batch.withdrawn[0][0] == job.id
    assert batch.withdrawn[0][1] > job.revision
    assert batch.facts == (
        PodFact(
            uid=PodUid("uid-a"), namespace="ml", name="a", phase=PodPhase.BOUND, node=NodeName("n1"), job=JobId("uid-a"),
            queue=DEFAULT_QUEUE, priority=5,
            requests={"nvidia.com/gpu": 1, "pods": 1}, cards=1, claim=ClaimId("c1"), ours=True, resource_version="2", preemptable=False,
            created_at=100.0, asks=CARD.cards,
        ),
    )  # fmt: skip
    assert [j.members for j in jobs.jobs()] == [1]


def test_a_fact_has_the_policy_for_sick_hardware_of_the_group_else_of_the_pod() -> None:
    jobs = Jobs()
    own = {"hbox.io/on-sick-hardware": "ignore"}
    jobs.group(group("g", annotations={"hbox.io/on-sick-hardware": "shrink"}), 0.0)
    wrong = {"hbox.io/on-sick-hardware": "x" * 2000}
    for name, group_name, notes in (("a", "g", own), ("b", "", own), ("c", "", {}), ("d", "", wrong)):
        jobs.pod(pod(name, group=group_name, annotations=notes, node="n"), 0.0)
    assert {fact.name: fact.on_sick for fact in settle(jobs).facts} == {"a": "shrink", "b": "ignore", "c": "", "d": ""}


def test_facts_follow_a_pod_from_its_node_to_its_end_and_heartbeats_are_no_facts() -> None:
    jobs = Jobs()
    for n, (status, expected) in enumerate(
        [("Pending", PodPhase.BOUND), ("Running", PodPhase.RUNNING), ("Running", None), ("Succeeded", PodPhase.SUCCEEDED)]
    ):
        jobs.pod(pod("a", rv=str(n), node="n1", status=status), 0.0)
        assert [f.phase for f in settle(jobs, float(n)).facts] == ([expected] if expected else [])
    jobs.pod_gone(PodUid("uid-a"), 9.0)
    assert [f.phase for f in settle(jobs, 9.0).facts] == [PodPhase.GONE]
    assert list(jobs.facts()) == []


def test_deleted_pod_that_exits_with_0_has_not_succeeded() -> None:
    jobs = Jobs()
    jobs.pod(pod("a", rv="1", node="n1", status="Running"), 0.0)
    jobs.pod(pod("b", rv="2", node="n1", status="Succeeded"), 0.0)
    assert {f.name: f.phase for f in settle(jobs, 0.0).facts} == {"a": PodPhase.RUNNING, "b": PodPhase.SUCCEEDED}
    jobs.pod(pod("a", rv="3", node="n1", status="Running", deleting=True), 1.0)
    jobs.pod(pod("a", rv="4", node="n1", status="Succeeded", deleting=True), 1.0)
    jobs.pod(pod("b", rv="5", node="n1", status="Succeeded", deleting=True), 1.0)
    assert {f.name: f.phase for f in settle(jobs, 9.0).facts} == {"a": PodPhase.FAILED}


def test_the_first_fact_is_told_at_once_and_those_after_it_together() -> None:
    jobs = Jobs()
    jobs.pod(pod("a", node="n1"), 0.0)
    assert jobs.next_due() == float("-inf")
    assert len(settle(jobs, 1.0).facts) == 1
    jobs.pod(pod("b", node="n1"), 1.0)
    jobs.pod(pod("c", node="n1"), 1.01)
    assert settle(jobs, 1.01).facts == ()
    assert len(jobs.take(1.1, WALL).facts) == 2


def test_facts_that_only_confirm_wait_for_others_and_a_freed_node_is_told_sooner() -> None:
    jobs = Jobs()
    for name in "abc":
        jobs.pod(pod(name), 0.0)
    settle(jobs)
    jobs.pod(pod("a", node="n1", claim="c1"), 1.0)
    assert [f.name for f in jobs.take(1.0, WALL).facts] == ["a"], "the first at once"
    jobs.pod(pod("b", node="n1", claim="c2"), 1.05)
    assert not jobs.take(1.2, WALL).facts
    jobs.pod_gone(PodUid("uid-a"), 1.2)
    assert [f.name for f in jobs.take(1.21, WALL).facts] == ["b", "a"]
    jobs.pod(pod("c", node="n1", claim="c3"), 1.3)
    assert not jobs.take(1.4, WALL).facts
    assert [f.name for f in jobs.take(1.5, WALL).facts] == ["c"]
    jobs.pod(pod("c", node="n1", claim="c3", shape=CARD), 1.6)
    assert [f.name for f in jobs.take(1.61, WALL).facts] == ["c"], "resized in place: it takes another amount"
    jobs.pod(pod("stranger", node="n2", ours=False), 1.7)
    assert [f.name for f in jobs.take(1.72, WALL).facts] == ["stranger"], "room that others take"


def test_jobs_that_are_under_way_are_counted() -> None:
    jobs = Jobs()
    for name in "abc":
        jobs.pod(pod(name), 0.0)
    settle(jobs)
    assert jobs.pending == 3
    jobs.pod(pod("a", node="n1", claim="c1"), 1.0)
    jobs.pod_gone(PodUid("uid-b"), 1.0)
    settle(jobs, 2.0)
    assert jobs.pending == 1
    jobs.validate()


def test_facts_that_wait_for_the_bus_are_told_as_the_newest_only() -> None:
    jobs = Jobs()
    jobs.pod(pod("a", node="n1"), 0.0)
    jobs.pod(pod("a", node="n1", status="Running"), 0.0)
    jobs.pod_gone(PodUid("uid-a"), 0.0)
    assert [f.phase for f in settle(jobs).facts] == [PodPhase.GONE]


def test_pods_of_other_schedulers_are_facts_and_no_jobs() -> None:
    jobs = Jobs()
    jobs.pod(pod("foreign", ours=False, shape=CARD), 0.0)
    jobs.pod(pod("bound", ours=False, shape=CARD, node="n1", queue="q"), 0.0)
    batch = settle(jobs)
    assert batch.pending == ()
    assert [(f.name, f.ours, f.queue, f.cards) for f in batch.facts] == [("bound", False, "", 1)]
    jobs.pod_gone(PodUid("uid-foreign"), 0.0)
    jobs.pod_gone(PodUid("uid-bound"), 0.0)
    assert [(f.name, f.phase) for f in settle(jobs).facts] == [("bound", PodPhase.GONE)]


def test_a_pod_of_ours_that_goes_before_its_node_was_seen_is_evidence_all_the_same() -> None:
    jobs = Jobs()
    jobs.pod(pod("a"), 0.0)
    settle(jobs)
    jobs.pod_gone(PodUid("uid-a"), 0.0)
    batch = settle(jobs)
    assert [(f.uid, f.phase, f.node) for f in batch.facts] == [("uid-a", PodPhase.GONE, "")]
    assert [j for j, _ in batch.withdrawn] == ["uid-a"]
    assert list(jobs.jobs()) == []


def test_succeeded_members_count_for_the_gang_and_failed_ones_do_not() -> None:
    jobs = Jobs()
    jobs.group(group(min_member=3), 0.0)
    jobs.pod(pod("done", group="g", node="n1", status="Succeeded"), 0.0)
    jobs.pod(pod("broken", group="g", node="n1", status="Failed"), 0.0)
    jobs.pod(pod("running", group="g", node="n1", status="Running"), 0.0)
    jobs.pod(pod("again", group="g"), 0.0)
    (job,) = settle(jobs).pending
    assert (job.min_member, job.members, job.bound) == (2, 2, 1)
    assert [p.name for t in job.tasks for p in t.pods] == ["again"]


def test_phases_are_told_in_order_and_once() -> None:
    jobs = Jobs()
    jobs.pod(pod("a"), 0.0)
    settle(jobs)
    jobs.verdict(JobVerdict(job="uid-a", message="0/3 nodes"), 0.0)
    settle(jobs)
    jobs.pod(pod("a", node="n1"), 0.0)
    settle(jobs)
    jobs.pod(pod("a", node="n1", status="Running"), 0.0)
    settle(jobs)
    jobs.pod(pod("a", node="n1", status="Succeeded"), 0.0)
    settle(jobs)
    jobs.pod_gone(PodUid("uid-a"), 0.0)
    settle(jobs)
    assert phases(jobs) == [
        JobPhase.PENDING, JobPhase.WAITING, JobPhase.BOUND, JobPhase.RUNNING, JobPhase.SUCCEEDED, JobPhase.DELETED,
    ]  # fmt: skip


def test_an_eviction_is_a_phase_between() -> None:
    jobs = Jobs()
    jobs.pod(pod("a", node="n1", status="Running"), 0.0)
    settle(jobs)
    jobs.evicted(JobId("uid-a"), "reclaimed", WALL)
    jobs.pod(pod("a", node="n1", status="Running", deleting=True), 0.0)
    jobs.pod_gone(PodUid("uid-a"), 0.0)
    settle(jobs)
    assert phases(jobs) == [JobPhase.RUNNING, JobPhase.EVICTED, JobPhase.DELETED]


def test_a_verdict_about_an_unknown_job_has_it_withdrawn() -> None:
    jobs = Jobs()
    jobs.verdict(JobVerdict(job="deleted-long-ago", message="no"), 0.0)
    assert jobs.next_due() == float("-inf")
    assert [j for j, _ in settle(jobs).withdrawn] == ["deleted-long-ago"]


def test_a_job_that_is_there_and_waits_for_nothing_is_withdrawn_from_whoever_says_why_it_waits_or_planned_it() -> None:
    jobs = Jobs()
    jobs.group(group(min_member=1), 0.0)
    assert settle(jobs).withdrawn == (), "this process told nobody of it"
    jobs.verdict(JobVerdict(job="uid-g", message="no"), 0.0)
    [(named, revision)] = settle(jobs).withdrawn
    assert named == "uid-g"
    jobs.repeat(JobId("uid-g"), 0.0)
    assert [j for j, _ in settle(jobs).withdrawn] == ["uid-g"]
    jobs.pod(pod("a", group="g"), 1.0)
    (back,) = settle(jobs).pending
    assert back.revision > revision


def test_a_job_that_someone_saw_too_old_is_said_again() -> None:
    jobs = Jobs()
    jobs.pod(pod("a"), 0.0)
    (first,) = settle(jobs).pending
    jobs.repeat(JobId("uid-a"), 0.0)
    (second,) = settle(jobs).pending
    assert second == replace(first, revision=second.revision)
    assert second.revision > first.revision


def test_who_ended_lately_is_told_of_again_when_the_streams_were_lost() -> None:
    """The ledger holds a pod's cards until it hears of its end, which may have been in the stream that is gone."""
    jobs = Jobs()
    jobs.pod(pod("runs", node="n1"), 0.0)
    jobs.pod(pod("over", node="n1"), 0.0)
    jobs.pod_gone(PodUid("uid-over"), 10.0)
    assert {fact.uid: fact.phase for fact in jobs.take(20.0, 20.0).facts}[PodUid("uid-over")] is PodPhase.GONE
    assert not jobs.take(30.0, 30.0).facts
    jobs.repeat_all(40.0)
    assert {fact.uid for fact in jobs.take(40.0, 40.0).facts} == {"uid-runs", "uid-over"}
    jobs.repeat_all(80.0)
    assert {fact.uid for fact in jobs.take(80.0, 80.0).facts} == {"uid-runs"}, "a minute later nobody waits for it"


def test_after_the_streams_were_lost_everything_is_said_again() -> None:
    jobs = Jobs()
    jobs.pod(pod("a"), 0.0)
    jobs.pod(pod("b", node="n1"), 0.0)
    settle(jobs)
    jobs.repeat_all(0.0)
    batch = settle(jobs)
    assert [j.name for j in batch.pending] == ["a"]
    assert [f.name for f in batch.facts] == ["b"]


def test_a_change_of_the_groups_status_alone_says_nothing() -> None:
    jobs = Jobs()
    jobs.group(group(min_member=1), 0.0)
    jobs.pod(pod("a", group="g"), 0.0)
    settle(jobs)
    jobs.group(group(min_member=1, status=GroupStatus(running=3)), 0.0)
    assert settle(jobs).pending == ()


def test_a_group_made_anew_under_its_name_is_another_job() -> None:
    jobs = Jobs()
    jobs.group(group(uid="old", min_member=1), 0.0)
    jobs.pod(pod("a", group="g"), 0.0)
    settle(jobs)
    jobs.group_gone("ml/g", "old", 0.0)
    jobs.group(group(uid="new", min_member=1), 0.0)
    batch = settle(jobs)
    assert [j for j, _ in batch.withdrawn] == ["old"]
    assert [(p.job, p.phase) for p in jobs.phases] == [
        ("old", JobPhase.PENDING),
        ("old", JobPhase.DELETED),
        ("new", JobPhase.PENDING),
    ]
    assert [j.id for j in batch.pending] == ["new"]
    jobs.group_gone("ml/g", "old", 0.0)
    assert settle(jobs).pending == ()


def test_a_burst_is_taken_in_messages_of_limited_size() -> None:
    jobs = Jobs()
    for n in range(MAX_ITEMS + 1):
        jobs.pod(pod(f"p{n}"), 0.0)
    assert len(settle(jobs).pending) == MAX_ITEMS
    assert len(settle(jobs).pending) == 1
    assert jobs.next_due() is None


_steps = st.lists(
    st.tuples(
        st.sampled_from(["pod", "gone", "group", "group gone", "take", "verdict", "all"]),
        st.integers(0, 3),
        st.booleans(),
        st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
        st.sampled_from(["", "n1"]),
        st.booleans(),
    ),
    max_size=40,
)


@given(_steps)
def test_a_reader_who_heard_everything_knows_what_can_be_placed(steps: Any) -> None:
    jobs = Jobs()
    heard: dict[str, Job] = {}
    revisions: dict[str, int] = {}

    def take(now: float) -> None:
        batch = settle(jobs, now)
        for job in batch.pending:
            if job.revision > revisions.get(job.id, 0):
                heard[job.id], revisions[job.id] = job, job.revision
        for job_id, revision in batch.withdrawn:
            if revision > revisions.get(job_id, 0):
                heard.pop(job_id, None)
                revisions[job_id] = revision

    for n, (what, which, grouped, status, node, flag) in enumerate(steps):
        now = float(n)
        match what:
            case "pod":
                jobs.pod(
                    pod(
                        f"p{which}",
                        rv=str(n),
                        group=f"g{which % 2}" if grouped else "",
                        status=status,
                        node=node,
                        deleting=flag,
                    ),
                    now,
                )
            case "gone":
                jobs.pod_gone(PodUid(f"uid-p{which}"), now)
            case "group":
                jobs.group(group(f"g{which % 2}", min_member=which, uid=f"u{which}"), now)
            case "group gone":
                jobs.group_gone(f"ml/g{which % 2}", f"u{which}", now)
            case "verdict":
                jobs.verdict(JobVerdict(job=f"uid-p{which}", message="no"), now)
            case "all":
                jobs.repeat_all(now)
            case _:
                take(now)
    take(1e6)
    assert jobs.next_due() is None
    assert {p.uid for job in heard.values() for t in job.tasks for p in t.pods} == {
        f"uid-p{n}" for n in range(4) if (view := jobs.view(PodUid(f"uid-p{n}"))) is not None and view.placeable
    }
    assert {j.id: j for j in jobs.jobs() if j.tasks} == heard


def test_phases_said_side_by_side_are_of_different_jobs() -> None:
    jobs = Jobs()
    jobs.pod(pod("a"), 0.0)
    jobs.pod(pod("b"), 0.0)
    settle(jobs)
    jobs.pod_gone(PodUid("uid-a"), 0.0)
    settle(jobs)
    assert [p.name for p in jobs.take_phases(9, now=WALL)] == ["b", "a"]
    jobs.pod(pod("a", node="n1"), 0.0)
    settle(jobs)
    jobs.pod_gone(PodUid("uid-a"), 0.0)
    settle(jobs)
    assert [[p.phase for p in jobs.take_phases(9, now=WALL)] for _ in range(2)] == [[JobPhase.BOUND], [JobPhase.DELETED]]


def test_that_a_job_was_pending_is_left_out_where_it_is_over() -> None:
    jobs = Jobs()
    jobs.pod(pod("a"), 0.0)
    jobs.pod(pod("b"), 0.0)
    settle(jobs)
    jobs.pod(pod("a", rv="2", node="n1"), 0.0)
    settle(jobs)
    assert [(p.name, p.phase) for p in jobs.take_phases(9, now=WALL)] == [("b", JobPhase.PENDING), ("a", JobPhase.BOUND)]


def test_what_goes_after_the_streams_were_lost_is_withdrawn_all_the_same() -> None:
    jobs = Jobs()
    jobs.pod(pod("a"), 0.0)
    settle(jobs)
    jobs.repeat_all(1.0)
    jobs.pod_gone(PodUid("uid-a"), 1.0)
    assert [job for job, _ in settle(jobs, 2.0).withdrawn] == ["uid-a"]
