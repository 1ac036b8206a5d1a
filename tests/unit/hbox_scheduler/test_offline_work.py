"""Offline work: on idle cards and cores beyond every share, after all others, and first to leave for any of them."""

from collections import Counter
from dataclasses import replace

import pytest

from hbox_common.model import OFFLINE, OFFLINE_CLASS, Job, Queue, QueueName, in_pool
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.pools import POOL
from hbox_scheduler.core.cluster.entities import QueueInfo
from hbox_scheduler.core.framework.conf import Conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf, default_text
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from ...policies import volcano
from .fabric_world import Fabric, hard
from .small_world import NOW, SmallWorld, evicted

POLICIES = pytest.mark.parametrize("conf", [default_conf(), volcano()], ids=["own", "volcano's"])


def world(*queues: Queue, conf: Conf | None = None, nodes: int = 1, labels: dict[str, str] | None = None) -> Simulation:
    made = Simulation(policy_of(PolicyName.BINPACK), queues=queues, conf=conf or default_conf())
    made.put_nodes(node(f"n{i}", cards=8, labels=labels) for i in range(nodes))
    return made


def offline(made: Job, *, value: int = -200) -> Job:
    """`value`: of the class, which its administrators choose."""
    return replace(made, priority_class=OFFLINE_CLASS, priority=value)


def held(simulation: Simulation) -> Counter[str]:
    """Cards by the first word of their jobs' names."""
    found: Counter[str] = Counter()
    for claim in simulation.claims.values():
        found[str(claim.job).split("-")[0]] += claim.requests.get(GPU, 0)
    return found


def settle(simulation: Simulation, rounds: int = 20) -> None:
    for _ in range(rounds):
        simulation.now += 1.0
        plans = simulation.run()
        if not plans and not simulation.evicted:
            return
        simulation.leave()
    raise AssertionError("it never settles")


def singles(name: str, count: int, queue: str, *, first: int = 0) -> list[Job]:
    return [job(f"{name}-{i}", cards=1, queue=queue, created_at=float(i)) for i in range(first, first + count)]


def queue(name: str, **rules: object) -> Queue:
    return Queue(QueueName(name), **rules)  # type: ignore[arg-type]


@POLICIES
@pytest.mark.parametrize("value", [-200, 1000])
def test_it_runs_on_what_is_idle_beyond_the_limits_of_its_queue(conf: Conf, value: int) -> None:
    simulation = world(queue("a", capability={GPU: 2}, deserved={GPU: 2}), conf=conf)
    simulation.submit([*singles("plain", 4, "a"), *(offline(one, value=value) for one in singles("spot", 20, "a"))])
    settle(simulation)
    assert held(simulation) == {"plain": 2, "spot": 6}


@POLICIES
def test_it_comes_after_all_others_whatever_their_queues_deserve(conf: Conf) -> None:
    """The offline work is older, of a queue that has nothing of what it deserves, and of a class of a high value."""
    simulation = world(queue("a", deserved={GPU: 8}), queue("b"), conf=conf)
    simulation.submit(offline(one, value=1000) for one in singles("spot", 8, "a"))
    simulation.submit([replace(one, created_at=one.created_at + 100.0) for one in singles("plain", 6, "b")])
    simulation.run()
    assert held(simulation) == {"plain": 6, "spot": 2}


@POLICIES
def test_it_leaves_for_whoever_asks_also_for_a_borrower_of_low_priority(conf: Conf) -> None:
    """b deserves nothing, is of the lowest priority, and has no right to take from anybody."""
    simulation = world(queue("a", deserved={GPU: 8}, reclaimable=False), queue("b"), conf=conf)
    simulation.submit(replace(offline(one), preemptable=False) for one in singles("spot", 8, "a"))
    simulation.run()
    simulation.submit(replace(one, priority=-1000) for one in singles("plain", 3, "b"))
    settle(simulation)
    assert held(simulation) == {"plain": 3, "spot": 5}


def test_nobody_else_leaves_while_offline_work_is_enough() -> None:
    """The owner might take b's; b's own high job might take its low one."""
    simulation = world(queue("a", deserved={GPU: 4}), queue("b"), queue("c"))
    simulation.submit([*singles("low", 4, "b"), *map(offline, singles("spot", 4, "c"))])
    simulation.run()
    assert held(simulation) == {"low": 4, "spot": 4}
    simulation.submit(singles("owner", 2, "a"))
    settle(simulation)
    simulation.submit(replace(one, priority=9) for one in singles("urgent", 2, "b"))
    settle(simulation)
    assert held(simulation) == {"owner": 2, "urgent": 2, "low": 4}


def test_what_is_lacking_beyond_it_is_taken_by_right_from_others() -> None:
    """The owner's gang needs 4: the two of offline work go, and two of what b has borrowed."""
    simulation = world(queue("a", deserved={GPU: 4}), queue("b"), queue("c"))
    simulation.submit([*singles("low", 6, "b"), *map(offline, singles("spot", 2, "c"))])
    simulation.run()
    simulation.submit([job("owner", pods=4, cards=1, queue="a")])
    settle(simulation)
    assert held(simulation) == {"owner": 4, "low": 4}


def test_of_nodes_that_have_to_be_emptied_the_first_is_one_with_offline_work() -> None:
    simulation = world(queue("a", deserved={GPU: 16}), queue("b"), queue("c"), nodes=3)
    simulation.submit([*(job(f"low-{i}", cards=8, queue="b") for i in range(2)), offline(job("spot", cards=8, queue="c"))])
    simulation.run()
    simulation.submit([job("owner", pods=2, cards=8, queue="a")])
    settle(simulation)
    assert held(simulation) == {"owner": 16, "low": 8}


def test_a_gang_of_it_goes_whole() -> None:
    simulation = world(queue("a"), queue("b"))
    simulation.submit([offline(job("spot", pods=8, cards=1, queue="a"))])
    simulation.run()
    simulation.submit(singles("plain", 1, "b"))
    settle(simulation)
    assert held(simulation) == {"plain": 1}


def test_it_takes_from_nobody() -> None:
    """Its queue deserves all, and it is of the highest priority: for no other job would nobody leave."""
    simulation = world(queue("a", deserved={GPU: 8}), queue("b"))
    simulation.submit(singles("plain", 8, "b"))
    simulation.run()
    simulation.submit(offline(one, value=1000) for one in singles("spot", 4, "a"))
    simulation.run()
    assert not simulation.evicted
    assert held(simulation) == {"plain": 8}


def test_an_older_one_does_not_leave_for_a_newer_one() -> None:
    simulation = world(queue("a"), queue("b", deserved={GPU: 8}))
    simulation.submit(map(offline, singles("spot", 8, "a")))
    simulation.run()
    simulation.submit(offline(one, value=5) for one in singles("newer", 4, "b"))
    simulation.run()
    assert not simulation.evicted


def test_what_it_has_is_no_reason_to_hold_its_own_queue_back() -> None:
    simulation = world(queue("a", capability={GPU: 4}, deserved={GPU: 4}))
    simulation.submit(map(offline, singles("spot", 8, "a")))
    simulation.run()
    simulation.submit(singles("plain", 6, "a"))
    settle(simulation)
    assert held(simulation) == {"plain": 4, "spot": 4}


def test_nobody_takes_it_beyond_the_limit_of_a_queue() -> None:
    simulation = world(queue("a", capability={GPU: 1}), queue("b"))
    simulation.submit(map(offline, singles("spot", 8, "b")))
    simulation.run()
    simulation.submit(singles("plain", 3, "a"))
    settle(simulation)
    assert held(simulation) == {"plain": 1, "spot": 7}


def test_an_administrator_limits_it_in_a_queue() -> None:
    simulation = world(queue("a", pool_amounts={"capability": {in_pool(GPU, OFFLINE): 3}}))
    simulation.submit(map(offline, singles("spot", 8, "a")))
    simulation.submit(singles("plain", 2, "a"))
    settle(simulation)
    assert held(simulation) == {"plain": 2, "spot": 3}
    simulation.finish([next(uid for uid in simulation.claims if str(uid).startswith("spot"))])
    settle(simulation)
    assert held(simulation)["spot"] == 3


def test_a_queue_that_does_not_list_its_class_takes_none() -> None:
    simulation = world(queue("a", priority_classes=("high",)))
    simulation.submit(map(offline, singles("spot", 1, "a")))
    simulation.run()
    assert not simulation.claims


def test_cores_that_idle_cards_keep_are_open_to_it_and_it_leaves_for_the_cards() -> None:
    simulation = world(queue("a"), queue("b"))
    simulation.submit(offline(job(f"spot-{i}", cpu_milli=8000, queue="a")) for i in range(8))
    simulation.run()
    assert len(simulation.claims) == 8, "all 64 cores"
    simulation.submit([job("plain-0", cpu_milli=8000, cards=1, queue="b")])
    settle(simulation)
    assert held(simulation)["plain"] == 1


def test_it_is_counted_apart_in_whichever_pool_it_is() -> None:
    simulation = world(queue("a", pools=("lab", "pooled")), labels={POOL: "lab"})
    simulation.submit([*map(offline, singles("spot", 4, "a")), *singles("plain", 2, "a")])
    simulation.run()
    assert Counter(claim.pool for claim in simulation.claims.values()) == {OFFLINE: 4, "lab": 2}
    used = simulation.scheduler.bookings.queues.used(QueueName("a"))
    assert (used[in_pool(GPU, OFFLINE)], used[in_pool(GPU, "lab")], used.get(GPU, 0)) == (4, 2, 0)


def test_a_scheduler_that_starts_knows_it_by_its_claims() -> None:
    before = world(queue("a"), queue("b"))
    before.submit(map(offline, singles("spot", 8, "a")))
    before.run()
    simulation = world(queue("a"), queue("b"))
    simulation.hold(before.claims.values())
    simulation.submit(singles("plain", 2, "b"))
    settle(simulation)
    assert held(simulation) == {"plain": 2, "spot": 6}


def test_in_a_session_it_takes_from_nobody() -> None:
    """Its queue deserves all there is, and others there are of lower priority."""
    world = SmallWorld(1, cards=4, queues=(QueueInfo(QueueName("a"), deserved={GPU: 4}), QueueInfo(QueueName("b"))))
    world.gang("held", queue="b", pods=2, min_member=1, on=(0, 0))
    world.gang("low", queue="a", pods=2, min_member=1, on=(0, 0))
    world.gang("spot", queue="a", pods=2, priority=9, priority_class=OFFLINE_CLASS)
    assert evicted(world.decide(default_text())) == []


def test_in_a_session_no_annotation_keeps_a_gang_of_it() -> None:
    world = SmallWorld(1, cards=4, queues=(QueueInfo(QueueName("a"), reclaimable=False), QueueInfo(QueueName("b"))))
    spot = world.gang("spot", queue="a", pods=4, on=(0, 0, 0, 0), priority_class=OFFLINE_CLASS, preemptable=False)
    for member in spot.members:
        member.protected_until = NOW + 60.0
    world.gang("plain", queue="b")
    assert len(evicted(world.decide(default_text()))) == 4


def test_in_a_domain_of_the_fabric_it_goes_before_the_surplus_of_others() -> None:
    """The gang has to be under one leaf. Under one are members that their gang can spare, under the other a gang of offline work that has to go whole."""
    fabric = Fabric({"s0": {"n0": 2, "n1": 2}, "s1": {"n2": 2, "n3": 2}})
    fabric.gang("spare", 4, on=("n0", "n0", "n1", "n1"), least=1, priority=-1)
    spot = fabric.gang("spot", 4, on=("n2", "n2", "n3", "n3"), priority=5)
    spot.priority_class = OFFLINE_CLASS
    for member in spot.members:
        member.task = replace(member.task, offline=True)
    fabric.gang("want", 3, wish=hard(1), priority=9)
    assert {name.split("-")[0] for name in evicted(fabric.run(actions="allocate, gangpreempt"))} == {"spot"}
