"""enqueue: who lets a gang through, by amounts of the queue, the cluster and the namespace, and by time."""

import pytest

from hbox_common.model import QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.cluster.entities import Gang, QueueInfo, Status
from hbox_scheduler.core.framework import GroupPhase, ResourceQuota

from .small_world import SmallWorld


def conf(*plugins: str) -> str:
    tiers = "".join(f"- plugins: [{plugin}]\n" for plugin in plugins)
    return f'actions: "enqueue"\ntiers:\n{tiers}'


def outside(world: SmallWorld, name: str, cards: int, **more: object) -> Gang:
    gang = world.gang(name, **more)  # type: ignore[arg-type]
    gang.phase, gang.min_resources = GroupPhase.PENDING, {GPU: cards}
    return gang


def let_in(world: SmallWorld, policy: str) -> list[str]:
    world.decide(policy)
    return [gang.name for gang in world.gangs if gang.phase is GroupPhase.INQUEUE]


@pytest.mark.parametrize("plugin", ["{name: capacity}", "{name: proportion}"])
def test_a_queue_lets_in_what_it_may_have(plugin: str) -> None:
    world = SmallWorld(1, queues=(QueueInfo(QueueName("q"), capability={GPU: 4}),))
    outside(world, "a", 3, age_s=9)
    outside(world, "b", 2, age_s=5)
    outside(world, "c", 1)
    assert let_in(world, conf(plugin)) == ["a", "c"]


def test_what_runs_above_its_minimum_keeps_nobody_out() -> None:
    world = SmallWorld(1, queues=(QueueInfo(QueueName("q"), capability={GPU: 4}),))
    elastic = world.gang("elastic", pods=4, min_member=1, on=[0] * 4)
    elastic.min_resources = {GPU: 1}
    outside(world, "a", 3)
    assert let_in(world, conf("{name: capacity}")) == ["a"]


def test_bound_pods_of_a_gang_that_passed_count_once() -> None:
    world = SmallWorld(1, queues=(QueueInfo(QueueName("q"), capability={GPU: 4}),))
    passed = world.gang("passed", pods=3, on=[0] * 3)
    passed.phase, passed.min_resources = GroupPhase.RUNNING, {GPU: 3}
    outside(world, "a", 1)
    assert let_in(world, conf("{name: capacity}")) == ["a"]


def test_a_minimum_of_something_that_no_node_has_does_not_pass() -> None:
    world = SmallWorld(1)
    gang = outside(world, "a", 1)
    gang.min_resources = {"example.com/repeated-of": 1}
    assert let_in(world, conf("{name: capacity}")) == []


def test_overcommit_lets_in_a_fifth_more_than_there_is() -> None:
    world = SmallWorld(1, cards=10)
    outside(world, "a", 12, age_s=9)
    outside(world, "b", 1)
    assert let_in(world, conf("{name: overcommit}")) == ["a"]


def test_whoever_waited_long_enough_passes_what_later_tiers_would_refuse() -> None:
    world = SmallWorld(1, cards=1)
    outside(world, "old", 5, age_s=3700, annotations={"sla-waiting-time": "1h"})
    outside(world, "young", 5, age_s=3500, annotations={"sla-waiting-time": "1h"})
    assert let_in(world, conf("{name: sla}", "{name: overcommit}")) == ["old"]


def test_quotas_of_the_namespace_count_what_passed_before_and_has_no_pods_yet() -> None:
    """`before` asks for three cards, of which the quota knows one: that of its only pod."""
    world = SmallWorld(1)
    world.quotas = [ResourceQuota("d", "cards", {f"requests.{GPU}": 4}, {f"requests.{GPU}": 1})]
    before = world.gang("before", cards=1)
    before.min_resources = {GPU: 3}
    outside(world, "a", 2, age_s=9)
    outside(world, "b", 1)
    world.decide(conf("{name: resourcequota}"))
    assert [gang.name for gang in world.gangs if gang.phase is GroupPhase.INQUEUE] == ["before", "b"]


def test_quotas_of_other_namespaces_keep_nobody_out() -> None:
    world = SmallWorld(1)
    world.quotas = [ResourceQuota("another", "cards", {f"requests.{GPU}": 0}, {})]
    outside(world, "a", 2)
    world.decide(conf("{name: resourcequota}"))
    assert [gang.name for gang in world.gangs if gang.phase is GroupPhase.INQUEUE] == ["a"]


def test_quotas_of_the_namespace_count_what_passed_in_the_same_session() -> None:
    world = SmallWorld(1)
    world.quotas = [ResourceQuota("d", "cards", {f"requests.{GPU}": 4}, {f"requests.{GPU}": 1})]
    outside(world, "a", 2, age_s=9)
    outside(world, "b", 2, age_s=5)
    outside(world, "c", 1)
    assert let_in(world, conf("{name: resourcequota}")) == ["a", "c"]


@pytest.mark.parametrize(
    "plugin", ["{name: capacity}", "{name: proportion}", "{name: overcommit, arguments: {overcommit-factor: 1}}"]
)
def test_nothing_is_kept_for_members_with_scheduling_gates(plugin: str) -> None:
    """`half` has passed with eight cards: two of its pods run, four have gates, two may still come. So four cards are left."""
    world = SmallWorld(1, queues=(QueueInfo(QueueName("q"), capability={GPU: 8}),))
    half = world.gang("half", pods=6, min_member=8, on=[0] * 2)
    half.phase, half.min_resources = GroupPhase.INQUEUE, {GPU: 8}
    for member in half.of(Status.PENDING):
        member.status = Status.GATED
    outside(world, "a", 5, age_s=9)
    outside(world, "b", 4)
    assert let_in(world, conf(plugin)) == ["half", "b"]
    assert half.counted_minimum[GPU] == 4


def test_what_is_held_beside_members_with_gates_counts() -> None:
    """Six cards run of a gang of six, and six members more have gates: the minimum is what runs."""
    world = SmallWorld(1, queues=(QueueInfo(QueueName("q"), capability={GPU: 8}),))
    gang = world.gang("gang", pods=12, min_member=6, on=[0] * 6)
    gang.phase, gang.min_resources = GroupPhase.RUNNING, {GPU: 6}
    for member in gang.of(Status.PENDING):
        member.status = Status.GATED
    outside(world, "a", 3, age_s=9)
    outside(world, "b", 2)
    assert let_in(world, conf("{name: capacity}")) == ["b"]
