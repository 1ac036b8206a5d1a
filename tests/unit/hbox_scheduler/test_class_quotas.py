"""Jobs of a PriorityClass of which their namespace may have no more wait, take from nobody, and start when they may."""

from dataclasses import replace

from hbox_common.model import CardRequest, ClassQuota, Index, Job, Match, MatchOperator
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate import Simulation, job, node

URGENT = (Match("PriorityClass", MatchOperator.IN, ("urgent",)),)


def limit(world: Simulation, pods: int, used: int = 0, *, ahead: int = 0) -> None:
    quota = ClassQuota("default", "urgent", URGENT, {"pods": pods}, {"pods": used})
    world.scheduler.on_class_quotas([quota], Index(world.scheduler.index + ahead))


def urgent(name: str, pods: int = 1) -> Job:
    return replace(job(name, pods=pods, cards=CardRequest(1), priority=9, created_at=5.0), priority_class="urgent")


def full() -> Simulation:
    world = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
    world.put_nodes([node("n", cards=2)])
    world.submit([job(f"low{number}", cards=CardRequest(1)) for number in range(2)])
    later(world)
    assert len(world.claims) == 2
    return world


def later(world: Simulation) -> None:
    for _ in range(4):
        world.run()
        world.now += 5.0


def test_nobody_leaves_for_a_class_that_the_namespace_may_not_have() -> None:
    world = full()
    limit(world, 1)
    waiting = urgent("want", 2)
    world.submit([waiting])
    later(world)
    assert not world.evicted
    assert world.verdicts[waiting.id] == (
        "ResourceQuotaTooSmall: ResourceQuota urgent of namespace default allows 1 pods of PriorityClass urgent, 0 are in use and 2 more are asked for"
    )
    limit(world, 2)
    later(world)
    assert len(world.evicted) == 2


def test_what_the_quota_has_left_counts_once_the_claims_are_known_that_it_follows_from() -> None:
    """Else a pod is evicted for room that another has left."""
    world = full()
    limit(world, 1, used=1)
    world.submit([urgent("want")])
    later(world)
    limit(world, 1, used=0, ahead=1)
    later(world)
    assert not world.evicted
    world.finish([next(iter(world.claims))])
    later(world)
    assert "want-0" in world.claims
    assert not world.evicted


def test_a_job_without_a_class_and_other_namespaces_are_not_concerned() -> None:
    world = full()
    quota = ClassQuota("other", "all", (), {"pods": 0})
    world.scheduler.on_class_quotas([quota, replace(quota, namespace="default", name="mine")], world.scheduler.index)
    world.submit([job("plain", cards=CardRequest(1), priority=9)])
    later(world)
    assert len(world.evicted) == 1
