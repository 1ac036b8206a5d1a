"""What may be asked of job-controller, in JSON: endpoints of the micro service `hbox-job-controller`. Names stay; fields may be added."""

from collections.abc import Callable, Iterable

from pydantic import BaseModel, ConfigDict

from hbox_common.bus import Endpoint
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import JobPhase, token_of
from hbox_common.model import JobId, QueueName

from .core.job import Record
from .core.jobs import Jobs

MOST_JOBS = 1000  #: in one answer: some 400 KiB, of the 1 MiB that a broker takes by default


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class JobsRequest(_Model):
    """Jobs of these queues; none named: of all. `phases`: that are in one of these; none named: in any. `after`: those behind this id, in the order of ids."""

    queues: tuple[QueueName, ...] = ()
    phases: tuple[JobPhase, ...] = ()
    after: JobId = JobId("")


class JobAnswer(_Model):
    """A job's current state. `reason`: why it waits, empty if unknown. Times are Unix times in seconds."""

    id: JobId
    namespace: str
    name: str
    queue: QueueName
    priority: int
    phase: JobPhase
    members: int
    bound: int
    min_member: int
    created_at: float
    reason: str


class JobsAnswer(_Model):
    """At most MOST_JOBS, in the order of their ids. `more`: there are others behind the last one."""

    jobs: tuple[JobAnswer, ...]
    more: bool = False


class Api:
    """Answers from the caches."""

    def __init__(self, jobs: Jobs, synced: Callable[[], bool]) -> None:
        self._jobs, self._synced = jobs, synced

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("jobs", "Jobs: where they stand, and why they wait", JobsRequest, JobsAnswer, self.jobs, self.jobs_of)]

    async def jobs(self, asked: JobsRequest) -> JobsAnswer:
        return self._found(asked, self._jobs.records())

    async def jobs_of(self, asked: JobsRequest, token: str) -> JobsAnswer:
        """Jobs in the reader's queue. Queues below it need their own readers: the parents of queues are not known here."""
        if any(token_of(name) != token for name in asked.queues):
            raise InvalidRequest("queues: not your queue", hint="leave them out")
        tokens: dict[QueueName, str] = {}

        def mine(record: Record) -> bool:
            queue = record.queue
            if queue not in tokens:
                tokens[queue] = token_of(queue)
            return tokens[queue] == token

        return self._found(asked, filter(mine, self._jobs.records()))

    def _found(self, asked: JobsRequest, records: Iterable[Record]) -> JobsAnswer:
        if not self._synced():
            raise Unavailable("pods are not listed yet", hint="ask again")
        found = sorted(
            (
                record
                for record in records
                if record.job is not None
                and record.phase is not None
                and record.job.id > asked.after
                and (not asked.queues or record.queue in asked.queues)
                and (not asked.phases or record.phase in asked.phases)
            ),
            key=lambda record: record.id,
        )
        return JobsAnswer(jobs=tuple(map(_answer, found[:MOST_JOBS])), more=len(found) > MOST_JOBS)


def _answer(record: Record) -> JobAnswer:
    assert record.job is not None
    assert record.phase is not None
    job = record.job
    return JobAnswer(
        id=job.id,
        namespace=job.namespace,
        name=job.name,
        queue=job.queue,
        priority=job.priority,
        phase=record.phase,
        members=job.members,
        bound=job.bound,
        min_member=job.min_member,
        created_at=job.created_at,
        reason=record.reason,
    )
