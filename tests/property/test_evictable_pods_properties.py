"""Victims found by arrays of running pods are the victims found by all pods as objects, in the same order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import (
    NO_CONSTRAINTS,
    OFFLINE,
    CardRequest,
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    GangPart,
    JobId,
    Neighbour,
    NodeName,
    PlanId,
    PodGroupTask,
    PodUid,
    QueueName,
)
from hbox_common.model.annotations import CHECKPOINT_INTERVAL, CHECKPOINTED_AT, MIN_RUN_TIME
from hbox_common.model.consolidation import Mode
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import CPU, MEMORY, PODS
from hbox_scheduler.core.actions import consolidate, preempt, reclaim, revoke
from hbox_scheduler.core.actions.registry import run_action
from hbox_scheduler.core.cluster import Booking, Bookings, Columns
from hbox_scheduler.core.cluster.entities import Gang, Member, QueueInfo
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.framework.conf import Conf, parse_conf
from hbox_scheduler.core.framework.session import Session
from hbox_scheduler.core.placement.running import RunningJobs
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of
from hbox_scheduler.core.queueing.groups import Groups
from hbox_scheduler.core.simulate import node

from ..policies import VOLCANO
from ..searching import examples
from .sorted_evictable import SortedEvictablePods

CARDS, NODES, NOW = 4, 6, 1000.0


def _conf(text: str) -> Conf:
    return parse_conf(text, plugins=list(PLUGINS))


SHORT = """
actions: "reclaim, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: minruntime, arguments: {preempt: 5m}}, {name: sla, arguments: {sla-waiting-time: 1h}}]
- plugins: [{name: predicates}, {name: capacity}, {name: nodeorder}]
"""

#: No plugin ranks priorities, and none forms gangs.
PLAIN = """
actions: "reclaim, preempt"
tiers:
- plugins: [{name: drf}, {name: predicates}, {name: proportion}]
"""

CONFS: dict[str, Callable[[], Conf]] = {
    "hbox": default_conf,
    "hbox with moves": lambda: default_conf(defragmentation=Mode.ON),
    "volcano": lambda: _conf(VOLCANO.replace('backfill"', 'backfill, reclaim, preempt"')),
    "short": lambda: _conf(SHORT),
    "plain": lambda: _conf(PLAIN),
}


@dataclass(frozen=True)
class Runs:
    """A running job. `pods`: cards of each; `annotations`: of its first pod."""

    queue: int
    priority: int
    pods: tuple[int, ...]
    min_member: int
    preemptable: bool
    protected_until: float
    created_at: float
    claimed_at: float
    claimed: bool
    offline: bool
    annotations: tuple[tuple[str, str], ...]
    role: bool
    grows: bool  #: has a pending pod more


@dataclass(frozen=True)
class Waits:
    queue: int
    priority: int
    cards: int
    pods: int
    min_member: int


@dataclass(frozen=True)
class World:
    """`queues`: parent, deserved, whether it is reclaimable; `unknown`: the last queue has no object. `ends`, `begins`: jobs that end, and begin, between two
    sessions, by their numbers."""

    conf: str
    queues: tuple[tuple[int, int, bool], ...]
    running: tuple[Runs, ...]
    waiting: tuple[Waits, ...]
    unknown: bool
    ends: frozenset[int]
    begins: frozenset[int]


ANNOTATIONS = st.sampled_from(
    [
        (),
        (),
        (),
        ((CHECKPOINT_INTERVAL, "70s"),),
        ((CHECKPOINTED_AT, "950"),),
        ((MIN_RUN_TIME, "1s"),),
        (("volcano.sh/task-priority", "3"),),
    ]
)
COUNT = 5

runs = st.builds(
    Runs,
    st.integers(0, COUNT - 1),
    st.sampled_from([0, 0, 0, 1, 2]),
    st.sampled_from([(1,), (1,), (1,), (2,), (0,), (1, 1), (1, 2), (1, 1, 1)]),
    st.integers(0, 2),
    st.sampled_from([True, True, True, False]),
    st.sampled_from([0.0, 0.0, 0.0, NOW - 1, NOW + 50, NOW + 1e9]),
    st.sampled_from([1.0, 2.0, 3.0]),
    st.sampled_from([100.0, 700.0, 900.0]),
    st.sampled_from([True, True, True, True, False]),
    st.sampled_from([False, False, False, False, True]),
    ANNOTATIONS,
    st.sampled_from([False, False, False, True]),
    st.sampled_from([False, False, False, True]),
)
waits = st.builds(
    Waits, st.integers(0, COUNT - 1), st.integers(0, 3), st.sampled_from([0, 1, 1, 2, 4]), st.integers(1, 3), st.integers(1, 3)
)
worlds = st.builds(
    World,
    st.sampled_from(sorted(CONFS)),
    st.tuples(*[st.tuples(st.integers(-1, 1), st.integers(0, 8), st.sampled_from([True, True, True, False]))] * COUNT),
    st.lists(runs, min_size=6, max_size=24).map(tuple),
    st.lists(waits, min_size=1, max_size=5).map(tuple),
    st.booleans(),
    st.frozensets(st.integers(0, 23), max_size=6),
    st.frozensets(st.integers(0, 23), max_size=6),
)


@dataclass
class Cell:
    """The scheduler's state that outlives a session."""

    world: World
    columns: Columns = field(default_factory=Columns)
    neighbours: dict[PodUid, Neighbour] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for i in range(NODES):
            self.columns.put_node(node(f"n{i}", cards=CARDS, cpu=64))
        for name in (GPU, CPU, MEMORY):
            self.columns.column(name)
        self.tasks = Tasks(self.columns)
        self.bookings = Bookings(self.columns)
        groups = Groups(self.columns)
        self.running = RunningJobs(self.columns, self.bookings, self.tasks, self.neighbours, groups)
        self.free = [list(range(CARDS)) for _ in range(NODES)]
        for number in range(len(self.world.running)):
            if number not in self.world.begins:
                self.begin(number)
        self.running.current()

    def begin(self, number: int) -> None:
        one = self.world.running[number]
        for pod, cards in enumerate(one.pods):
            row = next((row for row in range(NODES) if len(self.free[(row + number) % NODES]) >= cards), None)
            if row is None:
                return
            row = (row + number) % NODES
            taken, self.free[row] = self.free[row][:cards], self.free[row][cards:]
            self._book(one, JobId(f"d/r{number}"), PodUid(f"r{number}-{pod}"), NodeName(f"n{row}"), taken, first=pod == 0)

    def _book(self, one: Runs, job: JobId, uid: PodUid, name: NodeName, taken: list[int], *, first: bool) -> None:
        queue, requests = QueueName(f"q{one.queue}"), {CPU: 1000, PODS: 1} | ({GPU: len(taken)} if taken else {})
        slices = tuple(CardSlice(card, 100, 40_960) for card in taken)
        claim = Claim(
            *(ClaimId(uid), uid, "d", uid, job, PlanId(""), queue, one.priority, name, requests, slices, ClaimState.POSTED),
            min_member=one.min_member,
            preemptable=one.preemptable,
            created_at=one.created_at,
            claimed_at=one.claimed_at,
            protected_until=one.protected_until,
            pool=OFFLINE if one.offline else "",
        )
        cards = CardRequest(len(taken)) if taken else None
        task = self.tasks.of(PodGroupTask("w", requests, (), cards=cards), offline=one.offline)
        plain = Booking(uid, job, queue, name, requests, slices, PlanId(""), one.priority, "d", task)
        self.bookings.put(Booking.of(claim, plain) if one.claimed else plain)
        if (first and one.annotations) or one.role:
            part = GangPart("w", {}, {"w": 1}) if one.role else None
            notes = dict(one.annotations) if first else {}
            self.neighbours[uid] = Neighbour(uid, "d", {}, NO_CONSTRAINTS, notes, one.claimed_at + 5.0, (), part)
            self.running.mark_changed((uid,))

    def end(self, number: int) -> None:
        for pod in range(len(self.world.running[number].pods)):
            uid = PodUid(f"r{number}-{pod}")
            if (booking := self.bookings.get(uid)) is not None:
                self.free[int(booking.node[1:])] += [int(str(slice.card).rpartition("-")[2]) for slice in booking.slices]
                self.bookings.remove(uid)
                self.neighbours.pop(uid, None)
                self.running.mark_changed((uid,))

    def session(self) -> Session:
        world, running = self.world, self.running.current()
        growing = [JobId(f"d/r{number}") for number, one in enumerate(world.running) if one.grows]
        gangs = self.running.lend(job for job in growing if job in running.jobs)
        for gang in gangs:
            self._pend(gang, 1, 1, gang.priority)
        for number, one in enumerate(world.waiting):
            gang = Gang(
                JobId(f"d/w{number}"),
                "d",
                f"w{number}",
                QueueName(f"q{one.queue}"),
                one.priority,
                min(one.min_member, one.pods),
                100.0 + number,
            )
            self._pend(gang, one.cards, one.pods, one.priority)
            gangs.append(gang)
        departments = [QueueInfo(QueueName(f"d{i}"), deserved={GPU: 12}) for i in range(2)]
        queues = [
            QueueInfo(
                QueueName(f"q{i}"),
                parent=QueueName(f"d{parent}") if parent >= 0 else None,
                deserved={GPU: deserved},
                reclaimable=gives,
            )
            for i, (parent, deserved, gives) in enumerate(world.queues)
            if not (world.unknown and i == COUNT - 1)
        ]
        conf = CONFS[world.conf]()
        cluster = Cluster(gangs, [*departments, *queues], running=running)
        return Session(columns=self.columns, cluster=cluster, conf=conf, tiers=plugins_of(conf), now=NOW)

    def _pend(self, gang: Gang, cards: int, pods: int, priority: int) -> None:
        requests = {CPU: 1000, PODS: 1} | ({GPU: cards} if cards else {})
        task = self.tasks.of(PodGroupTask("w", requests, (), cards=CardRequest(cards) if cards else None))
        for number in range(pods):
            request = np.zeros(len(self.columns.allocatable), dtype=np.int64)
            for column, units in task.amount:
                request[column] = units
            request[self.columns.resource(PODS)] = 0
            uid = PodUid(f"{gang.id}-new-{number}")
            gang.members.append(Member(uid, "d", uid, gang, "", task, request, gang.created_at, priority=priority))


def outcome(session: Session) -> dict[str, Any]:
    for action in session.conf.actions:
        run_action(action, session)
    found = session.outcome
    return {
        "evictions": [(one.member.uid, one.row, one.reason, one.preemptor and one.preemptor.id) for one in found.evictions],
        "nominations": [(member.uid, member.row, member.slices) for member in found.nominations],
        "bindings": [(member.uid, member.row) for member in found.bindings],
        "moves": found.moves,
        "protected": found.protected,
    }


def outcomes(world: World) -> list[dict[str, Any]]:
    """Of two sessions; between them pods end and begin, and the second one meets what was kept of the first one."""
    cell = Cell(world)
    session = cell.session()
    found = [outcome(session)]
    undo(cell, session)
    for number in sorted(world.ends):
        if number < len(world.running):
            cell.end(number)
    for number in sorted(world.begins):
        if number < len(world.running) and number not in world.ends:
            cell.begin(number)
    found.append(outcome(cell.session()))
    return found


def undo(cell: Cell, session: Session) -> None:
    """As the service after a session of which nothing is carried out: the columns are those of the bookings again."""
    cell.running.mark_changed([one.member.uid for one in session.outcome.evictions])
    session.close()
    for i in range(NODES):
        cell.columns.drop_node(NodeName(f"n{i}"))
        cell.bookings.moved(NodeName(f"n{i}"))
    for i in range(NODES):
        cell.columns.put_node(node(f"n{i}", cards=CARDS, cpu=64))
        cell.bookings.rebuild(NodeName(f"n{i}"))


@examples(600)
@given(worlds)
def test_victims_by_arrays_are_those_by_objects(world: World) -> None:
    found = outcomes(world)
    with pytest.MonkeyPatch.context() as patch:
        for action in (reclaim, preempt, revoke, consolidate):
            patch.setattr(action, "EvictablePods", SortedEvictablePods)
        expected = outcomes(world)
    assert found == expected


def test_a_pod_that_began_after_a_search_is_a_victim_of_the_next_one() -> None:
    def job(priority: int) -> Runs:
        return Runs(0, priority, (1,), 1, True, 0.0, 1.0, 100.0, True, False, (), False, False)

    last = NODES * CARDS - 1
    queues = ((-1, 0, True), (-1, NODES * CARDS, True), *[(-1, 0, True)] * (COUNT - 2))
    running = (*[job(1)] * last, job(0))
    world = World("hbox", queues, running, (Waits(1, 3, CARDS, 1, 1),), False, frozenset(), frozenset([last]))
    before, after = ({uid for uid, *_ in found["evictions"]} for found in outcomes(world))
    assert len(before) in (CARDS - 1, CARDS)
    assert f"r{last}-0" in after
