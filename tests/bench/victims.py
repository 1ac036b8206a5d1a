"""Reclaim and preemption in the engine alone: a full cluster of one-card jobs, and one gang that needs a part of it."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hbox_common.model import CardRequest, CardSlice, JobId, PodGroupTask, PodUid, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import CPU, MEMORY, PODS
from hbox_scheduler.app import calm_collector
from hbox_scheduler.core.actions.registry import run_action
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.entities import Gang, Member, QueueInfo, Status
from hbox_scheduler.core.cluster.running import RunningGangs
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.cluster.task import Task
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.framework import GroupPhase, Session
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of
from hbox_scheduler.core.simulate import node

from .scheduler import report

CARDS = 8
_MEMORY = 16_384

POLICY = """
actions: "reclaim, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: capacity}, {name: nodeorder}]
"""


@dataclass(frozen=True, slots=True)
class Full:
    """A session on a cluster in which every card is taken by a job of its own."""

    session: Session
    preemptor: Gang


def full(nodes: int, *, cards: int, action: str) -> Full:
    """`cards` that the preemptor needs, in pods of a whole node; the running jobs are of another queue (reclaim) or of lower priority (preempt)."""
    columns = Columns()
    for i in range(nodes):
        columns.put_node(node(f"node-{i:05}", cards=CARDS, cpu=96, memory_mib=1 << 20))
    tasks = Tasks(columns)
    one, all_cards = new_task(tasks, 1), new_task(tasks, CARDS)
    mine = QueueName("mine")
    theirs = QueueName("theirs") if action == "reclaim" else mine
    gangs: list[Gang] = []
    for row in range(nodes):
        for card in range(CARDS):
            gang = Gang(JobId(f"d/r{row}-{card}"), "d", f"r{row}-{card}", theirs, 0, 1, float(row + card), GroupPhase.RUNNING)
            member = new_member(columns, gang, one, 0)
            member.status, member.row, member.slices = Status.RUNNING, row, (CardSlice(card, 100, 40_960),)
            columns.book(row, one.requests, member.slices)
            gangs.append(gang)
    pods = cards // CARDS
    preemptor = Gang(JobId("d/preemptor"), "d", "preemptor", mine, 10, pods, 1e6)
    for i in range(pods):
        new_member(columns, preemptor, all_cards, i)
    deserved = {GPU: nodes * CARDS, CPU: nodes * 96_000, MEMORY: nodes << 20}
    queues = [QueueInfo(mine, deserved=deserved), QueueInfo(QueueName("theirs"))]
    conf = parse_conf(POLICY, plugins=list(PLUGINS))
    return Full(
        Session(columns=columns, cluster=Cluster([*gangs, preemptor], queues), conf=conf, tiers=plugins_of(conf)), preemptor
    )


def new_task(tasks: Tasks, cards: int) -> Task:
    return tasks.of(PodGroupTask("w", {CPU: 1000, MEMORY: _MEMORY, GPU: cards, PODS: 1}, (), cards=CardRequest(cards)))


def new_member(columns: Columns, gang: Gang, task: Task, number: int) -> Member:
    request = np.zeros(len(columns.allocatable), dtype=np.int64)
    for column, units in task.amount:
        request[column] = units
    request[columns.resource(PODS)] = 0
    name = f"{gang.name}-{number}"
    member = Member(PodUid(name), gang.namespace, name, gang, "", task, request, gang.created_at, priority=gang.priority)
    gang.members.append(member)
    return member


def evict_ms(nodes: int, *, cards: int, action: str, runs: int = 5) -> float:
    """The best of some runs. Every run ends with the whole gang promised its places, and with no more evictions than cards."""
    best = float("inf")
    for _ in range(runs):
        one = full(nodes, cards=cards, action=action)
        gc.collect()
        started = time.perf_counter()
        run_action(action, one.session)
        best = min(best, time.perf_counter() - started)
        assert one.preemptor.waiting == cards // CARDS
        assert len(one.session.outcome.evictions) == cards
    return 1000 * best


DEPARTMENTS, PROJECTS = 50, 40

TREE = """
actions: "reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, PLUGIN, {name: nodeorder}]
"""

CAPACITY = "{name: capacity, enableHierarchy: true, arguments: {reclaimAtParting: true}}"


def many_queues(*, jobs: int, deserved: int, plugin: str = CAPACITY) -> tuple[Session, Callable[[], Session]]:
    """2,050 queues in two levels; every other project fills the cluster with 8 cards each, and of the others so many ask for one card that they deserve.
    Returns a session, and how to open the next one after one job has ended and another one started, as the service does."""
    columns = Columns()
    projects = [(f"d{d}", QueueName(f"d{d}-p{p}")) for d in range(DEPARTMENTS) for p in range(PROJECTS)]
    holders, asking = [name for _, name in projects[::2]], [name for _, name in projects[1::2]]
    for i in range(len(holders)):
        columns.put_node(node(f"node-{i:05}", cards=CARDS, cpu=96, memory_mib=1 << 20))
    one = new_task(Tasks(columns), 1)
    gangs: list[Gang] = []
    for row in range(len(holders)):
        for card in range(CARDS):
            queue = holders[(row * CARDS + card) % len(holders)]
            gang = Gang(JobId(f"d/r{row}-{card}"), "d", f"r{row}-{card}", queue, 0, 1, float(row + card), GroupPhase.RUNNING)
            member = new_member(columns, gang, one, 0)
            member.status, member.row, member.slices = Status.RUNNING, row, (CardSlice(card, 100, 40_960),)
            columns.book(row, one.requests, member.slices)
            gangs.append(gang)
    running = RunningGangs(columns)
    for gang in gangs:
        running.put(gang)
    waiting: list[Gang] = []
    for i in range(jobs):
        waiting.append(Gang(JobId(f"d/c{i}"), "d", f"c{i}", asking[i % len(asking)], 10, 1, 1e6 + i))
        new_member(columns, waiting[-1], one, 0)
    queues = [QueueInfo(QueueName(f"d{d}"), deserved={GPU: deserved * PROJECTS}) for d in range(DEPARTMENTS)]
    queues += [QueueInfo(name, parent=QueueName(above), deserved={GPU: deserved}) for above, name in projects]
    conf = parse_conf(TREE.replace("PLUGIN", plugin), plugins=list(PLUGINS))
    ended = iter(gangs)

    def opened() -> Session:
        return Session(columns=columns, cluster=Cluster(waiting, queues, running=running), conf=conf, tiers=plugins_of(conf))

    def again() -> Session:
        gang = next(ended)
        running.take(gang.id)
        gang.queue = asking[0]
        running.put(gang)
        return opened()

    return opened(), again


def open_ms(*, plugin: str, runs: int = 5) -> float:
    """The best of some openings, each after a job has ended and another one started."""
    _, again = many_queues(jobs=500, deserved=CARDS, plugin=plugin)
    best = float("inf")
    for _ in range(runs):
        gc.collect()
        started = time.perf_counter()
        again()
        best = min(best, time.perf_counter() - started)
    return 1000 * best


def look_ms(*, jobs: int, deserved: int, evictions: int, runs: int = 3) -> float:
    """The best of some runs of the action, without opening the session."""
    best = float("inf")
    for _ in range(runs):
        session, _ = many_queues(jobs=jobs, deserved=deserved)
        gc.collect()
        started = time.perf_counter()
        run_action("reclaim", session)
        best = min(best, time.perf_counter() - started)
        assert len(session.outcome.evictions) == evictions
    return 1000 * best


def main() -> None:
    calm_collector()  # as the service does
    for action in ("reclaim", "preempt"):
        report(
            f"{action}: a gang of 250 pods x 8 cards, 1,000 nodes full of one-card jobs",
            evict_ms(1000, cards=2000, action=action),
            "ms",
            50,
            least=False,
        )

    for name, plugin in (("capacity", CAPACITY), ("proportion", "{name: proportion}")):
        report(f"session opened: {name}, 2,050 queues, 8,000 jobs run, 500 wait", open_ms(plugin=plugin), "ms", 20, least=False)
    nothing, some = look_ms(jobs=500, deserved=CARDS, evictions=0), look_ms(jobs=50, deserved=CARDS // 2, evictions=50)
    report("reclaim: 500 preemptors, 2,050 queues, nobody has more than it deserves", nothing, "ms", 100, least=False)
    report("reclaim: 50 preemptors of 2,050 queues, each takes a card", some, "ms", 100, least=False)


if __name__ == "__main__":
    main()
