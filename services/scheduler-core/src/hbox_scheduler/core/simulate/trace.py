"""Simulation of a trace in time: jobs arrive, wait, start, are preempted, and end, on a cluster of equal nodes.

The scheduler's own columns, views and policies choose the nodes of pods, as in the service, and for gangs of several pods on a cluster with leaf switches the
engine's choice of leaves and nodes does; a `TraceTurns` decides the order of jobs. Time jumps from event to event: a submission, an end, a running job that
enters a higher level or may be preempted from now on, a waiting one whose patience ends.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from hbox_common.errors import Bug
from hbox_common.model import CardRequest, NodeState, PodGroupTask
from hbox_common.model.devices import VENDORS
from hbox_common.model.resources import PODS

from ..cluster import Batch, Columns
from ..cluster.arrays import Bools, Ints
from ..cluster.task import Task
from ..cluster.tasks import Tasks
from ..devices import pick
from ..framework.views import Views
from ..policy import Policy
from ..topology.cover import Parts, select
from .trace_jobs import JobOutcome, Sample, Topology, Totals, TraceJob, checked
from .trace_shares import QueueShares
from .trace_turns import TraceTurns
from .uniform import place_uniform

#: What a job loses at each start but its first: reading its checkpoint.
RESTART_S = 60.0
SAMPLE_S = 900.0

_SUBMITTED, _ENDED, _RISEN, _SETTLED, _IMPATIENT = range(5)


@dataclass(slots=True, eq=False)
class _Run:
    """A job and how far it is. `version` rises with each start and stop: events of an earlier one are void."""

    job: TraceJob
    task: Task
    pods: int
    each: int
    index: int
    level: int = 0
    version: int = 0
    done_s: float = 0.0
    held_s: float = 0.0  #: since it stood at the lowest level last
    started: float | None = None
    first: float = -1.0
    finish: float = -1.0
    waiting_since: float = 0.0
    longest_s: float = 0.0
    preemptions: int = 0
    settled: bool = False  #: may be stopped
    booked: list[Batch] = field(default_factory=list)
    rows: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


class TraceSimulation:
    """One cluster, one order, one placement policy; `run` may be called once."""

    def __init__(
        self,
        nodes: Sequence[NodeState],
        *,
        policy: Policy,
        turns: TraceTurns,
        leaf_nodes: int = 0,
        restart_s: float = RESTART_S,
    ) -> None:
        """`leaf_nodes`: so many nodes in a row share a leaf switch; 0 = no topology."""
        self._columns = Columns()
        for node in nodes:
            self._columns.put_node(node)
        self._policy, self._turns, self._restart_s = policy, turns, restart_s
        self._views, self._tasks = Views(self._columns, policy), Tasks(self._columns)
        count = len(nodes)
        self._size: Ints = np.array([len(node.cards) for node in nodes], dtype=np.int64)
        self._free = self._size.copy()
        #: Cards of settled jobs, by level and row: of jobs of one pod, and of gangs.
        self._may_go: Ints = np.zeros((2, len(turns.levels) + 1, count), dtype=np.int64)
        self._on: list[dict[int, int]] = [{} for _ in nodes]  #: cards by index of job, on each row
        self._leaf: Ints | None = np.arange(count) // leaf_nodes if leaf_nodes else None
        self._events: list[tuple[float, int, int, int, int]] = []
        self._sequence = 0
        #: By level; by cards, and where queues matter by queue.
        self._waiting: list[dict[tuple[int, str], list[tuple[float, int, int]]]] = [{} for _ in range(len(turns.levels) + 1)]
        self._runs: list[_Run] = []
        self._now = 0.0
        self._in_line = 0
        self._leaves: tuple[list[int], list[int], list[int]] = ([], [], [])
        self._totals = Totals()
        k = turns.usage_weight
        self._shares = QueueShares(k, turns.half_life_s, int(self._size.sum())) if k else None

    def run(self, jobs: Sequence[TraceJob], *, tick: Callable[[int], None] | None = None) -> JobOutcome:
        """Run until the last job has ended. `tick` receives the number of newly ended jobs from time to time. Raises InvalidRequest for a job that never
        fits."""
        ordered = checked(list(jobs), capacity=int(self._size.sum()))
        for index, job in enumerate(ordered):
            pods, each = job.pods(self._size)
            self._runs.append(_Run(job, self._task(each), pods, each, index, waiting_since=job.submit_s))
            self._event(job.submit_s, _SUBMITTED, index, 0)
        if ordered:
            self._now = ordered[0].submit_s
        samples: list[Sample] = []
        ended = 0
        while self._events:
            now = self._events[0][0]
            self._pass(now)
            if not samples or now - samples[-1].at_s >= SAMPLE_S:
                samples.append(Sample(now, int(self._size.sum() - self._free.sum()), self._in_line))
            while self._events and self._events[0][0] <= now:
                _, _, kind, index, version = heappop(self._events)
                if version == self._runs[index].version:
                    ended += self._take(kind, self._runs[index])
            self._serve()
            if tick is not None and ended:
                tick(ended)
                ended = 0
        if self._in_line:
            raise Bug(f"{self._in_line} jobs never started")
        return self._outcome(tuple(samples))

    # Events.

    def _event(self, at: float, kind: int, index: int, version: int) -> None:
        self._sequence += 1
        heappush(self._events, (at, self._sequence, kind, index, version))

    def _take(self, kind: int, run: _Run) -> int:
        """What an event changes. Returns how many jobs have ended by it."""
        if kind == _SUBMITTED:
            self._queue(run)
        elif kind == _ENDED:
            self._leave(run)
            run.version += 1
            run.finish = self._now
            return 1
        elif kind == _RISEN:
            self._may(run, -1)
            assert run.started is not None
            run.level = min(run.level + 1, len(self._turns.levels))
            self._may(run, 1)
            self._rise(run, self._turns.levels[run.level - 1])
        elif kind == _SETTLED:
            run.settled = True
            self._may(run, 1)
        else:
            run.held_s, run.level = 0.0, 0
            run.version += 1
            self._in_line -= 1
            self._queue(run)
        return 0

    def _pass(self, now: float) -> None:
        """Time passes until `now`."""
        passed = now - self._now
        totals, self._now = self._totals, now
        idle = int(self._free.sum())
        totals.allocated += passed * (int(self._size.sum()) - idle)
        totals.partly_used_nodes += passed * int(np.count_nonzero((self._free > 0) & (self._free < self._size)))
        totals.span_s += passed
        if self._shares is not None:
            self._shares.passes(passed)
        first = self._first(frozenset())
        if first is not None and first.job.cards <= idle:
            totals.stranded += passed * idle

    # TraceTurns.

    def _queue(self, run: _Run) -> None:
        heappush(self._line(run), (run.job.submit_s, run.index, run.version))
        self._in_line += 1
        if self._shares is not None:
            self._shares.waits(run.job.queue)
        if self._turns.levels and run.level:
            self._event(self._now + self._turns.patience_s, _IMPATIENT, run.index, run.version)

    def _line(self, run: _Run) -> list[tuple[float, int, int]]:
        key = run.job.cards, run.job.queue if self._shares is not None else ""
        return self._waiting[run.level].setdefault(key, [])

    def _first(self, blocked: frozenset[int] | set[int]) -> _Run | None:
        """The next job, among jobs of sizes that are not blocked. It stays in the queue."""
        for lines in self._waiting:
            best: tuple[object, tuple[float, int, int]] | None = None
            for (cards, queue), line in lines.items():
                if cards in blocked:
                    continue
                while line and line[0][2] != self._runs[line[0][1]].version:
                    heappop(line)
                if line:
                    turn = self._shares.key(queue) if self._shares is not None else (), line[0]
                    best = turn if best is None else min(best, turn)
            if best is not None:
                return self._runs[best[1][1]]
        return None

    def _serve(self) -> None:
        blocked: set[int] = set()
        while (run := self._first(blocked)) is not None:
            if self._fits(run) or self._make_room(run):
                heappop(self._line(run))
                self._in_line -= 1
                if self._shares is not None:
                    self._shares.waits(run.job.queue, -1)
                self._start(run)
            elif self._turns.backfill:
                blocked.add(run.job.cards)
            else:
                return

    def _fits(self, run: _Run) -> bool:
        return int((self._free // run.each).sum()) >= run.pods

    def _make_room(self, run: _Run) -> bool:
        """Preempt jobs of higher levels until this one fits. If that is not enough: False, and nothing is preempted.

        Jobs on one node before gangs, whose other nodes would be freed for nothing; of these the highest level; of equal ones as few cards as possible.
        """
        above = self._may_go[:, run.level + 1 :]
        if not above.shape[1] or int(((self._free + above.sum(axis=(0, 1))) // run.each).sum()) < run.pods:
            return False
        while not self._fits(run):
            self._clear(*self._victims(run))
        return True

    def _victims(self, run: _Run) -> tuple[int, int, int]:
        """For one more pod: the row, how many of its cards have to be freed, and the lowest level of the victims."""
        target = (self._free // run.each + 1) * run.each
        for gangs in (False, True):
            for level in range(self._may_go.shape[1] - 1, run.level, -1):
                possible = self._free + self._may_go[: 1 + gangs, level:].sum(axis=(0, 1))
                if (possible >= target).any():
                    # The node that has to give the fewest cards, and of these the one that has the fewest to give.
                    cost = np.where(possible >= target, (target - self._free) * 64 + possible - target, np.iinfo(np.int64).max)
                    row = int(cost.argmin())
                    return row, int(target[row]), level
        raise Bug("room that was counted is not there")

    def _clear(self, row: int, target: int, level: int) -> None:
        """Stop settled jobs of this level and above on a node until so many of its cards are free."""
        while self._free[row] < target:
            lacking = int(target - self._free[row])
            here = [
                (self._runs[index], cards)
                for index, cards in self._on[row].items()
                if self._runs[index].settled and self._runs[index].level >= level
            ]
            self._stop(min(here, key=lambda item: _harm(item[0], item[1], lacking))[0])

    # Starting and stopping.

    def _task(self, cards: int) -> Task:
        requests = {PODS: 1, VENDORS.default.cards: cards}
        return self._tasks.of(PodGroupTask(name="worker", requests=requests, pods=(), cards=CardRequest(cards)))

    def _start(self, run: _Run) -> None:
        if self._leaf is not None and run.pods > 1:
            rows, counts = self._close_together(run, self._leaf)
            run.booked = [pick(self._columns, rows, counts, run.task)]
            self._columns.apply(run.booked[0])
            run.rows = rows.repeat(counts)
            self._measure(run, self._leaf)
        else:
            run.booked = place_uniform(self._columns, self._views, self._policy, run.task, run.pods)
            placed = [row for batch in run.booked for row in batch.rows.repeat(batch.counts).tolist()]
            if len(placed) != run.pods:
                raise Bug(f"job {run.job.name}: {len(placed)} of {run.pods} pods have a place where all fit")
            run.rows = np.array(placed, dtype=np.int64)
        np.subtract.at(self._free, run.rows, run.each)
        if self._shares is not None:
            self._shares.holds(run.job.queue, run.job.cards)
        for row in run.rows.tolist():
            self._on[row][run.index] = self._on[row].get(run.index, 0) + run.each
        run.longest_s = max(run.longest_s, self._now - run.waiting_since)
        run.version += 1
        run.started, run.settled = self._now, False
        if run.first < 0:
            run.first = self._now
        ends = self._now + run.job.duration_s - run.done_s + (self._restart_s if run.preemptions else 0.0)
        self._event(ends, _ENDED, run.index, run.version)
        if self._turns.levels:
            self._event(self._now + self._turns.minimum_run_s, _SETTLED, run.index, run.version)
            self._rise(run, run.held_s)

    def _close_together(self, run: _Run, leaf: Ints) -> tuple[Ints, Ints]:
        """Rows, and pods on each: in the fewest leaves that hold the gang now, and in each of them on the fewest nodes."""
        room = self._free // run.each
        untouched = np.bincount(leaf, weights=self._free < self._size) == 0
        chosen = _fewest(np.bincount(leaf, weights=room).astype(np.int64), untouched, run.pods)
        rows, counts = [], []
        for which, pods in zip(*chosen, strict=True):
            here = np.flatnonzero(leaf == which)
            nodes, took = _fewest(room[here], self._free[here] == self._size[here], int(pods))
            rows.append(here[nodes])
            counts.append(took)
        return np.concatenate(rows), np.concatenate(counts)

    def _rise(self, run: _Run, held_s: float) -> None:
        """The event of its next level, from having held cards for `held_s`."""
        assert run.started is not None
        if (left := self._turns.until_next(held_s)) is not None:
            self._event(run.started + held_s - run.held_s + left, _RISEN, run.index, run.version)

    def _stop(self, run: _Run) -> None:
        assert run.started is not None
        ran = self._now - run.started
        overhead = min(ran, self._restart_s) if run.preemptions else 0.0
        run.done_s += ran - overhead
        run.held_s += ran
        self._leave(run)
        run.version += 1
        run.preemptions += 1
        run.waiting_since = self._now
        self._queue(run)

    def _leave(self, run: _Run) -> None:
        """Give its cards back."""
        assert run.started is not None
        if run.preemptions:
            self._totals.restarts_s += run.job.cards * min(self._restart_s, self._now - run.started)
        self._may(run, -1)
        run.settled = False
        while run.booked:
            self._columns.apply(run.booked.pop(), -1)
        np.add.at(self._free, run.rows, run.each)
        if self._shares is not None:
            self._shares.holds(run.job.queue, -run.job.cards)
        for row in set(run.rows.tolist()):
            del self._on[row][run.index]
        run.started = None

    def _may(self, run: _Run, times: int) -> None:
        if run.settled:
            np.add.at(self._may_go[int(run.pods > 1), run.level], run.rows, times * run.each)

    # Measures.

    def _measure(self, run: _Run, leaf: Ints) -> None:
        used, possible, empty = self._leaves
        used.append(len(np.unique(leaf[run.rows])))
        for known, cards in ((possible, self._free), (empty, self._size)):
            by_leaf = np.sort(np.bincount(leaf, weights=cards // run.each))[::-1]
            known.append(int(np.searchsorted(np.cumsum(by_leaf), run.pods)) + 1)

    def _outcome(self, samples: tuple[Sample, ...]) -> JobOutcome:
        runs = self._runs
        return JobOutcome(
            cards=np.array([run.job.cards for run in runs], dtype=np.int64),
            nodes=len(self._size),
            submit=np.array([run.job.submit_s for run in runs]),
            duration=np.array([run.job.duration_s for run in runs]),
            first=np.array([run.first for run in runs]),
            finish=np.array([run.finish for run in runs]),
            longest=np.array([run.longest_s for run in runs]),
            preemptions=np.array([run.preemptions for run in runs], dtype=np.int64),
            capacity=int(self._size.sum()),
            totals=self._totals,
            samples=samples,
            topology=Topology(*(tuple(leaves) for leaves in self._leaves)),
            queues=tuple(run.job.queue for run in runs),
        )


def _harm(run: _Run, cards: int, lacking: int) -> tuple[bool, bool, int, int]:
    """Orders victims that have so many cards on a node which lacks some: no gang, one that alone is enough, and the smallest of these."""
    enough = cards >= lacking
    return run.pods > 1, not enough, cards if enough else -cards, -run.level


def _fewest(room: Ints, whole: Bools, pods: int) -> tuple[Ints, Ints]:
    """As few parts as hold so many pods, as the engine chooses them for gangs, and pods in each."""
    nothing = np.zeros(len(room), dtype=np.bool_)
    chosen = select(Parts(room=room, whole=whole, taken=nothing, weight=room, score=np.zeros(len(room))), pods)
    if chosen is None:
        raise Bug(f"{pods} pods have no place where all fit")
    return chosen
