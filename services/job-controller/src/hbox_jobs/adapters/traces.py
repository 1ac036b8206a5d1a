"""The trace of each job: its root, from when the job was first seen until all of its pods have nodes, and the steps done here.

The root's context is in every message from the start; the span itself can only be recorded at its end. What is gathered for it is lost with
this process: a job that was pending over a restart begins, in its trace, when it was created.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hbox_common.events import JobPhase
from hbox_common.model import Job, JobId
from hbox_common.telemetry import decided, record, record_root, recording

from ..core.job import Record, traceparent_of
from ..core.lifecycle import Entered
from ..core.views import PodView

_WAITS = frozenset({JobPhase.PENDING, JobPhase.WAITING})
#: Kubernetes' creation times are whole seconds: a pod first seen within that second counts as created when seen.
_CREATION_STEP_S = 1.0


@dataclass(slots=True)
class _Times:
    """Seconds since the epoch."""

    seen: float
    first_bound: float = 0.0
    last_bound: float = 0.0


def trace_of(job: JobId) -> str:
    """The context of the job's trace, with the sampler's decision."""
    return decided(traceparent_of(job))


class JobTraces:
    """Does nothing without a trace collector. `wall`: Unix time in seconds."""

    def __init__(self) -> None:
        self._on = recording()
        self._times: dict[str, _Times] = {}  #: by the job's key
        self._open: dict[JobId, tuple[str, Job] | None] = {}  #: announced jobs, by id; None where the root is recorded

    def pod(self, old: PodView | None, new: PodView, wall: float) -> None:
        """A pod was listed, added or modified."""
        if not self._on or not new.ours:
            return
        if not new.node:
            self._times.setdefault(new.key, _Times(wall))
        elif old is not None and not old.node and (times := self._times.get(new.key)) is not None:
            times.first_bound = times.first_bound or wall
            times.last_bound = wall

    def announced(self, jobs: Sequence[Job], settled: Sequence[Record], start: float, end: float) -> None:
        """`jobs`: published on the bus; `settled`: these and other computed jobs."""
        if not self._on:
            return
        keys = {one.id: one.key for one in settled}
        for job in jobs:
            record("announce", traceparent=job.traceparent, start=start, end=end, members=job.members, bound=job.bound)
            if self._open.get(job.id, ("", job)) is not None:
                self._open[job.id] = (keys[job.id], job)
        for one in settled:
            if not one.pods:
                self._times.pop(one.key, None)

    def entered(self, change: Entered) -> None:
        """The job entered a phase."""
        if not self._on or change.phase in _WAITS or change.phase is JobPhase.EVICTED:
            return
        if (known := self._open.get(change.job)) is not None:
            self._end(*known, change)
            self._open[change.job] = None
        if change.phase is JobPhase.DELETED:
            self._open.pop(change.job, None)

    def _end(self, key: str, job: Job, change: Entered) -> None:
        times = self._times.pop(key, None) or _Times(change.at)
        start = times.seen if 0.0 <= times.seen - job.created_at < _CREATION_STEP_S else job.created_at
        end = times.last_bound or change.at
        if times.last_bound:
            record("observe", traceparent=job.traceparent, start=times.first_bound, end=end, bound=change.changed.bound)
        record_root(
            "job",
            traceparent=job.traceparent,
            start=start,
            end=end,
            job=job.id,
            namespace=job.namespace,
            name=job.name,
            queue=job.queue,
            members=change.changed.members,
            phase=change.phase.value,
        )
