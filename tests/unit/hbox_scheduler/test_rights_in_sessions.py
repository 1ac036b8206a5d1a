"""Rights as sessions keep them, one fault of each kind at a time: lines that are crossed by the last pod, equal priority, queues that are over their share, and
who of several that could go stays."""

import numpy as np
import pytest

from hbox_common.model import CardRequest, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.cluster.entities import QueueInfo
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.devices import memory_needed
from hbox_scheduler.core.framework import Session
from hbox_scheduler.core.framework.conf import PluginConf, parse_conf
from hbox_scheduler.core.plugins.priority import PriorityPlugin
from hbox_scheduler.core.plugins.proportion import Proportion
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of

from .small_world import SmallWorld, evicted


def policy(actions: str, *plugins: str) -> str:
    listed = "".join(f", {plugin}" for plugin in plugins)
    return f"""
actions: "{actions}"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}]
- plugins: [{{name: predicates}}{listed}]
"""


CAPACITY = "{name: capacity, enableHierarchy: true, arguments: {reclaimAtParting: true}}"
RECLAIM = policy("reclaim", CAPACITY)


def queue(name: str, deserved: int, *, parent: str = "") -> QueueInfo:
    return QueueInfo(QueueName(name), parent=QueueName(parent) if parent else None, deserved={GPU: deserved})


# Lines that the last pod would cross.


@pytest.mark.parametrize(("deserved", "leave"), [(4, ["b0-0", "b1-0"]), (3, [])])
def test_a_gang_whose_last_pod_crosses_the_line_takes_nothing(deserved: int, leave: list[str]) -> None:
    """a has two cards and asks for two more, in one gang."""
    world = SmallWorld(1, cards=4, queues=(queue("a", deserved), queue("b", 0)))
    world.gang("a", pods=2, queue="a", on=[0, 0])
    for number in range(2):
        world.gang(f"b{number}", queue="b", on=[0])
    world.gang("more", pods=2, queue="a")
    assert evicted(world.decide(RECLAIM)) == leave


@pytest.mark.parametrize("plugin", [CAPACITY, "{name: capacity}"])
@pytest.mark.parametrize("deserved", range(6))
def test_of_equal_victims_named_together_so_many_may_leave_as_one_by_one(plugin: str, deserved: int) -> None:
    """The queue has five cards, in jobs of a card each: it gives what it has beyond what it deserves."""
    world = SmallWorld(1, cards=8, queues=(queue("a", 8), queue("b", deserved)))
    for number in range(5):
        world.gang(f"b{number}", queue="b", on=[0])
    want = world.gang("want", queue="a", cards=4).members[0]
    conf = parse_conf(policy("reclaim", plugin), plugins=list(PLUGINS))
    cluster = Cluster(world.gangs, list(world.queues))
    session = Session(columns=world.columns, cluster=cluster, conf=conf, tiers=plugins_of(conf))
    theirs = [gang.members[0] for gang in world.gangs[:5]]
    assert session.reclaimable(want, theirs) == theirs[: 5 - deserved]


@pytest.mark.parametrize(("department", "leave"), [(2, ["b-0", "b-1"]), (1, [])])
@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
def test_room_that_is_left_of_a_gang_that_breaks_is_no_right_to_it(action: str, department: int, leave: list[str]) -> None:
    """Of b's gang both members go for the first pod; the second would find the room, and its department deserves no more."""
    queues = (queue("a", department), queue("a1", 4, parent="a"), queue("b", 0))
    world = SmallWorld(1, cards=2, queues=queues)
    world.gang("b", pods=2, queue="b", on=[0, 0])
    world.gang("want", pods=2, queue="a1")
    assert evicted(world.decide(policy(action, CAPACITY))) == leave


# Inside a queue.


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
@pytest.mark.parametrize(("priority", "leave"), [(4, []), (5, []), (6, ["one-0"])])
def test_only_a_higher_priority_preempts(action: str, priority: int, leave: list[str]) -> None:
    world = SmallWorld(1, cards=1)
    world.gang("one", priority=5, on=[0])
    world.gang("other", priority=priority)
    assert evicted(world.decide(policy(action))) == leave


def test_an_equal_priority_is_no_victim_to_whoever_is_asked() -> None:
    """The action and the plugin each say so by themselves: a policy may have the one without the other."""
    world = SmallWorld(1, cards=1)
    one, other = world.gang("one", priority=5, on=[0]), world.gang("other", priority=5)
    plugin = PriorityPlugin(PluginConf("priority"))
    assert plugin.preemptable(other.members[0], one.members) == []
    assert plugin.evictable(other, one.members, reclaim=False) == []
    assert evicted(world.decide(policy("gangpreempt").replace("{name: priority}", "{name: pdb}"))) == []
    drf_decides = policy("preempt", "{name: priority}").replace("plugins: [{name: priority}", "plugins: [{name: drf}", 1)
    world = SmallWorld(1, cards=3)
    world.gang("much", pods=3, priority=5, min_member=1, on=[0, 0, 0])
    world.gang("less", priority=5)
    assert evicted(world.decide(drf_decides)) == []


def test_fewer_leave_before_those_of_lower_priority_in_all() -> None:
    """The most important that would leave is as important on both nodes; on n0 two leave, whose priorities are less together."""
    world = SmallWorld(2, cards=2)
    world.gang("least", priority=-9, on=[0])
    world.gang("top0", priority=2, on=[0])
    world.gang("top1", priority=2, cards=2, on=[1])
    world.gang("high", priority=5, cards=2)
    assert evicted(world.decide(policy("preempt"))) == ["top1-0"]


def test_of_two_that_one_may_stay_the_more_important_does() -> None:
    """The last pod has the large one leave, and with it room for one of the small ones that left for the pods before it."""
    world = SmallWorld(1, cards=5)
    world.gang("small1", priority=1, on=[0])
    world.gang("small2", priority=2, on=[0])
    world.gang("large", priority=3, cards=3, on=[0])
    gang = world.gang("high", priority=9, pods=2)
    last = world.gang("last", priority=9, cards=2).members[0]
    world.gangs.pop()
    last.gang, gang.min_member = gang, 3
    last.created_at += 1.0
    gang.members.append(last)
    assert evicted(world.decide(policy("preempt"))) == ["large-0", "small1-0"]


# Queues that are over their share.


@pytest.mark.parametrize(("over", "leave"), [(False, ["b1-0"]), (True, [])])
@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
def test_a_queue_that_is_over_its_share_reclaims_nothing(
    action: str, over: bool, leave: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a queue may have more is asked in no other way here."""

    def overused(self: Proportion, queue: QueueInfo) -> bool:  # the hook's signature
        return over and queue.name == "a"

    monkeypatch.setattr(Proportion, "overused", overused)
    world = SmallWorld(1, cards=4, queues=(queue("a", 0), queue("b", 0)))
    world.gang("a", pods=2, queue="a", on=[0, 0])
    for number in range(2):
        world.gang(f"b{number}", queue="b", on=[0], age_s=float(9 - number))
    world.gang("more", queue="a")
    off = "enablePreemptive: false, enableReclaimable: false, enabledAllocatable: false"
    assert evicted(world.decide(policy(action, f"{{name: proportion, {off}}}", "{name: pdb}"))) == leave


# Rounding.


@pytest.mark.parametrize("percent", [1, 33, 50, 67, 99, 100])
def test_a_percentage_of_a_card_is_the_same_to_the_engine_as_to_the_ledger(percent: int) -> None:
    """Up by a MiB in the one and down in the other, the last share of every card would be refused."""
    request = CardRequest(1, memory_percent=percent, cores=10)
    sizes = np.array([7, 99, 16_383, 40_961, 81_559])
    assert memory_needed(request, sizes).tolist() == [request.memory_on(size) for size in sizes.tolist()]
    assert memory_needed(request, sizes).tolist() == [size * percent // 100 for size in sizes.tolist()]
