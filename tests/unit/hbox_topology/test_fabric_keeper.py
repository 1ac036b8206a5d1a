"""Which graph is believed, and how two differ."""

from dataclasses import replace

from hbox_common.model.fabric import Snapshot
from hbox_sandbox.fabric import FabricPlan
from hbox_topology.core.fabric.build import build
from hbox_topology.core.fabric.graph import Graph
from hbox_topology.core.fabric.keeper import Keeper, diff

PLAN = FabricPlan(units=5)
WHOLE = PLAN.snapshot()


def graph(*, hosts: int = 20, snapshot: Snapshot = WHOLE) -> Graph:
    """Of the first so many machines."""
    kept = {f"node-{number:04}" for number in range(hosts)}
    return build(replace(snapshot, hosts=tuple(link for link in snapshot.hosts if link.host in kept)))


def keeping() -> Keeper:
    keeper = Keeper()
    assert keeper.offer(graph(), 100.0)
    return keeper


def test_the_first_graph_is_believed_and_the_same_again_is_no_news() -> None:
    keeper = keeping()
    version = keeper.version
    assert not keeper.offer(graph(), 105.0)
    assert (keeper.version, keeper.seen_at, keeper.held) == (version, 105.0, "")
    assert keeper.offer(graph(hosts=19), 110.0)
    assert keeper.version > version


def test_a_graph_without_machines_is_never_believed() -> None:
    for keeper in (Keeper(), keeping()):
        for _ in range(5):
            assert not keeper.offer(graph(hosts=0), 200.0)
        assert "names no machine" in keeper.held


def test_a_graph_that_shrinks_is_believed_when_two_more_readings_say_so() -> None:
    keeper = keeping()
    for now in (101.0, 102.0):
        assert not keeper.offer(graph(hosts=10), now)
        assert "lost 10 of 20 machines" in keeper.held
        assert (keeper.graph and keeper.graph.hosts, keeper.seen_at) == (20, 100.0)
    assert keeper.offer(graph(hosts=10), 103.0)
    assert keeper.held == ""


def test_readings_that_shrink_each_in_another_way_do_not_agree() -> None:
    keeper = keeping()
    for now, hosts in enumerate((10, 4, 12, 8, 2, 10)):
        assert not keeper.offer(graph(hosts=hosts), 101.0 + now)
    assert keeper.offer(graph(), 120.0) is False
    assert keeper.held == ""


def test_losses_that_the_source_told_of_are_believed_at_once() -> None:
    keeper = keeping()
    keeper.record_events(now=101.0, downs=10)
    assert keeper.offer(graph(hosts=10), 102.0)
    assert not keeper.offer(graph(hosts=2), 103.0)


def test_losing_a_whole_tier_is_doubted_though_no_machine_is_lost() -> None:
    tall = FabricPlan(pods=2, units=2, cores=2, rails=1).snapshot()
    keeper = Keeper()
    keeper.offer(build(tall), 100.0)
    flat = replace(tall, trunks=())
    assert not keeper.offer(build(flat), 101.0)
    assert "a whole tier" in keeper.held


def test_after_a_failover_nothing_that_changes_is_believed_for_a_while() -> None:
    keeper = keeping()
    keeper.record_events(now=101.0, failovers=1)
    assert not keeper.offer(graph(hosts=19), 102.0)
    assert "manager moved" in keeper.held
    assert not keeper.offer(graph(), 103.0)
    assert (keeper.held, keeper.seen_at) == ("", 103.0)
    assert keeper.offer(graph(hosts=19), 101.0 + keeper.quiet_s)


def test_a_clock_that_is_set_back_makes_no_long_while_of_it() -> None:
    keeper = keeping()
    keeper.record_events(now=3701.0, failovers=1)
    assert not keeper.offer(graph(hosts=19), 102.0)
    assert not keeper.offer(graph(hosts=19), 101.0 + keeper.quiet_s)
    assert keeper.offer(graph(hosts=19), 102.0 + keeper.quiet_s)


def test_a_source_that_confirms_makes_the_graph_young_unless_it_is_doubted() -> None:
    keeper = keeping()
    keeper.confirm(150.0)
    assert keeper.seen_at == 150.0
    keeper.offer(graph(hosts=10), 151.0)
    keeper.confirm(160.0)
    assert keeper.seen_at == 150.0


def test_differences_are_told_from_the_largest_to_the_smallest() -> None:
    before = graph()
    links = [link for link in WHOLE.hosts if link.host not in ("node-0019",)]
    to = {switch.name: guid for guid, switch in WHOLE.switches.items()}
    moved = tuple(
        replace(link, switch=to[WHOLE.switches[link.switch].name.replace("u01", "u02")]) if link.host == "node-0000" else link
        for link in links
        if (link.host, link.hca) != ("node-0008", "mlx5_0")
    )
    after = build(replace(WHOLE, hosts=moved), former=before)
    assert [str(change.sign + change.text) for change in diff(before, after)] == [
        "~node-0000 moved from leaf-p1u01 to leaf-p1u02",
        "-node-0019 is gone from leaf-p1u05",
        "+node-0008 has no link on rail 1 (mlx5_0)",
    ]
    assert diff(before, before) == []


def test_a_graph_that_comes_and_goes_is_believed_when_two_more_readings_say_so() -> None:
    keeper, known = keeping(), (graph(hosts=19), graph())
    news = [keeper.offer(known[turn % 2], 101.0 + turn) for turn in range(20)]
    assert news == [True] * 3 + [False] * 17
    assert (keeper.graph and keeper.graph.hosts, keeper.seen_at) == (19, 119.0)
    assert "its readings alternate" in keeper.held
    assert [keeper.offer(known[1], 121.0 + turn) for turn in range(2)] == [False, True]
    assert keeper.offer(graph(hosts=18), 130.0)


def test_what_came_and_went_long_ago_is_forgotten() -> None:
    keeper, known = keeping(), (graph(hosts=19), graph())
    assert all(keeper.offer(known[turn % 2], 101.0 + 400 * turn) for turn in range(20))
