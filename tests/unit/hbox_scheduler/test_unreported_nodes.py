"""A node whose kubelet's policy is not known yet takes no pods that a kubelet may refuse."""

from dataclasses import replace

import pytest

from hbox_common.model import JobId, Queue, QueueName
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.simulate.simulation import Simulation, job, node


def world() -> Simulation:
    """Node a waits for its first report."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(QueueName("default"))])
    simulation.put_nodes([replace(node("a", cards=2), report_due=90.0)])
    return simulation


def report(simulation: Simulation, *, missing: bool = False) -> None:
    simulation.now += 5.0  # a job's reasons are published every two seconds at most
    simulation.put_nodes([replace(node("a", cards=2, generation=2), report_missing=missing)])
    simulation.run()


def where(simulation: Simulation, name: str) -> set[str]:
    return {str(place) for pod, place in simulation.scheduler.reports.placed_on().items() if pod.startswith(name)}


def test_pod_with_cards_waits_and_pod_without_does_not() -> None:
    simulation = world()
    simulation.submit([job("card", cards=1), job("plain", cards=0)])
    simulation.run()
    assert (where(simulation, "card"), where(simulation, "plain")) == (set(), {"a"})
    assert "1 KubeletPolicyNotKnown" in simulation.verdicts[JobId("card")]


@pytest.mark.parametrize("missing", [False, True])
def test_pod_with_cards_starts_after_the_report_or_without_it_after_the_wait(missing: bool) -> None:
    simulation = world()
    simulation.submit([job("card", cards=1)])
    simulation.run()
    report(simulation, missing=missing)
    assert where(simulation, "card") == {"a"}


def test_reason_follows_the_report_if_the_pod_does_not_fit() -> None:
    simulation = world()
    simulation.submit([job("large", cards=3)])
    simulation.run()
    assert "1 KubeletPolicyNotKnown" in simulation.verdicts[JobId("large")]
    report(simulation)
    assert "KubeletPolicyNotKnown" not in simulation.verdicts[JobId("large")]


def test_deleted_node_ends_the_reason() -> None:
    simulation = world()
    simulation.put_nodes([node("b", cards=2)])
    simulation.submit([job("large", cards=3)])
    simulation.run()
    simulation.scheduler.on_node(replace(node("a", generation=3), gone=True))
    simulation.run()
    assert "1 NodeInsufficientDevice" in simulation.verdicts[JobId("large")]
