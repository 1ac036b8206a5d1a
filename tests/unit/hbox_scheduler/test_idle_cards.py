"""What pods without cards leave on a node for its idle cards: `idle-cards`, of HBox's own policy."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import DEFAULT_QUEUE, CardRequest, Generation, JobId, NodeName, NodeState, Queue, QueueName, Verdict
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.framework.conf import Conf, parse_conf
from hbox_scheduler.core.framework.session import Session
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf, default_text
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of
from hbox_scheduler.core.policy.uniform import in_the_way
from hbox_scheduler.core.simulate.simulation import Simulation, job, node


def own(arguments: str = "") -> Conf:
    """HBox's own policy with these arguments of the plugin."""
    text = default_text().replace("  - name: idle-cards\n", f"  - name: idle-cards\n    arguments: {{{arguments}}}\n")
    return parse_conf(text, plugins=list(PLUGINS))


PROPORTIONAL = """
actions: "allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}]
- plugins:
  - name: resource-strategy-fit
    arguments:
      resourceStrategyFitWeight: 0
      proportional: {enable: true, resources: nvidia.com/gpu, resourceProportion: {nvidia.com/gpu.cpu: 6, nvidia.com/gpu.memory: 8}}
"""

WAYS = pytest.mark.parametrize("one_by_one", [False, True], ids=["at once", "one by one"])


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.getfixturevalue("one_by_one"):
        monkeypatch.setattr(Session, "by_shape", lambda *_: False)


def world(nodes: Sequence[NodeState], conf: Conf | None = None) -> Simulation:
    made = Simulation(policy_of(PolicyName.BINPACK), conf=conf or default_conf())
    made.put_nodes(nodes)
    return made


def run(simulation: Simulation, name: str, count: int, *, at: float = 0.0, queue: str = DEFAULT_QUEUE, **asked: Any) -> int:
    """How many of these jobs have a place once the cluster is quiet."""
    simulation.submit(job(f"{name}{i}", created_at=at + i, queue=queue, **asked) for i in range(count))
    simulation.run()
    return started(simulation, name)


def make_room(simulation: Simulation) -> None:
    for _ in range(8):
        simulation.run()
        simulation.leave()
        simulation.now += 3.0
    simulation.run()


def started(simulation: Simulation, name: str) -> int:
    return sum(claim.job.startswith(name) for claim in simulation.claims.values())


@WAYS
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("shares", [1, 10], ids=["whole cards", "ten slots to a card"])
def test_cards_find_their_cores_whatever_came_before(one_by_one: bool, shares: int) -> None:
    """Two nodes of 64 cores and 8 cards: 16 cores of each are lent, so that 6 are left for each card."""
    simulation = world([node(f"n{i}", cards=8, cpu=64, shares=shares) for i in range(2)])
    assert run(simulation, "cpu", 128, memory_mib=64) == 32
    assert "2 ResourcesKeptForIdleCards" in simulation.verdicts[JobId("cpu127")]
    assert run(simulation, "card", 16, at=500.0, cards=1, cpu_milli=6000) == 16


@WAYS
@pytest.mark.usefixtures("way")
def test_small_pods_are_placed_if_others_use_the_whole_lent_share(one_by_one: bool) -> None:
    """A node of 2 cores and 8 idle cards lends half a core, and HBox's own seven pods use 700m."""
    simulation = world([node("n0", cards=8, cpu=2, memory_mib=8192)])
    assert run(simulation, "hbox", 7, cpu_milli=100, memory_mib=192) == 7
    assert run(simulation, "gang", 2, at=100.0, cpu_milli=10, memory_mib=16) == 2
    assert run(simulation, "larger", 1, at=200.0, cpu_milli=150, memory_mib=16) == 0


@WAYS
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("cores", "most"), [(2, 1625), (64, 17_500)], ids=["small node", "large node"])
def test_thousands_of_small_pods_leave_idle_cards_their_cores(one_by_one: bool, cores: int, most: int) -> None:
    """A quarter of the share of each card stays; a large node lends at most a core and a half of it."""
    made = node("n0", cards=8, cpu=cores, memory_mib=64 * 1024)
    simulation = world([replace(made, allocatable={**made.allocatable, "pods": 5000})])
    assert run(simulation, "tiny", 1 + most // 25, cpu_milli=25, memory_mib=1) == most // 25


@WAYS
@pytest.mark.usefixtures("way")
def test_memory_is_kept_too_and_what_is_not_asked_for_is_not_looked_at(one_by_one: bool) -> None:
    simulation = world([node("n0", cards=8, cpu=64, memory_mib=64 * 1024)])
    assert run(simulation, "cpu", 64, cpu_milli=10, memory_mib=1024) == 16
    assert run(simulation, "tiny", 8, at=100.0, cpu_milli=1000, memory_mib=0) == 8


@WAYS
@pytest.mark.usefixtures("way")
def test_a_card_that_is_taken_needs_no_cores_any_more(one_by_one: bool) -> None:
    """Pods with cards that ask for less than their share leave the rest: who waits for it starts without anybody having left."""
    simulation = world([node("n0", cards=8, cpu=64)])
    assert run(simulation, "cpu", 24, memory_mib=64) == 16
    assert run(simulation, "card", 1, at=100.0, cards=1, cpu_milli=2000) == 1
    assert started(simulation, "cpu") == 20
    assert run(simulation, "rest", 7, at=200.0, cards=1, cpu_milli=6000) == 7, "full of cards, the node keeps nothing"
    assert started(simulation, "cpu") == 20


def test_only_the_free_part_of_a_shared_card_keeps_cores() -> None:
    simulation = world([node("n0", cards=1, cpu=64, shares=10)])
    half = CardRequest(1, cores=50, memory_percent=50)
    assert run(simulation, "card", 1, cards=half, cpu_milli=0) == 1
    assert run(simulation, "cpu", 64, at=10.0, memory_mib=64) == 40, "half of the card keeps half of 48"


def test_sick_cards_need_nothing_until_they_are_well() -> None:
    simulation = world([node("n0", cards=8, cpu=64)])
    sick = Verdict(NodeName("n0"), Generation(2), healthy=True, bad_cards=(0, 1, 2, 3))
    simulation.scheduler.on_verdict(sick)
    assert run(simulation, "cpu", 60, memory_mib=64) == 40
    simulation.scheduler.on_verdict(replace(sick, generation=Generation(3), bad_cards=()))
    assert run(simulation, "more", 1, at=100.0, memory_mib=64) == 0


def test_nodes_without_cards_and_pods_that_ask_for_nothing_are_not_concerned() -> None:
    simulation = world([node("cpu", cpu=64), node("gpu", cards=8, cpu=64)], own("percent: 100"))
    assert run(simulation, "cpu", 65, memory_mib=64) == 64
    assert run(simulation, "nothing", 8, at=100.0, cpu_milli=0, memory_mib=0) == 8


@pytest.mark.parametrize(
    ("labels", "arguments", "lent"),
    [
        ({}, "", 16),
        ({}, "percent: 50", 32),
        ({}, "percent: 0", 64),
        ({}, "cpu: 2", 48),
        ({}, "cpu: 1000", 0),
        ({"hbox.io/cpu-per-card": "1"}, "", 56),
        ({"hbox.io/cpu-per-card": "0"}, "cpu: 8", 64),
        ({"hbox.io/cpu-per-card": "500m"}, "percent: 0", 60),
        ({"hbox.io/cpu-per-card": "1e30"}, "", 0),
        ({"hbox.io/cpu-per-card": "lots"}, "", 16),
        ({"hbox.io/cpu-per-card": ""}, "", 16),
        ({"hbox.io/pool": "mixed"}, "pools: {mixed: {cpu: 2}}", 48),
        ({"hbox.io/pool": "mixed", "hbox.io/cpu-per-card": "4"}, "pools: {mixed: {cpu: 2}}", 32),
        ({}, "pools: {pooled: {percent: 25}}", 48),
        ({}, "pools: {other: {percent: 25}}", 16),
        ({"hbox.io/cards-only": "true"}, "percent: 0", 0),
        ({"hbox.io/cards-only": "yes"}, "", 16),
        ({}, "cards-only: true", 0),
        ({"hbox.io/cards-only": "false"}, "cards-only: true", 16),
        ({"hbox.io/pool": "mixed"}, "cards-only: true, pools: {mixed: {cards-only: false}}", 16),
        ({"hbox.io/pool": "lab"}, "pools: {lab: {cards-only: true}}", 0),
    ],
)
def test_how_much_is_kept_say_the_policy_the_pool_and_the_node(labels: dict[str, str], arguments: str, lent: int) -> None:
    """Of 64 cores; never more than 8 for each of 8 cards."""
    pools = (labels["hbox.io/pool"],) if "hbox.io/pool" in labels else ()
    simulation = Simulation(
        policy_of(PolicyName.BINPACK), conf=own(arguments), queues=[Queue(QueueName("q"), pools=pools)] if pools else ()
    )
    simulation.put_nodes([node("n0", cards=8, cpu=64, labels=labels)])
    assert run(simulation, "cpu", 70, queue="q" if pools else DEFAULT_QUEUE, memory_mib=64) == lent


@WAYS
@pytest.mark.usefixtures("way")
def test_nodes_for_cards_alone_take_no_other_work_and_nobody_leaves_them_for_it(one_by_one: bool) -> None:
    """Also of those that ask for nothing; a node that becomes mixed is looked at again."""
    closed = node("gpu", cards=8, cpu=64, labels={"hbox.io/cards-only": "true"})
    simulation = world([node("cpu", cpu=2), closed])
    assert run(simulation, "cards", 4, cards=1) == 4
    assert run(simulation, "cpu", 4, at=100.0, priority=1, memory_mib=64) == 2
    assert run(simulation, "nothing", 2, at=200.0, cpu_milli=0, memory_mib=0) == 2
    assert not [claim for claim in simulation.claims.values() if claim.node == "gpu" and not claim.slices]
    assert "1 NodeTakesCardsOnly" in simulation.verdicts[JobId("cpu3")]
    assert started(simulation, "cards") == 4
    simulation.put_nodes([replace(closed, labels={}, generation=Generation(2))])
    simulation.run()
    assert started(simulation, "cpu") == 4


@pytest.mark.parametrize("ready", [True, False])
def test_who_waits_for_the_first_node_is_told_why_it_is_not_enough(ready: bool) -> None:
    """Each of them, also where the node has nothing for them."""
    simulation = world([])
    assert run(simulation, "cpu", 3, memory_mib=64) == 0
    simulation.put_nodes([node("gpu", cards=8, cpu=64, ready=ready, labels={"hbox.io/cards-only": "true"})])
    simulation.run()
    simulation.now += 60.0  # reasons are published at most every few seconds
    simulation.run()
    said = {simulation.verdicts[JobId(f"cpu{i}")] for i in range(3)}
    assert len(said) == 1
    assert said.pop().startswith("0/1 nodes are available: 1 Node")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("percent: 120", "plugin idle-cards, argument percent: 120 is not a number of at most 100"),
        ("percent: .nan", "plugin idle-cards, argument percent: nan is not a number"),
        ("cpu: many", "plugin idle-cards, argument cpu: 'many' is not a quantity"),
        ("memory: -1Gi", "plugin idle-cards, argument memory: memory: -1Gi is negative"),
        ("pools: {a: {prcent: 1}}", "plugin idle-cards, pools, a has no argument 'prcent'"),
        ("pools: {a: {cards-only: 1}}", "plugin idle-cards, pools, a, argument cards-only: 1 is not true or false"),
        ("pools: {a: 1}", "plugin idle-cards, pools, argument a: 1 is not keys and values"),
    ],
)
def test_wrong_arguments_are_refused(arguments: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        plugins_of(own(arguments))
    assert said in caught.value.message


@pytest.mark.parametrize("own_priority", [0, 10])
def test_a_card_that_needs_more_than_its_share_takes_cores_from_lower_priority(own_priority: int) -> None:
    """16 pods hold what is lent; 8 cards that need 8 cores each want two cards' worth of it back."""
    simulation = world([node("n0", cards=8, cpu=64)])
    assert run(simulation, "cpu", 16, memory_mib=64) == 16
    simulation.submit(job(f"card{i}", cards=1, cpu_milli=8000, created_at=100.0 + i, priority=own_priority) for i in range(8))
    make_room(simulation)
    assert started(simulation, "card") == (8 if own_priority else 6)
    assert started(simulation, "cpu") == (0 if own_priority else 16)


def test_who_preempts_for_cores_takes_them_from_pods_without_cards() -> None:
    """Had a pod with a card to leave, its card would need the cores: they come from who holds cores alone."""
    simulation = world([node("n0", cards=8, cpu=64)])
    assert run(simulation, "card", 4, cards=1, cpu_milli=8000) == 4
    assert run(simulation, "cpu", 8, at=50.0, memory_mib=64) == 8
    simulation.submit(job(f"high{i}", cpu_milli=1000, memory_mib=64, created_at=100.0, priority=10) for i in range(4))
    make_room(simulation)
    assert (started(simulation, "high"), started(simulation, "cpu"), started(simulation, "card")) == (4, 4, 4)


@WAYS
@pytest.mark.usefixtures("way")
def test_volcanos_proportional_counts_cards_and_not_their_slots(one_by_one: bool) -> None:
    simulation = world([node("n0", cards=8, cpu=64, shares=10)], parse_conf(PROPORTIONAL, plugins=list(PLUGINS)))
    assert run(simulation, "cpu", 64, memory_mib=64) == 16


def test_a_share_is_never_more_than_what_the_node_has_for_each_card() -> None:
    """7 of 8 cards are taken by pods that ask for nothing else: the last one keeps 8 cores at most, whatever the policy says."""
    simulation = world([node("n0", cards=8, cpu=64)], own("cpu: 40"))
    assert run(simulation, "card", 7, cards=1, cpu_milli=0) == 7
    assert run(simulation, "cpu", 64, at=10.0, memory_mib=64) == 56


def test_neither_keeps_equal_pods_from_being_placed_at_once() -> None:
    assert in_the_way(default_conf()) == []
    assert in_the_way(parse_conf(PROPORTIONAL, plugins=list(PLUGINS))) == []
    assert all(any(one.name == "idle-cards" for one in default_conf(name).plugins) for name in PolicyName)


def test_cards_that_nobody_knows_by_index_are_in_use_as_well() -> None:
    """Of a pod of another scheduler the ledger may not know which cards it has: what it asks for counts."""
    simulation = world([node("n0", cards=8, cpu=64)])
    simulation.scheduler.columns.book(0, {GPU: 8}, ())
    assert run(simulation, "cpu", 64, memory_mib=64) == 64


def test_too_little_is_not_said_to_be_kept_for_cards() -> None:
    for cards in (0, 4):
        simulation = world([node("n0", cpu=8, cards=cards, model="A")])
        assert run(simulation, "large", 1, cpu_milli=9000) == 0
        assert "Insufficient cpu" in simulation.verdicts[JobId("large0")]
        assert "idle cards" not in simulation.verdicts[JobId("large0")]
    assert run(simulation, "kept", 1, cpu_milli=4000) == 0
    assert "1 node keeps cores and memory for idle cards" in simulation.verdicts[JobId("kept0")]
