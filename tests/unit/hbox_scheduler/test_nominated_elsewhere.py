"""Nominated jobs whose victims do not leave: places that become free, and other victims. A node has one card unless a drawing shows more."""

from dataclasses import replace

import pytest

from hbox_common.events import Leaving
from hbox_common.model import CardRequest, Job, JobId, PlanId, PodUid, Queue, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import DEFAULT_CONF
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.queueing.jobs import JobState
from hbox_scheduler.core.simulate.simulation import Simulation, job, node
from hbox_scheduler.core.steps.nominations import Nomination, Nominations

from .test_many_queues import operations

CONF = parse_conf(DEFAULT_CONF, plugins=list(PLUGINS))


def world(*cards: int, queues: tuple[Queue, ...] = (Queue(QueueName("default")),), limits: Limits | None = None) -> Simulation:
    """Node n<i> has `cards[i]` cards."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=CONF, queues=queues, limits=limits)
    simulation.put_nodes(
        node(f"n{number}", cards=count, cpu=128, labels={"name": f"n{number}"}) for number, count in enumerate(cards)
    )
    return simulation


def on(name: str, at: str, *, priority: int = 0, cards: int = 1, created_at: float = 0.0) -> Job:
    return job(name, cards=CardRequest(cards), priority=priority, node_selector={"name": at}, created_at=created_at)


def places(simulation: Simulation) -> dict[str, str]:
    return {str(pod): str(claim.node) for pod, claim in simulation.claims.items()}


def cycle(simulation: Simulation, seconds: float = 0.5) -> None:
    simulation.now += seconds
    simulation.run()


def leaves(simulation: Simulation, pod: str) -> None:
    """The API server accepted its eviction, with a grace period of one second."""
    one = simulation.scheduler
    leaving = [Leaving(pod_uid=PodUid(pod), grace_s=1)]
    assert one.on_claims(epoch=one.epoch, previous=one.index, index=one.index, claims=[], leaving=leaving, now=simulation.now)


def full() -> Simulation:
    """n0 holds `victim`, which never leaves for `high`, and n1 holds `other`, of equal priority with `high`."""
    simulation = world(1, 1)
    simulation.submit([on("victim", "n0"), on("other", "n1", priority=9)])
    simulation.run()
    simulation.submit([job("high", cards=1, priority=9, created_at=10.0)])
    [plan] = simulation.run()
    assert [one.pod_uid for one in plan.victims] == ["victim-0"]
    return simulation


def test_nominated_job_takes_a_freed_card() -> None:
    simulation = full()
    cycle(simulation, 5.0)
    simulation.finish([PodUid("other-0")])
    simulation.submit([job("low", cards=1, created_at=5.0)])
    cycle(simulation)
    assert places(simulation) == {"victim-0": "n0", "high-0": "n1"}
    assert simulation.scheduler.reports.jobs_by_state[JobState.NOMINATED] == 0


def test_nominated_place_is_free_after_the_job_is_placed_elsewhere() -> None:
    simulation = full()
    simulation.finish([PodUid("other-0")])
    cycle(simulation)
    simulation.submit([job("low", cards=1, created_at=5.0)])
    cycle(simulation)
    assert "low-0" not in places(simulation)
    simulation.leave()
    cycle(simulation)
    assert places(simulation) == {"low-0": "n0", "high-0": "n1"}


def test_higher_pending_job_precedes_the_nominated_job() -> None:
    simulation = full()
    simulation.finish([PodUid("other-0")])
    simulation.submit([on("first", "n1", priority=50, created_at=20.0)])
    cycle(simulation)
    assert places(simulation) == {"victim-0": "n0", "first-0": "n1"}
    simulation.leave()
    cycle(simulation)
    assert places(simulation) == {"high-0": "n0", "first-0": "n1"}


def test_nominated_gang_combines_a_vacated_place_with_another_card() -> None:
    """n0 and n1 hold victims, n2 a pod of equal priority. One victim leaves, the other does not."""
    simulation = world(1, 1, 1)
    simulation.submit([on("stays", "n0"), on("leaves", "n1"), on("equal", "n2", priority=9)])
    simulation.run()
    simulation.submit([job("gang", pods=2, cards=1, priority=9, created_at=10.0)])
    [plan] = simulation.run()
    assert len(plan.victims) == 2
    simulation.finish([PodUid("leaves-0")])
    cycle(simulation)
    assert not any(pod.startswith("gang") for pod in places(simulation)), "its second pod has no place yet"
    simulation.finish([PodUid("equal-0")])
    simulation.submit([job("low", cards=1, created_at=1.0)])
    cycle(simulation)
    assert {pod: at for pod, at in places(simulation).items() if pod != "stays-0"}.keys() == {"gang-0", "gang-1"}
    assert set(places(simulation).values()) == {"n0", "n1", "n2"}


def test_nominated_job_of_a_queue_at_its_limit_takes_another_place() -> None:
    """The limit of the queue is two cards: `other` holds one, and the nominated place counts as the second."""
    queues = (Queue(QueueName("default")), Queue(QueueName("b"), capability={GPU: 1}))
    simulation = world(1, 1, queues=queues)
    simulation.submit([replace(on("victim", "n0"), queue=QueueName("b")), on("other", "n1", priority=9)])
    simulation.run()
    simulation.submit([job("high", cards=1, priority=9, queue="b", created_at=10.0)])
    [plan] = simulation.run()
    assert [one.pod_uid for one in plan.victims] == ["victim-0"]
    simulation.leave()
    simulation.finish([PodUid("other-0")])
    cycle(simulation)
    assert places(simulation).keys() == {"high-0"}


def test_other_victim_is_evicted_when_the_first_is_overdue() -> None:
    simulation = world(1, 1)
    simulation.submit([on("dead", "n0"), on("alive", "n1", priority=1)])
    simulation.run()
    simulation.submit([job("high", cards=1, priority=9, created_at=10.0)])
    [plan] = simulation.run()
    assert [one.pod_uid for one in plan.victims] == ["dead-0"]
    leaves(simulation, "dead-0")
    margin = simulation.scheduler.limits.leave_margin_s
    simulation.now += margin
    assert simulation.run() == []
    simulation.now += 1.5
    [again] = simulation.run()
    assert [one.pod_uid for one in again.victims] == ["alive-0"]
    for _ in range(10):
        simulation.now += 1.0
        assert simulation.run() == [], "one victim is enough"
    simulation.evicted = [claim for claim in simulation.evicted if claim.pod_uid == "alive-0"]
    simulation.leave()
    cycle(simulation)
    assert places(simulation) == {"dead-0": "n0", "high-0": "n1"}


def test_job_without_other_victims_keeps_its_nomination() -> None:
    simulation = full()
    leaves(simulation, "victim-0")
    for _ in range(40):
        simulation.now += 1.0
        assert simulation.run() == []
    simulation.submit([job("low", cards=1, created_at=5.0)])
    simulation.leave()
    cycle(simulation)
    assert places(simulation) == {"high-0": "n0", "other-0": "n1"}


def test_eviction_of_an_unneeded_second_victim_is_revoked() -> None:
    """The first victim leaves before the second one."""
    simulation = world(1, 1)
    simulation.submit([on("late", "n0"), on("alive", "n1", priority=1)])
    simulation.run()
    simulation.submit([job("high", cards=1, priority=9, created_at=10.0)])
    simulation.run()
    leaves(simulation, "late-0")
    simulation.now += simulation.scheduler.limits.leave_margin_s + 2.0
    [again] = simulation.run()
    assert [one.pod_uid for one in again.victims] == ["alive-0"]
    simulation.finish([PodUid("late-0")])
    simulation.now += 0.5
    [placing] = simulation.run()
    assert (placing.victims, [one.node for one in placing.placements]) == ((), ["n0"])


@pytest.mark.parametrize("free", [1, 2])
def test_nominated_jobs_take_as_many_free_places_as_there_are(free: int) -> None:
    simulation = world(1, 1, 2)
    simulation.submit([on("a", "n0"), on("b", "n1"), on("c", "n2", priority=9), on("d", "n2", priority=9)])
    simulation.run()
    simulation.submit(job(f"high{number}", cards=1, priority=9 - number, created_at=10.0) for number in range(2))
    simulation.run()
    assert len(simulation.evicted) == 2
    simulation.finish([PodUid("c-0"), PodUid("d-0")][:free])
    cycle(simulation)
    assert {pod for pod in places(simulation) if pod.startswith("high")} == {f"high{number}-0" for number in range(free)}


def test_gang_keeps_its_nominated_places_after_a_failed_trial() -> None:
    """Two victims on n0 and n1. One card of n2 becomes free and fits one pod of the gang, which needs two pods on different nodes."""
    simulation = world(1, 1, 1)
    simulation.submit([on("a", "n0"), on("b", "n1"), on("equal", "n2", priority=9)])
    simulation.run()
    simulation.submit([job("gang", pods=2, cards=1, priority=9, created_at=10.0)])
    simulation.run()
    simulation.finish([PodUid("equal-0")])
    cycle(simulation)
    simulation.submit([on("later", "n2", priority=9, created_at=11.0), job("thief", cards=1, created_at=1.0)])
    cycle(simulation)
    simulation.finish([PodUid("a-0")])
    cycle(simulation)
    assert "thief-0" not in places(simulation)


def test_nomination_expires() -> None:
    simulation = full()
    simulation.now += simulation.scheduler.limits.nomination_s - 1.0
    assert [plan.job for plan in simulation.run()] == []
    simulation.now += 2.0
    out = simulation.step()
    assert len(out.given_up) == 1


def test_late_grace_period_counts_for_the_next_preemptor() -> None:
    """`high` is placed on n1 before the grace period of its victim is reported. `next` needs the card of the same victim, which is overdue."""
    simulation = full()
    simulation.finish([PodUid("other-0")])
    cycle(simulation)
    leaves(simulation, "victim-0")
    simulation.put_nodes([node("n2", cards=1, cpu=128, labels={"name": "n2"})])
    simulation.submit([on("alive", "n2", priority=1)])
    simulation.now += simulation.scheduler.limits.leave_margin_s + 2.0
    simulation.run()
    simulation.submit([job("next", cards=1, priority=9, created_at=20.0)])
    for _ in range(6):
        cycle(simulation)
    assert "alive-0" in {claim.pod_uid for claim in simulation.evicted}


def test_nominated_jobs_share_the_limits_of_a_cycle_with_the_jobs_ahead_of_them() -> None:
    """Three jobs are nominated when twelve cards become free, and twelve jobs of higher priority wait."""
    simulation = world(1, 1, 1, 12, limits=Limits(placements=4))
    simulation.submit([on(f"victim{number}", f"n{number}") for number in range(3)])
    simulation.submit([on("wide", "n3", priority=99, cards=12)])
    simulation.run()
    simulation.submit([job(f"high{number}", cards=1, priority=9, created_at=10.0) for number in range(3)])
    simulation.run()
    assert simulation.scheduler.reports.jobs_by_state[JobState.NOMINATED] == 3
    simulation.finish([PodUid("wide-0")])
    simulation.submit([job(f"vip{number:02}", cards=1, priority=50, created_at=20.0) for number in range(12)])
    simulation.now += 5.0
    placed = []
    while (out := simulation.step()).plans or out.more:
        placed.append(sum(len(plan.placements) for plan in out.plans))
    assert max(placed) <= 4
    held = places(simulation)
    assert {held[f"vip{number:02}-0"] for number in range(12)} == {"n3"}
    assert simulation.scheduler.reports.jobs_by_state[JobState.NOMINATED] == 3, "none of the free cards is left for them"


def nominated(count: int) -> Simulation:
    """So many jobs nominated to the places of victims that do not leave, each on its own node; the last node has two jobs of a card each."""
    simulation = world(*[2] * (count + 1))
    simulation.submit([on(f"victim{i}", f"n{i}", cards=2) for i in range(count)])
    simulation.submit([on(f"small{i}", f"n{count}", priority=9) for i in range(2)])
    simulation.run()
    simulation.submit([job(f"high{i}", cards=2, priority=9, created_at=10.0 + i) for i in range(count)])
    for _ in range(20):
        cycle(simulation, 0.5)
    assert simulation.scheduler.reports.jobs_by_state[JobState.NOMINATED] == count
    return simulation


def test_cycle_costs_nothing_for_nominations_of_which_nothing_changed() -> None:
    def cost(count: int) -> int:
        simulation = nominated(count)
        cycle(simulation)
        return operations(lambda: cycle(simulation, 0.01))

    assert cost(30) < cost(6) + 100, "4,500 more when each nomination was read"


def test_rise_of_free_amounts_costs_by_the_shapes_of_nominated_pods() -> None:
    def cost(count: int) -> int:
        simulation = nominated(count)
        cycle(simulation)
        simulation.finish([PodUid("small1-0")])
        return operations(lambda: cycle(simulation, 0.01))

    assert cost(30) < cost(6) + 2000, "12,800 more when each nomination was tried"


def nomination(name: str, pod: str) -> Nomination:
    return Nomination(PlanId(name), JobId(name), (PodUid(f"{name}-0"),), None, {PodUid(pod)}, until=1000.0, accepted=True)


def test_deadline_of_a_victim_is_that_of_its_last_nomination() -> None:
    nominations = Nominations()
    nominations.put(nomination("first", "victim"), 100.0)
    assert [one.job for one in nominations.delayed(150.0)] == ["first"]
    nominations.put(nomination("second", "victim"), 650.0)
    assert list(nominations.delayed(151.0)) == []
    assert [one.job for one in nominations.delayed(650.0)] == ["first", "second"]


def test_second_nomination_of_a_job_replaces_the_first() -> None:
    nominations = Nominations()
    nominations.put(nomination("job", "victim"), 100.0)
    nominations.put(replace(nomination("job", "other"), plan=PlanId("again")), 100.0)
    nominations.pod_left(PodUid("other"))
    assert PodUid("victim") not in nominations
    assert [one.plan for one in nominations.unknown()] == ["again"]
    assert nominations.drop(JobId("job")) is not None
    assert list(nominations.unknown()) == []
