"""Jobs in namespaces whose ResourceQuotas limit cards: what is proposed, on which cards, and what the others are told.

small    two cards of 2,000 MiB
large    two cards of 8,000 MiB
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from hbox_common.model import (
    CardQuota,
    CardRequest,
    Claim,
    ClaimId,
    HyperNode,
    Index,
    Job,
    JobId,
    NodeName,
    NodeState,
    PlanId,
    PodUid,
    Queue,
    QueueName,
    TopologyMode,
    TopologyWish,
)
from hbox_common.model.devices.nvidia import GPU, GPU_CORES, GPU_MEMORY
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate import Simulation, job, node

from ...policies import one_by_one

SPACE = "default"


def nodes() -> Iterable[NodeState]:
    return node("small", cards=2, card_mib=2000, shares=10), node("large", cards=2, card_mib=8000, shares=10)


@pytest.fixture(params=["batches", "one by one"])
def world(request: pytest.FixtureRequest) -> Simulation:
    """By HBox's own policy, and by one under which equal pods are not alike."""
    made = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf() if request.param == "batches" else one_by_one())
    made.put_nodes(nodes())
    return made


def limit(world: Simulation, **limits: int) -> None:
    names = {"cards": GPU, "cores": GPU_CORES, "memory": GPU_MEMORY}
    world.scheduler.on_card_quotas([CardQuota(SPACE, "cards", {names[name]: units for name, units in limits.items()})])


def mib(memory: int, count: int = 1) -> CardRequest:
    return CardRequest(count, cores=0, memory_mib=memory)


def percent(share: int, count: int = 1) -> CardRequest:
    return CardRequest(count, cores=0, memory_percent=share)


def run(world: Simulation, *jobs: Job) -> dict[str, str]:
    """Submit, let time pass, and say where pods are."""
    world.submit(jobs)
    return later(world)


def later(world: Simulation) -> dict[str, str]:
    for _ in range(3):
        world.run()
        world.now += 5.0
    return {pod: claim.node for pod, claim in world.claims.items()}


def held(world: Simulation, amount: str = GPU_MEMORY) -> int:
    return world.scheduler.bookings.card_quotas.used(SPACE).get(amount, 0)


def test_two_cards_of_2000_mib_count_4000_and_the_next_waits_for_them(world: Simulation) -> None:
    limit(world, memory=4000)
    first, second = (job(name, cards=mib(2000, 2), created_at=at) for name, at in (("first", 1.0), ("second", 2.0)))
    assert run(world, first, second).keys() == {"first-0"}
    assert world.verdicts[second.id] == (
        "0/2 nodes are available: 2 ResourceQuotaNotFit; ResourceQuota cards of namespace default allows 4000 of limits.nvidia.com/gpumem, "
        "4000 are in use and 4000 more are asked for"
    )
    world.finish([PodUid("first-0")])
    assert later(world).keys() == {"second-0"}


def test_what_cannot_be_paid_for_is_not_proposed_again_and_again(world: Simulation) -> None:
    limit(world, memory=4000)
    run(world, job("first", cards=mib(2000, 2)), job("second", cards=mib(2000, 2), created_at=1.0))
    assert not any(world.scheduler.cycle(world.now + n).plans for n in range(20))


def test_a_percentage_counts_what_it_comes_to_on_the_card_and_goes_where_it_is_paid_for(world: Simulation) -> None:
    """Half of a card: 1,000 MiB or 4,000. Without a quota the larger node would do as well."""
    limit(world, memory=3000)
    placed = run(world, *(job(f"j{i}", cards=percent(50), created_at=float(i)) for i in range(4)))
    assert list(placed.values()) == ["small"] * 3
    assert held(world) == 3000
    assert world.verdicts[job("j3").id].startswith("0/2 nodes are available: 2 ResourceQuotaNotFit; ")


def test_where_small_cards_are_full_the_large_ones_are_said_to_be_too_dear(world: Simulation) -> None:
    limit(world, memory=6000)
    run(world, *(job(f"j{i}", cards=percent(100), created_at=float(i)) for i in range(3)))
    assert held(world) == 4000
    said = world.verdicts[job("j2").id]
    assert "1 ResourceQuotaNotFit" in said
    assert "allows 6000 of limits.nvidia.com/gpumem, 4000 are in use and 8000 more are asked for" in said
    limit(world, memory=12_000)
    assert later(world)["j2-0"] == "large"


def test_whole_cards_count_all_of_their_memory_and_compute(world: Simulation) -> None:
    limit(world, memory=9000, cores=250)
    placed = run(world, *(job(f"j{i}", cards=1, created_at=float(i)) for i in range(4)))
    assert len(placed) == 2, "200 of 250 percent"
    assert (held(world, GPU_CORES), held(world)) in {(200, 4000), (200, 10_000)}


def test_a_limit_of_0_lets_nobody_have_a_card_and_says_nothing_to_the_others(world: Simulation) -> None:
    limit(world, memory=0)
    other = replace(job("other", cards=mib(500)), namespace="elsewhere")
    assert run(world, job("a", cards=mib(500)), job("plain"), other).keys() == {"plain-0", "other-0"}


def test_a_gang_is_paid_for_whole_or_not_started(world: Simulation) -> None:
    """Four times half a card: on the small ones alone 4,000 MiB."""
    gang = job("gang", pods=4, cards=percent(50))
    limit(world, memory=3999)
    assert run(world, gang) == {}
    assert "ResourceQuotaNotFit" in world.verdicts[gang.id]
    limit(world, memory=4000)
    assert set(later(world).values()) == {"small"}
    assert held(world) == 4000


def test_a_gang_takes_dear_cards_where_the_cheap_ones_are_not_enough(world: Simulation) -> None:
    """Six halves: four of 1,000 MiB, two of 4,000."""
    gang = job("gang", pods=6, cards=percent(50))
    limit(world, memory=11_999)
    assert run(world, gang) == {}
    limit(world, memory=12_000)
    assert len(later(world)) == 6
    assert held(world) == 12_000


def test_what_waits_starts_when_the_quota_is_raised_or_deleted_and_nobody_leaves_when_it_is_lowered(world: Simulation) -> None:
    limit(world, memory=2000)
    jobs = [job(f"j{i}", cards=mib(2000), created_at=float(i)) for i in range(3)]
    assert len(run(world, *jobs)) == 1
    limit(world, memory=4000)
    assert len(later(world)) == 2
    limit(world, memory=1)
    assert len(later(world)) == 2
    world.scheduler.on_card_quotas([])
    assert len(later(world)) == 3
    assert not world.evicted


def test_a_quota_that_cannot_be_read_lets_nobody_have_cards_and_says_why(world: Simulation) -> None:
    world.scheduler.on_card_quotas([CardQuota(SPACE, "gold", fault="scopes are not supported")])
    waiting = job("a", cards=mib(500))
    assert run(world, waiting, job("plain")).keys() == {"plain-0"}
    assert world.verdicts[waiting.id].endswith(
        "ResourceQuota gold of namespace default allows no cards: scopes are not supported"
    )


def test_room_that_a_pod_gave_back_to_the_quota_is_used_elsewhere(world: Simulation) -> None:
    """Its node has gone and its queue is another: it is what the quota has left that wakes who waits."""
    limit(world, memory=8000)
    world.scheduler.on_queue(Queue(QueueName("other")))
    run(world, job("big", cards=mib(6000), queue="other"))
    assert run(world, job("waits", cards=mib(2000, 2), created_at=2.0)).keys() == {"big-0"}
    world.put_nodes([replace(node("large", generation=2), gone=True)])
    later(world)
    world.finish([PodUid("big-0")])
    assert later(world) == {"waits-0": "small"}


def test_a_gang_without_room_leaves_nothing_in_the_accounts(world: Simulation) -> None:
    """Two of the three find a card, and are taken back; the quota pays for those after them."""
    limit(world, memory=24_000)
    gang = job("gang", pods=3, cards=mib(7000), created_at=1.0)
    assert run(world, gang, job("after", cards=mib(7000, 2), created_at=2.0)).keys() == {"after-0"}
    assert held(world) == 14_000


def test_pods_of_other_schedulers_count_in_their_namespace(world: Simulation) -> None:
    limit(world, memory=4000)
    run(world, job("first", cards=mib(2000, 2)))
    [claim] = world.claims.values()
    theirs = replace(
        claim, id=ClaimId("theirs"), pod_uid=PodUid("theirs"), queue=QueueName(""), plan=PlanId(""), job=JobId("theirs")
    )
    world.finish([claim.pod_uid])
    scheduler = world.scheduler
    scheduler.on_claims_snapshot(epoch=scheduler.epoch, index=Index(9), frozen=False, claims=[theirs], now=world.now)
    world.submit([job("second", cards=mib(2000))])
    assert scheduler.cycle(world.now).plans == []


def test_a_snapshot_of_the_books_counts_like_its_changes(world: Simulation) -> None:
    """A scheduler that starts anew: claims first or quotas first, it knows what is left."""
    limit(world, memory=4000)
    run(world, job("first", cards=mib(2000, 2)))
    claims: list[Claim] = list(world.claims.values())
    for early in (True, False):
        again = Simulation(policy_of(PolicyName.BINPACK))
        again.put_nodes(nodes())
        if early:
            limit(again, memory=4000)
        scheduler = again.scheduler
        scheduler.on_claims_snapshot(epoch=scheduler.epoch, index=Index(9), frozen=False, claims=claims, now=0.0)
        if not early:
            limit(again, memory=4000)
        assert held(again) == 4000
        again.submit([job("second", cards=mib(2000, 2))])
        assert again.scheduler.cycle(0.0).plans == []


def test_a_job_that_waits_for_its_quota_costs_cycles_nothing() -> None:
    world = Simulation(policy_of(PolicyName.BINPACK))
    world.put_nodes(nodes())
    limit(world, memory=1000)
    run(world, *(job(f"j{i}", cards=mib(2000), created_at=float(i)) for i in range(5)))
    run(world, replace(job("other", cards=mib(100)), namespace="elsewhere"))
    world.finish([PodUid("other-0")])  # rows rise
    scheduler = world.scheduler
    assert scheduler._unschedulable.activate(scheduler._queue.entries, set(), set(), set()) == []


def test_nobody_is_looked_for_who_could_leave_for_a_quotas_sake() -> None:
    world = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
    world.put_nodes(nodes())
    limit(world, memory=2000)
    run(world, job("low", cards=mib(2000)))
    run(world, job("high", cards=mib(2000), priority=9))
    assert not world.evicted
    assert not world.scheduler._preemptor._candidates


def test_gangs_of_several_tasks_in_one_domain_are_paid_for_whole() -> None:
    """Three times 2,000 and one of 1,000 MiB, together under one switch."""
    world = Simulation(policy_of(PolicyName.BINPACK))
    world.put_nodes(nodes())
    world.scheduler.on_fabric([HyperNode("leaf", 1, "leaf", (NodeName("small"), NodeName("large")), (), {})])
    first, other = job("gang", pods=3, cards=mib(2000)), job("rest", cards=mib(1000))
    gang = replace(
        first, tasks=(*first.tasks, *other.tasks), min_member=4, members=4, topology=TopologyWish(TopologyMode.HARD, 1, "")
    )
    limit(world, memory=6999)
    assert run(world, gang) == {}
    assert "ResourceQuotaNotFit" in world.verdicts[gang.id]
    limit(world, memory=7000)
    assert len(later(world)) == 4
    assert held(world) == 7000


def test_equal_pods_of_a_gang_of_several_tasks_are_paid_for_together() -> None:
    """Each of the three could be paid for; the fourth has no cards."""
    world = Simulation(policy_of(PolicyName.BINPACK))
    world.put_nodes(nodes())
    world.scheduler.on_fabric([HyperNode("leaf", 1, "leaf", (NodeName("small"), NodeName("large")), (), {})])
    first, other = job("gang", pods=3, cards=mib(2000)), job("rest")
    gang = replace(
        first, tasks=(*first.tasks, *other.tasks), min_member=4, members=4, topology=TopologyWish(TopologyMode.HARD, 1, "")
    )
    limit(world, memory=5999)
    assert run(world, gang) == {}
    limit(world, memory=6000)
    assert len(later(world)) == 4


def test_as_many_are_woken_as_the_quota_pays_for() -> None:
    world = Simulation(policy_of(PolicyName.BINPACK))
    world.put_nodes(nodes())
    limit(world, memory=2000)
    run(world, *(job(f"j{i}", cards=mib(2000), created_at=float(i)) for i in range(5)))
    world.finish([PodUid("j0-0")])
    scheduler = world.scheduler
    woken = scheduler._unschedulable.activate(scheduler._queue.entries, set(), set(), {SPACE})
    assert [entry.job.id for entry in woken] == ["j1"]
