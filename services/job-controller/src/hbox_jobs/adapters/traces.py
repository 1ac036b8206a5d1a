"""Spans of a job's trace that follow from its phases and waits, from its submission to its end.

No span stays open: each is recorded when it ends, with its times. What a span needs is on the job's objects or in the stream of public events, and ids are
derived from the job's id, so that a process that continues after another one records the rest of the same trace. Spans that both record have one id.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hbox_common.events import CloudEvent, JobFinished, JobPhase, JobPlaced, JobStarted
from hbox_common.model import Job, JobId
from hbox_common.model.traceids import step_of, traceparent_of
from hbox_common.reasons.codes import code_of_label
from hbox_common.telemetry import decided, record, record_root, recording

from ..core.job import Record
from ..core.lifecycle import Entered, Reached, Stage
from ..core.views import PodView
from ..core.waits import OTHER

#: Waits of one job that are recorded, each as a span: a reason may alternate with another one for days.
MOST_WAITS = 64

_INTERRUPTED = "interrupted"  #: the job lost pods, and has to be placed again


@dataclass(slots=True)
class _Times:
    """Seconds since the epoch."""

    first_bound: float = 0.0
    last_bound: float = 0.0


def trace_of(job: JobId) -> str:
    """The context of the job's trace, with the sampler's decision."""
    return decided(traceparent_of(job))


class JobTraces:
    """Does nothing without a trace collector. `wall`: Unix time in seconds."""

    def __init__(self) -> None:
        self.on = recording()
        self._times: dict[str, _Times] = {}  #: by the job's key
        self._waits = Counter[JobId]()

    def pod(self, old: PodView | None, new: PodView, wall: float) -> None:
        """A pod was listed, added or modified."""
        if not self.on or not new.ours:
            return
        if not new.node:
            self._times.setdefault(new.key, _Times())
        elif old is not None and not old.node and (times := self._times.get(new.key)) is not None:
            times.first_bound = times.first_bound or wall
            times.last_bound = wall

    def announced(self, jobs: Sequence[Job], settled: Sequence[Record], start: float, end: float) -> None:
        """`jobs`: published on the bus; `settled`: these and other computed jobs."""
        if not self.on:
            return
        for job in jobs:
            record("announce", traceparent=job.traceparent, start=start, end=end, members=job.members, bound=job.bound)
        for one in settled:
            if not one.pods:
                self._times.pop(one.key, None)

    def waited(self, job: JobId, code: str, start: float, end: float) -> None:
        """A wait of the job ended, charged to this code."""
        self._waits[job] += 1
        if self._waits[job] <= MOST_WAITS:
            known = code_of_label(code)
            self._step(f"wait.{known.name if known is not None else OTHER}", job, f"{start:.6f}", start, end)

    def entered(self, entered: Entered, before: Stage, events: Sequence[CloudEvent]) -> None:
        """The job entered a phase, from which these public events followed. `before`: what was published before it."""
        if not self.on or entered.rejected:
            return
        job, at = entered.job, entered.at
        if not before.known:
            self._submitted(entered)
        attempt, placed_at, started_at = before.attempt, before.placed_at, before.started_at
        reached = before.reached
        for event in events:
            match event:
                case JobPlaced():
                    attempt, placed_at, reached = event.data.attempt, self._observed(entered), Reached.PLACED
                case JobStarted():
                    self._step("start", job, f"{attempt}", placed_at, at, attempt=attempt, result="running")
                    started_at, reached = at, Reached.STARTED
                case JobFinished():
                    self._attempt_over(job, reached, attempt, placed_at, started_at, at, event.data.code.value)
                    if before.finished < 0:
                        self._ended(entered, event, placed_at)
                    reached = Reached.FINISHED
        if not events and entered.phase in (JobPhase.PENDING, JobPhase.WAITING, JobPhase.EVICTED):
            result = entered.phase.value if entered.phase is JobPhase.EVICTED else _INTERRUPTED
            self._attempt_over(job, reached, attempt, placed_at, started_at, at, result)
        if entered.phase is JobPhase.DELETED:
            self._waits.pop(job, None)

    def _submitted(self, entered: Entered) -> None:
        """The root: short, so that the trace of a job that waits or runs has one."""
        changed = entered.changed
        record_root(
            "submit",
            traceparent=trace_of(changed.job),
            start=entered.submitted_at,
            end=entered.submitted_at,
            links=[entered.submitter],
            job=changed.job,
            namespace=changed.namespace,
            name=changed.name,
            queue=changed.queue,
            members=changed.members,
        )

    def _observed(self, entered: Entered) -> float:
        """All of its pods have nodes. Returns since when."""
        times = self._times.pop(entered.key, None)
        if times is None or not times.last_bound:
            return entered.at
        bound = entered.changed.bound
        record("observe", traceparent=trace_of(entered.job), start=times.first_bound, end=times.last_bound, bound=bound)
        return times.last_bound

    def _attempt_over(  # noqa: PLR0917  # an attempt and its end
        self, job: JobId, reached: Reached, attempt: int, placed_at: float, started_at: float, at: float, result: str
    ) -> None:
        if reached is Reached.PLACED:
            self._step("start", job, f"{attempt}", placed_at, at, attempt=attempt, result=result)
        elif reached is Reached.STARTED:
            self._step("run", job, f"{attempt}", started_at, at, attempt=attempt, result=result)

    def _ended(self, entered: Entered, event: JobFinished, placed_at: float) -> None:
        """From creation to the job's first end; from its placement where the creation is not known."""
        self._step(
            "job",
            entered.job,
            "",
            entered.submitted_at or placed_at or entered.at,
            entered.at,
            namespace=entered.namespace,
            name=entered.name,
            queue=entered.queue,
            attempts=event.data.attempt,
            result=event.data.code.value,
        )

    def _step(self, name: str, job: JobId, key: str, start: float, end: float, /, **attributes: str | int) -> None:
        parent = trace_of(job)
        record(name, traceparent=parent, own=step_of(parent, name, key), start=start, end=end, links=(), **attributes)
