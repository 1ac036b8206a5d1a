"""Of jobs that are alike and wait the first stand for the others: the same jobs get the same places, for the same reasons, as if each were looked at."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import CardRequest, Job, JobId, Neighbour, Queue, QueueName
from hbox_common.model.annotations import WAITING_TIME
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import DEFAULT_CONF
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.queueing.equivalence import EquivalenceClasses
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from ..searching import examples

VOLCANO = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: sla, arguments: {sla-waiting-time: 5m}}, {name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}, {name: binpack}]
"""

WITHOUT_GANGS = VOLCANO.replace("{name: gang}, ", "")

KEEPING = """
actions: "allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: reservation, arguments: {after: 1m, depth: 2}}]
- plugins: [{name: proportion}, {name: card-models, arguments: {reserve.percent: 50, reserve.for: 10m}}, {name: binpack}]
"""

#: Words and what they are about: `submit` (kind, how many), `finish` (the so-and-so-manieth that runs), `leave` (those evicted), `revise`, `meet` and
#: `withdraw` (of those that wait).
Event: TypeAlias = tuple[str, int, int]

EVENTS: st.SearchStrategy[list[Event]] = st.lists(
    st.tuples(
        st.sampled_from(("submit", "submit", "finish", "finish", "leave", "revise", "meet", "withdraw")),
        st.integers(0, 99),
        st.integers(1, 12),
    ),
    min_size=3,
    max_size=14,
)


def made(kind: int, name: str, at: float) -> Job:
    """Kinds: one card, two, all of a node, a gang, one with surplus, one by model, one that asks for cpu alone, a note."""
    queue, priority = "ab"[kind // 8 % 2], 10 * (kind // 16 % 2)
    match kind % 8:
        case 0:
            one = job(name, cards=1, queue=queue)
        case 1:
            one = job(name, cards=2, queue=queue)
        case 2:
            one = job(name, cards=4, queue=queue)
        case 3:
            one = job(name, pods=3, cards=1, queue=queue)
        case 4:
            one = job(name, pods=3, min_member=1, cards=1, queue=queue)
        case 5:
            one = job(name, cards=CardRequest(1, models=("T4",)), queue=queue)
        case 6:
            one = job(name, cpu_milli=6000, queue=queue)
        case _:
            one = replace(job(name, cards=1, queue=queue), annotations={WAITING_TIME: "1m"})
    return replace(one, priority=priority, created_at=at)


class World:
    """A scheduler that follows a policy, and what is done to it."""

    def __init__(self, conf: str) -> None:
        self.simulation = Simulation(
            policy_of(PolicyName.BINPACK),
            limits=Limits(session_every_s=0.0, session_max_s=0.0),
            queues=[Queue(QueueName("a"), weight=1), Queue(QueueName("b"), weight=3, capability={GPU: 6})],
            conf=parse_conf(conf, plugins=list(PLUGINS)),
        )
        self.simulation.put_nodes([node("n0", cards=4, cpu=16), node("n1", cards=4, cpu=8, model="T4")])
        self.simulation.now = 1_000.0
        self._jobs: dict[JobId, Job] = {}

    def do(self, event: Event) -> None:
        word, which, count = event
        simulation = self.simulation
        waiting = [one for one in self._jobs.values() if not any(pod.uid in simulation.claims for pod in one.tasks[0].pods)]
        match word:
            case "submit":
                new = [made(which, f"j{len(self._jobs) + i:03}", simulation.now - 300 + i) for i in range(count)]
                self._jobs |= {one.id: one for one in new}
                simulation.submit(new)
            case "finish" if running := sorted(simulation.claims):
                gone = running[which % len(running)]
                self._jobs.pop(simulation.claims[gone].job, None)
                simulation.finish([uid for uid in running if simulation.claims[uid].job == simulation.claims[gone].job])
            case "leave":
                simulation.evicted = [claim for claim in simulation.evicted if claim.pod_uid in simulation.claims]
                for claim in simulation.leave():
                    self._jobs.pop(claim.job, None)
            case "revise" if waiting:
                one = waiting[which % len(waiting)]
                revised = replace(made(count, one.name, one.created_at), revision=one.revision + 1)
                self._jobs[one.id] = revised
                simulation.submit([revised])
            case "meet" if waiting:
                one = waiting[which % len(waiting)]
                simulation.scheduler.on_neighbours([Neighbour(one.tasks[0].pods[0].uid, "default", labels={"app": "x"})])
            case "withdraw" if waiting:
                one = waiting[which % len(waiting)]
                del self._jobs[one.id]
                simulation.scheduler.on_withdrawn([one.id], [one.revision])
        simulation.now += 3.0
        simulation.run()

    def told(self) -> dict[str, str]:
        """Where everybody is, and why each other waits."""
        simulation = self.simulation
        for _ in range(3):
            simulation.now += 3.0
            simulation.run()
        placed = {str(uid): str(claim.node) for uid, claim in simulation.claims.items()}
        bound = {claim.job for claim in simulation.claims.values()}
        return placed | {str(id): simulation.verdicts.get(id, "") for id in self._jobs if id not in bound}


@contextmanager
def everybody_looked_at() -> Iterator[None]:
    with patch.object(EquivalenceClasses, "add", lambda *_: False):
        yield


@pytest.mark.parametrize(
    "conf", [DEFAULT_CONF, VOLCANO, WITHOUT_GANGS, KEEPING], ids=["ours", "volcano", "without gangs", "keeping"]
)
@examples(40, dear=True)
@given(events=EVENTS)
def test_the_same_are_placed_and_the_same_is_said_of_those_that_wait(conf: str, events: list[Event]) -> None:
    world, other = World(conf), World(conf)
    for event in events:
        world.do(event)
        with everybody_looked_at():
            other.do(event)
    with everybody_looked_at():
        expected = other.told()
    assert world.told() == expected
