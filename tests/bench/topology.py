"""Gangs in the fabric: the time of a decision, and whether it uses the fewest possible leaves (sources: leaf-cover)."""

import gc
import random
import time
from dataclasses import dataclass

import numpy as np

from hbox_common.model import (
    CardRequest,
    HyperNode,
    JobId,
    NodeName,
    PodGroupTask,
    PodUid,
    QueueName,
    TopologyMode,
    TopologyWish,
)
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import CPU, MEMORY, PODS
from hbox_scheduler.app import calm_collector
from hbox_scheduler.core.actions.registry import run_action
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.entities import Gang, Member, QueueInfo
from hbox_scheduler.core.cluster.facts import ClusterFacts
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.cluster.task import Task
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.framework import Placing, Session
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of
from hbox_scheduler.core.simulate import node

from .scheduler import report

CARDS = 8
#: A leaf is a unit of 20 nodes, a pod eight of them (DGX SuperPOD; sources: fabric-units).
LEAF, POD = 20, 8

POLICY = """
actions: "allocate"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: network-topology-aware}, {name: nodeorder}, {name: binpack}]
"""


class World:
    """Nodes of eight cards under leaves, pods and one top, and what is booked on them."""

    def __init__(self, nodes: int) -> None:
        self.columns = Columns()
        for i in range(nodes):
            self.columns.put_node(node(f"node-{i:05}", cards=CARDS, cpu=96, memory_mib=1 << 20))
        self.tasks = Tasks(self.columns)
        leaves = []
        for first in range(0, nodes, LEAF):
            names = tuple(NodeName(f"node-{i:05}") for i in range(first, min(first + LEAF, nodes)))
            leaves.append(HyperNode(f"leaf-{first // LEAF:04}", 1, nodes=names))
        pods = [
            HyperNode(f"pod-{first // POD:03}", 2, children=tuple(leaf.name for leaf in leaves[first : first + POD]))
            for first in range(0, len(leaves), POD)
        ]
        self.hypernodes: list[HyperNode] = [*leaves, *pods, HyperNode("top", 3, children=tuple(pod.name for pod in pods))]

    def task(self, cards: int) -> Task:
        requests = {CPU: 8000 * cards, MEMORY: 65_536, GPU: cards, PODS: 1}
        return self.tasks.of(PodGroupTask("w", requests, (), cards=CardRequest(cards)))

    def gang(self, name: str, pods: int, *, cards: int, wish: TopologyWish) -> Gang:
        task = self.task(cards)
        request = np.zeros(len(self.columns.allocatable), dtype=np.int64)
        for column, units in task.amount:
            request[column] = units
        request[self.columns.resource(PODS)] = 0
        gang = Gang(JobId(f"d/{name}"), "d", name, QueueName("q"), 0, pods, 0.0, topology=wish)
        gang.members = [Member(PodUid(f"{name}-{i}"), "d", f"{name}-{i}", gang, "", task, request, 0.0) for i in range(pods)]
        return gang

    def session(self, gang: Gang) -> Session:
        conf = parse_conf(POLICY, plugins=list(PLUGINS))
        cluster = Cluster([gang], [QueueInfo(QueueName("q"))], facts=ClusterFacts(hypernodes=self.hypernodes))
        session = Session(columns=self.columns, cluster=cluster, conf=conf, tiers=plugins_of(conf))
        assert session.tree.root  # made when it is first asked for
        return session

    def end(self, gang: Gang) -> None:
        for member in gang.members:
            self.columns.book(member.row, member.task.requests, member.slices, -1)


def gang_ms(nodes: int, pods: int, *, wish: TopologyWish, runs: int = 100) -> tuple[float, float, float]:
    """Milliseconds of the action, on a session that is open: p50 and p99 by the clock, p99 of this process's own processor time."""
    world = World(nodes)
    clock, processor = [], []
    for i in range(runs + 1):
        gang = world.gang(f"g{i}", pods, cards=CARDS, wish=wish)
        session = world.session(gang)
        started, used = time.perf_counter(), time.process_time()
        run_action("allocate", session)
        if i:  # the first one warms up
            clock.append(1000 * (time.perf_counter() - started))
            processor.append(1000 * (time.process_time() - used))
        assert len(session.outcome.bindings) == pods
        world.end(gang)
    p99 = int(0.99 * (runs - 1))
    return sorted(clock)[runs // 2], sorted(clock)[p99], sorted(processor)[p99]


@dataclass(frozen=True, slots=True)
class Churn:
    gangs: int
    used: int  #: leaves, over all gangs
    fewest: int  #: leaves that would have done, as things stood
    empty: int  #: leaves that would have done in an empty cluster
    worst_ms: float


def churn(nodes: int, gangs: int, *, seed: int) -> Churn:
    """Soft gangs of all sizes come and go in a cluster that they keep about nine tenths full."""
    world, dice = World(nodes), random.Random(seed)
    running: list[Gang] = []
    placed = used = fewest = empty = 0
    worst = 0.0
    while placed < gangs:
        cards = dice.choice((1, 2, 4, 8, 8, 8))
        gang = world.gang(
            f"g{placed}", dice.choice((2, 3, 4, 8, 13, 16, 32, 64, 100, 128)), cards=cards, wish=TopologyWish(TopologyMode.SOFT)
        )
        session = world.session(gang)
        tree = session.tree
        room = np.bincount(tree.leaves(), weights=Placing(session).capacity(gang.members[0], world.columns))
        ordered = np.sort(room)[::-1]
        if ordered.sum() < len(gang.members):
            world.end(running.pop(dice.randrange(len(running))))
            continue
        started = time.perf_counter()
        run_action("allocate", session)
        worst = max(worst, 1000 * (time.perf_counter() - started))
        assert len(session.outcome.bindings) == len(gang.members)
        used += len(np.unique(tree.leaves()[[member.row for member in gang.members]]))
        fewest += int(np.searchsorted(np.cumsum(ordered), len(gang.members))) + 1
        empty += -(-len(gang.members) // (LEAF * (CARDS // cards)))
        running.append(gang)
        placed += 1
        if dice.random() < 0.4:
            world.end(running.pop(dice.randrange(len(running))))
    return Churn(placed, used, fewest, empty, worst)


def main() -> None:
    calm_collector()  # as the service does
    gc.collect()
    for name, wish in (("soft", TopologyWish(TopologyMode.SOFT)), ("hard, tier 3", TopologyWish(TopologyMode.HARD, 3))):
        p50, p99, processor = gang_ms(1250, 1024, wish=wish)
        report(f"gang of 1,024 pods x 8 cards in the fabric, 1,250 nodes, {name}, p99", p99, "ms", 5, least=False)
        print(f"{'  the same: p50 by the clock, p99 of processor time':66} {p50:>10,.1f} {processor:.1f} ms")
    done = churn(1250, 400, seed=1)
    report(
        f"{done.gangs} soft gangs in a full cluster: 1000 x leaves used / fewest",
        1000 * done.used / done.fewest,
        "",
        1000,
        least=False,
    )
    print(
        f"{'  leaves used / fewest in an empty cluster; slowest decision':66} {done.used / done.empty:>10.3f} {done.worst_ms:.1f} ms"
    )


if __name__ == "__main__":
    main()
