"""Comparison of a record with the same work under another policy.

A job waits from its first pod's arrival to its first place: a gang's first places are its whole minimum. A job that still waits when the record ends counts
with its waiting time until then, so that a policy does not improve by never placing hard jobs. Jobs whose pods held places before the record began are left
out. A decision counts as the same if the pod's first node is the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hbox_common.model import JobId, NodeName, QueueName

from .whatif import WhatIf
from .workload import End, JobFacts, Workload


@dataclass(frozen=True, slots=True)
class Waits:
    """Of one queue, in seconds. `waiting`: how many of its jobs have no place as the record ends."""

    mean_s: float
    p90_s: float
    longest_s: float
    waiting: int


@dataclass(frozen=True, slots=True)
class QueueWaits:
    jobs: int
    recorded: Waits
    other: Waits


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The earliest decision that is not the same. Nodes: "" = no place; times: seconds since the record began."""

    job: str
    pod: str
    recorded_node: NodeName
    recorded_at: float | None
    other_node: NodeName
    other_at: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """`same_node` to `neither` count pods. Allocations are means over time, parts of what nodes that take work had."""

    seconds: float
    same_node: int
    elsewhere: int
    by_record_alone: int
    by_other_alone: int
    neither: int
    jobs_by_record_alone: Sequence[str]
    jobs_by_other_alone: Sequence[str]
    queues: Mapping[QueueName, QueueWaits]
    cards: tuple[float, float] | None  #: recorded, other; None: the cluster has none
    cores: tuple[float, float] | None
    evictions: tuple[int, int]
    first: FirstDifference | None
    cut_short: int  #: pods whose work is of unknown length, since they were evicted or lost on record
    outside: int  #: pods that held places before the record, or of other schedulers
    lost: int  #: pods that went with their nodes under the other policy
    unanswered: int


def compared(workload: Workload, other: WhatIf) -> Comparison:
    """Both have come to the record's end."""
    begun = workload.begun or 0.0
    works = [life for life in workload.lives.values() if not life.outside and life.replaces is None]
    counts = {"same_node": 0, "elsewhere": 0, "record": 0, "other": 0, "neither": 0}
    first: tuple[float, FirstDifference] | None = None
    for life in works:
        there = other.places.get(life.uid)
        if life.first is None and there is None:
            counts["neither"] += 1
            continue
        if life.first is not None and there is not None and life.node == there[1]:
            counts["same_node"] += 1
            continue
        counts["record" if there is None else "other" if life.first is None else "elsewhere"] += 1
        at = min(time for time in (life.first, there[0] if there is not None else None) if time is not None)
        if first is None or at < first[0]:
            found = FirstDifference(
                job=workload.jobs[life.job].name,
                pod=life.name,
                recorded_node=life.node,
                recorded_at=None if life.first is None else life.first - begun,
                other_node=NodeName("") if there is None else there[1],
                other_at=None if there is None else there[0] - begun,
            )
            first = at, found
    recorded_starts = _starts(workload)
    jobs = [job for job in workload.jobs.values() if not job.began]
    return Comparison(
        seconds=workload.until - begun,
        same_node=counts["same_node"],
        elsewhere=counts["elsewhere"],
        by_record_alone=counts["record"],
        by_other_alone=counts["other"],
        neither=counts["neither"],
        jobs_by_record_alone=sorted(job.name for job in jobs if job.id in recorded_starts and job.id not in other.starts),
        jobs_by_other_alone=sorted(job.name for job in jobs if job.id not in recorded_starts and job.id in other.starts),
        queues=_queues(jobs, recorded_starts, other.starts, workload),
        cards=_parts(workload.held.card_s, other.held.card_s, workload.capacity.card_s),
        cores=_parts(workload.held.core_s, other.held.core_s, workload.capacity.core_s),
        evictions=(workload.evictions, other.evictions),
        first=None if first is None else first[1],
        cut_short=sum(workload.last(life.uid).end in (End.EVICTED, End.LOST) for life in works),
        outside=sum(life.outside for life in workload.lives.values()),
        lost=other.lost,
        unanswered=other.unanswered,
    )


def _starts(workload: Workload) -> dict[JobId, float]:
    starts: dict[JobId, float] = {}
    for life in workload.lives.values():
        if life.first is not None and not life.outside:
            starts[life.job] = min(life.first, starts.get(life.job, life.first))
    return starts


def _queues(
    jobs: Sequence[JobFacts], recorded: Mapping[JobId, float], other: Mapping[JobId, float], workload: Workload
) -> dict[QueueName, QueueWaits]:
    by_queue: dict[QueueName, list[JobFacts]] = {}
    for job in jobs:
        by_queue.setdefault(job.queue, []).append(job)
    gone = _withdrawn(workload)
    return {
        name: QueueWaits(len(found), _waits(found, recorded, gone, workload), _waits(found, other, gone, workload))
        for name, found in sorted(by_queue.items())
    }


def _withdrawn(workload: Workload) -> dict[JobId, float]:
    """Jobs that went without a place, and when."""
    last: dict[JobId, float] = {}
    stays: set[JobId] = set()
    for life in workload.lives.values():
        if life.end is End.WITHDRAWN and life.unlisted is not None:
            last[life.job] = max(life.unlisted, last.get(life.job, life.unlisted))
        else:
            stays.add(life.job)
    return {job: at for job, at in last.items() if job not in stays}


def _waits(jobs: Sequence[JobFacts], starts: Mapping[JobId, float], gone: Mapping[JobId, float], workload: Workload) -> Waits:
    waits = np.array([max(starts.get(job.id, gone.get(job.id, workload.until)) - job.arrived, 0.0) for job in jobs])
    waiting = sum(job.id not in starts and job.id not in gone for job in jobs)
    return Waits(float(waits.mean()), float(np.quantile(waits, 0.9)), float(waits.max()), waiting)


def _parts(recorded: float, other: float, whole: float) -> tuple[float, float] | None:
    return None if whole <= 0 else (recorded / whole, other / whole)
