"""Rules of remedies: when a verb is decided, and what its results mean."""

import pytest

from hbox_common.model import IncidentState, NodeName
from hbox_common.model.healthorder import Exemption
from hbox_common.model.remedy import Decision, Outcome, Verb
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.finding import Action, Severity
from hbox_health.core.judge.happenings import Exempted, Maintenance, NodeSeen, OperatorCloses, Remedied, Remedy, Tick
from hbox_health.core.judge.memory import MOST_DECISIONS
from hbox_health.remedying import decisions_of

from .incident_world import GPU, OTHER, World, finding, lost, pod, reset

N0 = NodeName("n0")


@pytest.fixture
def world() -> World:
    world = World()
    world.nodes(40)
    world.pods()
    return world


def decided(world: World, node: str = "n0") -> list[str]:
    """What node-remedy may execute now."""
    return [one.id for one in decisions_of(world.engine.dump().nodes[node], expires=0.0)]


def answer(world: World, outcome: Outcome, *holders: str, place: int = -1) -> None:
    asked = world.sent(Remedy)[place]
    world.step(Remedied(asked.node, asked.entity, asked.verb, outcome, holders, asked.decision))


def test_a_decision_has_one_id_until_its_result(world: World) -> None:
    world.record(reset())
    [asked] = world.sent(Remedy)
    assert decided(world) == [Decision(world.only().id, GPU, Verb.RESET, 1, 0.0).id] == [asked.decision]
    world.after(3600)
    answer(world, Outcome.BEGUN)
    assert decided(world) == [asked.decision]
    answer(world, Outcome.DONE)
    assert decided(world) == []


def test_a_repeated_result_counts_once(world: World) -> None:
    world.record(reset())
    for outcome in (Outcome.BEGUN, Outcome.FAILED, Outcome.BEGUN, Outcome.FAILED):
        answer(world, outcome, place=0)
    assert [one.verb for one in world.sent(Remedy)] == ["reset", "reset"]
    assert [one.attempt for one in world.sent(Remedy)] == [1, 2]


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.FAILED])
def test_a_late_result_opens_nothing_and_counts_once_among_the_resets_of_its_card(world: World, outcome: Outcome) -> None:
    world.record(reset())
    world.step(OperatorCloses(N0))
    for late in (Outcome.BEGUN, outcome, outcome):
        answer(world, late)
    assert [(verb, of) for _, verb, of in world.engine.dump().nodes["n0"].repairs] == [("reset", GPU)]
    assert not world.open()


def test_a_late_refusal_and_a_result_of_no_decision_of_ours_count_for_nothing(world: World) -> None:
    world.record(reset())
    world.step(OperatorCloses(N0))
    answer(world, Outcome.REFUSED)
    world.step(Remedied(N0, GPU, Verb.RESET, Outcome.DONE, (), "n0-1-1.reset.1"))
    assert world.engine.dump().nodes["n0"].repairs == []


def test_a_result_that_is_delivered_again_after_the_next_decision_counts_once(world: World) -> None:
    world.record(reset())
    answer(world, Outcome.DONE)
    world.after(60)
    world.record(reset())
    answer(world, Outcome.DONE, place=0)
    assert world.engine.dump().nodes["n0"].repairs == [(world.now - 60, "reset", GPU)]
    assert decided(world) == [world.sent(Remedy)[1].decision]


def test_the_memory_of_decisions_is_bounded(world: World) -> None:
    for _ in range(MOST_DECISIONS + 2):
        world.record(reset())
        answer(world, Outcome.REFUSED)
        world.after(301)
    assert len(world.engine.dump().nodes["n0"].decisions) == MOST_DECISIONS


@pytest.mark.parametrize(("action", "verb"), [(Action.LOAD_MODULE, "load-module"), (Action.RESTART_FM, "restart-fm")])
def test_a_fix_that_the_node_refuses_does_not_count_and_is_requested_again(world: World, action: Action, verb: str) -> None:
    world.state("units", finding(action, "node", kind="unit", code="nvidia-fabricmanager", severity=Severity.MISCONFIGURED))
    world.after(61)
    for times in range(1, 6):
        assert [one.verb for one in world.sent(Remedy)] == [verb] * times
        answer(world, Outcome.REFUSED)
        assert world.engine.dump().nodes["n0"].repairs == []
        world.after(301)


def test_a_refused_reset_is_requested_again_after_five_minutes(world: World) -> None:
    world.record(reset())
    answer(world, Outcome.REFUSED, "7 dcgm")
    assert (decided(world), world.only().held_by) == ([], ("7 dcgm",))
    world.after(299)
    assert decided(world) == []
    world.after(2)
    assert len(decided(world)) == 1
    assert world.only().held_by == ()


def test_a_reboot_waits_for_the_cordon() -> None:
    world = World(obey=False)
    world.nodes(40)
    world.pods()
    world.record(lost())
    assert (decided(world), world.only().held_by) == ([], ("cordon",))
    world.cordoned.add("n0")
    world.seen()
    assert len(decided(world)) == 1


def test_a_reboot_that_fails_twice_is_a_ticket(world: World) -> None:
    world.record(lost())
    answer(world, Outcome.FAILED)
    assert decided(world) == []
    world.after(301)
    assert [one.attempt for one in world.sent(Remedy)] == [1, 2]
    answer(world, Outcome.FAILED)
    world.after(3600)
    assert decided(world) == []
    assert (world.only().action, world.only().why) == (Action.TICKET, "the reboot failed 2 times")


def test_a_boot_ends_a_requested_reset(world: World) -> None:
    world.record(reset())
    world.boots("b2")
    assert decided(world) == []
    assert world.only().state is IncidentState.VALIDATING
    world.record(reset(code="95"), boot="b2")
    assert [one.attempt for one in world.sent(Remedy)] == [1, 2]
    assert len(decided(world)) == 1


def test_a_node_that_reboots_has_no_other_remedy(world: World) -> None:
    world.record(lost())
    world.record(reset(OTHER))
    assert [one.rpartition(".")[0].rpartition(".")[2] for one in decided(world)] == ["reboot"]
    assert [one.held_by for one in world.open() if one.entity == OTHER] == [("remedy",)]


def test_two_instances_of_a_card_are_one_reset(world: World) -> None:
    parts = {"mig:M1": GPU, "mig:M2": GPU}
    world.step(NodeSeen(N0, (GPU, OTHER, *parts), parts))
    world.record(reset("mig:M1"))
    world.record(reset("mig:M2"))
    assert [one.entity for one in world.sent(Remedy)] == [GPU]
    answer(world, Outcome.DONE)
    assert {one.state for one in world.open()} == {IncidentState.VALIDATING}


def test_what_an_exemption_or_a_maintenance_holds_back_may_not_begin_and_keeps_its_id(world: World) -> None:
    world.record(reset())
    [before] = decided(world)
    world.step(Maintenance(N0, world.now + 600))
    assert decided(world) == []
    world.after(601)
    assert decided(world) == [before]
    world.step(Exempted(Exemption("ops", "a test", world.now + 600, node=N0)))
    assert decided(world) == []
    world.after(601)
    assert decided(world) == [before]


def test_nothing_is_decided_in_a_maintenance(world: World) -> None:
    world.pods(pod())
    world.record(reset())
    world.step(Maintenance(N0, world.now + 600))
    world.pods()
    assert decided(world) == []
    assert ["maintenance" in one.held_by for one in world.open() if one.kind == "card"] == [True]
    world.after(601)
    assert len(decided(world)) == 1


def test_a_remedy_that_does_not_begin_is_named(world: World) -> None:
    world.record(reset())
    world.after(59)
    assert world.only().held_by == ()
    world.after(2)
    assert world.only().held_by == ("node-remedy",)
    answer(world, Outcome.BEGUN)
    assert world.only().held_by == ()


def test_a_fabric_manager_that_cannot_be_restarted_ends_work_on_several_cards(world: World) -> None:
    failed = finding(Action.RESTART_FM, "node", kind="unit", code="nvidia-fabricmanager", severity=Severity.MISCONFIGURED)
    world.state("units", failed)
    world.after(61)
    assert [one.verb for one in world.sent(Remedy)] == ["restart-fm"]
    answer(world, Outcome.FAILED)
    assert not world.verdict().multi_gpu
    assert decided(world) == []


@pytest.mark.parametrize(
    ("action", "verb"),
    [(Action.ACS_OFF, "acs-off"), (Action.LOAD_MODULE, "load-module"), (Action.RESTART_DEVICE_PLUGIN, "restart-device-plugin")],
)
def test_a_remedy_that_disturbs_no_pod_is_decided_while_pods_run(world: World, action: Action, verb: str) -> None:
    world.pods(pod("p0", GPU))
    world.state("units", finding(action, "node", kind="acs", code="on", severity=Severity.MISCONFIGURED))
    assert [(one.entity, one.verb) for one in world.sent(Remedy)] == [("node", verb)]


def test_verbs_that_are_disabled_later_are_withdrawn(world: World) -> None:
    world.record(reset())
    later = World(Policies(verbs=frozenset(), validator=True), world.engine.dump(), now=world.now)
    later.step(Tick())
    assert decided(later) == []


def test_an_idle_card_that_no_remedy_of_ours_resets_is_confirmed_and_names_the_next_step() -> None:
    world = World(Policies(validator=True))
    world.nodes(40)
    world.pods(pod("ns/p1", GPU))
    world.record(reset())
    assert world.only().state is IncidentState.DRAINING
    world.pods()
    assert (world.only().state, world.only().action, world.only().held_by) == (IncidentState.CONFIRMED, "reset", ("remedy",))
    assert "reset it by hand" in world.only().why
    world.pods(pod("ns/p1", GPU))
    assert (world.only().state, "by hand" in world.only().why) == (IncidentState.DRAINING, False)


def test_an_idle_node_that_no_remedy_of_ours_reboots_is_confirmed_and_names_the_next_step() -> None:
    world = World(Policies(validator=True))
    world.nodes(40)
    world.pods()
    world.record(lost())
    [incident] = world.engine.dump().nodes["n0"].open.values()
    assert incident.published is not None
    assert (incident.published.state, incident.published.held_by) == (IncidentState.CONFIRMED, ("remedy",))
    assert "reboot it by hand" in incident.published.why
