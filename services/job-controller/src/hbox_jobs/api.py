"""What may be asked of job-controller, in JSON: endpoints of the micro service `hbox-job-controller`. Names stay; fields may be added."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from hbox_common.bus import Endpoint
from hbox_common.clock import wall_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import JobPhase, JobsPage, token_of
from hbox_common.model import JobId, QueueName
from hbox_common.views.jobs import items_of

from .core.job import Record
from .core.jobs import Jobs

MOST_JOBS = 1000  #: in one answer: some 400 KiB, of the 1 MiB that a broker takes by default
MOST_LISTED = 2000  #: with all that `hbox jobs` prints of them; more take the service tens of milliseconds


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


class ListingRequest(_Model):
    """No parameters."""


class ListingAnswer(_Model):
    """All jobs as `hbox jobs -o json` prints them, oldest first."""

    items: tuple[dict[str, Any], ...]


class Api:
    """Answers from the caches. `pages`: all that a listing shows."""

    def __init__(self, jobs: Jobs, synced: Callable[[], bool], pages: Callable[[], Sequence[JobsPage]]) -> None:
        self._jobs, self._synced, self._pages = jobs, synced, pages

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("jobs", "Jobs: where they stand, and why they wait", JobsRequest, JobsAnswer, self.jobs, self.jobs_of),
            Endpoint("listing", "Jobs as `hbox jobs` prints them", ListingRequest, ListingAnswer, self.listing),
        ]

    async def listing(self, _: ListingRequest) -> ListingAnswer:
        """Raises InvalidRequest where these are too many for one answer: `JobsAsked` gets them in pages."""
        if not self._synced():
            raise Unavailable("pods are not listed yet", hint="ask again")
        if sum(1 for _ in self._jobs.records()) > MOST_LISTED:
            raise InvalidRequest(f"there are more than {MOST_LISTED} jobs", hint="ask for endpoint jobs, which has pages")
        return ListingAnswer(items=tuple(items_of(self._pages(), now=wall_s())))

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
