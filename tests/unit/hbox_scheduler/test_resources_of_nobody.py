"""Anybody may ask for resources that no node has, of any name: that costs the scheduler no columns without end, and nobody a node."""

from dataclasses import replace

from hbox_common.model import DEFAULT_QUEUE, Epoch, Index, Queue, SchedulerId
from hbox_scheduler.core import Scheduler
from hbox_scheduler.core.cluster.columns import MOST_UNOFFERED
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.simulate import job, node


def asking(name: str, *resources: str) -> object:
    made = job(name, cards=0)
    task = made.tasks[0]
    return replace(made, tasks=(replace(task, requests={**task.requests, **dict.fromkeys(resources, 1)}),))


def test_names_that_no_node_has_share_a_column_until_a_node_has_one_of_them() -> None:
    s = Scheduler(id=SchedulerId("s1"), policy=policy_of(PolicyName.BINPACK), limits=Limits(placements=4))
    s.on_queue(Queue(DEFAULT_QUEUE))
    s.on_claims_snapshot(epoch=Epoch(1), index=Index(10), frozen=False, claims=(), now=0.0)
    s.on_node(node("n0", cards=2))
    for number in range(40):
        s.on_jobs([asking(f"j{number}", *(f"example.com/r{number}-{n}" for n in range(200)))])  # type: ignore[list-item]
    assert len(s.columns.resources) < MOST_UNOFFERED + 20
    assert s.cycle(1.0).plans == []

    s.on_jobs([asking("late", "example.com/new")])  # type: ignore[list-item]
    assert s.cycle(2.0).plans == []
    made = node("n1", cards=2)
    s.on_node(replace(made, allocatable={**made.allocatable, "example.com/new": 1}))
    [plan] = s.cycle(60.0).plans
    assert [(plan.job, [p.node for p in plan.placements])] == [("late", ["n1"])]
