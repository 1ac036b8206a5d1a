"""A scheduler with a policy of the user's places every job as a session of that policy does."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from hbox_common.model import Job, JobId, Neighbour, NodeState, PodUid, Queue, QueueName
from hbox_common.model.annotations import WALLTIME
from hbox_common.model.devices import GPU
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.conf import parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.session import Cluster, Gang, GroupPhase, Member, QueueInfo
from hbox_scheduler.core.simulate.cycles import Plan, simulate
from hbox_scheduler.core.simulate.simulation import Simulation, job, node
from hbox_scheduler.core.state import Columns
from hbox_scheduler.core.task import Tasks

SPREAD = """
actions: "allocate, backfill"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: drf}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder, arguments: {leastrequested.weight: 10, balancedresource.weight: 0}}
"""

RESERVING = """
actions: "allocate, backfill"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: predicates}
  - {name: reservation, arguments: {after: 10m, hold: 30m}}
"""


def world(conf: str, nodes: list[NodeState], queues: list[Queue]) -> Simulation:
    made = Simulation(policy_of(PolicyName.BINPACK), queues=queues, conf=parse_conf(conf, plugins=list(PLUGINS)), by_conf=True)
    made.put_nodes(nodes)
    return made


def places(simulation: Simulation) -> dict[str, str]:
    return {str(uid): str(claim.node) for uid, claim in simulation.claims.items()}


def test_bare_pods_go_where_the_policy_says_and_not_where_the_setting_does() -> None:
    nodes = [node(f"n{i}", cards=8, cpu=64) for i in range(4)]
    simulation = world(SPREAD, nodes, [Queue(QueueName("default"))])
    simulation.submit(job(f"p{i}", cards=1, created_at=float(i)) for i in range(4))
    simulation.run()
    assert sorted(places(simulation).values()) == ["n0", "n1", "n2", "n3"]


@pytest.mark.parametrize("seed", range(12))
def test_jobs_that_come_together_are_placed_as_one_session_places_them(seed: int) -> None:
    """One after the other into the running scheduler's view or all into one session of their own: the same pods on the same nodes."""
    rng = Random(seed)
    nodes = [node(f"n{i}", cards=8, cpu=rng.choice((32, 64, 128))) for i in range(6)]
    queues = [Queue(QueueName(name), weight=weight) for name, weight in (("a", 1), ("b", 3))]
    jobs = [
        job(
            f"j{i}",
            pods=(pods := rng.choice((1, 1, 2, 4))),
            min_member=rng.randint(1, pods),
            cards=rng.choice((0, 1, 2, 4, 8)),
            cpu_milli=rng.choice((500, 2000, 4000)),
            queue=rng.choice("ab"),
            priority=rng.choice((0, 10)),
            created_at=float(i),
        )
        for i in range(24)
    ]
    simulation = world(SPREAD, nodes, queues)
    simulation.submit(jobs)
    simulation.run()
    assert places(simulation) == in_one_session(nodes, queues, jobs)


def in_one_session(nodes: list[NodeState], queues: list[Queue], jobs: list[Job]) -> dict[str, str]:
    """By `hbox simulate cycle`'s own code, cycle after cycle until nothing is placed any more."""
    columns = Columns()
    for state in nodes:
        columns.put_node(state)
    tasks = Tasks(columns)
    interned = {one.id: [tasks.of(spec) for spec in one.tasks] for one in jobs}
    gangs: list[Gang] = []
    for one in jobs:
        gang = Gang(
            one.id, one.namespace, one.name, one.queue, one.priority, one.min_member, one.created_at, GroupPhase.INQUEUE
        )
        for spec, task in zip(one.tasks, interned[one.id], strict=True):
            vector = np.zeros(len(columns.allocatable), dtype=np.int64)
            for column, units in task.amount:
                vector[column] = units
            gang.members += [
                Member(pod.uid, one.namespace, pod.name, gang, "", task, vector, one.created_at, one.priority)
                for pod in spec.pods
            ]
        gangs.append(gang)
    cluster = Cluster(gangs, [QueueInfo(queue.name, weight=queue.weight) for queue in queues])
    report = simulate(columns, cluster, parse_conf(SPREAD, plugins=list(PLUGINS)), Plan(cycles=3))
    return {str(bound.member.uid): bound.node for bound in report.bindings}


def test_a_large_gang_that_waits_has_its_nodes_kept_by_notes_of_those_who_run() -> None:
    """Two nodes of four cards; `big` needs both whole and has waited for an hour. Who ends before its start may go in, nobody else."""
    simulation = world(RESERVING, [node("n0", cards=4), node("n1", cards=4)], [Queue(QueueName("default"))])
    simulation.now = 10_000.0
    simulation.submit([job("running", pods=2, cards=3, created_at=9_900.0)])
    simulation.run()
    simulation.scheduler.on_neighbours(
        Neighbour(PodUid(f"running-{i}"), "default", notes={WALLTIME: "1100s"}, started_at=9_900.0) for i in range(2)
    )
    simulation.submit([job("big", pods=2, cards=4, created_at=6_400.0)])
    simulation.run()
    simulation.submit(
        [job("long", created_at=9_950.0, cards=1), with_walltime(job("short", created_at=9_960.0, cards=1), "900s")]
    )
    simulation.run()
    assert {uid.partition("-")[0] for uid in places(simulation)} == {"running", "short"}
    assert "ReservedForLargeJob" in simulation.verdicts[JobId("long")]
    simulation.finish([PodUid("running-0"), PodUid("running-1"), PodUid("short-0")])
    simulation.now = 11_000.0
    simulation.run()
    assert {uid.partition("-")[0] for uid in places(simulation)} == {"big"}
    assert sum(claim.requests[GPU] for claim in simulation.claims.values()) == 8


def with_walltime(one: Job, walltime: str) -> Job:
    return replace(one, tasks=tuple(replace(spec, notes={WALLTIME: walltime}) for spec in one.tasks))


def test_who_has_not_run_for_its_least_time_is_not_taken_from_though_nothing_is_written_on_it() -> None:
    """When a claim was made is known of every pod: half of b's have run for an hour, half for a minute."""
    conf = """
actions: "allocate, reclaim"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - {name: capacity}
  - {name: minruntime, arguments: {reclaim: 10m}}
"""
    queues = [Queue(QueueName(name), deserved={GPU: 4}) for name in ("a", "b")]
    simulation = world(conf, [node("n0", cards=8, cpu=64)], queues)
    for start, now in ((0, 1_000.0), (4, 4_540.0)):
        simulation.now = now
        simulation.submit(job(f"b{start + i}", cards=1, queue="b", created_at=now + i) for i in range(4))
        simulation.run()
    simulation.now = 4_600.0
    simulation.submit(job(f"a{i}", cards=1, queue="a", created_at=4_600.0 + i) for i in range(4))
    plans = simulation.run()
    victims = {str(victim.pod_uid) for plan in plans for victim in plan.victims}
    assert victims == {f"b{i}-0" for i in range(4)}, "the newest would leave first, else"
