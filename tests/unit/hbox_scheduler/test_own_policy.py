"""The default policy on clusters with room: what a policy for full clusters must not cost there."""

from collections import Counter

from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.framework.views import Views
from hbox_scheduler.core.policy import policy_from, policy_of
from hbox_scheduler.core.policy.default import DEFAULT, PolicyName, default_conf
from hbox_scheduler.core.simulate import Simulation, job, node


def cluster(name: PolicyName = DEFAULT) -> Simulation:
    conf = default_conf(name)
    return Simulation(policy_from(conf), conf=conf)


def pods_by_node(simulation: Simulation) -> Counter[str]:
    return Counter(str(claim.node) for claim in simulation.claims.values())


def test_default_policy_reserves_nodes_for_large_jobs() -> None:
    assert DEFAULT is PolicyName.LEAST_WASTE
    assert {"least-waste", "reservation"} <= {plugin.name for plugin in default_conf().plugins}


def test_pods_of_one_card_fill_nodes_of_an_idle_cluster() -> None:
    simulation = cluster()
    simulation.put_nodes(node(f"n{number}", cards=8, cpu=96) for number in range(16))
    for number in range(20):
        simulation.submit([job(f"j{number}", cards=1, cpu_milli=4000)])
        simulation.run()
    assert sorted(pods_by_node(simulation).values()) == [4, 8, 8]


def test_pods_without_cards_go_to_nodes_without_cards() -> None:
    simulation = cluster()
    simulation.put_nodes(node(f"cards-{number}", cards=8, cpu=96) for number in range(3))
    simulation.put_nodes(node(f"plain-{number}", cpu=32) for number in range(3))
    for number in range(10):
        simulation.submit([job(f"j{number}", cpu_milli=4000)])
        simulation.run()
    assert pods_by_node(simulation) == {"plain-0": 8, "plain-1": 2}


def test_equal_pods_with_whole_cards_are_placed_in_one_step() -> None:
    columns = Columns()
    for number in range(64):
        columns.put_node(node(f"n{number}", cards=8, cpu=96))
    tasks = Tasks(columns)
    task = tasks.of(job("j", cards=1, cpu_milli=4000).tasks[0])
    view = Views(columns, policy_of(DEFAULT)).of(task)
    assert Counter(view.sequence(512)) == dict.fromkeys(range(64), 8)
