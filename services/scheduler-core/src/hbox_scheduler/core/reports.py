"""What a scheduler reports about its state: for metrics, the API, the CLI and tests. No report changes a decision."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from operator import attrgetter

from hbox_common.model import (
    Job,
    JobId,
    NodeName,
    PlanId,
    PodUid,
)
from hbox_common.model.consolidation import Mode
from hbox_common.model.explanation import Explanation, Outcome

from .cluster import Columns
from .cluster.facts import ClusterFacts
from .cluster.moves import FoundMoves
from .cluster.reservations import Reservation
from .explain.cards import CardReasons
from .explain.changes import ChangeLimits, FoundChanges
from .explain.outcomes import INVALID_SPEC, LEDGER_RECONCILING, NOT_TRIED_YET, headline_of, judged
from .ledgerview import LedgerView
from .placement.explanations import Explained, reclaiming, without_session
from .placement.fragmentation import Fragmentation, fragmentation
from .placement.trials import Trials
from .queueing.jobs import Entry, JobState, WaitKey
from .steps.context import SchedulerContext
from .steps.preemptor import Preemptor

#: States of jobs that wait for places.
_WAITS = (JobState.ACTIVE, JobState.UNSCHEDULABLE, JobState.AWAITING_STATE, JobState.DELAYED, JobState.NOMINATED)

#: Maximum jobs for which a preview searches moves, in queue order: each job that differs from its predecessors takes some milliseconds.
PREVIEWED = 64


@dataclass(frozen=True, slots=True)
class Proposal:
    """Moves that would make room for a job."""

    job: Job
    found: FoundMoves


@dataclass(frozen=True, slots=True)
class Defragmentation:
    """What `hbox defrag` shows."""

    mode: Mode
    fragmentation: Fragmentation
    proposals: tuple[Proposal, ...]
    left_out: int  #: pending jobs beyond `PREVIEWED`
    unknown_pods: int  #: running pods with unknown requests (placed before this process started): never moved


class MovesPreview:
    """A preview of moves, one job a call of `advance`, so that other work is done in between.

    Between two calls pods may start and end, and jobs may arrive or be withdrawn. The moves for a job are computed on the state of its own call, as if no other
    job waited; so they do not depend on the results of other calls. A job that no longer waits at its call has none. Of jobs with equal requests in one queue
    only the first is searched.
    """

    def __init__(self, waiting: Sequence[JobId], find: Callable[[JobId, float, set[object]], Proposal | None]) -> None:
        """`find`: the moves for one job at a time in seconds since the epoch, unless it equals one for which the set has a key."""
        self._left = deque(waiting)
        self._find = find
        self._known: set[object] = set()
        self.proposals: list[Proposal] = []

    def advance(self, wall: float) -> bool:
        """Search moves for the next job. `wall`: seconds since the epoch. Returns whether jobs are left."""
        if self._left and (found := self._find(self._left.popleft(), wall, self._known)) is not None:
            self.proposals.append(found)
        return bool(self._left)


class Reports:
    """Reports of one scheduler, computed on request."""

    def __init__(
        self, context: SchedulerContext, *, columns: Columns, facts: ClusterFacts, preemptor: Preemptor, ledger: LedgerView
    ) -> None:
        self._columns = columns
        self._bookings = context.bookings
        self._queues = context.queues
        self._queue = context.queue
        self._flights = context.flights
        self._runner = context.runner
        self._sessions = context.sessions
        self._facts = facts
        self._preemptor = preemptor
        self._ledger = ledger
        self._trials = Trials(
            runner=context.runner,
            columns=columns,
            bookings=context.bookings,
            queues=context.queues,
            queue=context.queue,
            facts=facts,
            leaving=lambda: list(preemptor.nominations),
        )

    @property
    def moves_pods(self) -> bool:
        """Whether the policy searches for moves, for which it needs the requests of running pods (`on_placed`)."""
        return self._runner.moves_mode is not Mode.OFF

    def fragmentation(self) -> Fragmentation:
        """Fragmentation of the idle cards at present."""
        return fragmentation(self._columns, self._sessions.mix())

    def preview_moves(self) -> MovesPreview:
        """The moves that would make room for each of the first pending jobs on its own, to be searched job by job. Changes no state."""
        first = [] if self._ledger.frozen else nsmallest(PREVIEWED, self._movers(), key=attrgetter("order"))
        return MovesPreview([entry.job.id for entry in first], self._moves_for)

    def defragmentation(self, preview: MovesPreview) -> Defragmentation:
        """Fragmentation at present, with what the preview found."""
        unknown = sum(
            1 for booking in self._bookings.all().values() if booking.claim and booking.queue and booking.task is None
        )
        waiting = 0 if self._ledger.frozen else sum(1 for _ in self._movers())
        left_out = max(0, waiting - PREVIEWED)
        return Defragmentation(self._runner.moves_mode, self.fragmentation(), tuple(preview.proposals), left_out, unknown)

    def _movers(self) -> Iterator[Entry]:
        """Jobs for which pods may move."""
        return (entry for entry in self._queue.entries.values() if entry.state in (JobState.UNSCHEDULABLE, JobState.ACTIVE))

    def _moves_for(self, job: JobId, wall: float, known: set[object]) -> Proposal | None:
        entry = self._queue.entries.get(job)
        if entry is None or self._ledger.frozen or entry.state not in (JobState.UNSCHEDULABLE, JobState.ACTIVE):
            return None
        found = self._runner.preview_moves(entry, self._queues.all(), self._preemptor.nominations, wall, known)
        return None if found is None else Proposal(entry.job, found)

    def card_reasons(self, job: JobId) -> list[tuple[list[str], CardReasons]]:
        """Why the cards of all nodes do not fit the job's pods, with the pods' names, one item per shape. Takes as long as a session."""
        entry = self._queue.entries.get(job)
        if entry is None or self._ledger.frozen:
            return []
        return self._runner.card_reasons(entry, self._queues.all(), self._preemptor.nominations)

    def explanation(self, job: JobId, wall: float) -> Explanation | None:
        """Why the job waits, without changes and start; None if it waits for nothing. `wall`: seconds since the epoch. Takes as long as a session."""
        found = self._explained(job)
        if found is None:
            return None
        entry, (explained, _) = self._queue.entries[job], found
        ahead = [one for one in self._queue.of_queue(entry.job.queue) if one.state in _WAITS]
        position = 1 + sum(1 for one in ahead if one.order < entry.order)
        head, facts = explained.headline, explained.facts
        return Explanation(
            job=job,
            name=f"{entry.job.namespace}/{entry.job.name}",
            queue=entry.job.queue,
            outcome=head.outcome,
            code=head.code,
            owner=head.owner,
            at=wall,
            revision=int(self._ledger.index),
            since=entry.job.created_at,
            facts=facts.facts | ({"ahead": position - 1} if head.code == NOT_TRIED_YET else {}),
            need=facts.need,
            have=facts.have,
            position=position,
            queued=max(len(ahead), position),
            stages=tuple(explained.stages),
            nodes=explained.nodes,
        )

    def failed_rules(self, job: JobId, node: NodeName) -> list[str] | None:
        """Labels of all rules that the node fails for a pod of the job, in the order in which reasons are given; None if either is unknown."""
        row = self._columns.row_of.get(node)
        found = self._explained(job, row) if row is not None else None
        return None if found is None else found[1]

    def _explained(self, job: JobId, node: int = -1) -> tuple[Explained, list[str]] | None:
        entry = self._queue.entries.get(job)
        if entry is None or entry.state in (JobState.PROPOSED, JobState.SETTLED):
            return None
        if self._ledger.frozen:
            return without_session(entry, judged(LEDGER_RECONCILING, Outcome.WAIT), ""), []
        if (nomination := self._preemptor.nominations.get(job)) is not None:
            return reclaiming(entry, nomination.waits_for, self._bookings), []
        entry.update_pending(self._bookings)
        if not entry.pending:
            return None
        cards = any(task.cards for task, _ in entry.pending)
        if why := entry.problem() or self._queues.refusal(entry.job.queue, cards=cards):
            headline = headline_of(why) or judged(INVALID_SPEC, Outcome.CHANGE)
            if headline.outcome is Outcome.WAIT:
                found = self._runner.explained(entry, self._queues.all(), self._preemptor.nominations, node, why=why)
                if found[0].headline != headline:
                    return found
            return without_session(entry, headline, why, list(self._queues.all()), self._queue.classes.shortage(entry.job)), []
        return self._runner.explained(entry, self._queues.all(), self._preemptor.nominations, node)

    def changes(self, job: JobId, limits: ChangeLimits, clock: Callable[[], float]) -> FoundChanges:
        """The smallest changes by which, alone, the job would start now; none for a job that does not wait. Changes no state. `clock`: seconds, monotonic."""
        entry = self._queue.entries.get(job)
        if entry is None or self._ledger.frozen or entry.state in (JobState.PROPOSED, JobState.NOMINATED, JobState.SETTLED):
            return FoundChanges()
        return self._trials.changes(entry.job, limits, clock)

    @property
    def waiting(self) -> Mapping[WaitKey, int]:
        """Counts of pending pods by queue and requests, as a live view."""
        return self._queue.waiting

    @property
    def reservations(self) -> Sequence[Reservation]:
        """Nodes reserved for large gangs."""
        return self._facts.reservations

    @property
    def jobs_by_state(self) -> dict[JobState, int]:
        return self._queue.by_state()

    @property
    def size(self) -> int:
        """Known jobs plus booked pods, to which the memory use is proportional."""
        return len(self._queue.entries) + len(self._bookings)

    def oldest_job(self, state: JobState) -> float | None:
        """Creation time of the oldest job in this state, in seconds since the epoch; None if there is none."""
        return self._queue.oldest(state)

    def entry(self, job: JobId) -> Entry | None:
        return self._queue.entries.get(job)

    def is_claimed(self, pod: PodUid) -> bool:
        """Whether the ledger has a claim for this pod."""
        return (booking := self._bookings.get(pod)) is not None and bool(booking.claim)

    def placed_on(self) -> dict[PodUid, NodeName]:
        """The node of every booked pod, with or without the ledger's answer."""
        return {uid: booking.node for uid, booking in self._bookings.all().items()}

    def outstanding(self) -> list[PlanId]:
        """Plans without an answer."""
        return [plan.id for plan in self._flights.outstanding()]
