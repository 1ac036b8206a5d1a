"""The reasons of a waiting job count every node of the cluster exactly once, whatever else happens in the cycle."""

import re
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import CardRequest, Generation, Job, NodeName, NodeState, Queue, QueueName, Verdict
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_text
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.queueing.jobs import JobState
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from ..searching import examples

#: Nodes are set aside for gangs of two pods after a minute.
CONF = parse_conf(
    default_text().replace("after: 2m", "after: 1m\n      share: 1.0\n      members: 2"),
    plugins=list(PLUGINS),
)
CARDS = (0, 0, 1, 1, 2, 4, CardRequest(1, cores=50, memory_percent=50))
STEPS_S = (0.1, 1.0, 30.0, 200.0)


def some_node(rng: Random, number: int, generation: int = 1) -> NodeState:
    return node(
        f"n{number}",
        cards=rng.choice((1, 2, 4)),
        cpu=rng.choice((4, 8, 16)),
        labels={"zone": rng.choice("ab")},
        generation=generation,
        unschedulable=rng.random() < 0.1,
    )


def some_job(rng: Random, number: int, now: float) -> Job:
    pods = rng.choice((1, 1, 2, 3, 4))
    made = job(
        f"j{number}",
        pods=pods,
        min_member=rng.choice((pods, 1)),
        cpu_milli=rng.choice((500, 1000, 3000)),
        cards=rng.choice(CARDS),
        priority=rng.choice((0, 0, 1, 5)),
        created_at=now,
        node_selector={"zone": "a"} if rng.random() < 0.2 else None,
    )
    return replace(made, annotations={"hbox.io/walltime": rng.choice(("60s", "300s"))}) if rng.random() < 0.5 else made


def check(simulation: Simulation) -> None:
    """One cycle, and each verdict of it that is about nodes."""
    for verdict in simulation.step().verdicts:
        if verdict.nodes:
            found = re.search(r"(\d+)/(\d+) nodes are available", verdict.message)
            assert found is not None, verdict
            fitting, total = map(
                int, found.groups()
            )  # nodes with room for a first pod fit, where those for the rest of a gang are missing
            assert total == len(simulation.scheduler.columns.row_of), verdict
            assert sum(verdict.reasons.values()) == verdict.nodes == total - fitting, verdict


@given(st.integers(0, 2**32))
@examples(60, dear=True)
def test_reasons_sum_to_the_number_of_nodes(seed: int) -> None:
    """Gangs reserve nodes, evict, are nominated and bound while single pods of other priorities wait; nodes appear, are cordoned and become unhealthy."""
    rng = Random(seed)
    simulation = Simulation(
        policy_of(PolicyName.BINPACK), conf=CONF, queues=[Queue(QueueName("default"))], limits=Limits(verdict_every_s=0.0)
    )
    nodes = {number: some_node(rng, number) for number in range(rng.randint(2, 6))}
    simulation.put_nodes(nodes.values())
    jobs = 0
    for _ in range(12):
        for _ in range(rng.randint(0, 3)):
            simulation.submit([some_job(rng, jobs, simulation.now)])
            jobs += 1
        simulation.now += rng.choice(STEPS_S)
        check(simulation)
        if simulation.claims and rng.random() < 0.5:
            simulation.finish([rng.choice(sorted(simulation.claims))])
        if rng.random() < 0.3:
            gone, simulation.evicted = simulation.evicted, []
            simulation.finish(dict.fromkeys(claim.pod_uid for claim in gone if claim.pod_uid in simulation.claims))
        if rng.random() < 0.1:
            number = len(nodes)
            nodes[number] = some_node(rng, number)
            simulation.put_nodes([nodes[number]])
        if rng.random() < 0.1:
            number = rng.choice(sorted(nodes))
            nodes[number] = replace(
                nodes[number], labels={"zone": rng.choice("ab")}, generation=Generation(nodes[number].generation + 1)
            )
            simulation.put_nodes([nodes[number]])
        if rng.random() < 0.1:
            number = rng.choice(sorted(nodes))
            verdict = Verdict(NodeName(f"n{number}"), nodes[number].generation, healthy=rng.random() < 0.5)
            if (
                not simulation.evicted and not simulation.scheduler.reports.jobs_by_state[JobState.NOMINATED]
            ):  # the ledger here refuses nothing
                simulation.put_verdict(verdict)
    for _ in range(4):
        simulation.now += 5.0
        simulation.run()
    for id, message in simulation.verdicts.items():
        entry = simulation.scheduler.reports.entry(id)
        if entry is not None and entry.state is JobState.UNSCHEDULABLE:
            assert "RoomSinceAttempt" not in message, (id, message)
