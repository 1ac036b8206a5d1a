"""A node whose device plugin fails pods in a row is steered around for a while, by pods with cards alone."""

import pytest

from hbox_common.model import JobId, KindRest, NodeName, NodeRest, Queue, QueueName, node_rest
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

LAME = NodeName("a")


def world(*nodes: str) -> Simulation:
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(QueueName("default"))])
    simulation.put_nodes(node(name, cards=2) for name in nodes)
    return simulation


def rests(simulation: Simulation, for_s: float, *, failures: int = 2) -> None:
    wall = simulation.now
    simulation.scheduler.on_rest(NodeRest(LAME, failures, wall + for_s if for_s else 0.0, wall, "ml/p", "no"))


def where(simulation: Simulation, name: str) -> set[str]:
    return {str(place) for pod, place in simulation.scheduler.reports.placed_on().items() if pod.startswith(name)}


def submitted(simulation: Simulation, name: str, cards: int = 1) -> set[str]:
    simulation.submit([job(name, cards=cards)])
    simulation.run()
    return where(simulation, name)


def test_pods_with_cards_go_elsewhere_and_others_do_not_care() -> None:
    simulation = world("a", "b")
    assert submitted(simulation, "before") == {"a"}
    rests(simulation, 8.0)
    assert (submitted(simulation, "card"), submitted(simulation, "plain", 0)) == ({"b"}, {"a"})


def test_who_finds_no_other_node_is_told_so_and_starts_when_the_time_is_over() -> None:
    simulation = world("a")
    rests(simulation, 8.0)
    assert submitted(simulation, "waits") == set()
    assert "1 NodeDevicePluginFails" in simulation.verdicts[JobId("waits")]
    out = simulation.scheduler.cycle(simulation.now, simulation.now)
    assert out.wake_at is not None
    assert out.wake_at <= simulation.now + 8.0
    simulation.now += 8.1
    simulation.run()
    assert where(simulation, "waits") == {"a"}


def test_a_plugin_that_hands_cards_over_again_is_believed_at_once() -> None:
    simulation = world("a")
    rests(simulation, 60.0)
    assert submitted(simulation, "waits") == set()
    rests(simulation, 0.0, failures=0)
    simulation.run()
    assert where(simulation, "waits") == {"a"}


@pytest.mark.parametrize("for_s", [1e9, -5.0, 0.0])
def test_a_time_that_cannot_be_keeps_nobody_away(for_s: float) -> None:
    simulation = world("a")
    rests(simulation, for_s)
    assert submitted(simulation, "goes") == {"a"}


def test_a_node_that_goes_and_comes_again_rests_no_more() -> None:
    simulation = world("a")
    rests(simulation, 60.0)
    scheduler = simulation.scheduler
    scheduler.columns.drop_node(LAME)
    simulation.put_nodes([node("a", cards=2, generation=3)])
    assert submitted(simulation, "goes") == {"a"}


def test_a_node_that_is_not_known_yet_rests_when_it_comes() -> None:
    simulation = world("b")
    rests(simulation, 60.0)
    simulation.put_nodes([node("a", cards=2)])
    assert submitted(simulation, "card") == {"b"}


def refuses(simulation: Simulation, *kinds: KindRest) -> None:
    simulation.scheduler.on_rest(node_rest(LAME, kinds))


def test_node_short_of_cpu_takes_small_pods_only() -> None:
    simulation = world("a")
    wall = simulation.now
    refuses(simulation, KindRest("cpu", 1, wall + 8.0, wall, "ml/p", "OutOfcpu", {"cpu": 4000}))
    simulation.submit([job("large", cpu_milli=8000)])
    simulation.submit([job("small", cpu_milli=1000)])
    simulation.run()
    assert "1 NodeRefusesPods" in simulation.verdicts[JobId("large")]
    assert where(simulation, "small") == {"a"}


def test_node_that_refuses_one_request_takes_all_others() -> None:
    simulation = world("a", "b")
    wall = simulation.now
    spec = job("x", cards=1)
    only = dict(spec.tasks[0].requests)
    refuses(simulation, KindRest("cards", 1, wall + 8.0, wall, "ml/p", "UnexpectedAdmissionError", {}, only))
    assert submitted(simulation, "two", 2) == {"a"}
    assert submitted(simulation, "one", 1) == {"b"}


def test_kinds_of_one_node_end_one_after_the_other() -> None:
    simulation = world("a")
    wall = simulation.now
    refuses(simulation, KindRest("cards", 1, wall + 2.0, wall), KindRest("any", 1, wall + 4.0, wall))
    assert submitted(simulation, "card") | submitted(simulation, "plain", 0) == set()
    assert "1 NodeRefusesPods" in simulation.verdicts[JobId("plain")]
    assert "1 NodeDevicePluginFails" in simulation.verdicts[JobId("card")]
    simulation.now += 2.5
    simulation.run()
    assert where(simulation, "card") | where(simulation, "plain") == set()
    simulation.now += 2.0
    simulation.run()
    assert where(simulation, "card") | where(simulation, "plain") == {"a"}
