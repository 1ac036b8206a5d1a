"""Jobs that are alike and wait: the first stand for the others (`tests/property/test_equivalence_class_properties.py` compares with looking at each)."""

from dataclasses import replace

import pytest

from hbox_common.model import (
    Match,
    MatchOperator,
    Neighbour,
    PodConstraints,
    PodTerm,
    PodUid,
    Queue,
    QueueName,
    Selector,
    Taint,
    TaintEffect,
)
from hbox_common.model.annotations import WALLTIME
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.placement.runner import SessionRunner
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

POLICY = """
actions: "allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: usage}]
"""


def world(conf: str = POLICY, cards: int = 4, **node_rules: object) -> Simulation:
    made = Simulation(
        policy_of(PolicyName.BINPACK),
        queues=[Queue(QueueName("default"))],
        conf=parse_conf(conf, plugins=list(PLUGINS)),
    )
    made.put_nodes([replace(node("n0", cards=cards, labels={"kubernetes.io/hostname": "n0"}), **node_rules)])  # type: ignore[arg-type]
    made.now = 10_000.0
    return made


def placed(simulation: Simulation) -> set[str]:
    return {uid.removesuffix("-0") for uid in simulation.claims}


def test_a_look_at_many_that_are_alike_is_a_look_at_a_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    original = SessionRunner.place

    def place(self: SessionRunner, entries: list[object], *more: object, **limits: object) -> object:
        looked.append(len(entries))
        return original(self, entries, *more, **limits)  # type: ignore[arg-type]

    simulation = world()
    simulation.submit(job(f"runs{i}", cards=1, created_at=float(i)) for i in range(4))
    simulation.run()
    simulation.submit(job(f"waits{i:03}", cards=1, created_at=float(100 + i)) for i in range(300))
    simulation.run()
    monkeypatch.setattr(SessionRunner, "place", place)
    simulation.now += 10.0
    simulation.finish([PodUid("runs2-0")])
    simulation.run()
    assert placed(simulation) == {"runs0", "runs1", "runs3", "waits000"}
    assert looked
    assert max(looked) == 3, "as many as there is room for, one more, and whom the room itself woke"


def test_as_many_are_looked_at_as_the_policy_may_place_and_nobody_younger_comes_before_them() -> None:
    """The policy knows no taints, what wakes the others does: it counts no room on this node."""
    taint = (Taint("keep", "away", TaintEffect.NO_SCHEDULE),)
    simulation = world(POLICY.replace(", {name: predicates}", ""), taints=taint)
    simulation.submit([job("large", cards=4, created_at=0.0)])
    simulation.run()
    simulation.submit(job(f"old{i}", cards=1, created_at=float(10 + i)) for i in range(4))
    simulation.submit(job(f"young{i}", cards=1, cpu_milli=2000, created_at=float(20 + i)) for i in range(4))
    simulation.run()
    assert placed(simulation) == {"large"}
    simulation.now += 10.0
    simulation.finish([PodUid("large-0")])
    simulation.run()
    assert placed(simulation) == {f"old{i}" for i in range(4)}


def test_one_that_says_something_new_of_itself_is_looked_at_by_itself() -> None:
    """All wait for the start of `big`; who is known to end before it may go in."""
    conf = POLICY.replace("{name: predicates}", "{name: predicates}, {name: reservation, arguments: {after: 1m, share: 1}}")
    simulation = world(conf)
    simulation.submit([job("runs", cards=2, created_at=9_990.0)])
    simulation.run()
    runs = Neighbour(PodUid("runs-0"), "default", annotations={WALLTIME: "1000s"}, started_at=9_990.0)
    simulation.scheduler.on_neighbours([runs])
    simulation.submit([job("big", pods=2, cards=2, created_at=5_000.0)])
    small = [job(f"small{i}", cards=1, created_at=9_000.0 + i) for i in range(8)]
    simulation.submit(small)
    simulation.run()
    assert placed(simulation) == {"runs"}
    spec = replace(small[7].tasks[0], annotations={WALLTIME: "100s"})
    simulation.submit([replace(small[7], tasks=(spec,), revision=2)])
    simulation.now += 3.0
    simulation.run()
    assert placed(simulation) == {"runs", "small7"}


def test_one_whose_pod_turns_out_to_have_to_do_with_others_stands_for_nobody() -> None:
    simulation = world(cards=2)
    simulation.submit([job("guard", cards=1, created_at=0.0), job("blocks", cards=1, created_at=1.0)])
    simulation.run()
    term = PodTerm("kubernetes.io/hostname", Selector((Match("app", MatchOperator.IN, ("x",)),)))
    simulation.scheduler.on_neighbours(
        [Neighbour(PodUid("guard-0"), "default", constraints=PodConstraints(anti_affinity=(term,)))]
    )
    simulation.submit(job(f"waits{i}", cards=1, created_at=float(10 + i)) for i in range(8))
    simulation.run()
    simulation.scheduler.on_neighbours(Neighbour(PodUid(f"waits{i}-0"), "default", labels={"app": "x"}) for i in range(6))
    simulation.now += 10.0
    simulation.finish([PodUid("blocks-0")])
    simulation.run()
    assert placed(simulation) == {"guard", "waits6"}
