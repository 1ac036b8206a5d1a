"""Victims are looked for queue by queue, and the order of queues is kept as shares change: neither changes what comes out."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bench.victims import new_member, new_task

from hbox_common.model import CardSlice, GroupPhase, JobId, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.actions.registry import run_action
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.entities import Gang, QueueInfo, Status
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.framework.session import Session
from hbox_scheduler.core.plugins.capacity import Capacity
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of
from hbox_scheduler.core.preemption import victims
from hbox_scheduler.core.simulate import node

from ..searching import examples

CARDS = 4

POLICY = """
actions: "reclaim"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}]
- plugins: [{{name: predicates}}, {{name: capacity, enableHierarchy: true, arguments: {{reclaimAtParting: {parting}}}}}]
"""


@dataclass(frozen=True)
class World:
    """`queues`: parent, deserved, guarantee; `running`: queue, priority, cards, pods that their gang can spare; `waiting`: queue, priority, cards, pods."""

    queues: tuple[tuple[int, int, int], ...]
    running: tuple[tuple[int, int, int, bool], ...]
    waiting: tuple[tuple[int, int, int, int], ...]
    parting: bool


@st.composite
def worlds(draw: st.DrawFn) -> World:
    count = draw(st.integers(2, 8))
    leaf = st.integers(0, count - 1)
    queue = st.tuples(st.integers(-1, 2), st.integers(0, 6), st.sampled_from([0, 0, 1, 2]))
    return World(
        tuple(draw(st.lists(queue, min_size=count, max_size=count))),
        tuple(draw(st.lists(st.tuples(leaf, st.integers(0, 2), st.integers(1, 2), st.booleans()), min_size=4, max_size=24))),
        tuple(draw(st.lists(st.tuples(leaf, st.integers(0, 2), st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=6))),
        draw(st.booleans()),
    )


def session_of(world: World) -> Session:
    columns = Columns()
    nodes = 6
    for i in range(nodes):
        columns.put_node(node(f"n{i}", cards=CARDS, cpu=64))
    tasks = Tasks(columns)
    departments = [QueueInfo(QueueName(f"d{i}"), deserved={GPU: 8}) for i in range(3)]
    queues = [
        QueueInfo(
            QueueName(f"q{i}"),
            parent=QueueName(f"d{parent}") if parent >= 0 else None,
            deserved={GPU: deserved},
            guarantee={GPU: floor},
        )
        for i, (parent, deserved, floor) in enumerate(world.queues)
    ]
    gangs: list[Gang] = []
    free = [CARDS] * nodes
    for i, (queue, priority, cards, spare) in enumerate(world.running):
        row = next((row for row in range(nodes) if free[row] >= cards), None)
        if row is None:
            break
        gang = Gang(
            JobId(f"d/r{i}"), "d", f"r{i}", QueueName(f"q{queue}"), priority, 0 if spare else 1, float(i), GroupPhase.RUNNING
        )
        member = new_member(columns, gang, new_task(tasks, cards), 0)
        member.status, member.row = Status.RUNNING, row
        member.slices = tuple(CardSlice(CARDS - free[row] + card, 100, 40_960) for card in range(cards))
        free[row] -= cards
        columns.book(row, member.task.requests, member.slices)
        gangs.append(gang)
    for i, (queue, priority, cards, pods) in enumerate(world.waiting):
        gang = Gang(JobId(f"d/w{i}"), "d", f"w{i}", QueueName(f"q{queue}"), priority, pods, 100.0 + i)
        for number in range(pods):
            new_member(columns, gang, new_task(tasks, cards), number)
        gangs.append(gang)
    conf = parse_conf(POLICY.format(parting=str(world.parting).lower()), plugins=list(PLUGINS))
    return Session(columns=columns, cluster=Cluster(gangs, [*departments, *queues]), conf=conf, tiers=plugins_of(conf))


def outcome(session: Session) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    run_action("reclaim", session)
    evicted = [(eviction.member.name, eviction.row) for eviction in session.outcome.evictions]
    return evicted, [(member.name, member.row) for member in session.outcome.nominations]


@examples(200)
@given(worlds())
def test_looking_at_a_few_queues_first_finds_whom_looking_at_all_finds(world: World) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(victims, "_AT_ONCE", 1)
        patch.setattr(victims, "_GROWTH", 0)
        few = outcome(session_of(world))
        patch.setattr(victims, "_AT_ONCE", 1 << 30)
        patch.setattr(Capacity, "giving", lambda *_: None)
        assert few == outcome(session_of(world))


@examples(100)
@given(worlds())
def test_the_order_of_queues_that_is_kept_is_that_of_sorting_anew(world: World) -> None:
    session = session_of(world)
    session.ranking.in_order()
    run_action("reclaim", session)
    fresh = sorted(session.queues.values(), key=session._queue_key)
    assert [name for _, name in session.ranking.in_order()] == [queue.name for queue in fresh]
    assert [session.ranking.position(queue.name) for queue in fresh] == list(range(len(fresh)))
