"""Reservations by the policy's plugin for them: large gangs, the nodes reserved for them, and the jobs that may use these nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from hbox_common.model import Claim, Neighbour, PodUid, QueueTree

from ..cluster import Bookings, Columns
from ..cluster.facts import ClusterFacts
from ..cluster.reservations import Reservation
from ..cluster.walltimes import walltime_in
from ..framework.conf import Conf
from ..framework.hooks import NodeReservation
from ..plugins.walltimes import bound_of
from ..policy.registry import plugins_of
from ..queueing.jobs import Entry
from .entitlement import may_reclaim
from .gangs import waiting_id
from .sessions import Sessions


class SessionReservations:
    """Makes reservations in sessions. Those in force stand among the cluster's facts."""

    def __init__(
        self,
        sessions: Sessions,
        columns: Columns,
        bookings: Bookings,
        neighbours: Mapping[PodUid, Neighbour],
        facts: ClusterFacts,
    ) -> None:
        self._sessions = sessions
        self._columns = columns
        self._bookings = bookings
        self._neighbours = neighbours
        self._facts = facts
        self._plugin: NodeReservation | None = None

    def follow(self, conf: Conf) -> None:
        """The policy from the next session on, as the ledger judges it."""
        self._plugin = next((one for tier in plugins_of(conf) for one in tier if isinstance(one, NodeReservation)), None)
        self._conf = replace(conf, actions=())

    @property
    def reserves(self) -> bool:
        """True if large gangs may have nodes set aside for them."""
        return self._plugin is not None

    @property
    def reserves_from(self) -> int | None:
        """Minimum pods of a gang for which nodes may be reserved; None: no reservations."""
        return self._plugin.reserves_from if self._plugin is not None else None

    @property
    def reservations(self) -> Sequence[Reservation]:
        """The reservations in force."""
        return self._facts.reservations

    def is_large(self, entry: Entry) -> bool:
        """Whether the job's pending pods are a large gang under the policy, by all pods that start together, of all shapes."""
        if self._plugin is None or not entry.pending:
            return False
        left, needs = max(entry.need, 1), []
        if sum(len(pods) for _, pods in entry.pending) < left:
            return False
        for task, pods in entry.pending:
            needs.append((task, len(pods) if len(entry.pending) > 1 else min(left, len(pods))))
        return self._plugin.large(self._columns, needs)

    @property
    def after_s(self) -> float:
        """Seconds that a job must be pending before nodes are reserved for it; inf: no reservations."""
        return self._plugin.reserves_after_s if self._plugin is not None else inf

    def make(self, entries: Sequence[Entry], queues: QueueTree, leaving: Iterable[PodUid]) -> list[tuple[Entry, Reservation]]:
        """Replace all reservations by those that the policy makes for these jobs. Returns the jobs with their reservations."""
        for entry in entries:
            entry.update_pending(self._bookings)
        entries = [entry for entry in entries if entry.pending and not entry.problem()]
        if not entries:
            self.unreserve()
            return []
        with self._sessions.open(self._conf, entries, queues, leaving, reserving=True) as (session, gangs):
            made = {one.gang: one for one in session.reservations}
            self._facts.reservations = tuple(session.reservations)
            return [(entry, made[gang.id]) for gang, entry in gangs.items() if gang.id in made]

    def passes(self, entry: Entry, queues: QueueTree) -> int:
        """Bits of the reservations whose nodes the job's first pods may use now."""
        facts = self._facts
        if not facts.reservations or not entry.pending:
            return 0
        if entry.offline:
            return sum(one.bit for one in facts.reservations)
        job, task, spec = entry.job, entry.pending[0][0], entry.job.tasks[0]
        rules = queues.get(job.queue)
        written = walltime_in(spec.annotations, job.annotations, rules.annotations if rules is not None else {})

        def ends(sure: bool) -> float:
            return facts.now + bound_of(written, job.queue, job.namespace, facts.run_times, sure=sure)

        return sum(
            one.bit
            for one in facts.reservations
            if one.passed(
                waiting_id(job.id),
                job.queue,
                job.priority,
                ends=ends,
                entitled=lambda: may_reclaim(task, queues, job.queue, self._columns.pools_there()),
                now=facts.now,
            )
        )

    def unreserve(self) -> None:
        """Remove all reservations."""
        self._facts.reservations = ()
        self._columns.reserve(np.zeros(self._columns.size, dtype=np.int64))

    def learn_run_time(self, claim: Claim, wall: float) -> None:
        """Record the run time of the pod of an ended claim."""
        neighbour = self._neighbours.get(claim.pod_uid)
        started = neighbour.started_at if neighbour is not None and neighbour.started_at is not None else claim.claimed_at
        queue = self._bookings.queues.get(claim.queue)
        notes = (neighbour.annotations if neighbour is not None else {}, queue.annotations if queue is not None else {})
        self._facts.run_times.ended(claim.queue, claim.namespace, wall - started, walltime_in(*notes))
