"""Jobs for the output. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hbox_common.events import JobsPage, JobVerdict
from hbox_common.model import GroupPhase, GroupState, Job, JobId, JobWait, PodFact, PodPhase
from hbox_common.model.devices import VENDORS
from hbox_common.model.shards import ONE_SHARD
from hbox_common.model.traceids import trace_id_of

Item = dict[str, Any]


def job_items(
    jobs: Iterable[Job],
    pods: Iterable[PodFact],
    verdicts: Mapping[JobId, str],
    *,
    groups: Iterable[GroupState] = (),
    shards: Mapping[JobId, str] = {},
    waits: Mapping[JobId, JobWait] = {},
    found: Mapping[JobId, JobVerdict] = {},
    now: float,
) -> list[Item]:
    """One item a job, oldest first. `groups`: of them those are jobs too that are not enqueued yet and have no pods. `shards`: whose schedulers place them,
    where there are several. `waits`: their waiting by code. `found`: verdicts with
    outcome, code and owner. `now`: seconds since the epoch."""
    placed: dict[JobId, list[PodFact]] = defaultdict(list)
    for pod in pods:
        if pod.phase.holds:
            placed[pod.job].append(pod)
    items = []
    known = list(jobs)
    named = {job.id for job in known}
    outside = {one.id: one for one in groups if one.phase is GroupPhase.PENDING and one.id not in named}
    known += [job_of(group) for group in outside.values()]
    for job in sorted(known, key=lambda job: (job.created_at, job.name)):
        own = placed[job.id]
        waiting = sum(len(task.pods) for task in job.tasks) or int(job.id in outside)
        asked = sum(len(task.pods) * (task.cards.count if task.cards else 0) for task in job.tasks)
        items.append(
            {
                "name": f"{job.namespace}/{job.name}",
                "id": job.id,
                "queue": job.queue,
                "priority": job.priority,
                "state": _job_state(job, own, waiting, verdicts),
                "pods": {"bound": job.bound, "members": job.members, "min": job.min_member},
                "placed": {pod.name: pod.node for pod in own},
                "waiting": [pod.name for task in job.tasks for pod in task.pods],
                "cards": VENDORS.asked(outside[job.id].min_resources)
                if job.id in outside
                else sum(pod.cards for pod in own) + asked,
                "ageSeconds": round(max(0.0, now - job.created_at), 1),
                "reason": job.problem or (verdicts.get(job.id, "") if waiting else ""),
                **_finding(found.get(job.id) if waiting or job.problem else None),
                "waitSeconds": _seconds(waits.get(job.id), now),
                "traceId": trace_id_of(job.traceparent),
                **({"shard": shard} if (shard := shards.get(job.id)) is not None else {}),
            }
        )
    return items


def job_of(group: GroupState) -> Job:
    """A PodGroup without pods as a job."""
    return Job(
        id=group.id,
        namespace=group.namespace,
        name=group.name,
        queue=group.queue,
        priority=group.priority,
        min_member=group.min_member,
        members=0,
        bound=0,
        created_at=group.created_at,
        revision=group.revision,
        tasks=(),
        gang=True,
    )


def _finding(verdict: JobVerdict | None) -> Item:
    """What ends the wait, by which code, and who acts; all empty if that is not known."""
    if verdict is None:
        return {"verdict": "", "code": "", "owner": ""}
    return {"verdict": verdict.outcome, "code": verdict.code, "owner": verdict.owner}


def _seconds(wait: JobWait | None, now: float) -> dict[str, float]:
    return {} if wait is None else {code: round(seconds, 1) for code, seconds in wait.until(now).items()}


def _job_state(job: Job, own: Sequence[PodFact], waiting: int, verdicts: Mapping[JobId, str]) -> str:
    if job.problem:
        return "WAITING" if job.waits_for_others else "INVALID"
    if waiting and job.bound < job.min_member:
        return "WAITING" if job.id in verdicts else "PENDING"
    if waiting:
        return "GROWING"
    return "RUNNING" if own and all(pod.phase is PodPhase.RUNNING for pod in own) else "BOUND"


def shards_of(pages: Sequence[JobsPage]) -> dict[JobId, str]:
    """Whose schedulers place the jobs; of none where there is one shard."""
    if all(page.shard == ONE_SHARD for page in pages):
        return {}
    groups = {group.id: page.shard for page in pages for group in page.groups}
    return groups | {job.id: page.shard for page in pages for job in page.jobs}


def items_of(pages: Sequence[JobsPage], *, now: float) -> list[Item]:
    """Jobs of the pages that job-controller sent. `now`: seconds since the epoch."""
    return job_items(
        [job for page in pages for job in page.jobs],
        [pod for page in pages for pod in page.pods],
        {verdict.job: verdict.message for page in pages for verdict in page.verdicts},
        groups=[group for page in pages for group in page.groups],
        shards=shards_of(pages),
        waits={wait.job: wait for page in pages for wait in page.waits},
        found={verdict.job: verdict for page in pages for verdict in page.verdicts},
        now=now,
    )
