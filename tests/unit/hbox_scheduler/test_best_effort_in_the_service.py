"""Pods that ask for nothing, in the running scheduler: `backfill` places them by every policy, and they count for the minimum of their gang."""

from dataclasses import replace

import pytest

from hbox_common.model import (
    GroupPhase,
    GroupState,
    Job,
    JobId,
    Match,
    MatchOperator,
    Neighbour,
    PodConstraints,
    PodGroupTask,
    PodTerm,
    PodUid,
    Queue,
    QueueName,
    ResourceQuota,
    Selector,
)
from hbox_common.model.resources import CPU, PODS
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

POLICY = """
actions: "enqueue, allocate, backfill, reclaim, preempt"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
- plugins:
  - {name: overcommit}
  - {name: drf}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
"""
HOST = "kubernetes.io/hostname"
CAPACITY = POLICY.replace("proportion", "capacity")


def world(policy: str = POLICY, *, nodes: int = 2, pods: int = 110) -> Simulation:
    made = Simulation(
        policy_of(PolicyName.BINPACK),
        queues=[Queue(QueueName("default"))],
        conf=parse_conf(policy, plugins=list(PLUGINS)),
    )
    rooms = [node(f"n{i}", cpu=4) for i in range(nodes)]
    made.put_nodes(replace(one, allocatable={**one.allocatable, PODS: pods}) for one in rooms)
    return made


def best_effort(name: str, *, pods: int = 1, beside: int = 0, priority: int = 0, min_member: int | None = None) -> Job:
    """A gang of pods that ask for nothing, `beside` others that ask for a core each."""
    plain = job(name, pods=pods + beside, min_member=min_member, priority=priority)
    every = plain.tasks[0].pods
    asking = (replace(plain.tasks[0], pods=every[:beside]),) if beside else ()
    return replace(plain, tasks=(*asking, PodGroupTask(name="nothing", requests={PODS: 1}, pods=every[beside:])))


def placed(simulation: Simulation) -> list[str]:
    simulation.run()
    return sorted(simulation.claims)


@pytest.mark.parametrize("policy", [POLICY, CAPACITY], ids=["proportion", "capacity"])
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "full"])
def test_a_gang_that_asks_for_nothing_runs(policy: str, *, busy: bool) -> None:
    simulation = world(policy)
    if busy:
        simulation.submit([job("all", pods=8, cpu_milli=1000)])
        simulation.run()
    simulation.submit([best_effort("nothing", pods=3)])
    assert [pod for pod in placed(simulation) if pod.startswith("nothing")] == ["nothing-0", "nothing-1", "nothing-2"]


def test_those_who_ask_and_those_who_do_not_start_as_one_gang() -> None:
    simulation = world()
    simulation.submit([best_effort("mixed", pods=2, beside=2)])
    assert placed(simulation) == [f"mixed-{i}" for i in range(4)]


def test_a_gang_does_not_start_in_part_where_no_node_takes_all_of_its_pods() -> None:
    """Room for three pods in all: the gang of four is told why, and whoever fits runs."""
    simulation = world(nodes=1, pods=3)
    simulation.submit([best_effort("four", pods=2, beside=2)])
    assert placed(simulation) == []
    assert simulation.verdicts[JobId("four")] == "3 of 4 pods fit that have to start together"
    simulation.submit([best_effort("three", pods=3)])
    assert placed(simulation) == ["three-0", "three-1", "three-2"]


def test_without_the_action_backfill_the_user_is_told_so() -> None:
    simulation = world(POLICY.replace("backfill, ", ""))
    simulation.submit([best_effort("nothing")])
    assert placed(simulation) == []
    assert simulation.verdicts[JobId("nothing")] == (
        "NoBackfill: the pod asks for nothing, and such pods are placed by the action backfill, which the policy does not have; "
        "add it there, or have the pod ask for something"
    )


def test_one_of_higher_priority_takes_the_place_of_one_that_asks_for_nothing_either() -> None:
    simulation = world(nodes=1, pods=2)
    simulation.submit([job("asks", cpu_milli=1000), best_effort("low")])
    assert placed(simulation) == ["asks-0", "low-0"]
    simulation.submit([best_effort("high", priority=10)])
    simulation.run()
    assert [claim.pod_uid for claim in simulation.evicted] == ["low-0"]


def test_what_quotas_say_of_the_count_of_pods_is_not_asked_for_twice() -> None:
    """Three pods of a's four exist, and are in what the quota has taken: one more is promised, so b's two are one too many."""
    simulation = world(POLICY.replace("{name: overcommit}", "{name: resourcequota}"))
    simulation.submit([best_effort("a", pods=3, min_member=1)])
    minimum = {PODS: 4, CPU: 0}
    quota = ResourceQuota("default", "pods", hard={PODS: 6}, used={PODS: 3})
    simulation.scheduler.on_namespace_quotas([quota])
    simulation.put_groups([_group("a", minimum, phase=GroupPhase.INQUEUE), _group("b", {PODS: 2})])
    out = simulation.scheduler.cycle(1.0, 1.0)
    assert out.admitted == ["b"]


def _group(name: str, minimum: dict[str, int], phase: GroupPhase = GroupPhase.PENDING) -> GroupState:
    return GroupState(
        id=JobId(name),
        namespace="default",
        name=name,
        queue=QueueName("default"),
        priority=0,
        min_member=1,
        created_at=0.0,
        min_resources=minimum,
        revision=1,
        phase=phase,
    )


@pytest.mark.parametrize("social", [False, True], ids=["planned", "in a session"])
def test_without_a_policy_of_the_users_they_run_as_well(*, social: bool) -> None:
    """Also where they want to be apart, which is what takes them into a session."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(QueueName("default"))], conf=default_conf())
    simulation.put_nodes(node(f"n{i}", labels={HOST: f"n{i}"}) for i in range(3))
    if social:
        term = PodTerm(HOST, Selector((Match("app", MatchOperator.IN, ("a",)),)))
        simulation.scheduler.on_neighbours(
            Neighbour(PodUid(f"gang-{i}"), "default", {"app": "a"}, PodConstraints(anti_affinity=(term,))) for i in range(3)
        )
    simulation.submit([best_effort("gang", pods=2, beside=1)])
    assert placed(simulation) == ["gang-0", "gang-1", "gang-2"]
    assert len({claim.node for claim in simulation.claims.values()}) == (3 if social else 1)


def test_a_queue_that_has_its_share_is_said_to_be_what_its_jobs_wait_for() -> None:
    """Both nodes have room, and the plugin gives the queue no more than four cores of the eight."""
    simulation = world(POLICY)
    simulation.scheduler.on_queue(Queue(QueueName("small"), capability={CPU: 4000}))
    simulation.submit([job("a", pods=4, queue="small", memory_mib=0)])
    simulation.run()
    simulation.submit([job("b", queue="small", memory_mib=0)])
    simulation.run()
    assert (
        simulation.verdicts[JobId("b")]
        == "QueueShareSpent: queue small may use 4 cpu now, 4 cpu are in use and 1 cpu more are asked for"
    )
