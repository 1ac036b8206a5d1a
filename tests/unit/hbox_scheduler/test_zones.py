"""Pods and NUMA nodes: nobody is sent where the kubelet would refuse, zones have books while pods are on their way, and the kubelet is believed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from hbox_common.model import (
    CardRequest,
    Generation,
    Job,
    JobId,
    MemoryBlock,
    NodeName,
    NodeZones,
    PodGroupTask,
    PodZones,
    ZoneAmounts,
)
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.nodezones import ask_of
from hbox_common.model.numa import NumaPolicy, NumaScope, PodAsk
from hbox_common.model.resources import GIB
from hbox_scheduler.core.cluster import zones as zonebooks
from hbox_scheduler.core.cluster.zones import ZoneBooks
from hbox_scheduler.core.framework.session import Session
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

WAYS = pytest.mark.parametrize("one_by_one", [False, True], ids=["at once", "one by one"])


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.getfixturevalue("one_by_one"):
        monkeypatch.setattr(Session, "by_shape", lambda *_: False)


def zones(
    name: str,
    free: Sequence[tuple[int, int]],
    *,
    total: tuple[int, int] = (16, 4),
    policy: NumaPolicy = NumaPolicy.SINGLE,
    pods: Sequence[PodZones] = (),
    by_pod: bool = True,
    at: float = 1.0,
    **more: object,
) -> NodeZones:
    """free: cpus and cards of each zone."""
    amounts = tuple(
        ZoneAmounts(i, {"cpu": total[0], GPU: total[1]}, {"cpu": total[0], GPU: total[1]}, {"cpu": cpus, GPU: cards})
        for i, (cpus, cards) in enumerate(free)
    )
    return NodeZones(
        NodeName(name), at, policy, NumaScope.CONTAINER, amounts, ("cpu", GPU), pods=tuple(pods), by_pod=by_pod, **more  # type: ignore[arg-type]
    )  # fmt: skip


def world(*facts: NodeZones, cards: int = 8, cpu: int = 32) -> Simulation:
    made = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
    made.put_nodes([node(one.node, cards=cards, cpu=cpu) for one in facts])
    for one in facts:
        made.scheduler.on_zones(one)
    return made


def guaranteed(name: str, cpu: int, *, cards: int = 0, at: float = 0.0, containers: Sequence[Mapping[str, int]] = ()) -> Job:
    made = job(name, cpu_milli=1000 * cpu, memory_mib=64, cards=cards, created_at=at)
    return replace(
        made, tasks=tuple(replace(task, guaranteed=True, containers=tuple(map(dict, containers))) for task in made.tasks)
    )


def started(simulation: Simulation) -> dict[str, str]:
    return {claim.job: claim.node for claim in simulation.claims.values()}


@WAYS
@pytest.mark.usefixtures("way")
def test_a_pod_does_not_go_where_no_zone_has_its_cpus_and_cards_together(one_by_one: bool) -> None:
    """n0 has 6 CPUs and 2 cards free, but never both in one zone."""
    simulation = world(zones("n0", [(6, 0), (0, 2)]), zones("n1", [(4, 0), (4, 2)]))
    simulation.submit([guaranteed("a", 4, cards=1)])
    simulation.run()
    assert started(simulation) == {"a": "n1"}


@WAYS
@pytest.mark.usefixtures("way")
def test_it_is_said_by_zone_what_is_missing(one_by_one: bool) -> None:
    simulation = world(zones("n0", [(3, 1), (5, 0)]))
    simulation.submit([guaranteed("a", 4, cards=1)])
    simulation.run()
    said = simulation.verdicts[JobId("a")]
    assert "1 TopologyAffinityError" in said
    assert f"n0: zone 0: 3 cpus free of 4 asked, 1 {GPU} free of 1 asked; zone 1: 5 cpus free of 4 asked, 0 {GPU} free" in said


@WAYS
@pytest.mark.usefixtures("way")
def test_pods_of_one_batch_count_against_each_other(one_by_one: bool) -> None:
    """Two zones of 16 CPUs take two pods of 6 each: the fifth waits, though 8 CPUs are free."""
    simulation = world(zones("n0", [(16, 4), (16, 4)]), cards=0)
    simulation.submit([guaranteed(f"p{i}", 6, at=float(i)) for i in range(5)])
    simulation.run()
    assert len(started(simulation)) == 4


@WAYS
@pytest.mark.usefixtures("way")
def test_unequal_pods_on_their_way_are_admitted_in_every_order(one_by_one: bool) -> None:
    """Zones of 10 CPUs: 8, 4 and 2 fit one after the other, and 6 behind them; but where 4, 2 and 6 come first there is no room for 8."""
    simulation = world(zones("n0", [(10, 0), (10, 0)], total=(10, 4)), cards=0)
    simulation.submit([guaranteed(f"p{cpus}", cpus, at=float(i)) for i, cpus in enumerate((8, 4, 2, 6))])
    simulation.run()
    assert sorted(started(simulation)) == ["p2", "p4", "p8"]
    assert "1 TopologyAffinityError" in simulation.verdicts[JobId("p6")]
    assert "has not yet published" in simulation.verdicts[JobId("p6")]
    given = [("p8-0", ({"cpu": 8}, {})), ("p4-0", ({}, {"cpu": 4})), ("p2-0", ({"cpu": 2}, {}))]
    simulation.scheduler.on_zones(
        zones("n0", [(0, 0), (6, 0)], total=(10, 4), pods=[PodZones("default", pod, "", amounts) for pod, amounts in given])
    )
    simulation.now += 10
    simulation.run()
    assert "p6" in started(simulation), "the kubelet has spoken: zone 1 has 6 free"


def test_the_kubelets_word_counts_over_what_was_foreseen() -> None:
    """The pod was foreseen in zone 0, and the kubelet put it in zone 1."""
    simulation = world(zones("n0", [(16, 4), (16, 4)]), cards=0)
    simulation.submit([guaranteed("a", 12)])
    simulation.run()
    simulation.scheduler.on_zones(zones("n0", [(8, 4), (4, 4)], pods=[PodZones("default", "a-0", "", ({}, {"cpu": 12}))]))
    simulation.submit([guaranteed("b", 8, at=1.0), guaranteed("c", 8, at=2.0)])
    simulation.run()
    assert sorted(started(simulation)) == ["a", "b"]
    simulation.finish([claim.pod_uid for claim in simulation.claims.values() if claim.job == "a"])
    simulation.run()
    assert sorted(started(simulation)) == ["b"], "what is gone by the ledger is there by the kubelet"
    simulation.scheduler.on_zones(
        zones("n0", [(0, 4), (16, 4)], pods=[PodZones("default", "b-0", "", ({"cpu": 8}, {}))], at=3.0)
    )
    simulation.now += 10
    simulation.run()
    assert sorted(started(simulation)) == ["b", "c"]


def test_a_claim_that_comes_behind_the_kubelets_word_makes_room_for_who_waits() -> None:
    """The kubelet tells of the pod before the ledger does: until then it counts as on its way as well."""
    simulation = world(zones("n0", [(16, 4), (16, 4)]), cards=0)
    simulation.submit([guaranteed("a", 12)])
    plans = simulation.scheduler.cycle(simulation.now).plans
    simulation.scheduler.on_zones(zones("n0", [(4, 4), (16, 4)], pods=[PodZones("default", "a-0", "", ({"cpu": 12}, {}))]))
    simulation.submit([guaranteed("b", 8, at=1.0)])
    assert not simulation.run()
    simulation.accept(plans)
    simulation.run()
    assert sorted(started(simulation)) == ["a", "b"]


def test_where_a_pod_has_left_the_next_one_waits_for_the_kubelets_word() -> None:
    """What has come free may be given first, by which those on their way would be elsewhere than foreseen."""
    held = [PodZones("default", "a-0", "", ({"cpu": 4}, {}))]
    simulation = world(zones("n0", [(16, 4), (16, 4)]), cards=0)
    simulation.submit([guaranteed("a", 4)])
    simulation.run()
    simulation.scheduler.on_zones(zones("n0", [(12, 4), (16, 4)], pods=held))
    simulation.finish([claim.pod_uid for claim in simulation.claims.values()])
    simulation.submit([guaranteed("b", 8, at=1.0), job("burstable", created_at=2.0)])
    simulation.run()
    assert sorted(started(simulation)) == ["burstable"]
    simulation.scheduler.on_zones(zones("n0", [(16, 4), (16, 4)], at=3.0))
    simulation.now += 10
    simulation.run()
    assert sorted(started(simulation)) == ["b", "burstable"]


def test_pods_of_which_nothing_is_aligned_pass() -> None:
    simulation = world(zones("n0", [(1, 0), (1, 0)]), cards=0)
    simulation.submit([job("burstable", cpu_milli=8000), guaranteed("half", 0)])
    simulation.run()
    assert len(started(simulation)) == 2


def test_best_effort_refuses_nobody() -> None:
    simulation = world(zones("n0", [(3, 1), (3, 1)], policy=NumaPolicy.BEST_EFFORT))
    simulation.submit([guaranteed("a", 6, cards=2)])
    simulation.run()
    assert "a" in started(simulation)


def test_restricted_takes_the_narrowest_sets_by_what_is_there_and_not_by_what_is_free() -> None:
    simulation = world(
        zones("n0", [(8, 2), (8, 2)], policy=NumaPolicy.RESTRICTED),
        zones("n1", [(16, 4), (16, 4)], policy=NumaPolicy.RESTRICTED),
    )
    simulation.submit([guaranteed("small", 12, cards=3), guaranteed("wide", 20, cards=6, at=1.0)])
    simulation.run()
    assert started(simulation)["small"] == "n1"
    simulation = world(zones("n1", [(16, 4), (16, 4)], policy=NumaPolicy.RESTRICTED))
    simulation.submit([guaranteed("uneven", 1, cards=8), guaranteed("wide", 20, cards=8, at=1.0)])
    simulation.run()
    assert started(simulation) == {"wide": "n1"}, "eight cards are two zones wide, one CPU is not"


def test_containers_are_aligned_one_by_one() -> None:
    simulation = world(zones("n0", [(4, 1), (4, 1)]), cards=0)
    simulation.submit([guaranteed("a", 8, containers=[{"cpu": 4000}, {"cpu": 4000}]), guaranteed("b", 8, at=1.0)])
    simulation.run()
    assert started(simulation) == {"a": "n0"}


def test_whole_cores_are_asked_for_where_the_kubelet_gives_no_others() -> None:
    simulation = world(zones("n0", [(16, 4), (16, 4)], threads_per_core=2, full_pcpus_only=True), cards=0)
    simulation.submit([guaranteed("odd", 3), guaranteed("even", 4)])
    simulation.run()
    assert started(simulation) == {"even": "n0"}
    assert "1 SMTAlignmentError" in simulation.verdicts[JobId("odd")]


def test_sums_that_come_late_count_as_the_lesser_of_both() -> None:
    """NodeResourceTopology tells sums: what is booked here stays in our books, whether or not they know it."""
    simulation = world(zones("n0", [(10, 4), (16, 4)], by_pod=False), cards=0)
    simulation.submit([guaranteed(f"p{i}", 8, at=float(i)) for i in range(5)])
    simulation.run()
    assert len(started(simulation)) == 3
    simulation.scheduler.on_zones(zones("n0", [(2, 4), (16, 4)], by_pod=False, at=2.0))
    simulation.now += 10
    simulation.run()
    assert len(started(simulation)) == 3, "the word may be from before them"


def test_facts_before_their_node_and_a_node_that_comes_back() -> None:
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
    simulation.scheduler.on_zones(zones("n0", [(2, 0), (2, 0)]))
    simulation.put_nodes([node("n0", cpu=32)])
    simulation.submit([guaranteed("a", 4)])
    simulation.run()
    assert started(simulation) == {}
    simulation.scheduler.on_zones(NodeZones(NodeName("n0"), 2.0, NumaPolicy.NONE))
    simulation.now += 10
    simulation.run()
    assert started(simulation) == {"a": "n0"}


def test_a_place_is_not_made_where_the_kubelet_would_refuse_the_preemptor() -> None:
    """By sums it would do that the smaller one goes; but the rest of its zone is somebody else's."""
    held = [
        PodZones("default", "low-0", "", ({"cpu": 8}, {})),
        PodZones("default", "wide-0", "", ({}, {"cpu": 16})),
        PodZones("kube-system", "agent", "", ({"cpu": 8}, {})),
    ]
    simulation = world(zones("n0", [(16, 4), (16, 4)]), cards=0)
    simulation.submit([guaranteed("wide", 16, at=0.0), guaranteed("low", 8, at=1.0)])
    simulation.run()
    simulation.scheduler.on_zones(zones("n0", [(0, 4), (0, 4)], pods=held, at=2.0))
    simulation.submit([replace(guaranteed("urgent", 16, at=5.0), priority=100)])
    for _ in range(6):
        simulation.run()
        if simulation.evicted:
            break
        simulation.now += 3.0
    assert [claim.job for claim in simulation.evicted] == ["wide"]


def test_what_kubelets_align_is_asked_for_by_container() -> None:
    task = PodGroupTask("t", {"cpu": 4000, GPU: 1, "pods": 1}, (), cards=CardRequest(1))
    simulation = world(zones("n0", [(1, 1), (1, 1)]))
    assert simulation.scheduler.tasks.of(task).aligned is not None
    assert simulation.scheduler.tasks.of(replace(task, requests={"cpu": 4000, "pods": 1}, cards=None)).aligned is None


def with_places(simulation: Simulation, name: str, *, cpu: int = 32) -> None:
    """Its cards say where they are: four in each zone."""
    made = node(name, cards=8, cpu=cpu)
    cards = tuple(replace(card, numa=card.index // 4) for card in made.cards)
    simulation.scheduler.on_node(replace(made, cards=cards, generation=Generation(7)))


@WAYS
@pytest.mark.usefixtures("way")
def test_under_best_effort_a_pod_prefers_the_node_where_it_stays_in_one_zone(one_by_one: bool) -> None:
    best = NumaPolicy.BEST_EFFORT
    simulation = world(zones("n0", [(3, 4), (3, 4)], policy=best), zones("n1", [(0, 4), (6, 4)], policy=best))
    simulation.submit([guaranteed("a", 6, cards=1)])
    simulation.run()
    assert started(simulation) == {"a": "n1"}


@WAYS
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("policy", [NumaPolicy.BEST_EFFORT, NumaPolicy.SINGLE])
def test_cards_are_chosen_in_the_zone_of_the_cpus(one_by_one: bool, policy: NumaPolicy) -> None:
    simulation = world(zones("n0", [(2, 4), (16, 4)], policy=policy))
    with_places(simulation, "n0")
    simulation.submit([guaranteed("a", 4, cards=2)])
    simulation.run()
    [claim] = simulation.claims.values()
    assert [one.index for one in claim.slices] == [4, 5]


@WAYS
@pytest.mark.usefixtures("way")
def test_equal_pods_fill_one_zone_after_the_other_each_in_one(one_by_one: bool) -> None:
    simulation = world(zones("n0", [(16, 4), (16, 4)], policy=NumaPolicy.BEST_EFFORT))
    with_places(simulation, "n0")
    simulation.submit([guaranteed(f"p{i}", 4, cards=1, at=float(i)) for i in range(8)])
    simulation.submit([guaranteed("late", 4, at=100.0)])
    simulation.run()
    cards = [[one.index for one in claim.slices] for claim in simulation.claims.values()]
    assert sorted(cards) == [[i] for i in range(8)]


def test_a_pod_of_three_cards_does_not_take_one_of_another_zone() -> None:
    simulation = world(zones("n0", [(16, 4), (16, 4)], policy=NumaPolicy.BEST_EFFORT))
    with_places(simulation, "n0")
    simulation.submit([guaranteed(f"p{i}", 4, cards=3, at=float(i)) for i in range(2)])
    simulation.run()
    assert sorted([one.index for one in claim.slices] for claim in simulation.claims.values()) == [[0, 1, 2], [4, 5, 6]]


def with_memory(
    name: str, *free: int, group: Sequence[int] = (), policy: NumaPolicy = NumaPolicy.NONE, pods: Sequence[PodZones] = (), has: int = 100
) -> NodeZones:  # fmt: skip
    """free: GiB of memory of each zone; has: GiB of each, in all."""

    def zone(i: int, own: int) -> ZoneAmounts:
        grouped = i in group
        amounts = ({"memory": has * GIB}, {"memory": has * GIB}, {"memory": own * GIB})
        return ZoneAmounts(i, *amounts, len(pods) if grouped or own < has else 0, tuple(group) if grouped else ())

    found = tuple(zone(i, own) for i, own in enumerate(free))
    return NodeZones(NodeName(name), 1.0, policy, NumaScope.CONTAINER, found, ("memory",), pods=tuple(pods), by_pod=True)


def of_memory(name: str, gib: int, *, guaranteed: bool = True, at: float = 0.0, cpu_milli: int = 100) -> Job:
    made = job(name, cpu_milli=cpu_milli, memory_mib=1024 * gib, created_at=at)
    return replace(made, tasks=tuple(replace(task, guaranteed=guaranteed) for task in made.tasks))


@WAYS
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("policy", [NumaPolicy.NONE, NumaPolicy.BEST_EFFORT, NumaPolicy.RESTRICTED])
def test_a_pod_does_not_go_where_the_memory_manager_has_no_place_for_it(one_by_one: bool, policy: NumaPolicy) -> None:
    """Both nodes have 80 GiB free; n0 in two halves, of which one zone gives alone."""
    there = PodZones("ns", "a", "u", ({}, {}), (MemoryBlock("memory", 60 * GIB, (0,)),))
    simulation = world(
        with_memory("n0", 40, 40, policy=policy, pods=[there]), with_memory("n1", 0, 80, policy=policy, pods=[there])
    )
    simulation.submit([of_memory("a", 60)])
    simulation.run()
    assert started(simulation) == {"a": "n1"}
    simulation.submit([of_memory("b", 60, at=1.0)])
    simulation.run()
    said = simulation.verdicts[JobId("b")]
    assert "n0: zone 0: 40960 MiB of memory free of 61440 asked; zone 1: 40960 MiB of memory free of 61440 asked" in said
    simulation.submit([of_memory("c", 60, guaranteed=False, at=2.0)])
    simulation.run()
    assert "c" in started(simulation), "of pods that are not Guaranteed no zone gives memory"


def test_zones_that_are_a_group_give_nothing_alone_until_its_last_block_is_gone() -> None:
    wide = PodZones("ns", "wide", "u", ({}, {}), (MemoryBlock("memory", 110 * GIB, (0, 1)),))
    simulation = world(with_memory("n0", 0, 90, group=(0, 1), policy=NumaPolicy.RESTRICTED, pods=[wide]), cards=0)
    simulation.submit([of_memory("a", 10)])
    simulation.run()
    assert "1 TopologyAffinityError" in simulation.verdicts[JobId("a")]
    assert "memory with zone 1 alone" in simulation.verdicts[JobId("a")]
    simulation.scheduler.on_zones(with_memory("n0", 100, 100, policy=NumaPolicy.RESTRICTED))
    simulation.now += 10
    simulation.run()
    assert started(simulation) == {"a": "n0"}


def test_pods_on_their_way_count_in_the_memory_of_zones() -> None:
    """Zones of 50 GiB take one pod of 30 each; 40 are left, and no zone has them."""
    simulation = world(with_memory("n0", 50, 50, has=50), cards=0)
    simulation.submit([of_memory(f"p{i}", 30, at=float(i)) for i in range(3)])
    simulation.run()
    assert len(started(simulation)) == 2


def test_pods_that_differ_in_what_a_kubelet_does_not_align_are_equal_to_it() -> None:
    """Ten pods of different memory and equal CPUs have one order where only CPUs are aligned: none of them waits for the kubelet's word."""
    simulation = world(zones("n0", [(16, 4), (16, 4)]), cards=0)
    made = [job(f"p{i}", cpu_milli=2000, memory_mib=64 + i, created_at=float(i)) for i in range(10)]
    simulation.submit(replace(one, tasks=tuple(replace(task, guaranteed=True) for task in one.tasks)) for one in made)
    simulation.run()
    assert len(started(simulation)) == 10


def test_somebody_leaves_for_a_pod_that_needs_the_memory_of_a_zone_alone() -> None:
    """The node's memory is a group's, whose one pod leaves: then each zone gives alone again."""
    simulation = world(with_memory("n0", 50, 50, has=50, policy=NumaPolicy.RESTRICTED), cards=0)
    simulation.submit([of_memory("low", 60)])
    simulation.run()
    assert started(simulation) == {"low": "n0"}
    uid = next(iter(simulation.claims))
    wide = PodZones("default", "low-0", uid, ({}, {}), (MemoryBlock("memory", 60 * GIB, (0, 1)),))
    simulation.scheduler.on_zones(with_memory("n0", 0, 40, has=50, group=(0, 1), policy=NumaPolicy.RESTRICTED, pods=[wide]))
    high = of_memory("high", 40, at=5.0)
    simulation.submit([replace(high, priority=10)])
    simulation.now += 10
    simulation.run()
    simulation.leave()
    simulation.scheduler.on_zones(with_memory("n0", 50, 50, has=50, policy=NumaPolicy.RESTRICTED))
    simulation.now += 10
    simulation.run()
    assert started(simulation) == {"high": "n0"}


def test_books_do_not_grow_with_all_that_kubelets_ever_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was forgotten is never taken for something else."""
    monkeypatch.setattr(zonebooks, "_MOST", 8)
    books, asks = ZoneBooks(), [ask_of(guaranteed("a", cpu).tasks[0]) for cpu in (2, 3)]
    meant: dict[int, tuple[int, PodAsk | None]] = {}
    for turn in range(200):
        row, cpus, ask = turn % 3, turn * 5 % 17, asks[turn % 2]
        books.describe(row, zones(f"n{row}", [(cpus, 0), (0, 0)]))
        assert ask is not None
        books.book(row, ask)
        books.room(row, ask)
        assert meant.setdefault(books.number(row), (cpus, ask)) == (cpus, ask)
        assert len(books._keys) <= 8
        assert len(books._states) <= 8
