"""How fragmented idle cards are: FGD's F as the sandbox's report counts it, card by card, and the largest gangs that would start."""

from random import Random

import pytest

from hbox_common.model import JobId, PodUid, Verdict
from hbox_sandbox.replay import FreeNode, fragmented_milli
from hbox_sandbox.replay import Shape as TraceShape
from hbox_scheduler.core.placement.fragmentation import fragmentation
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from .test_defragmentation import spread


def test_singles_on_each_node_leave_no_place_for_a_pod_of_eight() -> None:
    found = spread().scheduler.reports.fragmentation()
    assert (found.cards, found.idle) == (24, 18.0)
    assert found.largest == {1: 18, 2: 9, 4: 3, 8: 0}


def test_without_anybody_who_asks_for_cards_nothing_is_of_no_use() -> None:
    simulation = Simulation(policy_of(PolicyName.BINPACK))
    simulation.put_nodes([node("n0", cards=8)])
    found = simulation.scheduler.reports.fragmentation()
    assert (found.fragments, found.ratio, found.largest) == (0.0, 0.0, {1: 8, 2: 4, 4: 2, 8: 1})


def test_an_empty_cluster_has_no_figure() -> None:
    found = Simulation(policy_of(PolicyName.BINPACK)).scheduler.reports.fragmentation()
    assert (found.cards, found.idle, found.fragments, found.ratio, found.largest) == (0, 0.0, 0.0, 0.0, {})


def test_nodes_that_take_nobody_count_for_nothing() -> None:
    simulation = spread()
    scheduler = simulation.scheduler
    scheduler.on_verdict(Verdict(node("n0").name, node("n0").generation, False, (), "XID 79", 1.0))
    assert (scheduler.reports.fragmentation().cards, scheduler.reports.fragmentation().largest[1]) == (16, 12)


def test_those_who_wait_are_part_of_the_mix() -> None:
    simulation = spread()
    before = simulation.scheduler.reports.fragmentation().fragments
    simulation.submit([job("wide", cards=8, created_at=simulation.now)])
    simulation.run()
    assert simulation.scheduler.reports.fragmentation().fragments > before


@pytest.mark.parametrize("seed", range(25))
def test_it_is_what_the_report_of_a_replay_counts(seed: int) -> None:
    rng = Random(seed)
    simulation = Simulation(policy_of(PolicyName.BINPACK))
    cpus = {f"n{i}": rng.choice((8, 16, 64)) for i in range(4)}
    simulation.put_nodes(node(name, cards=8, cpu=cpu) for name, cpu in cpus.items())
    asked = {}
    for number in range(16):
        cards, cpu = rng.choice((1, 1, 2, 4, 8)), rng.choice((1000, 4000, 12_000))
        simulation.submit([job(f"j{number}", cards=cards, cpu_milli=cpu, created_at=float(number))])
        simulation.run()
        asked[PodUid(f"j{number}-0")] = TraceShape(cpu, cards, 1000)
    ended = [uid for uid in simulation.claims if rng.random() < 0.4]
    simulation.finish(ended)
    simulation.scheduler.on_withdrawn([JobId(str(uid).removesuffix("-0")) for uid in ended], [2] * len(ended))
    mix: dict[TraceShape, int] = {}
    for uid, shape in asked.items():
        if uid not in ended:
            mix[shape] = mix.get(shape, 0) + 1
    free = []
    for name, cpu in cpus.items():
        here = [claim for claim in simulation.claims.values() if claim.node == name]
        taken = {slice.index for claim in here for slice in claim.slices}
        left = cpu * 1000 - sum(claim.requests["cpu"] for claim in here)
        free.append(FreeNode(left, "any", tuple(0 if index in taken else 1000 for index in range(8))))
    found = fragmentation(simulation.scheduler.columns, simulation.scheduler._sessions.mix())
    assert found.fragments * 1000 == pytest.approx(fragmented_milli(free, mix))
