"""Work that gives nothing back, where others are guaranteed cards: what is proposed, what waits and what it is told, and when it goes on.

n0, n1      two nodes of four cards
kept        guarantee 3
open        no amounts
stern       gives nothing back; so does else
"""

from dataclasses import replace

import pytest

from hbox_common.model import Job, JobId, NodeName, PodUid, Queue, QueueName, TopologyMode, TopologyWish
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate import Simulation, job, node

from ...policies import one_by_one

KEPT = Queue(QueueName("kept"), guarantee={GPU: 3})


@pytest.fixture(params=["batches", "one by one"])
def world(request: pytest.FixtureRequest) -> Simulation:
    """By HBox's own policy, and by one under which equal pods are not alike."""
    made = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf() if request.param == "batches" else one_by_one())
    made.put_nodes(node(f"n{i}", cards=4) for i in range(2))
    for queue in (KEPT, Queue(QueueName("open")), Queue(QueueName("stern"), reclaimable=False)):
        made.scheduler.on_queue(queue)
    return made


def non_preemptible(name: str, *, cards: int = 1, pods: int = 1, queue: str = "stern", at: float = 0.0) -> Job:
    return job(name, cards=cards, pods=pods, queue=queue, created_at=at)


def run(world: Simulation, *jobs: Job) -> list[str]:
    """Submit, let time pass, and say who has places."""
    world.submit(jobs)
    for _ in range(4):
        world.run()
        world.now += 5.0
    return sorted(world.claims)


def test_it_takes_what_nobody_is_guaranteed_and_says_why_it_waits(world: Simulation) -> None:
    assert run(world, *(non_preemptible(f"j{i}", at=float(i)) for i in range(7))) == [f"j{i}-0" for i in range(5)]
    assert world.verdicts[JobId("j5")] == (
        "QueueGuaranteedToOthers: 3 of nvidia.com/gpu are guaranteed to queues that do not hold them, 3 are free or could be taken back for them; "
        "1 more, from which queue stern gives nothing back, would leave too few"
    )


def test_it_goes_on_when_firm_work_of_another_queue_ends(world: Simulation) -> None:
    world.scheduler.on_queue(Queue(QueueName("else"), reclaimable=False))
    run(world, *(non_preemptible(f"j{i}", queue="else", at=float(i)) for i in range(5)))
    assert "w-0" not in run(world, non_preemptible("w", at=9.0))
    world.finish([PodUid("j0-0")])
    assert "w-0" in run(world)


def test_it_goes_on_when_less_is_guaranteed_or_a_node_comes(world: Simulation) -> None:
    run(world, *(non_preemptible(f"j{i}", at=float(i)) for i in range(5)))
    assert "w-0" not in run(world, non_preemptible("w", at=9.0))
    world.scheduler.on_queue(replace(KEPT, guarantee={GPU: 2}))
    assert "w-0" in run(world)
    assert "v-0" not in run(world, non_preemptible("v", at=9.0))
    world.put_nodes([node("n2", cards=1)])
    assert "v-0" in run(world)


def test_work_that_gives_way_goes_past_it(world: Simulation) -> None:
    """What is guaranteed to others is lent, in sessions too, where Volcano's `capacity` keeps it idle."""
    run(world, *(non_preemptible(f"j{i}", at=float(i)) for i in range(6)))
    placed = set(run(world, *(job(f"s{i}", cards=1, queue="open", created_at=20.0 + i) for i in range(3))))
    assert placed >= {"s0-0", "s1-0", "s2-0"}


def test_a_gang_goes_whole_or_waits(world: Simulation) -> None:
    assert run(world, non_preemptible("gang", cards=2, pods=3)) == []
    assert len(run(world, non_preemptible("small", cards=2, pods=2, at=1.0))) == 2


def test_a_queue_may_always_have_its_guarantee(world: Simulation) -> None:
    run(world, *(job(f"s{i}", cards=1, queue="open", created_at=float(i)) for i in range(5)))
    assert {"k0-0", "k1-0", "k2-0"} <= set(run(world, *(non_preemptible(f"k{i}", queue="kept", at=9.0 + i) for i in range(3))))


def test_a_gang_with_a_wish_for_the_fabric_waits_too(world: Simulation) -> None:
    """It is placed in a session, whatever the policy."""
    run(world, *(non_preemptible(f"j{i}", at=float(i)) for i in range(4)))
    gang = replace(non_preemptible("gang", cards=1, pods=2, at=9.0), topology=TopologyWish(TopologyMode.SOFT))
    run(world, gang)
    assert world.verdicts[gang.id].startswith("QueueGuaranteedToOthers: ")
    world.finish([PodUid("j0-0"), PodUid("j1-0")])
    assert "gang-0" in run(world)


def test_a_node_that_breaks_stops_it(world: Simulation) -> None:
    state = next(s for s in world.scheduler.columns.states if s is not None and s.name == NodeName("n1"))
    world.scheduler.on_node(replace(state, ready=False))
    assert run(world, *(non_preemptible(f"j{i}", at=float(i)) for i in range(3))) == ["j0-0"]
