"""Queues ordered branch by branch have the order that all their keys have."""

import random

import pytest

from hbox_common.model import NodeName, PodUid, Queue, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.framework.session import Session
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

NODES, CARDS = 6, 8


def placed(seed: int) -> list[list[tuple[PodUid, NodeName]]]:
    """Pods and nodes of each step, with queues of one to three levels and random requests."""
    rng = random.Random(seed)
    queues = [Queue(QueueName(f"flat{i}"), deserved={GPU: rng.randrange(6)}) for i in range(2)]
    for top in range(3):
        queues.append(Queue(QueueName(f"d{top}"), deserved={GPU: rng.randrange(4, 12)}, priority=rng.choice([0, 0, 1])))
        queues += [Queue(QueueName(f"d{top}-{i}"), parent=f"d{top}", deserved={GPU: rng.randrange(4)}) for i in range(3)]
        queues += [Queue(QueueName(f"d{top}-0-{i}"), parent=f"d{top}-0", deserved={GPU: rng.randrange(3)}) for i in range(2)]
    parents = {queue.parent for queue in queues}
    leaves = [queue.name for queue in queues if queue.name not in parents]
    simulation = Simulation(
        policy_of(PolicyName.BINPACK), queues=queues, conf=default_conf(), limits=Limits(outstanding=1 << 30)
    )
    simulation.put_nodes(node(f"n{i}", cards=CARDS) for i in range(NODES))
    steps, running = [], list[PodUid]()
    for step in range(8):
        simulation.now += 10.0
        simulation.submit(
            [
                job(f"j{step}-{i}", cards=rng.choice([1, 1, 2]), pods=rng.choice([1, 1, 3]), queue=rng.choice(leaves))
                for i in range(rng.randrange(1, 25))
            ]
        )
        made = [(one.pod_uid, one.node) for plan in simulation.run() for one in plan.placements]
        steps.append(made)
        running = [pod for pod in [*running, *(pod for pod, _ in made)] if pod in simulation.claims]
        for pod in rng.sample(running, len(running) // 2):
            simulation.finish([pod])
    return steps


@pytest.mark.parametrize("seed", range(12))
def test_queues_take_turns_as_without_branches(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    by_branch = placed(seed)
    assert sum(map(len, by_branch)) > NODES * CARDS // 2
    monkeypatch.setattr(Session, "_branch", lambda self: None)
    assert placed(seed) == by_branch
