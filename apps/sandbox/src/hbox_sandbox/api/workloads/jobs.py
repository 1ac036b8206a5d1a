"""k8s.io/kubernetes pkg/controller/job: pods until as many as `completions` succeeded, or more than `backoffLimit` failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ..errors import Json
from ..resources import JOBS, PODS
from ..store import Version
from .world import BATCH, RETRY_S, World, condition, is_available, is_ended, or_none

INDEX = "batch.kubernetes.io/job-completion-index"


def reconcile_job(world: World, version: Version) -> bool:
    job = version.load()
    status = dict(job.get("status") or {})
    if version.deleting:
        return True
    if _ended(status):
        _expire(world, version, job)
        return True
    pods = world.controlled(version, PODS)
    phases = world.ended.setdefault(version.uid, {})
    phases.update({pod.uid: pod.fields["status.phase"] for pod in pods if is_ended(pod)})
    counts = Counter(phases.values())
    active = [pod for pod in pods if not is_ended(pod) and not pod.deleting]
    status["startTime"] = status.get("startTime") or (None if job["spec"].get("suspend") else world.cluster.now())
    end = _outcome(world, job, status, counts)
    if end is None:
        more = _scale(world, version, pods=pods, active=active, counts=counts)
        _suspend(world, job, status)
    else:
        for pod in active:
            world.delete_pod(job, pod)
        more = False
    active = [pod for pod in world.controlled(version, PODS) if not is_ended(pod) and not pod.deleting]
    status |= {
        "active": or_none(len(active)),
        "ready": sum(map(is_available, active)),
        "terminating": sum(pod.deleting for pod in world.controlled(version, PODS)),
        "succeeded": or_none(counts["Succeeded"]),
        "failed": or_none(counts["Failed"]),
        "uncountedTerminatedPods": {},
    }
    if end is not None:
        _finish(world, job, status, end)
    world.set_status(JOBS, version.key, version.uid, status)
    return not more


def _ended(status: Json) -> bool:
    conditions = status.get("conditions") or ()
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


def _age_s(world: World, since: Any) -> float:
    return world.cluster.clock() - datetime.fromisoformat(since).timestamp()


def _expire(world: World, version: Version, job: Json) -> None:
    ttl_s = job["spec"].get("ttlSecondsAfterFinished")
    if ttl_s is None:
        return
    ended = next(each["lastTransitionTime"] for each in job["status"]["conditions"] if each["type"] in ("Complete", "Failed"))
    left_s = ttl_s - _age_s(world, ended)
    if left_s <= 0:
        world.remove(JOBS, version)
    else:
        world.later(left_s, JOBS, version.key)


def _outcome(world: World, job: Json, status: Json, counts: Counter[str]) -> tuple[str, str, str] | None:
    """Kind, reason and text of the condition that ends the Job; None while it runs."""
    spec = job["spec"]
    completions = spec.get("completions")
    if completions is not None and counts["Succeeded"] >= completions:
        return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
    if completions is None and counts["Succeeded"]:
        return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
    if counts["Failed"] > spec.get("backoffLimit", 6):
        return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    deadline_s, started = spec.get("activeDeadlineSeconds"), status.get("startTime")
    if deadline_s is not None and started and not spec.get("suspend"):
        left_s = deadline_s - _age_s(world, started)
        if left_s <= 0:
            return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
        world.later(left_s, JOBS, f"{job['metadata']['namespace']}/{job['metadata']['name']}")
    return None


def _scale(world: World, version: Version, *, pods: Sequence[Version], active: Sequence[Version], counts: Counter[str]) -> bool:
    """Create or delete pods; True if more is to be done."""
    job = version.load()
    spec = job["spec"]
    wanted = 0 if spec.get("suspend") else spec.get("parallelism", 1)
    if spec.get("completions") is not None:
        wanted = min(wanted, spec["completions"] - counts["Succeeded"])
    elif counts["Succeeded"]:
        wanted = len(active)
    for pod in active[max(0, wanted) :]:
        world.delete_pod(job, pod)
    missing = wanted - len(active)
    taken = {_index(pod) for pod in pods if pod.fields["status.phase"] != "Failed" and not pod.deleting}
    free = iter(index for index in range(spec.get("completions") or 0) if index not in taken)
    for _ in range(min(missing, BATCH)):
        if not _create(world, job, next(free, 0) if spec.get("completionMode") == "Indexed" else None):
            world.later(RETRY_S, JOBS, version.key)
            return False
    return missing > BATCH


def _index(pod: Version) -> int:
    text = (pod.load()["metadata"].get("annotations") or {}).get(INDEX, "-1")
    return int(text) if text.lstrip("-").isdigit() else -1


def _create(world: World, job: Json, index: int | None) -> bool:
    name = job["metadata"]["name"]
    if index is None:
        return world.create_pod(job, job["spec"]["template"], {"generateName": f"{name}-"})
    mark = {INDEX: str(index)}
    meta = {"generateName": f"{name}-{index}-", "labels": mark, "annotations": mark}
    return world.create_pod(job, job["spec"]["template"], meta, {"hostname": f"{name}-{index}"})


def _suspend(world: World, job: Json, status: Json) -> None:
    old = status.get("conditions") or []
    suspended = any(each["type"] == "Suspended" and each["status"] == "True" for each in old)
    wanted = bool(job["spec"].get("suspend"))
    if wanted == suspended:
        return
    reason, text = ("JobSuspended", "Job suspended") if wanted else ("JobResumed", "Job resumed")
    now = world.cluster.now()
    new = condition("Suspended", "True" if wanted else "False", reason, text) | {
        "lastProbeTime": now,
        "lastTransitionTime": now,
    }
    status["conditions"] = [*(each for each in old if each["type"] != "Suspended"), new]
    status["startTime"] = None if wanted else now
    world.record(job, "Normal", "Suspended" if wanted else "Resumed", text)


def _finish(world: World, job: Json, status: Json, end: tuple[str, str, str]) -> None:
    kind, reason, text = end
    now, old = world.cluster.now(), status.get("conditions") or []
    first = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
    ends = [condition(each, "True", reason, text) | {"lastProbeTime": now, "lastTransitionTime": now} for each in (first, kind)]
    status["conditions"] = [*old, *ends]
    if kind == "Complete":
        status["completionTime"] = now
        world.record(job, "Normal", "Completed", "Job completed")
    else:
        world.record(job, "Warning", reason, text)
