"""Exemptions, maintenance and closing by an operator."""

import pytest

from hbox_common.model import Incident, IncidentState, NodeName
from hbox_common.model.healthorder import Exemption
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.finding import Action
from hbox_health.core.judge.happenings import (
    Cordon,
    EvictGang,
    Exempted,
    ExemptionEnds,
    Found,
    Maintenance,
    OperatorCloses,
    PodOnCards,
    Scopes,
    Uncordon,
    Validated,
)

from .incident_world import GPU, OTHER, World, finding, lost, pod, port_down, reset

N0 = NodeName("n0")
CLOSED = Scopes(node=False)


@pytest.fixture
def world() -> World:
    world = World()
    world.nodes(10)
    return world


def of(job: str, card: str) -> PodOnCards:
    return pod(f"{job}-0", card, job=job)


def maintained(world: World, *, for_s: float = 7200, node: str = "n0") -> None:
    world.step(Maintenance(NodeName(node), world.now + for_s, "maintenance by ann: new PSU"))


def last(world: World) -> Incident:
    return list(world.incidents.values())[-1]


def test_maintenance_closes_the_node_and_every_job_on_it_leaves(world: World) -> None:
    world.pods(of("a", GPU), of("b", OTHER))
    maintained(world)
    assert world.cordoned == {"n0"}
    assert (world.verdict().node, world.verdict().cards) == (False, ())
    assert [effect.job for effect in world.sent(EvictGang)] == ["a", "b"]
    assert world.only().state is IncidentState.DRAINING
    assert (world.only().blame, world.only().why) == ("operator", "maintenance by ann: new PSU")
    world.pods()
    assert world.only().state is IncidentState.CONFIRMED


def test_maintenance_of_many_nodes_is_neither_limited_nor_counted_by_the_breaker(world: World) -> None:
    for index in range(6):
        world.pods(of(f"job-{index}", GPU), node=f"n{index}")
        maintained(world, node=f"n{index}")
    assert len(world.cordoned) == 6
    assert len(world.sent(EvictGang)) == 6
    world.record(lost(), node="n8")
    world.record(lost(), node="n9")
    assert {"n8", "n9"} <= world.cordoned


def test_maintenances_that_end_together_leave_the_breaker_its_room(world: World) -> None:
    for index in range(6):
        maintained(world, node=f"n{index}", for_s=60)
    world.after(61)
    world.obey = False  # the nodes are uncordoned, and do not show it yet
    for index in range(6):
        world.step(Validated(NodeName(f"n{index}"), "node", passed=True))
    world.record(lost(), node="n8")
    assert not world.verdict("n8").node


@pytest.mark.parametrize("early", [False, True], ids=["by-its-time", "by-the-operator"])
def test_a_node_is_checked_when_its_maintenance_ends(world: World, early: bool) -> None:
    maintained(world)
    if early:
        world.step(Maintenance(N0, 0))
    else:
        world.after(7201)
    assert world.only().state is IncidentState.VALIDATING
    assert not world.verdict().node
    world.step(Validated(N0, "node", passed=True))
    assert last(world).state is IncidentState.CLOSED
    assert (world.verdict(), world.cordoned) == (Scopes(), set())


def test_a_node_that_fails_the_check_after_its_maintenance_stays_closed(world: World) -> None:
    maintained(world)
    world.after(7201)
    world.step(Validated(N0, "node", passed=False))
    assert (world.only().state, world.only().action, world.verdict().node) == (IncidentState.CONFIRMED, "ticket", False)
    maintained(world)
    world.after(7201)
    assert world.only().state is IncidentState.VALIDATING


def test_no_fault_opens_an_incident_during_maintenance_and_a_boot_does_not_end_it(world: World) -> None:
    maintained(world)
    world.record(lost())
    world.state("port", port_down())
    world.boots("b2")
    world.after(7000)
    assert [one.kind for one in world.incidents.values()] == ["maintenance"]
    assert not world.verdict().node


def test_an_extended_maintenance_ends_at_the_later_time(world: World) -> None:
    maintained(world)
    world.after(7000)
    maintained(world)
    world.after(7000)
    assert world.only().state is IncidentState.CONFIRMED
    world.after(300)
    assert world.only().state is IncidentState.VALIDATING


def test_an_exemption_of_a_node_does_not_keep_its_maintenance_back(world: World) -> None:
    world.step(Exempted(Exemption("ann", "known", world.now + 9e5, node="n0")))
    maintained(world)
    assert world.cordoned == {"n0"}


def test_an_uncordon_by_hand_ends_the_maintenance_and_mutes_no_later_one(world: World) -> None:
    maintained(world)
    world.cordoned.clear()
    world.seen()
    assert last(world).state is IncidentState.CLOSED
    world.record(lost())
    assert len(world.incidents) == 2
    world.step(OperatorCloses(N0))
    maintained(world)
    assert not world.verdict().node


def test_maintenance_of_a_node_that_was_cordoned_by_hand_leaves_that_cordon(world: World) -> None:
    world.seen(unschedulable=True, ours=False)
    world.pods(of("a", GPU))
    maintained(world, for_s=60)
    assert [effect.job for effect in world.sent(EvictGang)] == ["a"]
    world.pods()
    world.after(61)
    world.step(Validated(N0, "node", passed=True))
    assert not world.sent(Cordon)
    assert not world.sent(Uncordon)


def test_a_closed_incident_is_the_named_one_alone_and_its_state_stays_muted_for_a_day(world: World) -> None:
    world.state("card", reset())
    world.record(reset(OTHER))
    [of_state] = [one for one in world.incidents.values() if one.entity == GPU]
    world.step(OperatorCloses(N0, incident=of_state.id))
    assert world.incidents[of_state.id].state is IncidentState.CLOSED
    assert world.verdict().cards == (OTHER,)
    world.state("card", reset())
    world.after(86_000)
    assert world.verdict().cards == (OTHER,)
    world.after(1000)
    assert world.verdict().cards == (GPU, OTHER)


def test_an_exemption_ends_when_an_operator_ends_it(world: World) -> None:
    for id_, node in (("e1", "n0"), ("e2", "n1")):
        world.step(Exempted(Exemption("ann", "known", world.now + 9e5, node=node, id=id_)))
        world.record(lost(), node=node)
    assert not world.cordoned
    world.step(ExemptionEnds("e1"))
    assert world.cordoned == {"n0"}


def test_exemptions_are_stored_without_any_other_change(world: World) -> None:
    world.engine.changed()
    world.step(Exempted(Exemption("ann", "known", world.now + 9e5, node="n0", id="e1")))
    assert "" in world.engine.changed()
    world.step(ExemptionEnds("e1"))
    assert "" in world.engine.changed()


def test_a_maintenance_without_a_check_ends_after_the_quiet_time() -> None:
    world = World(policies=Policies(validated_s=600))
    world.nodes(1)
    maintained(world)
    world.after(7201)
    world.after(590)
    assert world.verdict() != Scopes()
    world.after(20)
    assert world.verdict() == Scopes()


def test_a_fault_that_outlives_the_maintenance_opens_its_own_incident(world: World) -> None:
    maintained(world)
    world.step(Found(N0, "", (finding(Action.RESET, code="recovery"),), "card"))
    world.after(7201)
    world.step(Validated(N0, "node", passed=True))
    assert world.verdict().cards == (GPU,)
