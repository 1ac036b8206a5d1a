"""What a plan says of the domains in which its pods have to be."""

from dataclasses import replace

import pytest

from hbox_common.events import Plan
from hbox_common.model import HyperNode, Job, NodeName, SubGangPolicy, TopologyMode, TopologyWish
from hbox_common.model.annotations import NETWORK_TOPOLOGY
from hbox_scheduler.core.framework.conf import Conf, parse_conf
from hbox_scheduler.core.policy import PolicyName
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.policy.policy import policy_of
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate import Simulation, job, node

CARDS = 4
UNITS = {"u1": ["a1", "a2"], "u2": ["b1", "b2"], "u3": ["c1", "c2"]}


def cluster(conf: Conf | None = None) -> Simulation:
    made = Simulation(policy_of(PolicyName.BINPACK), conf=conf or default_conf())
    made.put_nodes(node(name, cards=CARDS, labels={"name": name}) for names in UNITS.values() for name in names)
    units = [HyperNode(unit, 1, "leafgroup", nodes=tuple(map(NodeName, names))) for unit, names in UNITS.items()]
    pods = [HyperNode("p1", 2, "pod", children=("u1", "u2")), HyperNode("p2", 2, "pod", children=("u3",))]
    made.scheduler.on_fabric((*units, *pods, HyperNode("top", 3, "fabric", children=("p1", "p2"))), "ib", 17)
    return made


def planned(made: Simulation, asked: Job) -> Plan:
    made.submit([asked])
    [plan] = made.run()
    return plan


def said(plan: Plan) -> list[tuple[str, str, int, list[str]]]:
    """Fabric, domain, version, and the pods that are named."""
    return [(one.fabric, one.domain, one.version, [plan.placements[n].pod for n in one.placements]) for one in plan.domains]


def test_a_gang_of_one_switch_names_its_unit() -> None:
    plan = planned(cluster(), replace(job("g", pods=2, cards=CARDS), annotations={NETWORK_TOPOLOGY: "singleSwitch"}))
    [(fabric, domain, version, named)] = said(plan)
    assert (fabric, version, named) == ("ib", 17, [])
    assert {str(placement.node) for placement in plan.placements} == set(UNITS[domain])


def test_one_that_may_be_anywhere_in_a_pod_names_the_pod_though_a_unit_holds_it() -> None:
    wish = TopologyWish(TopologyMode.HARD, 2)
    assert said(planned(cluster(), replace(job("g", pods=2, cards=CARDS), topology=wish)))[0][1] in ("p1", "p2")


@pytest.mark.parametrize(
    "asked",
    [
        job("plain", pods=2, cards=CARDS),
        replace(job("soft", pods=2, cards=CARDS), annotations={NETWORK_TOPOLOGY: "bestEffort"}),
        replace(job("any", pods=2, cards=CARDS), topology=TopologyWish(TopologyMode.HARD)),
        replace(job("single", cards=CARDS), annotations={NETWORK_TOPOLOGY: "singleSwitch"}),
    ],
    ids=lambda asked: asked.name,
)
def test_others_name_none(asked: Job) -> None:
    assert not planned(cluster(), asked).domains


def test_a_policy_that_does_not_heed_the_fabric_names_none() -> None:
    text = 'actions: "allocate"\ntiers:\n- plugins: [{name: gang}, {name: predicates}, {name: binpack}]\n'
    made = cluster(parse_conf(text, plugins=list(PLUGINS)))
    asked = replace(job("g", pods=2, cards=CARDS), annotations={NETWORK_TOPOLOGY: "singleSwitch"})
    assert not planned(made, asked).domains


def test_each_sub_gang_names_its_own_domain_and_its_own_pods() -> None:
    base = job("g", pods=4, cards=CARDS)
    [task] = base.tasks
    kinds = [
        replace(
            task,
            name=f"t{n}",
            pods=task.pods[n : n + 1],
            labels={"stage": str(n % 2)},
            requests=task.requests | {"cpu": 1000 + n // 2},
        )
        for n in range(4)
    ]
    policy = SubGangPolicy("stage", ("stage",), size=2, topology=TopologyWish(TopologyMode.HARD, 1))
    plan = planned(cluster(), replace(base, tasks=tuple(kinds), sub_gangs=(policy,)))
    found = said(plan)
    assert sorted(sorted(named) for *_, named in found) == [["g-0", "g-2"], ["g-1", "g-3"]]
    for one in plan.domains:
        assert {str(plan.placements[n].node) for n in one.placements} == set(UNITS[one.domain])


def test_places_that_others_leave_are_given_up_when_they_are_in_no_domain_any_more() -> None:
    def waiting() -> Simulation:
        made = cluster()
        low = [
            job(f"low-{name}", cards=CARDS, priority=1, node_selector={"name": name})
            for name in ("a1", "a2", "b1", "b2", "c1", "c2")
        ]
        made.submit(low)
        made.run()
        high = replace(job("high", pods=2, cards=CARDS, priority=9), annotations={NETWORK_TOPOLOGY: "singleSwitch"})
        made.submit([high])
        [plan] = made.run()
        assert len(plan.victims) == 2
        return made

    made = waiting()
    made.leave()
    [plan] = made.run()
    assert len(plan.placements) == 2
    assert not plan.victims

    made = waiting()
    units = [HyperNode("x", 1, "leafgroup", nodes=tuple(map(NodeName, ("a1", "b1", "c1"))))]
    units += [HyperNode("y", 1, "leafgroup", nodes=tuple(map(NodeName, ("a2", "b2", "c2"))))]
    made.scheduler.on_fabric(units, "ib", 18)
    made.leave()
    for plan in made.run():
        assert plan.victims or {str(one.node) for one in plan.placements} not in [set(names) for names in UNITS.values()]
