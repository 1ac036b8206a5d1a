"""What the scheduler does, drawn."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hbox_common.model import Generation, NodeName, Queue, QueueName, QueuePhase, Verdict
from hbox_scheduler.core.policy import PolicyName

#: `conftest.World`, and a queue of limited capability: fixtures, since test folders are no packages.
Draw = Callable[..., Any]
Capped = Callable[..., Queue]

PLACEMENTS = [
    pytest.param("n1 8 cards", "a 1 card", {"a": "n1:0"}, id="a card is the one with the lowest index"),
    pytest.param("n1 8 cards \n n2 8 cards", "a 8 cards x2", {"a": "n1:0,1,2,3,4,5,6,7 n2:0,1,2,3,4,5,6,7"}, id="whole nodes"),
    pytest.param("n1 8 cards", "a 8 cards x2", {}, id="a gang that does not fit whole does not start"),
    pytest.param("n1 8 cards", "a 4 cards x3 min 2", {"a": "n1:0,1,2,3 n1:4,5,6,7"}, id="a gang starts with its minimum"),
    pytest.param(
        "n1 4 cards \n n2 4 cards",
        "a 4 cards x2 min 1",
        {"a": "n1:0,1,2,3 n2:0,1,2,3"},
        id="beyond the minimum as far as it fits",
    ),
    pytest.param("n1 2 cards", "low 2 cards \n high 2 cards priority=9", {"high": "n1:0,1"}, id="higher priority goes first"),
    pytest.param("n1 2 cards", "old 2 cards \n young 2 cards", {"old": "n1:0,1"}, id="among equals the older goes first"),
    pytest.param(
        "n1 2 cards", "big 4 cards \n small 1 card", {"small": "n1:0"}, id="what fits need not wait for what does not"
    ),
    pytest.param(
        "n1 8 cards \n n2 8 cards",
        "a 1 card \n b 1 card \n c 1 card",
        {"a": "n1:0", "b": "n1:1", "c": "n1:2"},
        id="binpack fills a node",
    ),
    pytest.param(
        "n1 2 cards shares=10",
        "a 1 card 30% \n b 1 card 60% \n c 1 card 70%",
        {"a": "n1:0", "b": "n1:0", "c": "n1:1"},
        id="shares go where the least is left",
    ),
    pytest.param(
        "n1 1 card shares=10", "a 1 card 30% \n b 1 card 70%", {"a": "n1:0", "b": "n1:0"}, id="30 % and 70 % are a card"
    ),
    pytest.param(
        "n1 1 card shares=10", "a 1 card 30% \n b 1 card", {"a": "n1:0"}, id="a whole card tolerates nobody beside it"
    ),
    pytest.param(
        "n1 1 card shares=2", "a 1 card 10% x3 min 1", {"a": "n1:0 n1:0"}, id="a card takes as many pods as it has shares"
    ),
    pytest.param(
        "n1 2 cards shares=4", "a 2 cards 50% x2", {"a": "n1:0,1 n1:0,1"}, id="several cards of a pod are different ones"
    ),
    pytest.param("n1 1 card shares=4 mib=16000", "a 1 card mib=9000 x2 min 1", {"a": "n1:0"}, id="memory in MiB counts"),
    pytest.param("n1 2 cards bad card 0", "a 1 card", {"a": "n1:1"}, id="an unhealthy card is not used"),
    pytest.param("n1 8 cards V100 \n n2 8 cards H100", "a 1 card model=H100", {"a": "n2:0"}, id="only models that are allowed"),
    pytest.param("n1 8 cards \n n2 8 cards label zone=b", "a 1 card on zone=b", {"a": "n2:0"}, id="a node selector is obeyed"),
    pytest.param(
        "n1 8 cards taint gpu=:NoSchedule",
        "a 1 card \n b 1 card tolerates gpu",
        {"b": "n1:0"},
        id="taints keep away who does not tolerate",
    ),
    pytest.param("n1 8 cards cordoned \n n2 8 cards notready", "a 1 card", {}, id="cordoned and unready nodes take nothing"),
    pytest.param("n1 2 cards cpu=4", "a 1 card cpu=3 \n b 1 card cpu=3", {"a": "n1:0"}, id="cpu limits too"),
    pytest.param(
        "n1 8 cards \n n2 8 cards",
        "a 4 cards \n b 0 cards cpu=2",
        {"a": "n1:0,1,2,3", "b": "n1"},
        id="without cards: beside busy cards",
    ),
]


@pytest.mark.parametrize(("nodes", "jobs", "expected"), PLACEMENTS)
def test_placements(world: Draw, nodes: str, jobs: str, expected: dict[str, str]) -> None:
    assert world(nodes).submit(jobs).drawn() == expected


def test_fgd_keeps_whole_cards_for_those_who_ask_for_them(world: Draw) -> None:
    drawn = (
        world("n1 2 cards shares=10 \n n2 2 cards shares=10", policy=PolicyName.FGD)
        .submit("a 1 card 50% \n b 2 cards \n c 1 card 50%")
        .drawn()
    )
    assert drawn["b"].endswith(":0,1")
    assert drawn["a"] == drawn["c"]


REASONS = [
    ("n1 8 cards notready", "1 card", "NodeNotReady"),
    ("n1 8 cards cordoned", "1 card", "NodeUnschedulable"),
    ("n1 8 cards", "1 card on zone=b", "NodeSelectorMismatch"),
    ("n1 8 cards taint gpu=:NoSchedule", "1 card", "UntoleratedTaint"),
    ("n1 1 card bad card 0", "1 card", "CardNotHealth"),
]

NEVER = [
    ("n1 8 cards cpu=1", "1 card cpu=2", "Insufficient cpu"),
    ("n1 4 cards", "8 cards", "NodeInsufficientDevice"),
    ("n1 1 card V100", "1 card model=H100", "CardTypeMismatch"),
    ("n1 1 card shares=4 mib=16000", "1 card mib=17000", "CardInsufficientMemory"),
]


@pytest.mark.parametrize(("nodes", "request_", "label"), REASONS)
def test_a_job_that_waits_is_told_why(world: Draw, nodes: str, request_: str, label: str) -> None:
    assert world(nodes).submit(f"a {request_}").why("a") == f"0/1 nodes are available: 1 {label}"


@pytest.mark.parametrize(("nodes", "request_", "label"), NEVER)
def test_a_job_that_no_node_can_ever_hold_is_told_so(world: Draw, nodes: str, request_: str, label: str) -> None:
    said = f"0/1 nodes are available: 1 {label}; no node has room for it even when empty"
    assert world(nodes).submit(f"a {request_}").why("a") == said


USED = [
    ("shares=4", "1 card mib=9000", "1 card", "CardsInUse"),
    ("shares=4", "1 card", "1 card", "CardsInUse"),
    ("shares=1", "1 card 50%", "1 card 50%", "CardsInUse"),
    ("shares=4 mib=16000", "1 card mib=9000", "1 card mib=9000", "CardInsufficientMemory"),
    ("shares=4", "1 card 60%", "1 card 50%", "CardInsufficientMemory"),
    ("shares=4", "1 card 60% mib=100", "1 card 50% mib=100", "CardInsufficientCore"),
    ("shares=4", "1 card 99% mib=100 x1", "2 cards", "NodeInsufficientDevice; no node has room for it even when empty"),
]


@pytest.mark.parametrize(("card", "first", "second", "label"), USED)
def test_a_card_in_use_says_what_it_lacks(world: Draw, card: str, first: str, second: str, label: str) -> None:
    assert (
        world(f"n1 1 card {card}").submit(f"a {first}").submit(f"b {second}").why("b") == f"0/1 nodes are available: 1 {label}"
    )


PORTS = [
    pytest.param("port=80", "port=80", False, id="the same port clashes"),
    pytest.param("port=80", "port=81", True, id="another port does not"),
    pytest.param("port=80/TCP", "port=80/UDP", True, id="nor another protocol"),
    pytest.param("port=80@10.0.0.1", "port=80@10.0.0.2", True, id="nor another address"),
    pytest.param("port=80@10.0.0.1", "port=80@10.0.0.1", False, id="the same address does"),
    pytest.param("port=80", "port=80@10.0.0.2", False, id="all addresses clash with one"),
    pytest.param("port=80@10.0.0.1", "port=80", False, id="and one with all"),
    pytest.param("port=80@0.0.0.0", "port=80", False, id="0.0.0.0 is all addresses"),
    pytest.param("port=80 port=443", "port=443", False, id="one of several ports is enough"),
]


@pytest.mark.parametrize(("first", "second", "fits"), PORTS)
def test_two_pods_whose_host_ports_clash_never_share_a_node(world: Draw, first: str, second: str, *, fits: bool) -> None:
    w = world("n1 0 cards").submit(f"a {first}").submit(f"b {second}")
    assert w.drawn() == {"a": "n1"} | ({"b": "n1"} if fits else {})
    assert w.why("b") == ("" if fits else "0/1 nodes are available: 1 NodePortsTaken")


def test_pods_with_a_host_port_are_spread_and_the_next_one_waits_for_a_port_to_be_free(world: Draw) -> None:
    w = world("n1 1 card \n n2 1 card").submit("a port=80 x2 \n b port=80")
    assert w.drawn() == {"a": "n1 n2"}
    assert w.finish("a").drawn() == {"b": "n1"}


def test_a_gang_that_does_not_fit_gives_its_host_ports_back(world: Draw) -> None:
    assert world("n1 0 cards \n n2 0 cards").submit("a port=80 x3 \n b port=80").drawn() == {"b": "n1"}


VOLUMES = [
    pytest.param("volume zone=b", "n2", id="one volume"),
    pytest.param("volume zone=b|c", "n2", id="one of several terms is enough"),
    pytest.param("volume zone=b volume rack=r1", "n2", id="all volumes are needed"),
    pytest.param("volume zone=a volume rack=r1", "", id="volumes that no node reaches together"),
]


@pytest.mark.parametrize(("wish", "where"), VOLUMES)
def test_a_pod_goes_where_its_volumes_are_within_reach(world: Draw, wish: str, where: str) -> None:
    w = world("n1 0 cards label zone=a \n n2 0 cards label zone=b label rack=r1 \n n3 0 cards").submit(f"a {wish}")
    assert w.drawn().get("a", "") == where
    assert w.why("a") == ("" if where else "0/3 nodes are available: 3 VolumeNodeAffinityMismatch")


def test_a_gang_is_told_how_far_it_came(world: Draw) -> None:
    why = world("n1 8 cards \n n2 8 cards \n n3 8 cards cordoned").submit("a 8 cards x4").why("a")
    assert why == (
        "2 of 4 pods fit that have to start together, and no more than 3 would on an empty cluster; "
        "2/3 nodes are available: 1 NodeUnschedulable"
    )


def test_a_release_starts_as_many_as_fit_and_no_more(world: Draw) -> None:
    w = world("n1 2 cards").submit("a 2 cards \n b 1 card \n c 1 card \n d 1 card")
    assert w.drawn() == {"a": "n1:0,1"}
    assert w.finish("a").drawn() == {"b": "n1:0", "c": "n1:1"}


def test_what_waits_starts_when_a_node_comes_or_is_uncordoned(world: Draw) -> None:
    w = world("n1 2 cards cordoned").submit("a 2 cards")
    assert w.drawn() == {}
    uncordoned = w.simulation.scheduler.columns.states[0]
    w.simulation.put_nodes([replace(uncordoned, unschedulable=False, generation=Generation(2))])
    w.simulation.run()
    assert w.drawn() == {"a": "n1:0,1"}


def test_a_verdict_of_health_monitor_takes_cards_and_nodes_out_of_use(world: Draw) -> None:
    w = world("n1 2 cards \n n2 2 cards")
    w.simulation.put_verdict(Verdict(NodeName("n1"), Generation(1), healthy=True, bad_cards=(0,)))
    w.simulation.put_verdict(Verdict(NodeName("n2"), Generation(1), healthy=False, reason="fan"))
    assert w.submit("a 1 card \n b 1 card").drawn() == {"a": "n1:1"}
    assert "NodeUnhealthy" in w.why("b")


def test_a_queue_starts_no_more_than_its_capability(world: Draw, capped: Capped) -> None:
    w = world("n1 8 cards", queues=[capped("q", cards=3)]).submit("a 2 cards queue=q \n b 2 cards queue=q \n c 1 card queue=q")
    assert w.drawn() == {"a": "n1:0,1", "c": "n1:2"}
    assert w.why("b").startswith("QueueCapabilityExceeded: queue q may use 3 nvidia.com/gpu now, 3 nvidia.com/gpu are in use")
    assert w.finish("a").drawn() == {"b": "n1:0,1", "c": "n1:2"}


def test_a_department_is_a_limit_for_its_projects_and_what_one_gives_back_wakes_the_other(world: Draw, capped: Capped) -> None:
    projects = [replace(capped(name), parent="vision") for name in ("train", "serve")]
    w = world("n1 8 cards", queues=[capped("vision", cards=3), *projects])
    w.submit("a 2 cards queue=train \n b 2 cards queue=serve \n c 1 card queue=serve \n d 1 card queue=vision")
    assert w.drawn() == {"b": "n1:0,1", "c": "n1:2"}
    assert w.why("a").startswith(
        "QueueCapabilityExceeded: queue vision, above queue train, may use 3 nvidia.com/gpu now, 3 nvidia.com/gpu are in use"
    )
    assert w.why("d").startswith("QueueNotLeaf: queue vision takes no work of its own")
    assert w.finish("a").drawn() == {"b": "n1:0,1", "c": "n1:2"}


def test_below_a_closed_department_nothing_starts_until_it_opens(world: Draw, capped: Capped) -> None:
    vision = capped("vision")
    w = world("n1 8 cards", queues=[replace(vision, phase=QueuePhase.CLOSING), replace(capped("train"), parent="vision")])
    assert w.submit("a 1 card queue=train").why("a") == (
        "QueueClosed: queue vision, above queue train, is closed and takes no new work"
    )
    w.simulation.scheduler.on_queue(vision)
    w.simulation.run()
    assert w.drawn() == {"a": "n1:0"}


def test_a_queue_without_others_below_it_takes_work_again(world: Draw, capped: Capped) -> None:
    train = replace(capped("train"), parent="vision")
    w = world("n1 8 cards", queues=[capped("vision"), train]).submit("a 1 card queue=vision")
    assert w.drawn() == {}
    w.simulation.scheduler.on_queue(train, gone=True)
    w.simulation.run()
    assert w.drawn() == {"a": "n1:0"}


def test_nodes_of_a_pool_are_for_the_queues_that_name_it_and_rights_may_change(world: Draw, capped: Capped) -> None:
    lab, plain = replace(capped("lab"), pools=("lab",)), capped("plain")
    nodes = "own 2 cards label hbox.io/pool=lab \n all 2 cards \n free 1 card label hbox.io/pool=public"
    w = world(nodes, queues=[lab, plain]).submit("a 2 cards queue=lab \n b 1 card queue=lab \n c 1 card queue=lab")
    assert w.drawn() == {"a": "own:0,1", "b": "free:0"}
    assert "1 NodePoolMismatch" in w.why("c")
    w.submit("d 2 cards queue=plain \n e 1 card queue=plain")
    assert w.drawn() == {"a": "own:0,1", "b": "free:0", "d": "all:0,1"}
    w.finish("d")
    assert w.drawn() == {"a": "own:0,1", "b": "free:0", "e": "all:0"}
    w.simulation.scheduler.on_queue(replace(lab, pools=("lab", "pooled")))
    w.simulation.run()
    assert w.drawn() == {"a": "own:0,1", "b": "free:0", "c": "all:1", "e": "all:0"}


def test_a_queue_that_nobody_bound_is_for_nobody_where_queues_are_bound(world: Draw, capped: Capped) -> None:
    closed, default = replace(capped("q"), bound=True), replace(capped("default"), bound=True)
    w = world("n1 8 cards", queues=[closed, default]).submit("a 1 card queue=q \n b 1 card queue=default")
    assert w.drawn() == {"b": "n1:0"}
    assert (
        w.why("a")
        == "QueueNotForNamespace: queue q is bound to no namespace, so that default may not use it; name another queue in the job"
    )
    w.simulation.scheduler.on_queue(replace(closed, namespaces=("*",)))
    w.simulation.run()
    assert w.drawn() == {"a": "n1:1", "b": "n1:0"}


def test_a_queue_is_for_jobs_of_the_classes_that_it_names(world: Draw, capped: Capped) -> None:
    """Drawn jobs are of no class."""
    own = replace(capped("own"), priority_classes=("normal",))
    w = world("n1 8 cards", queues=[own]).submit("a 1 card queue=own")
    assert w.why("a") == (
        "QueueNotForPriorityClass: queue own takes jobs of PriorityClass normal, and the job is of none; name one of these, or another queue"
    )
    w.simulation.scheduler.on_queue(capped("own"))
    w.simulation.run()
    assert w.drawn() == {"a": "n1:0"}


def test_a_queue_is_for_the_namespaces_that_it_names(world: Draw, capped: Capped) -> None:
    """Drawn jobs are of namespace default."""
    own = replace(capped("own"), namespaces=("team",))
    w = world("n1 8 cards", queues=[own, capped("q")]).submit("a 1 card queue=own \n b 1 card queue=q")
    assert w.drawn() == {"b": "n1:0"}
    assert w.why("a") == "QueueNotForNamespace: queue own is for namespace team, not for default; name another queue in the job"
    w.simulation.scheduler.on_queue(replace(own, namespaces=("team", "default")))
    w.simulation.run()
    assert w.drawn() == {"a": "n1:1", "b": "n1:0"}


def test_queues_that_are_closed_or_unknown_are_named(world: Draw) -> None:
    closed = Queue(QueueName("shut"), phase=QueuePhase.CLOSED)
    w = world("n1 8 cards", queues=[closed]).submit("a 1 card queue=shut \n b 1 card queue=nowhere")
    assert w.why("a").startswith("QueueClosed: queue shut")
    assert w.why("b").startswith("QueueNotFound: there is no queue nowhere")


def test_a_job_starts_when_its_queue_appears(world: Draw) -> None:
    w = world("n1 8 cards").submit("a 1 card queue=late")
    w.simulation.scheduler.on_queue(Queue(QueueName("late")))
    w.simulation.run()
    assert w.drawn() == {"a": "n1:0"}


def test_a_gang_with_too_few_pods_is_told_so(world: Draw) -> None:
    why = world("n1 8 cards").submit("a 1 card x2 min 3").why("a")
    assert why.startswith("GangIncomplete: the gang needs 3 pods and 2 exist")
