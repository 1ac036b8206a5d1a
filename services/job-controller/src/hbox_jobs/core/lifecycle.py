"""Public events of a job's life (`hbox_common.events.cloud`): placed, started, finished, rejected.

An attempt begins when all members of the job have nodes, and ends with the job or when the job falls below its minimum. The ids consist of job, attempt and
event, so that a process that continues after another one repeats the ids of its predecessor: `Stage` is derived from the last events of the job in the stream.
If a job skips a phase, because it changed faster than its phases are published, the events that belong to the skipped phase are made up.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from math import inf
from typing import Any

from hbox_common.events import (
    MOST_TEXT,
    CloudEvent,
    JobEnd,
    JobEnding,
    JobFinished,
    JobPhase,
    JobPhaseChanged,
    JobPlaced,
    JobPlacement,
    JobRejected,
    JobRejection,
    JobStarted,
    places_of,
)
from hbox_common.model import CardSlice, JobId, NodeName, QueueName
from hbox_common.model.ids import is_missing_group_job


@dataclass(frozen=True, slots=True)
class Entered:
    """A phase that a job entered, or (`rejected`: the code) the reason why it cannot start as it is written. `pods`: node and cards of each pod that has, or
    had, a node. `key`: of the job's record. `submitted_at`: of the job, in seconds since the epoch. `submitter`: the trace
    context of its submitter."""

    changed: JobPhaseChanged
    pods: tuple[tuple[NodeName, Sequence[CardSlice]], ...] = ()
    rejected: str = ""
    key: str = ""
    submitted_at: float = 0.0
    submitter: str = ""

    @property
    def job(self) -> JobId:
        return self.changed.job

    @property
    def namespace(self) -> str:
        return self.changed.namespace

    @property
    def name(self) -> str:
        return self.changed.name

    @property
    def queue(self) -> QueueName:
        return self.changed.queue

    @property
    def phase(self) -> JobPhase:
        return self.changed.phase

    @property
    def at(self) -> float:
        return self.changed.at


#: Types of the events below.
LIFECYCLE = (JobPlaced, JobStarted, JobFinished, JobRejected)


#: Times of events are cut to it.
_MILLISECOND = 0.001


class Reached(IntEnum):
    """What the newest attempt has reached."""

    NOTHING = 0
    PLACED = 1
    STARTED = 2
    FINISHED = 3


_ENDS = {JobPhase.SUCCEEDED: JobEnd.SUCCEEDED, JobPhase.FAILED: JobEnd.FAILED, JobPhase.DELETED: JobEnd.DELETED}


@dataclass(slots=True)
class Stage:
    """What was published about one job. `finished`: the last attempt that was reported as finished; -1: none."""

    attempt: int = 0
    reached: Reached = Reached.NOTHING
    finished: int = -1
    rejected: str = ""  #: the last code
    known: bool = False  #: a phase was published
    placed_at: float = 0.0  #: of the newest attempt that was placed, in seconds since the epoch
    started_at: float = 0.0  #: likewise
    finished_at: float = 0.0  #: of the last attempt that was reported as finished

    @classmethod
    def after(cls, events: Iterable[CloudEvent], phase: JobPhase | None, *, at: float = inf) -> "Stage":
        """What an earlier process published: the last event of each type, and the last phase, entered `at` seconds since the epoch. A process may be killed
        between the events of a phase and the phase: one that is older than the events does not end their attempt."""
        stage = cls(known=phase is not None)
        for event in events:
            match event:
                case JobPlaced():
                    stage._raise(event.data.attempt, Reached.PLACED)
                    stage.placed_at = _seconds(event)
                case JobStarted():
                    stage._raise(event.data.attempt, Reached.STARTED)
                    stage.started_at = _seconds(event)
                case JobFinished():
                    stage.finished, stage.finished_at = event.data.attempt, _seconds(event)
                    stage._raise(event.data.attempt, Reached.FINISHED)
                case JobRejected():
                    stage.rejected = event.data.code
        if phase in (JobPhase.PENDING, JobPhase.WAITING, JobPhase.EVICTED) and at > stage._last_at + _MILLISECOND:
            stage.reached = Reached.NOTHING
        return stage

    @property
    def _last_at(self) -> float:
        return max(self.placed_at, self.started_at, self.finished_at)

    def _raise(self, attempt: int, reached: Reached) -> None:
        self.attempt, self.reached = max((self.attempt, self.reached), (attempt, reached))

    def follow(self, entered: Entered) -> list[CloudEvent]:
        """The events of this phase, in order; the stage moves on. Pods whose PodGroup does not exist have none: HBox places no such job, and its id, which
        consists of the PodGroup's name, is not unique over time."""
        if is_missing_group_job(entered.job):
            return []
        if entered.rejected:
            return self._reject(entered)
        if (end := _ENDS.get(entered.phase)) is not None:
            return self._finish(entered, end)
        if entered.phase is JobPhase.BOUND:
            return self._place(entered)
        if entered.phase is JobPhase.RUNNING:
            return [*self._place(entered), *self._start(entered)]
        self.reached = Reached.NOTHING
        return []

    def _place(self, entered: Entered) -> list[CloudEvent]:
        if self.reached in (Reached.PLACED, Reached.STARTED):
            return []
        self.attempt, self.reached = self.attempt + 1, Reached.PLACED
        self.placed_at = entered.at
        return [JobPlaced.of(JobPlacement(**self._data(entered)), at=entered.at, id=_id(entered.job, self.attempt, "placed"))]

    def _start(self, entered: Entered) -> list[CloudEvent]:
        if self.reached is Reached.STARTED:
            return []
        self.reached, self.started_at = Reached.STARTED, entered.at
        return [JobStarted.of(JobPlacement(**self._data(entered)), at=entered.at, id=_id(entered.job, self.attempt, "started"))]

    def _finish(self, entered: Entered, end: JobEnd) -> list[CloudEvent]:
        if self.reached is Reached.FINISHED:
            return []
        events: list[CloudEvent] = []
        if end is not JobEnd.DELETED and entered.pods:
            events += self._place(entered)
        if end is JobEnd.SUCCEEDED and self.reached is Reached.PLACED:
            events += self._start(entered)
        if self.attempt == self.finished:  # it had new pods since then, and they got no nodes
            self.attempt += 1
        self.reached, self.finished = Reached.FINISHED, self.attempt
        ending = JobEnding(**self._data(entered), code=end)
        return [*events, JobFinished.of(ending, at=entered.at, id=_id(entered.job, self.attempt, "finished"))]

    def _reject(self, entered: Entered) -> list[CloudEvent]:
        if self.rejected == entered.rejected:
            return []
        self.rejected = entered.rejected
        data = JobRejection(
            job=entered.job,
            namespace=entered.namespace,
            name=entered.name,
            queue=entered.queue,
            code=entered.rejected,
            message=entered.changed.message[:MOST_TEXT],
        )
        return [JobRejected.of(data, at=entered.at, id=f"{entered.job}.{entered.rejected}")]

    def _data(self, entered: Entered) -> dict[str, Any]:
        return {
            "job": entered.job,
            "namespace": entered.namespace,
            "name": entered.name,
            "queue": entered.queue,
            "attempt": self.attempt,
            **dict(places_of(entered.pods)),
        }


def end_of_deleted(events: Sequence[CloudEvent], at: float) -> JobFinished | None:
    """The end of a job that was deleted while no process observed it, from its last events; None if it has ended already or was never placed."""
    placements = [event.data for event in events if isinstance(event, JobPlaced | JobStarted)]
    if Stage.after(events, None).reached not in (Reached.PLACED, Reached.STARTED):
        return None
    last = max(placements, key=lambda data: data.attempt)
    return JobFinished.of(JobEnding(**dict(last), code=JobEnd.DELETED), at=at, id=_id(last.job, last.attempt, "finished"))


def _seconds(event: CloudEvent) -> float:
    return datetime.fromisoformat(event.time).timestamp()


def _id(job: JobId, attempt: int, event: str) -> str:
    return f"{job}.{attempt}.{event}"
