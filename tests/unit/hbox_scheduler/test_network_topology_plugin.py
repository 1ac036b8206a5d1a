"""network-topology-aware: gradients and scores (sources: volcano-network-topology)."""

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import QueueName, TopologyMode, TopologyWish
from hbox_scheduler.core.cluster.entities import QueueInfo
from hbox_scheduler.core.cluster.facts import ClusterFacts
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.framework import Session
from hbox_scheduler.core.framework.conf import PluginConf, parse_conf
from hbox_scheduler.core.plugins.networktopology import NetworkTopology
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of
from hbox_scheduler.core.topology.tree import TOP

from .fabric_world import CONF, SOFT, Fabric, hard

LEAVES = {f"s{i}": {f"s{i}-n1": 2, f"s{i}-n2": 2} for i in range(3, 7)}
ABOVE = {"s1": ["s3", "s4"], "s2": ["s5", "s6"], "s0": ["s1", "s2"]}


def scores(fabric: Fabric, pod: str) -> dict[str, float]:
    report = fabric.run(explain=True)
    return {name: round(score, 1) for name, score in report.scores[f"ns/{pod}"]["network-topology-aware"].items()}


def opened(fabric: Fabric) -> Session:
    conf = parse_conf(CONF.format(actions="allocate"), plugins=list(PLUGINS))
    cluster = Cluster(fabric.gangs, [QueueInfo(QueueName("q"))], facts=ClusterFacts(hypernodes=fabric.hypernodes))
    return Session(columns=fabric.columns, cluster=cluster, conf=conf, tiers=plugins_of(conf))


def test_nodes_near_the_domain_of_a_gang_score_higher() -> None:
    fabric = Fabric(LEAVES, above=ABOVE)
    fabric.gang("g", 3, cores=2, wish=SOFT, on=["s3-n1", "s3-n2"])
    found = scores(fabric, "g-002")
    assert (found["s3-n1"], found["s4-n1"], found["s5-n1"]) == (100.0, 66.7, 33.3)


def test_of_leaves_that_are_equally_near_those_with_more_members_score_higher() -> None:
    fabric = Fabric(LEAVES, above=ABOVE)
    fabric.gang("g", 4, cores=2, wish=SOFT, on=["s3-n1", "s3-n2", "s4-n1"])
    found = scores(fabric, "g-003")
    assert (found["s3-n1"], found["s4-n1"], found["s5-n1"]) == (116.7, 91.7, 33.3)


def test_the_first_members_of_a_gang_have_no_nearness() -> None:
    fabric = Fabric(LEAVES, above=ABOVE)
    fabric.gang("g", 2, wish=SOFT)
    assert set(scores(fabric, "g-000").values()) == {0.0}


def test_other_pods_rather_go_outside_of_the_fabric_and_then_where_domains_are_full() -> None:
    fabric = Fabric(LEAVES, above=ABOVE, loose={"x": 2})
    fabric.gang("old", 1, cores=2, on=["s5-n1"])
    fabric.gang("pod", 1)
    found = scores(fabric, "pod-000")
    assert found["x"] > found["s5-n2"] > found["s6-n1"] > found["s3-n1"] == found["s4-n2"]


def test_domains_are_tried_by_tier_and_for_evictions_the_widest_first() -> None:
    fabric = Fabric(LEAVES, above=ABOVE)
    gang = fabric.gang("g", 3, wish=hard(2))
    session = opened(fabric)
    assert session.gradients(None, gang) == [["s3", "s4", "s5", "s6"], ["s1", "s2"]]
    assert session.gradients(None, gang, evict=True) == [["s1", "s2"], ["s3", "s4", "s5", "s6"]]
    large = fabric.gang("large", 5, wish=hard(2))
    assert session.gradients(None, large) == [["s1", "s2"]]
    assert session.gradients(None, fabric.gang("free", 1)) == [[TOP]]


def test_members_that_run_leave_only_the_domains_that_hold_them() -> None:
    fabric = Fabric(LEAVES, above=ABOVE)
    gang = fabric.gang("g", 3, wish=hard(2), on=["s3-n1", "s4-n1"])
    assert opened(fabric).gradients(None, gang) == [["s1"]]


def test_a_full_domain_scores_higher_and_one_that_is_too_small_scores_nothing() -> None:
    fabric = Fabric(LEAVES, above=ABOVE)
    gang = fabric.gang("g", 6, wish=TopologyWish(TopologyMode.HARD, 3))
    found = opened(fabric).domain_scores(None, gang, ["s3", "s1", "s0"])
    assert found == {"s3": 0.0, "s1": pytest.approx(75.0), "s0": pytest.approx(37.5)}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"weight": "much"}, "weight"),
        ({"weight": -1}, "weight"),
        ({"hypernode.binpack.gpu": 1}, "hypernode.binpack.gpu"),
        ({"hypernode.binpack.normal-pod.enable": 3}, "normal-pod.enable"),
    ],
)
def test_wrong_arguments_are_told_by_name(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        NetworkTopology(PluginConf("network-topology-aware", arguments))
