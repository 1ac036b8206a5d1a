"""A world around a scheduler: jobs arrive, run for as long as they run, end, and come back when they are evicted, and job-controller says so each time.

It is written apart from `core.simulate.whatif`, which has to come to the same.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from hbox_common.model import Claim, Generation, Job, JobId, NodeName, NodeState, PodRef, PodUid
from hbox_scheduler.core import Limits, Scheduler
from hbox_scheduler.core.framework.conf import Conf, parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate import Simulation, job, node

SPREADING = """\
actions: "enqueue, allocate, backfill, preempt"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
- plugins:
  - {name: predicates}
  - name: nodeorder
    arguments: {leastrequested.weight: 10}
"""

#: Nobody has to leave for anybody, and nobody waits for admission.
PATIENT = """\
actions: "allocate"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
- plugins:
  - {name: predicates}
  - {name: binpack}
"""

#: PodGroups wait until all of what they may ever ask for is there beside all others.
STRICT = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: overcommit, arguments: {overcommit-factor: 1.0}}
- plugins:
  - {name: predicates}
  - {name: binpack}
"""

POLICIES: dict[str, Conf] = {
    "binpack": default_conf(PolicyName.BINPACK),
    "least-waste": default_conf(PolicyName.LEAST_WASTE),
    **{
        name: parse_conf(text, plugins=list(PLUGINS))
        for name, text in {"spreading": SPREADING, "patient": PATIENT, "strict": STRICT}.items()
    },
}

#: As long as it takes in `whatif`.
LEAVES_S = 1.0


@dataclass(frozen=True)
class Arrival:
    at: float
    job: Job
    runs_s: float


def arrivals(seed: int, *, jobs: int = 40) -> list[Arrival]:
    """Jobs of all sizes over ten minutes, some of them of high priority."""
    chance = random.Random(seed)
    found = []
    for number in range(jobs):
        at = round(chance.uniform(0, 600), 3)
        one = job(
            f"j{number}",
            pods=chance.choice([1, 1, 1, 2, 4]),
            cards=chance.choice([1, 2, 4, 8]),
            priority=chance.choice([0, 0, 0, 100]),
            created_at=at,
        )
        found.append(Arrival(at, one, round(chance.uniform(20, 400), 3)))
    return sorted(found, key=lambda arrival: arrival.at)


@dataclass
class World:
    """Runs until all work is done, or for so long. `places`: of each pod, as it came first, its first place, and when."""

    policy: str
    attach: Callable[[Scheduler], None] = lambda _: None
    places: dict[str, tuple[float, NodeName]] = field(default_factory=dict)
    evicted_at: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        conf = POLICIES[self.policy]
        self.simulation = Simulation(policy_of(PolicyName.BINPACK), conf=conf, limits=Limits(), attach=self.attach)
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.waiting: dict[JobId, dict[str, PodRef]] = {}
        self.jobs: dict[JobId, Arrival] = {}
        self.live: dict[JobId, set[PodUid]] = {}
        self.ended: dict[JobId, int] = {}
        self.revision = 1

    def run(self, nodes: list[NodeState], work: list[Arrival], *, until: float = math.inf) -> None:
        self.simulation.put_nodes(nodes)
        for arrival in work:
            self.at(arrival.at, lambda arrival=arrival: self.arrives(arrival))  # type: ignore[misc]
        wake: float | None = None
        while self.events or (wake is not None and any(self.waiting.values())):
            due = self.events[0][0] if self.events else None
            now = min(time for time in (due, wake) if time is not None)
            if now > until:
                return
            self.simulation.now = max(self.simulation.now, now)
            while self.events and self.events[0][0] <= self.simulation.now:
                heappop(self.events)[2]()
            wake = self.decide()

    def at(self, when: float, what: Callable[[], None]) -> None:
        self.count += 1
        heappush(self.events, (when, self.count, what))

    def decide(self) -> float | None:
        while True:
            out = self.simulation.step()
            for plan in out.plans:
                for placement in () if plan.victims else plan.placements:
                    self.starts(plan.job, placement.pod_uid, placement.node)
            gone, self.simulation.evicted = self.simulation.evicted, []
            for claim in gone:
                self.evicted_at.append(self.simulation.now)
                self.at(self.simulation.now + LEAVES_S, lambda claim=claim: self.leaves(claim))  # type: ignore[misc]
            self.tell({plan.job for plan in out.plans if not plan.victims})
            if not out.plans and not out.more and not out.admitted:
                return None if out.wake_at is None else max(out.wake_at, self.simulation.now + 1e-3)

    def arrives(self, arrival: Arrival) -> None:
        one = arrival.job
        self.jobs[one.id], self.live[one.id], self.ended[one.id] = arrival, set(), 0
        self.waiting[one.id] = {pod.uid: pod for task in one.tasks for pod in task.pods}
        self.tell({one.id})

    def starts(self, job: JobId, uid: PodUid, on: NodeName) -> None:
        del self.waiting[job][uid]
        self.live[job].add(uid)
        self.places.setdefault(uid.partition("~")[0], (self.simulation.now, on))
        self.at(self.simulation.now + self.jobs[job].runs_s, lambda: self.ends(job, uid))

    def ends(self, job: JobId, uid: PodUid) -> None:
        if uid in self.live[job]:
            self.live[job].discard(uid)
            self.ended[job] += 1
            self.simulation.gone([uid])
            self.tell({job})

    def node_goes(self, state: NodeState) -> None:
        """With all that runs there; it comes back elsewhere."""
        self.simulation.put_nodes([replace(state, gone=True, generation=Generation(state.generation + 1))])
        for claim in [claim for claim in self.simulation.claims.values() if claim.node == state.name]:
            self.leaves(claim)

    def leaves(self, claim: Claim) -> None:
        if claim.pod_uid not in self.live[claim.job]:
            return
        self.live[claim.job].discard(claim.pod_uid)
        self.simulation.gone([claim.pod_uid])
        self.count += 1
        again = PodUid(f"{claim.pod_uid.partition('~')[0]}~{self.count}")
        self.waiting[claim.job][again] = PodRef(again, claim.pod, "1")
        self.tell({claim.job})

    def withdraw(self, job: JobId) -> None:
        """Somebody deletes the pods that wait."""
        self.waiting[job].clear()
        self.tell({job})

    def tell(self, changed: set[JobId]) -> None:
        self.revision += 1
        for id in sorted(changed):
            one, waiting = self.jobs[id].job, self.waiting[id]
            if not waiting:
                self.simulation.scheduler.on_withdrawn([id], [self.revision])
                continue
            self.simulation.submit(
                [
                    replace(
                        one,
                        revision=self.revision,
                        members=len(waiting) + len(self.live[id]),
                        bound=len(self.live[id]),
                        min_member=max(1, one.min_member - self.ended[id]),
                        tasks=(replace(one.tasks[0], pods=tuple(waiting.values())),),
                    )
                ]
            )


def six_nodes() -> list[NodeState]:
    return [node(f"n{number}", cards=8) for number in range(6)]
