"""What pods without cards leave on each NUMA node for the idle cards that are there: `idle-cards`, where zones are known."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hbox_common.model import Generation, JobId, NodeName, NodeState, NodeZones, Verdict, ZoneAmounts
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.numa import NumaPolicy, NumaScope
from hbox_scheduler.core.framework.session import Session
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from .test_zones import guaranteed, started

WAYS = pytest.mark.parametrize("one_by_one", [False, True], ids=["at once", "one by one"])


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.getfixturevalue("one_by_one"):
        monkeypatch.setattr(Session, "by_shape", lambda *_: False)


def box(numa: Sequence[int], *, cpu: int = 64, name: str = "n0", labels: dict[str, str] | None = None) -> NodeState:
    """A node with a card at each of these NUMA nodes."""
    made = node(name, cards=len(numa), cpu=cpu, labels=labels or {})
    cards = tuple(replace(card, numa=zone) for card, zone in zip(made.cards, numa, strict=True))
    return replace(made, cards=cards)


def zones(
    free: Sequence[tuple[int, int]], *, has: tuple[int, int] = (32, 4), policy: NumaPolicy = NumaPolicy.SINGLE, name: str = "n0"
) -> NodeZones:
    """free: cpus and cards of each zone; has: of each zone, in all."""
    amounts = tuple(
        ZoneAmounts(i, {"cpu": has[0], GPU: has[1]}, {"cpu": has[0], GPU: has[1]}, {"cpu": cpus, GPU: cards})
        for i, (cpus, cards) in enumerate(free)
    )
    return NodeZones(NodeName(name), 1.0, policy, NumaScope.CONTAINER, amounts, ("cpu", GPU), by_pod=True, source="node-agent")


def world(*nodes: NodeState, told: Sequence[NodeZones] = ()) -> Simulation:
    made = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
    made.put_nodes(nodes)
    for one in told:
        made.scheduler.on_zones(one)
    return made


def count(simulation: Simulation, prefix: str) -> int:
    return sum(name.startswith(prefix) for name in started(simulation))


HALVES = (0, 0, 0, 0, 1, 1, 1, 1)


@WAYS
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("policy", [NumaPolicy.SINGLE, NumaPolicy.BEST_EFFORT])
def test_cores_are_kept_in_the_zone_of_the_cards(one_by_one: bool, policy: NumaPolicy) -> None:
    """Two zones of 32 cores and 4 cards keep 24 each. The kubelet gives from the first zone that has enough: the node's 16 are lent as 8, and pods of 16
    not at all; by sums one such pod would leave the first zone 16 cores for 4 cards."""
    simulation = world(box(HALVES), told=[zones([(32, 4), (32, 4)], policy=policy)])
    simulation.submit([guaranteed("large", 16)])
    simulation.run()
    assert started(simulation) == {}
    simulation.submit([guaranteed(f"p{i}", 4, at=float(i + 1)) for i in range(4)])
    simulation.run()
    assert count(simulation, "p") == 2
    simulation.submit([guaranteed(f"card{i}", 6, cards=1, at=100.0 + i) for i in range(8)])
    simulation.run()
    assert count(simulation, "card") == 8


@WAYS
@pytest.mark.usefixtures("way")
def test_pods_without_cores_of_their_own_go_by_sums(one_by_one: bool) -> None:
    simulation = world(box(HALVES), told=[zones([(32, 4), (32, 4)])])
    simulation.submit(job(f"b{i}", cpu_milli=1000, memory_mib=64, created_at=float(i)) for i in range(20))
    simulation.run()
    assert count(simulation, "b") == 16


def test_it_is_said_which_zone_keeps_how_many_cores_for_which_cards() -> None:
    simulation = world(box(HALVES), told=[zones([(32, 4), (32, 4)])])
    simulation.submit([guaranteed("large", 16)])
    simulation.run()
    said = simulation.verdicts[JobId("large")]
    assert "1 ResourcesKeptForIdleCards" in said
    assert (
        "n0: zone 0 keeps 24 cpus of 32 free for cards 0, 1, 2, 3; zone 1 keeps 24 cpus of 32 free for cards 4, 5, 6, 7" in said
    )


def test_a_zone_whose_cards_are_busy_keeps_nothing() -> None:
    """Zone 0 gave its four cards and 8 cores: what is left of it goes to who needs no card, and zone 1 keeps its own."""
    simulation = world(box(HALVES), told=[zones([(32, 4), (32, 4)])])
    simulation.submit([guaranteed("train", 8, cards=4)])
    simulation.run()
    simulation.submit([guaranteed(f"p{i}", 8, at=10.0 + i) for i in range(8)])
    simulation.run()
    assert count(simulation, "p") == 4, "24 cores of zone 0, and 8 that zone 1 lends"


def test_zones_without_cards_lend_all_that_they_have() -> None:
    """As with NPS4, where four of eight zones have two cards each: of 16 cores each of these keeps 12, and the node lends 32 by its sum."""
    numa = (3, 3, 1, 1, 7, 7, 5, 5)
    simulation = world(box(numa, cpu=128), told=[zones([(16, 2 if i in numa else 0) for i in range(8)], has=(16, 2))])
    simulation.submit([guaranteed(f"p{i}", 16, at=float(i)) for i in range(8)])
    simulation.run()
    assert count(simulation, "p") == 1, "zone 0; then the kubelet would give those of zone 1, that are two cards'"
    simulation = world(box(numa, cpu=128), told=[zones([(16, 2 if i in numa else 0) for i in range(8)], has=(16, 2))])
    simulation.submit([guaranteed(f"p{i}", 4, at=float(i)) for i in range(16)])
    simulation.run()
    assert count(simulation, "p") == 5, "four in zone 0, one in zone 1, whose cards keep 12"


def test_a_zone_with_few_cards_keeps_no_more_than_the_node_does_for_each() -> None:
    """SNC: 3, 1, 3 and 1 cards in zones of 32 cores: a card keeps 12, which is three quarters of the node's even share, and three have 8 each."""
    numa = (0, 0, 0, 1, 2, 2, 2, 3)
    told = zones([(8, 3), (32, 1), (32, 3), (32, 1)], has=(32, 4))
    simulation = world(box(numa, cpu=128), told=[told])
    simulation.submit([guaranteed("wide", 20)])
    simulation.run()
    assert started(simulation) == {"wide": "n0"}, "zone 0 has too little for it, and zone 1 keeps 12 of 32"


def test_sick_cards_and_cards_of_nowhere_keep_nothing_in_a_zone() -> None:
    simulation = world(box(HALVES), told=[zones([(32, 4), (32, 4)])])
    simulation.scheduler.on_verdict(Verdict(NodeName("n0"), Generation(2), healthy=True, bad_cards=(0, 1, 2, 3)))
    simulation.submit([guaranteed("large", 32)])
    simulation.run()
    assert started(simulation) == {"large": "n0"}
    simulation = world(box([-1] * 8), told=[zones([(32, 4), (32, 4)])])
    simulation.submit([guaranteed("half", 16)])
    simulation.run()
    assert started(simulation) == {"half": "n0"}, "by sums, as before"


@pytest.mark.parametrize(("label", "fits"), [("0", 32), ("4", 16), ("1000", 0), ("rubbish", 8)])
def test_what_a_label_says_is_kept_in_the_zones_too_and_no_more_than_they_have(label: str, fits: int) -> None:
    simulation = world(box(HALVES, labels={"hbox.io/cpu-per-card": label}), told=[zones([(32, 4), (32, 4)])])
    simulation.submit([guaranteed(f"p{i}", 1, at=float(i)) for i in range(fits + 1)])
    simulation.run()
    assert count(simulation, "p") == (fits if label != "0" else 33)


def test_who_waits_for_kept_cores_starts_when_the_cards_of_the_zone_are_taken() -> None:
    simulation = world(box(HALVES), told=[zones([(32, 4), (32, 4)])])
    simulation.submit([guaranteed("large", 20)])
    simulation.run()
    assert started(simulation) == {}
    simulation.submit([guaranteed("train", 4, cards=4, at=10.0)])
    simulation.run()
    assert started(simulation) == {"train": "n0", "large": "n0"}


def test_what_the_kubelet_may_divide_as_it_likes_is_taken_from_no_zone_that_keeps() -> None:
    """40 cores come from both zones of a best-effort node, and nobody knows how many from which."""
    told = zones([(32, 0), (32, 4)], policy=NumaPolicy.BEST_EFFORT)
    simulation = world(box(HALVES), told=[told])
    simulation.scheduler.on_verdict(Verdict(NodeName("n0"), Generation(2), healthy=True, bad_cards=(0, 1, 2, 3)))
    simulation.submit([guaranteed("wide", 36)])
    simulation.run()
    assert started(simulation) == {}
