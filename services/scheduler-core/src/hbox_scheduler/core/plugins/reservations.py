"""reservation: reserve nodes so that large gangs start in time (requirements B4) and pods in the gaps cannot delay them.

A gang that requests at least the worth of `nodes` nodes and has waited for `after` gets a reservation: the nodes on which it can start first, by the known ends
of the pods that run there (`starts`, `walltimes`). Other pods may use these nodes only if they are known to end before that start, so that no placement delays
it (conservative backfill; sources: slurm-backfill). If these ends are unknown, so is the start: then nodes from which the least has to leave are set aside for
`hold`, released for `hold`, set aside for twice as long, and so on, so that other work is delayed but never stopped. Such a reservation first excludes only
work of the gang's own queue, and that of other queues after another `after`; it covers at most `share` of the cluster at once.

A gang that has to be in one domain of the fabric gets nodes of one domain; a gang whose sub-groups have domains of their own gets no reservation.

Pods that could reclaim the nodes from the gang if it ran there may use them (`Reservation.passed`). A gang that its queue does not permit, or that would not
fit even if all pods had left (`ClusterFacts.cannot_start`), reserves nothing; a queue has at most `depth` reservations at a time, all queues together `most`.

A reservation is a mask by shape: `Columns.reserved` of the node, `Task.passes` of the pod. `steps/reservations.py` makes reservations in a session of its own,
about once a second while a gang waits for one; a session that receives none (`simulate cycle`) makes them when it opens.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from hbox_common.model import GroupPhase, QueueName, TopologyMode

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints, Rows
from ..cluster.entities import Gang, Member, Status
from ..cluster.placedpods import PlacedPods
from ..cluster.reservations import Reservation
from ..cluster.task import Task
from ..explain.labels import Label
from ..framework.basefits import capacity_when_empty
from ..framework.hooks import NodeReservation, ShapeMask
from ..framework.placing import Placing
from ..preemption.preemptors import bound_to_domain
from .arguments import Arguments
from .starts import HORIZON_S, Departures, Need, Start, Within, earliest
from .walltimes import Ends, bound_s, placed_pods

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

#: Bits of an int64 without its sign.
_MOST_BITS = 62

_RUNS = (Status.RUNNING, Status.BOUND, Status.ALLOCATED)


#: If a gang's start is at most this near, or it has waited at least this long, its nodes admit only pods that end before the start for sure, no longer those
#: that will probably do so. Run times differ by orders of magnitude and one pod in twenty lasts a day: to require certainty earlier would keep nodes idle until
#: the start.
SURE_WITHIN_S, SURE_AFTER_S = 1800.0, 12 * 3600.0


class ReservationPlugin(ShapeMask, NodeReservation):
    """Arguments: after (duration, 10m); nodes (1: what a gang has to ask for, in nodes' worth) and members (1: and in pods); depth (1 for each queue) and
    most (8); hold (duration, 30m; 0 = nothing is set aside without a known start); share (0.5 of the cluster, for gangs without a known start)."""

    name = "reservation"
    passing = True
    asks_others = True

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._after_s = arguments.duration_s("after", "10m")
        self._hold_s = arguments.duration_s("hold", "30m")
        self.large_jobs = LargeJobs(arguments.number("nodes", 1.0, least=0.0), arguments.integer("members", 1, least=1))
        self._depth = arguments.integer("depth", 1, least=0)
        self._most = min(arguments.integer("most", 8, least=0), _MOST_BITS)
        self._share = arguments.number("share", 0.5, least=0.0, most=1.0)
        arguments.done()

    @property
    def reserves_after_s(self) -> float:
        return self._after_s

    @property
    def reserves_from(self) -> int:
        return self.large_jobs.members

    def large(self, columns: Columns, needs: Sequence[tuple[Task, int]]) -> bool:
        return self.large_jobs.among(columns, needs)

    def shape_failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        yield Label.RESERVED, (columns.reserved[rows] & ~np.int64(task.passes)) != 0

    def open(self, session: "Session") -> None:
        made = session.cluster.facts.reservations
        if session.cluster.reserves:
            made = _Maker(self, session).made()
            bits: Ints = np.zeros(session.columns.size, dtype=np.int64)
            for one in made:
                bits[one.rows] |= one.bit
            session.columns.reserve(bits)
        if made:
            session.reserve(made, lambda member: self._passes(session, made, member))

    @staticmethod
    def _passes(session: "Session", reserved: Sequence[Reservation], member: Member) -> int:
        """The bits of those that are open to the member."""
        if member.task.offline:  # it leaves when the gang can start
            return sum(one.bit for one in reserved)
        gang, bits = member.gang, 0
        queue = session.queues.get(gang.queue)

        def ends(sure: bool) -> float:
            return session.now + bound_s(member, queue, session.cluster.facts.run_times, sure=sure)

        known: list[bool] = []

        def entitled() -> bool:  # the same for all reservations, and the costliest question
            if not known:
                known.append(queue is not None and session.entitled(queue, member))
            return known[0]

        for one in reserved:
            if one.passed(
                gang.id,
                gang.queue,
                gang.priority,
                ends=ends,
                entitled=entitled,
                now=session.now,
            ):
                bits |= one.bit
        return bits


class LargeJobs:
    """Which gangs are large: by nodes' worth, and by pods. Of no cluster in particular, but fastest where asked about one."""

    def __init__(self, nodes: float, members: int) -> None:
        self.members = members
        self._nodes = nodes
        self._room: WeakKeyDictionary[Task, int] = WeakKeyDictionary()  #: pods that the roomiest node holds when it is empty
        self._at = (-1, -1)

    def __copy__(self) -> "LargeJobs":
        """The same, for another session."""
        return LargeJobs(self._nodes, self.members)

    def among(self, columns: Columns, needs: Sequence[tuple[Task, int]]) -> bool:
        """Whether so many pods of each task are large. Never where one of them fits on no node at all."""
        if sum(count for _, count in needs) < self.members:
            return False
        return self._nodes <= self.worth(columns, needs) < inf

    def worth(self, columns: Columns, needs: Sequence[tuple[Task, int]]) -> float:
        """How many of the roomiest nodes they fill; inf where one of them fits on no node at all."""
        at = id(columns), columns.described.end
        if self._at != at:
            self._at = at
            self._room.clear()
        worth = 0.0
        for task, count in needs:
            room = self._room.get(task)
            if room is None:
                room = self._room[task] = int(capacity_when_empty(columns, task).max(initial=0))
            worth += count / room if room else inf
        return worth


class _Maker:
    """Makes the reservations of one moment."""

    def __init__(self, plugin: ReservationPlugin, session: "Session") -> None:
        self._plugin = plugin
        self._session = session
        self._now = session.now
        self._placing = Placing(session)
        self._run_times = session.cluster.facts.run_times
        self._set_aside = 0.0  #: share of the cluster, for gangs without a known start

    def made(self) -> tuple[Reservation, ...]:
        plugin, session = self._plugin, self._session
        waiting = [gang for gang in session.unplaced if self._waits(gang)] if plugin._most and plugin._depth else []
        if not waiting:
            return ()
        pods, ends = self._running()
        claims = {gang: self._entitled(gang) for gang in waiting}
        waiting.sort(key=lambda gang: (not claims[gang], not self._of_several_nodes(gang), session.gang_key(gang)))
        before = {one.gang: one for one in session.cluster.facts.reservations}
        taken = np.zeros(session.columns.size, dtype=np.bool_)
        of_queue: Counter[QueueName] = Counter()
        found: list[Reservation] = []
        departures = Departures(session.columns, pods, ends)
        for gang in waiting:
            if len(found) == plugin._most:
                break
            if of_queue[gang.queue] >= plugin._depth:
                continue
            own = departures
            if gang.ready:  # its own members stay
                own = Departures(session.columns, pods, ends, staying=pods.of_job(gang.id))
            known = before.get(gang.id)
            start = self._start(gang, own, taken, known)
            if start is None:
                continue
            used = {one.bit for one in found} | {one.bit for one in before.values() if one is not known}
            bit = known.bit if known is not None else next(b for i in range(_MOST_BITS) if (b := 1 << i) not in used)
            found.append(self._reservation(gang, start, own, bit, entitled=claims[gang]))
            of_queue[gang.queue] += 1
            taken |= start.rows
        return tuple(found)

    def _waits(self, gang: Gang) -> bool:
        session = self._session
        short = gang.min_member - gang.ready
        if (
            (gang.phase is GroupPhase.PENDING and "enqueue" in session.conf.actions)
            or gang.queue not in session.queues
            or gang.id in session.cluster.facts.cannot_start
            or self._now - gang.created_at < self._plugin.reserves_after_s
            or not 0 < short <= gang.count(Status.PENDING)
            or (bound_to_domain(gang) and not self._in_one_domain(gang))
        ):
            return False
        needs = self._needs(gang)
        return bool(
            needs
            and self._plugin.large(session.columns, [(member.task, count) for member, count in needs])
            and not session.invalid(gang)
            and not session.withheld_reason(self._needed(gang))
            and all(self._placing.most(member, count) >= count for member, count in needs)
        )

    def _in_one_domain(self, gang: Gang) -> bool:
        """Whether all of it has to be in one domain, and no part of it in one of its own."""
        parts = any(
            policy.topology is not None and policy.topology.mode is TopologyMode.HARD for policy in gang.sub_gang_policies
        )
        return self._session.topological and not parts

    def _within(self, gang: Gang) -> Within | None:
        """The domains of which one has to hold it; None: it may be anywhere."""
        if not bound_to_domain(gang):
            return None
        tree, groups = self._session.tree, self._session.gradients(None, gang, evict=True)
        return Within(tree, np.array([tree.index[name] for group in groups for name in group], dtype=np.int64))

    def _of_several_nodes(self, gang: Gang) -> bool:
        """Such gangs wait the longest, and precede those that need one whole node, of which there are many."""
        needs = [(member.task, count) for member, count in self._needs(gang)]
        return self._plugin.large_jobs.worth(self._session.columns, needs) > 1.0

    def _needed(self, gang: Gang) -> list[Member]:
        """The members that the gang needs to start: the minimums of its roles, then those served first."""
        members = [one for one in self._session.members_in_order(gang.of(Status.PENDING)) if not one.best_effort]
        chosen: list[Member] = []
        if gang.min_task_member:
            there = Counter(one.role for one in gang.of(*_RUNS))
            for one in members:
                if there[one.role] < gang.min_task_member.get(one.role, 0):
                    there[one.role] += 1
                    chosen.append(one)
        of = set(map(id, chosen))
        short = max(gang.min_member - gang.ready - len(chosen), 0)
        return chosen + [one for one in members if id(one) not in of][:short]

    def _needs(self, gang: Gang) -> list[tuple[Member, int]]:
        """Of these a member of each shape, and how many of it."""
        needed = self._needed(gang)
        first: dict[int, Member] = {}
        for one in needed:
            first.setdefault(id(one.task), one)
        counts = Counter(id(one.task) for one in needed)
        return [(one, counts[key]) for key, one in first.items()]

    def _entitled(self, gang: Gang) -> bool:
        return self._session.entitled(self._session.queues[gang.queue], _as_one(self._needs(gang)))

    def _running(self) -> tuple[PlacedPods, Floats]:
        """Running pods, and `[V]` their expected ends. Also records the namespaces whose pods overrun their walltimes."""
        session, now, known = self._session, self._now, self._run_times
        pods = placed_pods(session)
        ends = Ends(pods, session.queues, known, now)
        known.overrunning = ends.overruns()
        expected = np.where(pods.offline(), now, ends.expected())
        return pods, np.where(expected <= now + HORIZON_S, np.maximum(expected, now), inf)

    def _start(self, gang: Gang, departures: Departures, taken: Bools, known: Reservation | None) -> Start | None:
        session = self._session
        needs: list[Need] = []
        for member, count in self._needs(gang):
            allowed = session.columns.alive[: session.columns.size] & ~taken
            for _, fails in session.masks(member, session.columns, but=self._plugin):
                allowed &= ~fails
            needs.append(Need(self._placing.task(member), count, allowed))
        start = earliest(departures, needs, self._now, known.rows if known is not None else None, self._within(gang))
        if start is None or start.at < inf:
            return start
        share = self._share_of(start.rows, cards=any(need.task.cards is not None for need in needs))
        if not self._holds(gang) or self._set_aside + share > self._plugin._share:
            return None
        self._set_aside += share
        return start

    def _share_of(self, rows: Bools, *, cards: bool) -> float:
        """The part of the cluster in these nodes: by cards, or by nodes if the gang requests none."""
        columns = self._session.columns
        alive = columns.alive[: columns.size]
        weight = (columns.card_index[: columns.size] >= 0).sum(axis=1) if cards else np.ones(columns.size)
        return float(weight[rows].sum() / max(weight[alive].sum(), 1))

    def _holds(self, gang: Gang) -> bool:
        """Whether nodes are set aside now for a gang without a known start: for `hold`, twice, four times as long, and so on, and not for `hold` between."""
        hold_s = self._plugin._hold_s
        left, span = self._now - gang.created_at - self._plugin.reserves_after_s, hold_s
        while hold_s:
            if left < span:
                return True
            if left < span + hold_s:
                return False
            left, span = left - span - hold_s, 2 * span
        return False

    def _reservation(self, gang: Gang, start: Start, departures: Departures, bit: int, *, entitled: bool) -> Reservation:
        session, pods = self._session, gang.min_member - gang.ready
        rows = np.flatnonzero(start.rows).tolist()
        nodes = ", ".join(session.node(row) for row in rows[:_NAMED]) + (
            f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
        )
        here = departures.by_queue(start.rows, start.at)
        holders = ", ".join(
            f"{count} of queue {name}"
            for name, (count, _) in sorted(here.items(), key=lambda item: (-item[1][0], item[0]))[:_NAMED]
        )
        own_queue = start.at == inf and self._now - gang.created_at < 2 * self._plugin.reserves_after_s
        when = f"expected to start at {_clock(start.at, self._now)}" if start.at < inf else "to start when they are free"
        if start.at <= self._now:
            message = f"reserved for it, and free: {nodes}"
        else:
            unknown = "" if start.at < inf else ", with unknown end times (hbox.io/walltime sets them)"
            message = f"reserved for it: {nodes}; {when}; there until then: {holders or 'pods of no queue'}{unknown}"
        return Reservation(
            gang=gang.id,
            queue=gang.queue,
            priority=gang.priority,
            pods=pods,
            bit=bit,
            rows=start.rows,
            start=start.at,
            entitled=entitled,
            own_queue=own_queue,
            sure=start.at - self._now <= SURE_WITHIN_S or self._now - gang.created_at >= SURE_AFTER_S,
            message=message,
            notice=f"set aside for a gang of queue {gang.queue} ({pods} pods), {when}; what ends before may run there (hbox.io/walltime)"
            if start.at < inf
            else f"set aside for a gang of queue {gang.queue} ({pods} pods), {when}",
        )


#: Nodes and queues that a message names.
_NAMED = 4


def _clock(at: float, now: float) -> str:
    """A time as text: to the minute, so that it does not change with every run."""
    minute = 60.0 * -(-at // 60.0)
    try:
        return f"{datetime.fromtimestamp(minute, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{minute:.0f} s since the epoch, {at - now:.0f} s from now"


def _as_one(needs: Sequence[tuple[Member, int]]) -> Member:
    """All of them as one pod, to check its queue's limits."""
    first, _ = needs[0]
    requests: dict[str, int] = {}
    amount: dict[int, int] = {}
    for member, count in needs:
        for name, units in member.task.requests.items():
            requests[name] = requests.get(name, 0) + count * units
        for column, units in member.task.amount:
            amount[column] = amount.get(column, 0) + count * units
    vector = np.sum([member.request * count for member, count in needs], axis=0)
    task = replace(first.task, requests=requests, amount=tuple(amount.items()))
    return Member(
        first.uid,
        first.namespace,
        first.name,
        first.gang,
        first.role,
        task,
        vector,
        first.created_at,
        first.priority,
        preemptable=first.preemptable,
    )
