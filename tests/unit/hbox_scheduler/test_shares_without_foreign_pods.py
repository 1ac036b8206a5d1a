"""Queues share the amounts of the nodes, without the amounts that pods without a queue hold."""

from dataclasses import replace

import pytest

from hbox_common.model import Claim, ClaimId, ClaimState, JobId, NodeName, PlanId, PodUid, Queue, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import CPU, MEMORY, PODS
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import DEFAULT_CONF
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

WEIGHTS = """\
actions: "{actions}allocate, backfill, reclaim"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]
- plugins: [{{name: overcommit}}, {{name: predicates}}, {{name: proportion}}]
"""


def world(*queues: Queue, conf: str = DEFAULT_CONF) -> Simulation:
    return Simulation(policy_of(PolicyName.BINPACK), queues=queues, conf=parse_conf(conf, plugins=list(PLUGINS)))


def held(simulation: Simulation, queue: str, resource: str = GPU) -> int:
    return sum(claim.requests.get(resource, 0) for claim in simulation.claims.values() if claim.queue == queue)


@pytest.mark.parametrize("conf", [DEFAULT_CONF, WEIGHTS.format(actions="")], ids=["capacity", "proportion"])
@pytest.mark.parametrize("models", [False, True], ids=["cards", "models"])
def test_queue_uses_idle_nodes_while_its_held_cards_are_not_allocatable(conf: str, *, models: bool) -> None:
    """The plugin of n0 restarts: its 8 cards, all in use by q, are not allocatable. n1 has 8 idle cards."""
    deserved = {GPU: 4, **({f"{GPU}.A100": 4} if models else {})}
    simulation = world(Queue(QueueName("q"), deserved=deserved), conf=conf)
    simulation.put_nodes([node("n0", cards=8, cpu=128)])
    simulation.submit([job("old", cards=8, queue="q")])
    simulation.run()
    simulation.put_nodes([node("n0", cards=0, cpu=128, generation=2), node("n1", cards=8, cpu=128)])
    simulation.submit(job(f"new{number}", cards=1, queue="q", created_at=1.0) for number in range(8))
    simulation.run()
    assert held(simulation, "q") == 16


def test_shares_by_weight_exclude_foreign_pods() -> None:
    """Volcano's Reclaim Case 10: foreign pods hold 12 of 16 cores. `a` and `b` run 2 cores each, `c` and `d` request one, and each queue deserves one."""
    names = ("a", "b", "c", "d")
    simulation = world(*(Queue(QueueName(name), weight=1) for name in names), conf=WEIGHTS.format(actions=""))
    simulation.put_nodes(node(f"n{number}", cpu=4) for number in range(4))
    for number in range(4):
        foreign(simulation, f"n{number}", cores=3)
    simulation.submit(job(name, pods=2, min_member=1, queue=name) for name in ("a", "b"))
    simulation.run()
    assert (held(simulation, "a", CPU), held(simulation, "b", CPU)) == (2000, 2000)
    simulation.submit(job(name, queue=name, created_at=1.0) for name in ("c", "d"))
    for _ in range(20):
        simulation.now += 1.0
        simulation.run()
        simulation.gone([claim.pod_uid for claim in simulation.evicted])
        simulation.evicted.clear()
    assert {name: held(simulation, name, CPU) for name in names} == dict.fromkeys(names, 1000)


def test_reason_names_the_share_of_the_queue() -> None:
    simulation = world(*(Queue(QueueName(name), weight=1) for name in ("a", "b")), conf=WEIGHTS.format(actions=""))
    simulation.put_nodes([node("n0", cpu=16)])
    foreign(simulation, "n0", cores=12)
    simulation.submit([job("b", pods=2, cpu_milli=1000, queue="b"), job("a", pods=2, queue="a")])
    simulation.run()
    simulation.submit([job("more", queue="a", created_at=1.0), job("other", queue="b", created_at=2.0)])
    simulation.now += 3.0
    simulation.run()
    assert "queue a may use 2 cpu now, 2 cpu are in use and 1 cpu more are asked for" in simulation.verdicts[JobId("more")]


def test_foreign_pods_on_a_removed_node_count_for_nothing() -> None:
    simulation = world(Queue(QueueName("q")))
    simulation.put_nodes([node("n0", cpu=8), node("n1", cpu=8)])
    foreign(simulation, "n0", cores=8)
    bookings = simulation.scheduler.bookings
    assert bookings.foreign()[CPU] == 8000
    simulation.put_nodes([replace(node("n0", cpu=8, generation=2), gone=True)])
    assert bookings.foreign().get(CPU, 0) == 0


def test_reason_names_the_queues_whose_guarantees_keep_the_remainder() -> None:
    """16 cores; two other queues have guarantees of 2 and 4 cores."""
    queues = [Queue(QueueName("q")), *(Queue(QueueName(name), guarantee={CPU: 1000 * n}) for name, n in (("a", 2), ("b", 4)))]
    simulation = world(*queues, conf=WEIGHTS.format(actions=""))
    simulation.put_nodes([node("n0", cpu=16)])
    simulation.submit([job("full", pods=10, queue="q")])
    simulation.run()
    simulation.submit([job("more", queue="q", created_at=1.0)])
    simulation.now += 3.0
    simulation.run()
    assert "queue q may use 10 cpu now" in simulation.verdicts[JobId("more")]
    assert simulation.verdicts[JobId("more")].endswith("; guaranteed and idle: 4 cpu of queue b, 2 cpu of queue a")


def foreign(simulation: Simulation, at: str, *, cores: int) -> None:
    """A pod of another scheduler."""
    uid = PodUid(f"foreign-{at}")
    claim = Claim(
        id=ClaimId(uid), pod_uid=uid, namespace="kube-system", pod=uid, job=JobId(uid), plan=PlanId(""), queue=QueueName(""),
        priority=0, node=NodeName(at), requests={CPU: 1000 * cores, MEMORY: 0, PODS: 1}, slices=(), state=ClaimState.POSTED,
        min_member=1, preemptable=False,
    )  # fmt: skip
    simulation.hold([claim])
