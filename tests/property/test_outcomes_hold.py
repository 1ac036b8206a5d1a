"""Explanations of pending jobs on random clusters: each node is counted once, and the outcome holds: a job that waits starts once all others have ended, one
that is escalated once nodes are back too, one that needs a change not even then."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from hbox_common.model import CardRequest, Generation, Job, NodeState, Queue, QueueName
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from ..searching import examples

MODELS = ("A100", "H100")


@st.composite
def nodes(draw: st.DrawFn) -> list[NodeState]:
    return [
        node(
            f"n{number}",
            cards=draw(st.sampled_from((0, 2, 4, 8))),
            model=draw(st.sampled_from(MODELS)),
            cpu=draw(st.sampled_from((4, 64))),
            shares=draw(st.sampled_from((1, 4))),
            ready=draw(st.sampled_from((True, True, True, False))),
            unschedulable=draw(st.sampled_from((False, False, False, True))),
            labels={"zone": draw(st.sampled_from("ab"))},
        )
        for number in range(draw(st.integers(1, 6)))
    ]


@st.composite
def jobs(draw: st.DrawFn, name: str) -> Job:
    models = draw(st.sampled_from(((), ("A100",), ("H100",), ("H1OO",))))
    cards = draw(st.sampled_from((0, 1, 2, 4, 9)))
    return job(
        name,
        pods=draw(st.integers(1, 5)),
        cpu_milli=draw(st.sampled_from((1000, 8000))),
        cards=CardRequest(cards, models=models) if cards else 0,
        node_selector=draw(st.sampled_from(({}, {}, {"zone": "a"}, {"zone": "c"}))),
    )


@examples(60)
@given(nodes(), st.lists(jobs("runs"), max_size=4), jobs("waits"))
def test_outcome_of_a_pending_job_holds(states: list[NodeState], others: list[Job], waits: Job) -> None:
    simulation = Simulation(policy_of(PolicyName.LEAST_WASTE), queues=[Queue(QueueName("default"))])
    simulation.put_nodes(states)
    simulation.submit([renamed(one, f"runs{number}") for number, one in enumerate(others)])
    running = [placement.pod_uid for plan in simulation.run() for placement in plan.placements]
    simulation.submit([waits])
    simulation.run()
    found = simulation.scheduler.reports.explanation(waits.id, 0.0)
    assume(found is not None)
    assert found is not None
    assert sum(found.nodes.first.values()) + found.nodes.fitting == found.nodes.total == len(states)
    assert all(found.nodes.only.get(label, 0) <= count for label, count in found.nodes.first.items())
    simulation.finish(running)
    simulation.scheduler.on_withdrawn(
        [one for one in simulation.verdicts if one != waits.id], [1 << 60] * (len(simulation.verdicts) - 1)
    )
    starts = bool(simulation.run())
    assert starts == (found.outcome == "wait"), (found.outcome, found.code)
    if not starts:
        simulation.put_nodes(replace(one, generation=Generation(2), ready=True, unschedulable=False) for one in states)
        assert bool(simulation.run()) == (found.outcome == "escalate"), (found.outcome, found.code)


def renamed(one: Job, name: str) -> Job:
    """The job under another name, with pods of its own."""
    return job(
        name,
        pods=one.min_member,
        cpu_milli=one.tasks[0].requests["cpu"],
        cards=one.tasks[0].cards or 0,
        node_selector=dict(one.tasks[0].node_selector),
    )
