"""A gang that has to be in one domain, and a fabric that changes between its plan and its binding."""

import pytest

from hbox_common.events import BindOutcome, EvictKind, Plan, PlanDomain
from hbox_common.model import ClaimState, HyperNode, NodeName
from hbox_ledger.core.claimrecord import Decision

from .conftest import World, node


def unit(name: str, *nodes: str) -> HyperNode:
    return HyperNode(name, 1, "leafgroup", nodes=tuple(map(NodeName, nodes)))


TOGETHER = (unit("u1", "a", "b"), unit("u2", "c"))
APART = (unit("u1", "a"), unit("u2", "b", "c"))


@pytest.fixture
def fabric(world: World) -> World:
    world.state.nodes[NodeName("c")] = node("c")
    world.state.fabrics.put("ib", 5, TOGETHER)
    return world


def gang(id: str = "p", *, version: int = 5, domain: str = "u1", placements: tuple[int, ...] = (), min_member: int = 2) -> Plan:
    plan = World.plan(id, ("m0", "a", []), ("m1", "b", []), job="gang", min_member=min_member)
    said = PlanDomain(fabric="ib", domain=domain, version=version, placements=placements)
    return plan.model_copy(update={"domains": (said,)})


def test_a_plan_by_the_graph_that_is_known_here_is_committed(fabric: World) -> None:
    fabric.commits(gang())


def test_a_plan_by_an_older_graph_is_judged_by_the_newer_one(fabric: World) -> None:
    fabric.state.fabrics.put("ib", 6, APART)
    assert fabric.refuses(gang()) == "FabricChanged"
    assert fabric.refusal(gang("q")) == "the fabric changed since the plan was made: b not in u1 any more"
    assert (
        fabric.refusal(gang("r", domain="gone"))
        == "the fabric changed since the plan was made: there is no domain gone any more"
    )
    fabric.state.fabrics.put("ib", 7, TOGETHER)
    fabric.commits(gang("s"))


def test_a_plan_by_a_graph_that_is_newer_than_ours_is_not_judged_by_ours(fabric: World) -> None:
    fabric.state.fabrics.put("ib", 6, APART)
    fabric.commits(gang(version=7))


def test_a_fabric_that_was_never_heard_of_refuses_nobody(world: World) -> None:
    world.commits(gang())


def test_only_the_placements_that_are_named_have_to_be_there(fabric: World) -> None:
    fabric.state.fabrics.put("ib", 6, APART)
    fabric.commits(gang(placements=(0,)))


def test_nodes_of_domains_below_count(fabric: World) -> None:
    pod = HyperNode("pod", 2, "pod", children=("u1", "u2", "pod"))
    fabric.state.fabrics.put("ib", 6, (*APART, pod))
    fabric.commits(gang(domain="pod"))


@pytest.mark.parametrize("number", [-1, 2, 1 << 60])
def test_a_domain_of_a_placement_that_is_not_there_is_malformed(fabric: World, number: int) -> None:
    assert fabric.refuses(gang(placements=(number,))) == "PlanMalformed"


def test_a_gang_that_has_not_begun_is_taken_back_whole_and_may_be_planned_anew(fabric: World) -> None:
    fabric.commits(gang())
    fabric.state.fabrics.put("ib", 6, APART)
    step = fabric.wait(1)
    assert [(e.kind, e.pod_uid) for e in step.evictions] == [(EvictKind.REVOKE, "m0"), (EvictKind.REVOKE, "m1")]
    assert "b not in u1 any more" in step.evictions[0].reason
    more = World.plan("more", ("m2", "a", []), job="gang", min_member=2)
    assert fabric.refusal(more) == "gang is planned anew, since the fabric changed; its members are being taken back"
    for pod in ("m0", "m1"):
        fabric.outcome(pod, BindOutcome.REVOKED)
    assert not fabric.state.gangs
    other = World.plan("new", ("m0", "b", []), ("m1", "c", []), job="gang", min_member=2)
    fabric.commits(other.model_copy(update={"domains": (PlanDomain(fabric="ib", domain="u2", version=6),)}))


def test_a_change_elsewhere_takes_nothing_back(fabric: World) -> None:
    fabric.commits(gang())
    fabric.state.fabrics.put("ib", 6, (unit("u1", "a", "b", "d"), unit("u2", "c")))
    assert not fabric.wait(1).evictions


def test_of_a_gang_that_has_begun_nothing_is_taken(fabric: World) -> None:
    fabric.commits(gang())
    fabric.outcome("m0", BindOutcome.BOUND, at="a")
    fabric.state.fabrics.put("ib", 6, APART)
    assert not fabric.wait(1).evictions
    fabric.outcome("m1", BindOutcome.BOUND, at="b")
    assert fabric.claim_state("m1") is ClaimState.POSTED


def test_a_binding_that_was_faster_than_the_news_stays_and_the_rest_is_planned_beside_it(fabric: World) -> None:
    fabric.commits(gang())
    fabric.state.fabrics.put("ib", 6, APART)
    fabric.wait(1)
    step = fabric.outcome("m0", BindOutcome.BOUND, at="a")
    assert not step.evictions
    assert fabric.claim_state("m0") is ClaimState.POSTED
    fabric.outcome("m1", BindOutcome.REVOKED)
    rest = World.plan("rest", ("m1", "a", []), job="gang", min_member=2)
    fabric.commits(rest.model_copy(update={"domains": (PlanDomain(fabric="ib", domain="u1", version=6),)}))
    fabric.outcome("m1", BindOutcome.BOUND, at="a")
    assert not fabric.state.gangs


def test_the_deadline_still_holds_for_what_is_left_of_it(fabric: World) -> None:
    fabric.commits(gang())
    fabric.state.fabrics.put("ib", 6, APART)
    fabric.wait(1)
    fabric.outcome("m0", BindOutcome.BOUND, at="a")
    fabric.outcome("m1", BindOutcome.REVOKED)
    fabric.wait(120)
    [left] = fabric.state.live.values()
    assert left.decision is Decision.EVICT
