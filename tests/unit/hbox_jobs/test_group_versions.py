"""job-controller announces a gang with a PodGroup as new as its pods, and moves members to a recreated PodGroup."""

from hbox_common.events import JobVerdict
from hbox_common.model import JobId, NodeName, PodPhase
from hbox_jobs.core.feedback import Feedback
from hbox_jobs.core.jobs import Jobs
from hbox_jobs.core.membership import Membership

from .job_world import group, pod

WALL = 1_800_000_000.0
NODE = NodeName("n")


def settled(jobs: Jobs, now: float) -> list[tuple[JobId, int, int]]:
    """Id, members and minimum of the announced jobs."""
    batch = jobs.take(now, WALL)
    jobs.validate()
    return [(job.id, job.members, job.min_member) for job in batch.pending]


def growing() -> Jobs:
    """A gang with a minimum of two runs two pods. PodGroups are known up to version 10, and a third pod was created at version 20."""
    jobs = Jobs(proves_groups=True)
    jobs.group(group(min_member=2, version=10), 0.0)
    jobs.groups_delivered("10")
    for name in ("a", "b"):
        jobs.pod(pod(name, rv="11", group="g", node=NODE, status="Running"), 0.0)
    jobs.take(0.0, WALL)
    jobs.pod(pod("c", rv="20", group="g"), 1.0)
    return jobs


def test_gang_with_a_newer_pod_is_announced_after_its_podgroup_was_read() -> None:
    jobs = growing()
    assert settled(jobs, 1.0) == []
    assert [job.members for job in jobs.jobs()] == [2], "the gang is unchanged"
    assert jobs.next_unread() == ("ml/g", 20)
    assert settled(jobs, 2.0) == []
    assert jobs.next_unread() is None, "at most one read in flight"
    jobs.group_read("ml/g", 20, group(min_member=4, version=15), 2.0)
    assert settled(jobs, 2.0) == [("uid-g", 3, 4)]


def test_version_that_the_watch_delivers_after_a_newer_one_was_read_changes_nothing() -> None:
    jobs = growing()
    jobs.take(1.0, WALL)
    jobs.next_unread()
    jobs.group_read("ml/g", 20, group(min_member=4, version=15), 2.0)
    jobs.group(group(min_member=2, version=12), 2.0)
    assert settled(jobs, 2.0) == [("uid-g", 3, 4)]
    jobs.groups_relisted()
    jobs.group(group(min_member=2, version=12), 3.0)
    assert settled(jobs, 3.0) == [("uid-g", 3, 2)], "the store was restored from a backup"


def test_pods_that_arrive_during_a_read_are_announced_after_the_next_one() -> None:
    jobs = growing()
    jobs.take(1.0, WALL)
    jobs.next_unread()
    jobs.pod(pod("d", rv="21", group="g"), 1.0)
    jobs.group_read("ml/g", 20, group(min_member=2, version=10), 2.0)
    assert settled(jobs, 2.0) == []
    assert jobs.next_unread() == ("ml/g", 21)


def test_read_that_ends_after_the_watch_delivered_a_newer_podgroup_is_ignored() -> None:
    jobs = growing()
    jobs.take(1.0, WALL)
    jobs.next_unread()
    jobs.group(group(min_member=4, version=25), 2.0)
    jobs.group_read("ml/g", 20, group(min_member=2, version=15), 2.0)
    assert settled(jobs, 2.0) == [("uid-g", 3, 4)]


def test_read_that_found_no_podgroup_does_not_end_one_created_during_it() -> None:
    jobs = growing()
    jobs.take(1.0, WALL)
    jobs.next_unread()
    jobs.group(group(min_member=2, version=25, uid="uid-new"), 2.0)
    jobs.group_read("ml/g", 20, None, 2.0)
    assert settled(jobs, 2.0) == [("uid-new", 3, 2)]


def test_podgroup_is_not_read_if_its_watch_is_past_its_pods() -> None:
    jobs = growing()
    jobs.groups_delivered("21")
    assert settled(jobs, 1.0) == [("uid-g", 3, 2)]
    assert jobs.next_unread() is None


def test_podgroup_of_a_gang_that_is_too_small_is_not_read() -> None:
    jobs = Jobs(proves_groups=True)
    jobs.group(group(min_member=2, version=10), 0.0)
    jobs.pod(pod("a", rv="20", group="g"), 0.0)
    assert settled(jobs, 1000.0) == [("uid-g", 1, 2)]
    assert jobs.next_unread() is None


def test_podgroup_is_read_if_resource_versions_are_no_numbers() -> None:
    jobs = Jobs(proves_groups=True)
    jobs.group(group(min_member=1), 0.0)
    jobs.groups_delivered("x")
    jobs.pod(pod("a", rv="y", group="g"), 0.0)
    assert settled(jobs, 0.0) == []
    assert jobs.next_unread() == ("ml/g", 1)


def test_gang_whose_podgroup_is_not_found_waits_for_it() -> None:
    jobs = growing()
    jobs.take(1.0, WALL)
    jobs.next_unread()
    jobs.group_read("ml/g", 20, None, 2.0)
    jobs.take(2.0, WALL)
    assert ["not found" in job.problem for job in jobs.jobs()] == [True]


def test_failed_read_is_repeated() -> None:
    jobs = growing()
    jobs.take(1.0, WALL)
    jobs.next_unread()
    jobs.read_failed("ml/g", 2.0)
    assert settled(jobs, 2.0) == []
    assert jobs.next_unread() == ("ml/g", 20)


def test_gang_whose_podgroup_cannot_be_read_waits_with_a_reason_and_without_places() -> None:
    jobs = growing()
    jobs.take(1.0, WALL)
    jobs.next_unread()
    jobs.read_failing("ml/g", "PodGroup ml/g could not be read, so its pods wait: 403", 2.0)
    (job,) = jobs.take(2.0, WALL).pending
    assert job.problem == "PodGroupNotRead: PodGroup ml/g could not be read, so its pods wait: 403"
    assert jobs.next_unread() is None, "at most one read in flight"
    jobs.read_failed("ml/g", 3.0)
    jobs.take(3.0, WALL)
    assert jobs.next_unread() == ("ml/g", 20)
    jobs.group_read("ml/g", 20, group(min_member=3, version=15), 4.0)
    assert [job.problem for job in jobs.take(4.0, WALL).pending] == [""]


def test_reason_of_a_failed_read_ends_when_the_watch_catches_up() -> None:
    jobs = growing()
    jobs.take(1.0, WALL)
    jobs.next_unread()
    jobs.read_failing("ml/g", "500", 2.0)
    jobs.groups_delivered("21")
    jobs.read_failed("ml/g", 3.0)
    assert [job.problem for job in jobs.take(3.0, WALL).pending] == [""]


def test_members_are_published_with_the_recreated_podgroup() -> None:
    """Without delay, since the ledger counts members by their job."""
    jobs = Jobs()
    jobs.group(group(), 0.0)
    jobs.pod(pod("a", group="g", node=NODE), 0.0)
    jobs.take(0.0, WALL)
    jobs.group_gone("ml/g", "uid-g", 1.0)
    assert [(fact.name, fact.job) for fact in (*jobs.take(1.0, WALL).facts, *jobs.take(2.0, WALL).facts)] == [
        ("a", "podgroup:ml/g")
    ]
    jobs.group(group(uid="again"), 3.0)
    found = (*jobs.take(3.0, WALL).facts, *jobs.take(4.0, WALL).facts)
    assert [(fact.name, fact.job, fact.phase) for fact in found] == [("a", "again", PodPhase.BOUND)]


def test_fact_of_a_pod_that_was_listed_before_its_podgroup_names_the_podgroup() -> None:
    jobs = Jobs()
    jobs.pod(pod("a", group="g", node=NODE), 0.0)
    jobs.group(group(), 0.0)
    assert [fact.job for fact in jobs.take(0.0, WALL).facts] == ["uid-g"]


def test_pod_with_a_gang_label_of_another_scheduler_gets_an_event() -> None:
    jobs = Jobs()
    feedback = Feedback(jobs)
    named = pod("a", foreign_gang_label="scheduling.x-k8s.io/pod-group")
    jobs.pod(named, 0.0)
    feedback.pod(None, named, 0.0)
    feedback.pod(named, named, 0.0)
    assert feedback.events(2.9, 9) == [], "the group that the label names may still be read"
    ((write),) = feedback.events(3.0, 9)
    assert (write.reason, write.warning, write.name) == ("GangNotRead", True, "a")
    assert "scheduling.x-k8s.io/pod-group" in write.message


def test_pod_of_a_gang_that_its_label_names_gets_no_event() -> None:
    jobs = Jobs()
    feedback = Feedback(jobs)
    named = pod("a", foreign_gang_label="scheduling.x-k8s.io/pod-group", member=Membership("ml/g", "podgroup/g"))
    jobs.pod(named, 0.0)
    feedback.pod(None, named, 0.0)
    assert feedback.events(3.0, 9) == []


def test_reason_of_a_pod_with_a_gang_label_of_another_scheduler_names_the_label() -> None:
    jobs = Jobs()
    jobs.pod(pod("a", foreign_gang_label="scheduling.x-k8s.io/pod-group"), 0.0)
    (job,) = jobs.take(0.0, WALL).pending
    assert list(jobs.verdicts()) == [], "without a reason to wait it gets none"
    jobs.verdict(JobVerdict(job=job.id, message="no node has room", nodes=2, reasons={"CardsInUse": 2}), 1.0)
    (verdict,) = jobs.verdicts()
    assert (verdict.nodes, verdict.reasons) == (2, {"CardsInUse": 2})
    assert verdict.message.startswith("no node has room; GangNotRead: label scheduling.x-k8s.io/pod-group names a gang")
