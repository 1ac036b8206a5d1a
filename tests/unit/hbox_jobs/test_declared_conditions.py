"""The condition of objects that declare gangs, such as Kubernetes' PodGroups."""

from typing import Any

from hbox_common.events import JobVerdict
from hbox_common.kube import Metadata
from hbox_common.model import JobId, NodeName, PodUid
from hbox_common.workloads import GroupBy, GroupRef, Kinds, Owner, Submitted, read_owner
from hbox_jobs.adapters.writes import _Conditioned, _conditions_with, _Status
from hbox_jobs.core.feedback import DeclaredWrite, Feedback
from hbox_jobs.core.jobs import Jobs

from .job_world import pod

WALL = 1_800_000_000.0
CONDITION = "PodGroupInitiallyScheduled"


def pod_group(least: int, version: int = 5) -> Owner:
    metadata = {"name": "g", "namespace": "ml", "uid": "uid-g", "resourceVersion": str(version)}
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}}
    return read_owner(
        Kinds.builtin(), {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    )


def member(name: str, **fields: Any) -> Any:
    group = GroupRef(GroupBy.KUBERNETES, "g")
    return pod(name, rv="6", submitted=Submitted(f"uid-{name}", "ml", name, None, {}, group=group), **fields)


def writes(jobs: Jobs, feedback: Feedback, now: float) -> list[tuple[str, bool, str]]:
    jobs.take(now, WALL)
    for record in jobs.records():
        feedback.settled(record, now)
    return [(one.type, one.scheduled, one.message) for one in feedback.declared(now + 10.0, 10)]


def test_condition_follows_the_code_of_the_reason_and_is_final_once_true() -> None:
    jobs = Jobs(publish_after_s=0.0)
    feedback = Feedback(jobs)
    for name in ("a", "b"):
        jobs.pod(member(name), 0.0)
    jobs.owner(pod_group(2), 0.0)
    assert writes(jobs, feedback, 0.0) == [], "nothing is known yet"
    for at, count in enumerate((3, 2)):
        jobs.verdict(JobVerdict(job=JobId("uid-g"), message=f"{count} nodes are full", code="NoNodeFits"), 1.0 + at)
        found = writes(jobs, feedback, 1.0 + at)
        assert [one[:2] for one in found] == ([(CONDITION, False)] if at == 0 else []), "the code is the same"
    for name in ("a", "b"):
        jobs.pod(member(name, node=NodeName("n")), 5.0)
    assert writes(jobs, feedback, 5.0) == [(CONDITION, True, "")]
    jobs.pod_gone(PodUid("uid-a"), 6.0)
    assert writes(jobs, feedback, 6.0) == []


def test_minimum_that_is_lowered_starts_the_gang() -> None:
    jobs = Jobs()
    jobs.pod(member("a"), 0.0)
    jobs.owner(pod_group(3), 0.0)
    assert [one.min_member for one in jobs.take(0.0, WALL).pending] == [3]
    jobs.owner(pod_group(1, version=7), 1.0)
    assert [one.min_member for one in jobs.take(1.0, WALL).pending] == [1]


def test_written_conditions_keep_those_of_others_and_the_true_one() -> None:
    write = DeclaredWrite("k", "uid-g", "ml", "g", "scheduling.k8s.io/v1beta1", "podgroups", CONDITION, False, "full")
    other = {"type": "DisruptionTarget", "status": "True"}
    found = _conditions_with(_Conditioned(Metadata("g", "uid-g"), _Status([other])), write, "now")
    assert found is not None
    assert [(one["type"], one["status"]) for one in found] == [("DisruptionTarget", "True"), (CONDITION, "False")]
    assert _conditions_with(_Conditioned(Metadata("g", "uid-g"), _Status(found)), write, "later") is None, "it is there"
    true = {"type": CONDITION, "status": "True"}
    assert _conditions_with(_Conditioned(Metadata("g", "uid-g"), _Status([true])), write, "now") is None, "it is final"
