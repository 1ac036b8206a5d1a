"""A day under a policy, in simulated time: scheduler-core's engine with a ledger that answers at once (`hbox simulate`).

Jobs run as long as in the trace. An evicted job leaves after its notice, and returns with its work since the last checkpoint: a gang as new pods of the same
PodGroup, as with a job controller.
"""

import os
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np

from hbox_common.model import Claim, Job, JobId, Neighbour, PodUid, Queue
from hbox_scheduler.core.framework.conf import Conf
from hbox_scheduler.core.policy import policy_from
from hbox_scheduler.core.simulate import Simulation, job, node

from .idle import Idle, reasons
from .outcome import CHECKPOINT_S, SAYS, Outcome
from .policies import Row
from .work import CARDS, DAY_S, LEVELS, Day, Piece

NOTICE_S = 30.0
#: Seconds since the epoch when the day begins.
AHEAD_S = 1e9
#: Events of so many seconds are decided on together.
STEP_S = 60.0
#: The engine looks again of itself (what waits for its time) no more often than that.
WAKES_S = 300.0
#: How long after the day what still waits is watched.
AFTER_S = 6 * 3600.0
#: Whether it is looked up what idle cards stand for.
IDLE = bool(os.environ.get("HBOX_DAY_IDLE"))


@dataclass(slots=True)
class Run:
    """A job as it is now; `left_s` of its work is to be done."""

    piece: Piece
    left_s: float
    id: JobId
    life: int = 1  #: how many times its pods were made
    started: float | None = None
    leaving: bool = False
    nominated: bool = False  #: others were told to leave for it


class Simulated:
    def __init__(self, day: Day, conf: Conf, *, nodes: int, queues: list[Queue]) -> None:
        self._sim = Simulation(policy_from(conf), conf=conf, queues=queues)
        self._sim.wall_ahead = AHEAD_S
        self._sim.scheduler.on_priority_classes(LEVELS)
        self._sim.put_nodes(node(f"n{number:04}", cards=CARDS, cpu=96, memory_mib=1 << 20) for number in range(nodes))
        self.outcome = Outcome()
        self.idle = Idle()
        self._runs: dict[JobId, Run] = {}
        self._events: list[tuple[float, int, str, Run | None]] = []
        self._count = 0
        for piece in day.pieces:
            self._at(piece.submit_s, "comes", Run(piece, piece.duration_s, JobId(piece.name)))

    def run(self) -> Outcome:
        until = DAY_S + AFTER_S
        while self._events and self._events[0][0] <= until:
            now = self._events[0][0]
            self._sim.now = now
            fresh: list[Job] = []
            while self._events and self._events[0][0] <= now + STEP_S:
                _, _, what, run = heappop(self._events)
                if run is None:
                    continue  # the engine's own time
                if what == "comes":
                    fresh.append(self._job(run))
                elif what == "ends":
                    self._ends(run)
                else:
                    fresh += self._leaves(run)
            self._sim.scheduler.on_neighbours(
                Neighbour(pod.uid, made.namespace, annotations=SAYS) for made in fresh for pod in made.tasks[0].pods
            )
            self._sim.submit(fresh)
            self._decide()
            if IDLE and self._events:
                self.idle.add(self._reasons(), max(min(self._events[0][0], DAY_S) - min(now, DAY_S), 0.0))
        self.outcome.until = until
        for run in self._runs.values():
            if run.started is not None:
                self.outcome.ran(run.piece.cards, run.started, until)
        return self.outcome

    def _reasons(self) -> dict[str, int]:
        columns = self._sim.scheduler.columns
        idle = np.full(columns.size, CARDS, dtype=np.int64)
        for claim in self._sim.claims.values():
            idle[columns.row_of[claim.node]] -= len(claim.slices)
        waiting = [run for run in self._runs.values() if run.started is None]
        nominated = sum(run.piece.cards for run in waiting if run.nominated)
        return reasons(
            idle, columns.reserved[: columns.size] != 0, nominated, [run.piece.pods for run in waiting if not run.nominated]
        )

    def _at(self, at: float, what: str, run: Run | None = None) -> None:
        self._count += 1
        heappush(self._events, (at, self._count, what, run))

    def _job(self, run: Run) -> Job:
        piece, (pods, each) = run.piece, run.piece.pods
        self._runs[run.id] = run
        made = job(
            f"{piece.name}/{run.life}", pods=pods, cards=each, queue=piece.department, priority=LEVELS[piece.level],
            cpu_milli=8000 * each, revision=run.life,
            created_at=(piece.submit_s if pods > 1 else self._sim.now) + AHEAD_S,
        )  # fmt: skip
        return replace(made, id=run.id, priority_class=piece.level)

    def _decide(self) -> None:
        sim, now = self._sim, self._sim.now
        wake: float | None = None
        while True:
            out = sim.step()
            for plan in out.plans:
                run = self._runs.get(plan.job)
                if run is not None and plan.victims:
                    run.nominated = True
                if run is not None and not plan.victims and run.started is None:
                    run.started = now
                    self.outcome.starts.setdefault(run.piece.name, now)
                    self._at(now + run.left_s, "ends", run)
            evicted, sim.evicted = sim.evicted, []
            self._told_to_leave(evicted)
            if not out.plans and not out.more and not out.admitted:
                wake = out.wake_at
                break
        if wake is not None and (not self._events or wake < self._events[0][0]):
            self._at(max(wake, now + WAKES_S), "wakes")

    def _told_to_leave(self, claims: list[Claim]) -> None:
        for claim in claims:
            run = self._runs[claim.job]
            if not run.leaving:
                run.leaving = True
                self._at(self._sim.now + NOTICE_S, "leaves", run)

    def _pods(self, run: Run) -> list[PodUid]:
        return [uid for uid, claim in self._sim.claims.items() if claim.job == run.id]

    def _ends(self, run: Run) -> None:
        if self._runs.get(run.id) is not run:
            return  # it was evicted
        assert run.started is not None
        del self._runs[run.id]
        self.outcome.ran(run.piece.cards, run.started, self._sim.now)
        self._sim.finish(self._pods(run))

    def _leaves(self, run: Run) -> list[Job]:
        """The gang is broken: it comes back whole, with what it had not saved. Nobody, where it ended within its notice."""
        if self._runs.pop(run.id, None) is None:
            return []
        assert run.started is not None
        now, pods = self._sim.now, self._pods(run)
        for _ in pods:
            self.outcome.evicted(run.piece.pods[1], run.started, now)
        self.outcome.ran(run.piece.cards, run.started, now)
        saved = (now - run.started) // CHECKPOINT_S * CHECKPOINT_S
        again = Run(run.piece, max(run.left_s - saved, 60.0), run.id, run.life + 1)
        if len(pods) > 1:
            self._sim.gone(pods)  # its PodGroup stays, for the pods that its controller makes next
        else:
            self._sim.finish(pods)
            again.id = JobId(f"{run.piece.name}/{again.life}")
        return [self._job(again)]


def simulated(day: Day, policy: Row) -> tuple[Outcome, Idle]:
    """What became of the jobs, and what idle cards stood for (nothing where nobody asked)."""
    queues = [replace(queue, annotations=dict(policy.notes)) for queue in day.queues()]
    run = Simulated(day, policy.conf, nodes=day.nodes, queues=queues)
    return run.run(), run.idle


def alone(day: Day, conf: Conf) -> dict[str, float]:
    """What jobs wait in clusters of their departments' own; those that could never start there are left out."""
    waits: dict[str, float] = {}
    for queue in day.queues():
        nodes = day.deserved[queue.name] // CARDS
        own = [piece for piece in day.pieces if piece.department == queue.name and piece.cards <= nodes * CARDS]
        found = Simulated(replace(day, pieces=own), conf, nodes=nodes, queues=[queue]).run()
        waits |= {piece.name: found.starts[piece.name] - piece.submit_s for piece in own if piece.name in found.starts}
    return waits
