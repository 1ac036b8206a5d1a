"""Large gangs start in time, and nothing that is placed in the gaps pushes them back. 2 nodes of 4 cards; gang `big` needs both whole."""

from collections import Counter

import pytest

from hbox_common.model import QueueName, TopologyWish
from hbox_scheduler.core.cluster.entities import QueueInfo
from hbox_scheduler.core.cluster.facts import ClusterFacts
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate.cycles import CycleOptions, simulate

from .fabric_world import SOFT, Fabric, hard
from .small_world import NOW, SmallWorld, bound, evicted

POLICY = """
actions: "allocate"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: reservation
    arguments: {after: 10m, hold: 30m, share: 1}
"""


def world(*, small: str, ends_in_s: float = 1000.0) -> SmallWorld:
    """`running` holds one card of each node and ends after 1,000 s; `big` has waited for an hour; `small` has just come, and is looked at first."""
    made = SmallWorld(2, 4)
    made.gang(
        "running", pods=2, on=[0, 1], age_s=100, annotations={"hbox.io/walltime": f"{ends_in_s + 100:g}s"} if ends_in_s else {}
    )
    made.gang("small", pods=1, age_s=7200, annotations={"hbox.io/walltime": small} if small else {})
    made.gang("big", pods=2, cards=4, age_s=3600)
    return made


def test_a_job_that_ends_before_the_start_is_let_in() -> None:
    assert "small-0" in bound(world(small="900s").decide(POLICY))


@pytest.mark.parametrize("small", ["1100s", ""])
def test_one_that_would_end_after_it_or_at_no_known_time_waits(small: str) -> None:
    report = world(small=small).decide(POLICY)
    assert not bound(report)
    assert report.pending["d/small-0"].reasons == {"ReservedForLargeJob": 2}


def test_without_a_reservation_it_would_have_gone_in() -> None:
    assert "small-0" in bound(world(small="").decide(POLICY.replace("after: 10m", "after: 2h")))


def test_nodes_that_the_gang_does_not_need_stay_open() -> None:
    made = SmallWorld(3, 4)
    made.gang("running", pods=3, on=[0, 1, 2], age_s=100, annotations={"hbox.io/walltime": "500s"})
    made.gang("small", age_s=7200)
    made.gang("big", pods=2, cards=4, age_s=3600)
    assert len(bound(made.decide(POLICY))) == 1


@pytest.mark.parametrize(("depth", "let_in"), [(1, True), (2, False)])
def test_no_more_gangs_than_asked_for_have_nodes_kept_for_them(depth: int, *, let_in: bool) -> None:
    made = SmallWorld(4, 4)
    made.gang("running", pods=4, on=[0, 1, 2, 3], age_s=100, annotations={"hbox.io/walltime": "1100s"})
    made.gang("small", age_s=7200)
    for name in ("big", "next"):
        made.gang(name, pods=2, cards=4, age_s=3600)
    report = made.decide(POLICY.replace("hold: 30m", f"hold: 30m, depth: {depth}"))
    assert ("small-0" in bound(report)) is let_in


def test_where_no_end_is_known_smaller_work_is_delayed_and_never_stopped() -> None:
    """`big` is eligible since 50 minutes: held for 30, given free for 30, and so on."""
    assert not bound(world(small="", ends_in_s=0).decide(POLICY, now=NOW - 2000))
    assert "small-0" in bound(world(small="", ends_in_s=0).decide(POLICY))


def test_the_gang_itself_goes_in_when_its_time_has_come() -> None:
    made = SmallWorld(2, 4)
    made.gang("small", age_s=1200)
    made.gang("big", pods=2, cards=4, age_s=9000)
    assert sorted(bound(made.decide(POLICY))) == ["big-0", "big-1"]


def test_offline_work_has_the_nodes_meanwhile_and_is_no_reason_to_wait() -> None:
    """It would never end; and those that run there as offline work leave when they are asked to."""
    made = world(small="")
    made.gang("spot", pods=4, min_member=0, priority_class="offline")
    report = made.decide(POLICY)
    assert {name for name in bound(report) if name.startswith("spot")} == {f"spot-{i}" for i in range(4)}
    assert "small-0" not in bound(report)
    full = SmallWorld(2, 4)
    full.gang("spot", pods=8, on=[0, 0, 0, 0, 1, 1, 1, 1], age_s=100, min_member=0, priority_class="offline")
    full.gang("big", pods=2, cards=4, age_s=3600)
    assert len(evicted(full.decide(POLICY))) == 8


FABRIC = """
actions: "allocate"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: network-topology-aware
  - name: reservation
    arguments: {after: 10m, hold: 30m, share: 1}
"""


def fabric(*ends_in_s: float, wish: TopologyWish, needs: int = 2) -> Fabric:
    """Two leaves of two nodes with 4 cores, on each of which one is taken, for so long; `big` needs whole nodes."""
    made = Fabric({"s0": {"n0": 4, "n1": 4}, "s1": {"n2": 4, "n3": 4}})
    for number, ends in enumerate(ends_in_s):
        notes = {"hbox.io/walltime": f"{ends + 100:g}s"} if ends else {}
        running = made.gang(f"running{number}", 1, on=[f"n{number}"], annotations=notes)
        running.members[0].annotations, running.members[0].started_at = notes, NOW - 100
    made.gang("small", 12, least=0)
    made.gang("big", needs, cores=4, wish=wish).created_at = NOW - 1500
    return made


def small_ones(world: Fabric) -> Counter[str]:
    """Where one-core pods of unknown end go."""
    cluster = Cluster(world.gangs, [QueueInfo(QueueName("q"))], facts=ClusterFacts(hypernodes=world.hypernodes))
    report = simulate(world.columns, cluster, parse_conf(FABRIC, plugins=list(PLUGINS)), CycleOptions(now=NOW))
    return Counter(one.node for one in report.bindings)


def test_a_gang_of_one_domain_has_nodes_of_one_set_aside() -> None:
    """n0 and n2 come free first, and are of two leaves."""
    assert small_ones(fabric(100, 5000, 300, 400, wish=hard(1))) == {"n0": 3, "n1": 3}
    assert small_ones(fabric(100, 5000, 300, 400, wish=SOFT)) == {"n1": 3, "n3": 3}


def test_where_no_end_is_known_it_is_the_domain_where_least_has_to_leave() -> None:
    world = fabric(0, 0, 0, 0, wish=hard(1))
    heavy = world.gang("heavy", 1, cores=2, on=["n0"])
    heavy.members[0].started_at = NOW - 100
    assert set(small_ones(world)) == {"n0", "n1"}


def test_a_gang_that_no_domain_could_hold_has_nothing_set_aside() -> None:
    assert small_ones(fabric(100, 200, 300, 400, wish=hard(1), needs=3)) == {f"n{i}": 3 for i in range(4)}
