"""Idle nodes are equal to the scores: pods without wishes take those of units that others have broken already, so that whole units stay for gangs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.errors import InvalidRequest
from hbox_common.model import HyperNode, Job, NodeName
from hbox_common.model.annotations import NETWORK_TOPOLOGY
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName
from hbox_scheduler.core.policy.default import default_conf, default_text
from hbox_scheduler.core.policy.policy import policy_of
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.policy.uniform import in_the_way
from hbox_scheduler.core.simulate import Simulation, job, node

from ...searching import examples

CARDS = 4


def cluster(units: dict[str, list[str]], *, conf_text: str = "") -> Simulation:
    """Nodes of four cards, as HBox's own policy sees them."""
    conf = parse_conf(conf_text, plugins=list(PLUGINS)) if conf_text else default_conf()
    made = Simulation(policy_of(PolicyName.BINPACK), conf=conf)
    names = sorted(name for names in units.values() for name in names)
    made.put_nodes(node(name, cards=CARDS, labels={"name": name}) for name in names)
    made.scheduler.on_fabric(
        [HyperNode(unit, 1, "leafgroup", nodes=tuple(map(NodeName, names))) for unit, names in units.items()], "compute"
    )
    return made


def put(made: Simulation, *jobs: Job) -> list[str]:
    """Where each pod went, in the order of the jobs."""
    made.submit(jobs)
    made.run()
    return [str(made.claims[pod.uid].node) for one in jobs for task in one.tasks for pod in task.pods]


UNITS = {"u1": ["a1", "a2", "a3"], "u2": ["b1", "b2", "b3"], "u3": ["c1", "c2", "c3"]}


def test_a_pod_without_wishes_opens_a_node_of_the_unit_that_is_broken_already() -> None:
    made = cluster(UNITS)
    gang = replace(job("gang", pods=2, cards=CARDS), annotations={NETWORK_TOPOLOGY: "singleSwitch"})
    [unit] = {name[0] for name in put(made, gang)}
    other = replace(job("other", pods=3, cards=CARDS), annotations={NETWORK_TOPOLOGY: "singleSwitch"})
    put(made, other)
    assert put(made, job("plain", cards=CARDS))[0][0] == unit
    last = replace(job("last", pods=3, cards=CARDS), annotations={NETWORK_TOPOLOGY: "singleSwitch"})
    assert len({name[0] for name in put(made, last)}) == 1


def test_a_burst_fills_one_unit_after_the_other_though_their_nodes_alternate_by_name() -> None:
    made = cluster({"even": ["n0", "n2", "n4"], "odd": ["n1", "n3", "n5"]})
    where = put(made, *(job(f"j{n}", cards=CARDS) for n in range(3)))
    assert set(where) == {"n0", "n2", "n4"}


def test_a_unit_with_fewer_idle_nodes_comes_before_one_with_more() -> None:
    made = cluster(UNITS)
    put(made, *(job(f"r{n}", cards=CARDS, node_selector={"name": name}) for n, name in enumerate(("a1", "c1", "c3"))))
    assert put(made, job("plain", cards=CARDS)) == ["c2"]
    assert put(made, job("next", cards=CARDS)) == ["a2"]
    assert put(made, job("third", cards=CARDS)) == ["a3"]
    assert put(made, job("breaks", cards=1)) == ["b1"]


def test_without_the_argument_and_without_a_fabric_the_first_node_is_taken() -> None:
    plain = default_text().replace("hypernode.keep-whole.enable: true", "hypernode.keep-whole.enable: false")
    units = {"even": ["n0", "n2"], "odd": ["n1", "n3"]}
    jobs = [job(f"j{n}", cards=CARDS) for n in range(2)]
    assert put(cluster(units, conf_text=plain), *jobs) == ["n0", "n1"]
    assert put(cluster(units), *jobs) == ["n0", "n2"]
    made = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
    made.put_nodes(node(f"n{n}", cards=CARDS) for n in range(4))
    assert put(made, *jobs) == ["n0", "n1"]


def test_the_argument_is_a_switch_and_keeps_nobody_from_batches() -> None:
    wrong = default_text().replace("hypernode.keep-whole.enable: true", "hypernode.keep-whole.enable: 7")
    with pytest.raises(InvalidRequest, match="keep-whole"):
        in_the_way(parse_conf(wrong, plugins=list(PLUGINS)))
    assert not in_the_way(default_conf())


@examples(20, dear=True)
@given(
    units=st.lists(st.integers(0, 3), min_size=2, max_size=10),
    running=st.lists(st.tuples(st.integers(0, 9), st.integers(1, CARDS)), max_size=6),
    pods=st.lists(st.sampled_from((1, 2, 4)), min_size=1, max_size=8),
)
def test_many_at_once_go_where_one_after_the_other_would(
    units: list[int], running: list[tuple[int, int]], pods: list[int]
) -> None:
    """Of equal pods, whatever runs, however nodes are in units."""

    def made() -> Simulation:
        by_unit: dict[str, list[str]] = {}
        for number, unit in enumerate(units):
            by_unit.setdefault(f"u{unit}", []).append(f"n{number}")
        found = cluster(by_unit)
        for number, (at, cards) in enumerate(running):
            pinned = job(f"r{number}", cards=cards, node_selector={"name": f"n{at}"})
            found.submit([pinned])
        found.run()
        return found

    for cards in set(pods):
        jobs = [job(f"j{cards}-{number}", cards=cards) for number in range(pods.count(cards))]
        together, single = made(), made()
        together.submit(jobs)
        together.run()
        for one in jobs:
            single.submit([one])
            single.run()
        assert {pod: claim.node for pod, claim in together.claims.items()} == {
            pod: claim.node for pod, claim in single.claims.items()
        }


def test_the_tree_follows_the_fabric_and_the_nodes() -> None:
    made = cluster({"even": ["n0", "n2"], "odd": ["n1", "n3"]})
    assert put(made, job("first", cards=CARDS)) == ["n0"]
    made.scheduler.on_fabric([HyperNode("low", 1, nodes=(NodeName("n0"), NodeName("n3")))], "compute")
    assert put(made, job("second", cards=CARDS)) == ["n3"]
    made.scheduler.on_fabric([HyperNode("new", 1, nodes=tuple(map(NodeName, ("n0", "n1", "n4"))))], "compute")
    made.put_nodes([node("n4", cards=CARDS, labels={"name": "n4"})])
    put(made, job("third", cards=CARDS, node_selector={"name": "n1"}))
    assert put(made, job("fourth", cards=CARDS)) == ["n4"]
