"""Jobs on the bus say which of their pods is which."""

from hbox_common.model import Job
from hbox_common.model.ranks import COMPLETION_INDEX, rank_key
from hbox_jobs.core.jobs import Jobs
from hbox_jobs.core.views import PodView

from .job_world import group, pod
from .test_jobs import WALL


def member(name: str, labels: dict[str, str] | None = None, **fields: object) -> PodView:
    return pod(name, group="g", labels=labels or {}, rank_key=rank_key(name, "", labels or {}, {}), **fields)


def ranks(job: Job) -> dict[str, int]:
    return {pod.name: pod.rank for task in job.tasks for pod in task.pods}


def test_pods_of_a_gang_have_ranks_and_bare_ones_none() -> None:
    jobs = Jobs()
    jobs.group(group(min_member=3), 0.0)
    for name in ("w-2", "w-0", "w-1"):
        jobs.pod(member(name), 0.0)
    jobs.pod(pod("bare-3"), 0.0)
    gang, bare = sorted(jobs.take(0.0, WALL).pending, key=lambda job: not job.gang)
    assert ranks(gang) == {"w-0": 0, "w-1": 1, "w-2": 2}
    assert ranks(bare) == {"bare-3": -1}


def test_who_takes_the_place_of_a_failed_pod_has_its_rank() -> None:
    jobs = Jobs()
    jobs.group(group(min_member=3), 0.0)
    for i in range(3):
        status, node = ("Failed", "n") if i == 1 else ("Running", "n")
        jobs.pod(member(f"w-{i}", {COMPLETION_INDEX: str(i)}, status=status, node=node), 0.0)
    jobs.pod(member("w-again", {COMPLETION_INDEX: "1"}), 0.0)
    (job,) = jobs.take(0.0, WALL).pending
    assert ranks(job) == {"w-again": 1}
