"""What is known of nodes by their state is as good as looking: after changes of a few rows views are what they would be, read whole."""

import random
from dataclasses import replace

import numpy as np
import pytest

from hbox_common.model import CardRequest, CardSlice, Match, MatchOperator, NodeTerm, PodUid, PreferredTerm
from hbox_scheduler.core.framework.conf import Conf, parse_conf
from hbox_scheduler.core.framework.rowstates import RowStates
from hbox_scheduler.core.framework.views import View
from hbox_scheduler.core.plugins.fgd import Shape
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from ...policies import volcano

PREFERS_RED = (PreferredTerm(100, NodeTerm((Match("colour", MatchOperator.IN, ("red",)),))),)

#: What is on cards counts, and nobody else has a score.
IDLE_CARDS = parse_conf(
    """
actions: "allocate"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: binpack, arguments: {binpack.idle-cards.weight: 1}}]
""",
    plugins=list(PLUGINS),
)

POLICIES = pytest.mark.parametrize(
    "conf", [*map(default_conf, PolicyName), volcano()], ids=[*map(str, PolicyName), "volcano's"]
)


@POLICIES
@pytest.mark.parametrize("nodes", [8, 40])
@pytest.mark.parametrize("labelled", [True, False], ids=["idle cards by labels", "idle cards alike"])
def test_views_are_those_of_rows_looked_at(conf: Conf, nodes: int, labelled: bool) -> None:
    rng = random.Random(nodes)
    simulation = Simulation(policy_of(PolicyName.BINPACK), limits=Limits(outstanding=1 << 30), conf=conf)
    simulation.put_nodes(
        node(
            f"n{i}",
            cards=8 * (i % 3 > 0),
            shares=(1, 10)[i % 2],
            cpu=32,
            labels={"colour": ("red", "blue")[i % 2]} | ({"hbox.io/cpu-per-card": str(i % 5)} if labelled else {}),
            model=("A100", "T4")[i % 4 == 0],
        )
        for i in range(nodes)
    )
    shares = [CardRequest(1, cores=share, memory_percent=share) for share in (20, 50)]  # that request the same amounts
    cards_asked: list[CardRequest | int] = [0, 1, *shares, 2]
    asked = [(cards, cpu, preferred) for cards in cards_asked for cpu in (1000, 3000) for preferred in ((), PREFERS_RED)]
    pods: list[PodUid] = []
    for number in range(150):
        cards, cpu, preferred = rng.choice(asked)
        one = job(f"j{number}", cards=cards, cpu_milli=cpu, created_at=float(number))
        one = replace(one, tasks=(replace(one.tasks[0], preferred=preferred),))
        simulation.submit([one])
        pods += [placement.pod_uid for plan in simulation.run() for placement in plan.placements]
        if rng.random() < 0.3 and pods:
            simulation.finish([pods.pop(rng.randrange(len(pods)))])
        scheduler = simulation.scheduler
        if number % 10 == 0:
            scheduler.columns.reserve(np.array([rng.random() < 0.2 for _ in range(nodes)], dtype=np.int64))
        if number % 3:
            continue  # views follow several changes at once, too
        for task in {entry.tasks[0] for entry in scheduler._queue.entries.values()}:
            kept, anew = scheduler.views.of(task), View(scheduler.columns, scheduler.policy, task, RowStates(scheduler.columns))
            version = scheduler.policy.version
            anew.refresh(version)
            if scheduler.policy.version != version:  # the new view was the first one to look at the changed rows
                kept = scheduler.views.of(task)
                anew.refresh(scheduler.policy.version)
            assert np.array_equal(kept.capacity, anew.capacity)
            assert np.array_equal(kept.rank, anew.rank)
            some = np.array(rng.sample(range(nodes), 2))
            of_states = {name: parts.tolist() for name, parts in scheduler.views.terms(some, task)}
            assert of_states == {name: parts.tolist() for name, parts in scheduler.policy.terms(scheduler.columns, some, task)}


def test_scores_follow_all_nodes_although_every_state_is_known() -> None:
    """76 of 80 cards are idle (`leastwaste.REPRICED`), and six of ten rooms are left, but four equal nodes with one pod each have one state."""
    policy = policy_of(PolicyName.LEAST_WASTE, mix={Shape(1000, 8): 1.0, Shape(1000, 1): 60.0})
    simulation = Simulation(policy, limits=Limits(outstanding=1 << 30))
    simulation.put_nodes(node(f"n{i}", cards=8) for i in range(10))
    scheduler = simulation.scheduler
    task = scheduler.tasks.of(job("one", cards=1, cpu_milli=1000).tasks[0])
    scheduler.views.of(task)
    simulation.submit([job("first", cards=1, cpu_milli=1000)])
    (plan,) = simulation.run()
    first = scheduler.columns.row_of[plan.placements[0].node]
    requests = plan.requests[plan.placements[0].requests]
    scheduler.views.of(task)
    version = scheduler.policy.version
    for row in (row for row in range(4) if row != first):
        scheduler.columns.book(row, requests, (CardSlice(0, 100, plan.placements[0].slices[0].memory_mib),))
    for _ in range(300):
        scheduler.columns.changes.add(first)
        scheduler.views.of(task)
    assert scheduler.policy.version > version


def test_scores_by_cards_are_not_those_of_equal_amounts() -> None:
    simulation = Simulation(policy_of(PolicyName.BINPACK), limits=Limits(outstanding=1 << 30), conf=IDLE_CARDS)
    simulation.put_nodes([node("n0", cards=2, shares=10, cpu=32)])
    task = simulation.scheduler.tasks.of(job("small", cards=1, cpu_milli=1000).tasks[0])
    ranks = [simulation.scheduler.views.of(task).rank.tolist()]
    for share in (20, 50):  # the same amounts, and another part of a card
        simulation.submit([job(f"share-{share}", cards=CardRequest(1, cores=share, memory_percent=share), cpu_milli=1000)])
        (plan,) = simulation.run()
        ranks.append(simulation.scheduler.views.of(task).rank.tolist())
        simulation.finish([plan.placements[0].pod_uid])
    assert ranks[0] < ranks[1] < ranks[2]
