"""Why pods have the places that they have: the scores of recent decisions, kept when they are taken.

Theory of operation. Whoever chooses a node says so (`cluster.choices`) before it books anything: equal pods once, with the nodes in the order in which they
are filled; a pod of a session by itself, the last choice counting. At the end of a cycle its plans are put beside the choices that were made in it, and both
are let go of when newer ones need the room. What a pod's place has to do with which choice is found out when somebody asks.

The runner-up of a node is the next one in that order: the nodes before it were full by then. The last is followed by the best of all others.

Terms are asked of the plugins anew at a few rows, which costs as much as a placement or two: so not for more than `RATE` batches a second, `BURST` at once.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hbox_common.events import Plan
from hbox_common.model import JobId, NodeName, PodUid, Resources
from hbox_common.model.decision import Decision, NodeDecision, Scored

from ..cluster import Columns
from ..cluster.arrays import Floats, Ints
from ..cluster.task import Task

#: Decisions (plans) and places kept, whichever is reached first.
MOST_PLANS, MOST_PLACES = 10_000, 100_000

#: Of one batch so many nodes are kept, the first ones.
MOST_NODES = 32

RATE, BURST = 100.0, 50.0

#: Pods of one cycle whose Events name their scores, the first ones: to find them takes 10 microseconds a pod.
MOST_NOTED = 64


@dataclass(frozen=True, slots=True)
class Choice:
    """Nodes in the order in which they are taken, with one more that was not: `totals[n]`, `terms` by plugin `[n]`. Arrays, for the sake of memory."""

    nodes: Sequence[NodeName]
    totals: Floats
    terms: Mapping[str, Floats]
    more: int = 0  #: nodes of the batch that are not kept


@dataclass(frozen=True, slots=True)
class _Cycle:
    """The plans of one cycle, and the choices that were made in it."""

    at: float
    policy: str
    plans: Sequence[Plan]
    places: int
    of_equals: Sequence[tuple[Task, Choice]]
    of_pods: Mapping[PodUid, Choice]
    untold: bool  #: there were more choices than are kept


@dataclass(slots=True)
class Decisions:
    """The recent ones of one scheduler.

    `terms`: scores by shape at n rows, `[n]` by plugin; `policy`: by which it decides from now on, in words; `rate`: batches a second of which the terms
    are kept, None: of all.
    """

    columns: Columns
    terms: Callable[[Ints, Task], Iterable[tuple[str, Floats]]]
    policy: str = ""
    rate: float | None = RATE
    _cycles: deque[_Cycle] = field(default_factory=deque)
    _plans: int = 0
    _places: int = 0
    _of_equals: list[tuple[Task, Choice]] = field(default_factory=list)
    _of_pods: dict[PodUid, Choice] = field(default_factory=dict)
    _untold: bool = False
    _tokens: float = BURST
    _at: float = 0.0

    # Told when a node is chosen (`cluster.choices`).

    def of_equals(self, task: Task, rows: Ints, rank: Floats) -> None:
        if self.rate is not None and self._tokens < 1:
            self._untold = True
            return
        self._tokens -= 1
        shown, last = rows[:MOST_NODES], rows[MOST_NODES - 1 :][1:2]
        if not len(last):
            kept = rank[rows].copy()
            rank[rows] = -np.inf
            other = int(rank.argmax())
            last = np.array([other], dtype=np.int64) if rank[other] > -np.inf else last
            rank[rows] = kept
        at = np.concatenate((shown, last))
        names = self.columns.names
        nodes = [names[row] for row in at.tolist()]
        choice = Choice(nodes, rank[at], _by_plugin(self.terms(at, task)), more=len(rows) - len(shown))
        self._of_equals.append((task, choice))

    def of_pod(self, pod: PodUid, row: int, scores: Floats, terms: Sequence[tuple[str, Floats]]) -> None:
        total = scores[row]
        scores[row] = -np.inf
        other = int(scores.argmax())
        at = [row, other] if scores[other] > -np.inf else [row]
        scores[row] = total
        found = _by_plugin((name, score[at]) for name, score in terms)
        self._of_pods[pod] = Choice([self.columns.names[one] for one in at], scores[at], found)

    # Told by the scheduler.

    def begin(self, now: float) -> None:
        """A cycle begins; `now` is monotone, in seconds."""
        if self.rate is not None:
            self._tokens = min(BURST, self._tokens + self.rate * max(now - self._at, 0.0))
        self._at = now
        if self._of_equals or self._of_pods or self._untold:
            self._of_equals, self._of_pods, self._untold = [], {}, False

    def end(self, plans: Sequence[Plan], wall: float) -> None:
        """The cycle made these plans; `wall`: seconds since the epoch."""
        given = [plan for plan in plans if plan.placements]
        if not given:
            return
        places = sum(len(plan.placements) for plan in given)
        of_pods = self._of_pods
        if len(of_pods) > places:
            pods = (placement.pod_uid for plan in given for placement in plan.placements)
            of_pods = {pod: of_pods[pod] for pod in pods if pod in of_pods}
        self._cycles.append(_Cycle(wall, self.policy, given, places, self._of_equals, of_pods, self._untold))
        self._of_equals, self._of_pods, self._untold = [], {}, False
        self._plans += len(given)
        self._places += places
        while len(self._cycles) > 1 and (self._plans > MOST_PLANS or self._places > MOST_PLACES):
            oldest = self._cycles.popleft()
            self._plans -= len(oldest.plans)
            self._places -= oldest.places

    # Questions.

    def notes(self, plans: Sequence[Plan]) -> list[tuple[PodUid, NodeName, str]]:
        """Of pods to which these plans of the last cycle give places: node, and its score beside the runner-up's in a few words; only pods with kept scores,
        of the first MOST_NOTED."""
        if not self._cycles:
            return []
        cycle, found, left = self._cycles[-1], [], MOST_NOTED
        if not cycle.of_equals and not cycle.of_pods:
            return []
        for plan in plans:
            for placement in () if plan.victims else plan.placements[:left]:
                left -= 1
                kept = _choice(cycle, placement.node, placement.pod_uid, plan.requests[placement.requests])
                if kept is not None:
                    found.append((placement.pod_uid, placement.node, _note(*kept)))
            if left <= 0:
                break
        return found

    def of(self, job: JobId) -> list[Decision]:
        """The decisions kept that gave the job places, oldest first. A plan with victims is told with the one that follows it."""
        found: list[Decision] = []
        room: tuple[_Cycle, Plan] | None = None
        for cycle in self._cycles:
            for plan in cycle.plans:
                if plan.job != job:
                    continue
                if plan.victims:
                    room = cycle, plan
                    continue
                found.append(_decision(cycle, plan, room))
                room = None
        return found


def _by_plugin(terms: Iterable[tuple[str, Floats]]) -> dict[str, Floats]:
    found: dict[str, Floats] = {}
    for name, scores in terms:
        known = found.get(name)
        found[name] = scores if known is None else known + scores
    return found


def _decision(cycle: _Cycle, plan: Plan, room: tuple[_Cycle, Plan] | None) -> Decision:
    nodes: dict[NodeName, list[tuple[str, PodUid, Resources]]] = {}
    for placement in plan.placements:
        asked = plan.requests[placement.requests]
        nodes.setdefault(placement.node, []).append((placement.pod, placement.pod_uid, asked))
    return Decision(
        plan=plan.id,
        job=plan.job,
        at=cycle.at,
        policy=cycle.policy,
        nodes=[_on_node(cycle, node, pods, room) for node, pods in nodes.items()],
        made_room=None if room is None else room[1].id,
        victims=0 if room is None else len(room[1].victims),
    )


def _on_node(
    cycle: _Cycle, node: NodeName, pods: Sequence[tuple[str, PodUid, Resources]], room: tuple[_Cycle, Plan] | None
) -> NodeDecision:
    names = [name for name, _, _ in pods]
    _, uid, asked = pods[0]
    for one in (cycle, room[0]) if room is not None else (cycle,):
        if (found := _choice(one, node, uid, asked)) is not None:
            choice, place = found
            chosen = _scored(choice, place)
            other = _scored(choice, place + 1) if place + 1 < len(choice.nodes) else None
            return NodeDecision(node, names, chosen, other, _why(chosen, other))
    if room is not None:
        why = "no scores are kept: the node was chosen by its victims"
    elif cycle.untold:
        why = f"no scores are kept: more than {RATE:g} batches of equal pods a second found nodes"
    elif any(choice.more for _, choice in cycle.of_equals):
        why = f"no scores are kept: only the first {MOST_NODES} nodes of a batch of equal pods have them"
    else:
        why = "no scores are kept: the node was chosen with the domain of the gang, or reserved for the pod before"
    return NodeDecision(node, names, None, None, why)


def _choice(cycle: _Cycle, node: NodeName, pod: PodUid, asked: Resources) -> tuple[Choice, int] | None:
    """The choice by which the pod got the node, and the node's place in it."""
    own = cycle.of_pods.get(pod)
    if own is not None and own.nodes[0] == node:
        return own, 0
    for task, choice in cycle.of_equals:
        if task.requests == asked and node in choice.nodes:
            return choice, choice.nodes.index(node)
    return None


def _scored(choice: Choice, place: int) -> Scored:
    terms = {plugin: float(scores[place]) for plugin, scores in choice.terms.items()}
    return Scored(choice.nodes[place], float(choice.totals[place]), terms)


def _note(choice: Choice, place: int) -> str:
    """The total of one place, and of the next one."""
    said = f"score {choice.totals[place]:g}"
    if place + 1 == len(choice.nodes):
        return f"{said}, no other node had room"
    return f"{said}, runner-up {choice.nodes[place + 1]} with {choice.totals[place + 1]:g}"


def _why(chosen: Scored, other: Scored | None) -> str:
    """Why the runner-up lost."""
    if other is None:
        return "no other node was allowed and had room"
    by = chosen.total - other.total
    if by == 0:
        return "equal scores: the first in the order of nodes is taken"
    if by < 0:
        return "a plugin of the policy chose the node itself"
    parts = {plugin: score - other.terms.get(plugin, 0.0) for plugin, score in chosen.terms.items()}
    told = [f"{plugin} {-part:+g}" for plugin, part in sorted(parts.items(), key=lambda item: -item[1]) if part]
    return f"it is {by:g} behind: {', '.join(told)}"
