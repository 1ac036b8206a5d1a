"""Pods leave nodes that are really in use beyond a line for nodes that are hardly used. Nodes have 128 cores; each pod asks for one, 0.78 % of a node."""

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import NodeName, NodeUsage, Queue, QueueName
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from .small_world import NOW, SmallWorld, evicted

STRATEGY = "strategies: [{name: lowNodeUtilization, params: {thresholds: {cpu: %s, memory: 50}, targetThresholds: {cpu: %s, memory: 90}}}]"


def policy(low: float = 20, target: float = 94, *, actions: str = "shuffle") -> str:
    return f"""
actions: "{actions}"
tiers:
- plugins:
  - {{name: gang}}
  - {{name: predicates}}
  - {{name: rescheduling, arguments: {{{STRATEGY % (low, target)}}}}}
"""


def world(*cpu: float, memory: float = 30, pods: int = 6, cards: int = 0, age_s: float = 0.0) -> SmallWorld:
    """Nodes with so much of their cpu in use; `pods` run on n0, the later the more important."""
    made = SmallWorld(len(cpu))
    made.usage = [NodeUsage(NodeName(f"n{i}"), percent, memory, at=NOW - age_s) for i, percent in enumerate(cpu)]
    for number in range(pods):
        made.gang(f"p{number}", cards=cards, on=[0], priority=number)
    return made


def test_the_least_important_leave_until_no_target_is_exceeded() -> None:
    assert evicted(world(95, 10).decide(policy())) == ["p0-0", "p1-0"], "95 - 2 x 0.78"


def test_no_more_leave_than_the_hardly_used_nodes_are_good_for() -> None:
    assert evicted(world(99, 93.5).decide(policy(low=93.5))) == ["p0-0"], "half a percent of 128 cores is less than one"


@pytest.mark.parametrize(
    "cpu", [(95, 95), (95, 50), (90, 10), (10, 10)], ids=["all busy", "none hardly used", "none too busy", "all hardly used"]
)
def test_where_there_are_not_both_nobody_leaves(cpu: tuple[float, float]) -> None:
    assert evicted(world(*cpu).decide(policy())) == []


def test_memory_counts_as_well() -> None:
    assert evicted(world(10, 10, memory=60).decide(policy())) == [], "none is low"


def test_what_was_measured_too_long_ago_says_nothing() -> None:
    assert evicted(world(95, 10, age_s=301).decide(policy())) == []


def test_nobody_leaves_who_would_find_no_place() -> None:
    made = world(95, 10, cards=1)
    made.columns.put_node(node("n1", cards=0, cpu=128))
    assert evicted(made.decide(policy())) == []


def test_who_may_not_be_evicted_stays() -> None:
    made = world(95, 10)
    for gang in made.gangs[:5]:
        gang.members[0].preemptable = False
    assert evicted(made.decide(policy())) == ["p5-0"]


def test_the_running_scheduler_does_it_once_an_interval() -> None:
    conf = parse_conf(policy(actions="allocate, shuffle"), plugins=list(PLUGINS))
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(QueueName("default"))], conf=conf)
    simulation.put_nodes([node("n0", cpu=128)])
    simulation.now = 1000.0
    simulation.submit(job(f"p{i}", created_at=float(i)) for i in range(6))
    simulation.run()
    simulation.put_nodes([node("n1", cpu=128)])

    def away(now: float) -> int:
        simulation.now = now
        simulation.scheduler.on_usage(
            [NodeUsage(NodeName(name), cpu, 10.0, at=now) for name, cpu in (("n0", 95.0), ("n1", 5.0))]
        )
        return sum(len(plan.victims) for plan in simulation.run())

    assert away(1400.0) == 2
    simulation.leave()
    assert [away(now) for now in (1420.0, 1500.0, 1690.0)] == [0, 0, 0], "what is measured is what was, for a while"
    assert away(1720.0) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("strategies: [{nome: other}]", "argument strategies: {'nome': 'other'}"),
        ("strategies: [{name: lowNodeUtilization, params: {limits: {}}}]", "argument strategies"),
        (STRATEGY % (20, 120), "targetThresholds.cpu: 120 is no percentage"),
        ("interval: soon", "argument interval: 'soon' is not a duration"),
        ("strategies: [{name: lowNodeUtilization, params: {thresholds: {gpu: 3}}}]", "thresholds: {'gpu': 3}"),
    ],
)
def test_wrong_arguments_are_named(arguments: str, said: str) -> None:
    conf = f'actions: "shuffle"\ntiers:\n- plugins:\n  - {{name: rescheduling, arguments: {{{arguments}}}}}\n'
    with pytest.raises(InvalidRequest, match="line 4: plugin rescheduling") as raised:
        plugins_of(parse_conf(conf, plugins=list(PLUGINS)))
    assert said in raised.value.message
