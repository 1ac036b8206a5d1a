"""Rules of incidents, one by one."""

import copy

import pytest

from hbox_common.model import IncidentState, NodeName
from hbox_common.model.healthorder import Exemption
from hbox_common.model.remedy import REPAIRS, Outcome, Verb
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.finding import Action, Blame, Scope, Severity
from hbox_health.core.judge.happenings import (
    AgentSeen,
    Cordon,
    EvictGang,
    Exempted,
    HoldersStopped,
    JobEnded,
    Maintenance,
    OperatorCloses,
    Policy,
    Remedied,
    Remedy,
    Scopes,
    TellOwner,
    Uncordon,
    Validated,
    Waiting,
)

from .incident_world import GPU, OTHER, RECOVERY, World, finding, lost, of_program, pod, port_down, reset

N0 = NodeName("n0")


@pytest.fixture
def world() -> World:
    world = World()
    world.nodes(40)
    return world


def repair(world: World, entity: str = GPU, *, passed: bool = True) -> None:
    for outcome in (Outcome.BEGUN, Outcome.DONE):
        world.step(Remedied(N0, entity, Verb.RESET, outcome))
        world.after(30)
    world.step(Validated(N0, entity, passed))


def verbs(world: World) -> list[str]:
    return [remedy.verb for remedy in world.sent(Remedy)]


# --- states


def test_a_card_fault_isolates_the_card_alone_and_ends_after_reset_and_check(world: World) -> None:
    world.pods(pod())
    world.record(reset())
    assert world.only().state is IncidentState.DRAINING
    assert world.verdict() == Scopes(cards=(GPU,), incidents=(world.only().id,))
    assert not world.sent(Cordon)
    assert not world.sent(Remedy), "a pod still uses the card"
    world.pods()
    assert (verbs(world), world.only().state) == (["reset"], IncidentState.REPAIRING)
    repair(world)
    assert not world.open()
    assert world.verdict() == Scopes()


def test_a_code_with_a_recovery_action_waits_for_it_two_seconds(world: World) -> None:
    world.record(reset(), wait=2.0)
    world.after(1.9)
    assert world.only().state is IncidentState.SUSPECT
    assert world.verdict() == Scopes()
    world.after(0.2)
    assert world.verdict().cards == (GPU,)


def test_the_recovery_action_decides_over_the_catalogue(world: World) -> None:
    world.record(reset(), wait=2.0)
    world.record(finding(Action.DRAIN_AND_RESET, code="154", severity=Severity.DEGRADED, authority=RECOVERY))
    assert world.only().action == Action.DRAIN_AND_RESET or world.only().code == "154"
    assert world.only().code == "154"
    assert world.only().severity == Severity.FATAL_GPU, "the severity stays that of the worst"


def test_a_burst_is_one_incident_with_the_worst_code(world: World) -> None:
    for found in (finding(Action.WATCH, code="92", severity=Severity.DEGRADED), reset(code="119"), lost(), reset(code="48")):
        world.record(found)
    assert (world.only().code, world.only().entity) == ("79", "node")
    assert len(world.sent(Cordon)) == 1


def test_lost_cards_of_a_node_are_one_incident(world: World) -> None:
    world.record(lost(GPU))
    world.record(lost(OTHER))
    assert world.only().kind == "node-fault"
    assert world.verdict().cards == (GPU, OTHER)
    assert len(world.sent(Cordon)) == 1


def test_reasons_of_one_node_end_separately(world: World) -> None:
    world.pods()
    world.record(reset())
    world.state("port", port_down())
    world.after(240)
    assert world.verdict().rails_off == ("rail:mlx5_0",)
    repair(world)
    assert [incident.entity for incident in world.open()] == ["rail:mlx5_0"]
    assert world.verdict().rails_off == ("rail:mlx5_0",)
    assert world.verdict().cards == ()


def test_two_reasons_of_one_card_end_separately(world: World) -> None:
    world.record(finding(Action.ISOLATE_GPU, code="recovery-action-99"))
    world.record(finding(Action.REPLACE, kind="nvml", code="remap-failure"))
    world.boots("b2")
    assert world.only().action == Action.REPLACE
    assert world.verdict().cards == (GPU,)


def test_a_reason_taken_back_waits_for_a_check(world: World) -> None:
    world.record(finding(Action.RESET, code="154", authority=RECOVERY))
    world.record(finding(Action.CLOSE_REASON, code="154", severity=Severity.NONE, authority=RECOVERY))
    assert world.only().state is IncidentState.VALIDATING
    assert world.verdict().cards == (GPU,)
    world.step(Validated(N0, GPU, passed=True))
    assert world.verdict() == Scopes()


def test_a_fault_during_the_check_starts_anew(world: World) -> None:
    world.pods()
    world.record(reset())
    for outcome in (Outcome.BEGUN, Outcome.DONE):
        world.step(Remedied(N0, GPU, Verb.RESET, outcome))
    world.after(31)
    world.record(reset(code="95"))
    world.step(Validated(N0, GPU, passed=True))
    assert world.only().state in {IncidentState.CONFIRMED, IncidentState.REPAIRING}
    assert world.verdict().cards == (GPU,)


def test_without_a_validator_ten_quiet_minutes_are_the_check() -> None:
    world = World(Policies(verbs=REPAIRS))
    world.nodes(1)
    world.pods()
    world.record(reset())
    world.step(Remedied(N0, GPU, Verb.RESET, Outcome.DONE))
    world.after(599)
    assert world.only().state is IncidentState.VALIDATING
    world.after(2)
    assert world.verdict() == Scopes()


def test_a_pending_remap_admits_new_work_and_is_reset_when_the_card_is_idle(world: World) -> None:
    world.pods(pod())
    world.record(finding(Action.RESET_WHEN_IDLE, code="63", severity=Severity.DEGRADED))
    assert world.verdict() == Scopes()
    assert not world.sent(EvictGang)
    world.pods()
    assert verbs(world) == ["reset"]
    assert world.verdict().cards == (GPU,), "nothing starts on it while it is reset"


def test_a_contained_error_isolates_its_card_and_evicts_no_job(world: World) -> None:
    world.pods(pod(), pod("ns/p2", OTHER, job="ns/j2"))
    world.record(finding(Action.NOTIFY_OWNER, code="94", severity=Severity.DEGRADED))
    assert world.verdict().cards == (GPU,)
    assert not world.sent(EvictGang)
    assert [sent.pod for sent in world.sent(TellOwner)] == ["ns/p1"]
    world.pods(pod("ns/p2", OTHER, job="ns/j2"))
    assert verbs(world) == ["reset"]


def test_a_card_whose_users_are_unknown_is_not_reset(world: World) -> None:
    world.record(reset())
    assert world.only().state is IncidentState.DRAINING
    assert not verbs(world)


def test_an_unknown_code_is_reported_and_changes_nothing(world: World) -> None:
    world.pods()
    world.record(finding(Action.REPORT, code="999", severity=Severity.UNKNOWN, blame=Blame.UNKNOWN))
    assert (world.only().action, world.verdict()) == (Action.REPORT, Scopes())
    world.after(86_500)
    assert not world.open()


def test_a_disabled_verb_is_named_and_not_requested() -> None:
    world = World(Policies(verbs=frozenset()))
    world.nodes(1)
    world.pods()
    world.record(reset())
    assert world.only().held_by == ("remedy",)
    assert not world.sent(Remedy)


# --- boots and repetitions


def test_a_record_counts_once_however_often_it_is_reported(world: World) -> None:
    world.pods()
    world.record(reset(), identity="kmsg-7")
    repair(world)
    world.after(60)
    world.record(reset(), identity="kmsg-7")
    assert not world.open()
    assert verbs(world) == ["reset"]


def test_a_report_of_an_earlier_boot_is_ignored(world: World) -> None:
    world.boots("b1")
    world.boots("b2")
    world.record(lost(), boot="b1")
    assert not world.incidents
    assert world.engine.stale == 1


def test_a_new_boot_ends_what_a_boot_cures_and_requires_a_check(world: World) -> None:
    world.pods()
    world.record(lost())
    assert verbs(world) == ["reboot"]
    world.boots("b2")
    assert world.only().state is IncidentState.VALIDATING
    assert "n0" in world.cordoned
    world.step(Validated(N0, "node", passed=True))
    assert not world.open()
    assert "n0" not in world.cordoned


def test_a_new_boot_does_not_end_what_only_hands_end(world: World) -> None:
    world.record(finding(Action.REPLACE, kind="nvml", code="remap-failure"))
    world.boots("b2")
    world.boots("b3")
    assert world.only().action == Action.REPLACE
    assert world.verdict().cards == (GPU,)


def test_the_third_reset_of_a_card_within_a_week_is_a_ticket(world: World) -> None:
    world.pods()
    for code in ("48", "95"):
        world.record(reset(code=code))
        repair(world)
        world.after(86_400)
    world.record(reset(code="64"))
    assert verbs(world) == ["reset", "reset"]
    assert world.only().action == Action.TICKET
    assert world.verdict().cards == (GPU,)


def test_resets_older_than_a_week_do_not_count(world: World) -> None:
    world.pods()
    for code in ("48", "95", "64"):
        world.record(reset(code=code))
        repair(world)
        world.after(4 * 86_400)
    assert verbs(world) == ["reset"] * 3


def test_the_second_reboot_for_a_card_within_a_week_is_a_ticket(world: World) -> None:
    world.pods()
    world.record(lost())
    world.boots("b2")
    world.step(Validated(N0, "node", passed=True))
    world.record(lost(), boot="b2")
    assert verbs(world) == ["reboot"]
    assert world.only().action == Action.TICKET
    assert "n0" in world.cordoned


def test_a_reset_that_fails_twice_becomes_a_reboot(world: World) -> None:
    world.pods()
    world.record(reset())
    world.step(Remedied(N0, GPU, Verb.RESET, Outcome.FAILED))
    assert verbs(world) == ["reset", "reset"]
    world.step(Remedied(N0, GPU, Verb.RESET, Outcome.FAILED))
    assert verbs(world) == ["reset", "reset", "reboot"]
    assert world.only().kind == "node-fault"


def test_a_refused_reset_waits_for_the_holders_and_is_no_failure(world: World) -> None:
    world.pods()
    world.record(reset())
    world.step(Remedied(N0, GPU, Verb.RESET, Outcome.REFUSED, ("dcgm",)))
    assert (world.only().state, world.only().held_by) == (IncidentState.DRAINING, ("dcgm",))
    world.step(HoldersStopped(N0, GPU))
    assert verbs(world) == ["reset", "reset"]


def test_our_reset_and_a_maintenance_open_no_incident(world: World) -> None:
    world.step(Remedied(N0, GPU, Verb.RESET, Outcome.BEGUN))
    world.record(lost())
    world.record(reset(code="119"))
    world.step(Remedied(N0, GPU, Verb.RESET, Outcome.DONE))
    assert not world.incidents
    world.after(60)
    world.step(Maintenance(N0, world.now + 7200))
    world.record(lost())
    world.state("port", port_down())
    world.after(7000)
    assert [one.kind for one in world.incidents.values()] == ["maintenance"]
    world.step(Validated(N0, "node", passed=True))
    world.after(200 + 241)
    assert {one.entity for one in world.incidents.values()} == {"node", "rail:mlx5_0"}, (
        "a state that outlives the maintenance counts"
    )


# --- debounce


@pytest.mark.parametrize(("down", "isolated"), [(239.0, False), (240.0, True)])
def test_a_port_is_down_after_four_minutes(world: World, down: float, isolated: bool) -> None:
    world.state("port", port_down())
    world.after(down)
    assert bool(world.verdict().rails_off) is isolated


def test_a_port_that_flaps_is_isolated_for_twelve_quiet_hours(world: World) -> None:
    for _ in range(3):
        world.state("port", port_down())
        world.after(25)
        world.state("port")
        world.after(600)
    assert world.verdict().rails_off == ("rail:mlx5_0",)
    world.after(12 * 3600 - 700)
    assert world.verdict().rails_off == ("rail:mlx5_0",)
    world.after(200)
    assert world.verdict() == Scopes()


def test_short_flaps_do_not_count(world: World) -> None:
    for _ in range(9):
        world.state("port", port_down())
        world.after(24)
        world.state("port")
        world.after(60)
    assert not world.open()


def test_a_port_returns_after_ten_clean_minutes(world: World) -> None:
    world.state("port", port_down())
    world.after(300)
    world.state("port")
    world.after(599)
    assert world.verdict().rails_off
    world.after(1)
    assert world.verdict() == Scopes()


# --- several nodes


def test_more_than_three_nodes_of_a_leaf_are_one_incident_of_the_switch(world: World) -> None:
    for index in range(3):
        world.state("port", port_down(), node=f"n{index}", group="switch:leaf-1")
    assert not any(incident.entity == "switch:leaf-1" for incident in world.incidents.values())
    world.state("port", port_down(), node="n3", group="switch:leaf-1")
    world.after(3600)
    assert [(i.entity, i.action) for i in world.incidents.values() if i.state is not IncidentState.CLOSED] == [
        ("switch:leaf-1", Action.TICKET)
    ]
    assert not world.cordoned
    assert world.verdict("n0").rails_off, "the rails are down, whoever is at fault"
    for index in range(4):
        world.state("port", node=f"n{index}")
    world.after(601)
    assert not world.open("")
    assert world.verdict("n0") == Scopes()


def test_the_incident_of_a_group_lists_members_that_join_later(world: World) -> None:
    for index in range(5):
        world.state("port", port_down(), node=f"n{index}", group="switch:leaf-1")
    assert world.only("").evidence == ("n0", "n1", "n2", "n3", "n4")


def test_one_silent_agent_is_reported_after_five_minutes_and_drains_nothing(world: World) -> None:
    world.step(AgentSeen(N0, "b1"))
    world.pods(pod())
    world.after(301)
    assert (world.only().kind, world.only().action) == ("agent-silent", Action.REPORT)
    assert world.verdict() == Scopes()
    assert not world.sent(EvictGang)
    world.step(AgentSeen(N0, "b1"))
    assert not world.open()


def test_silent_agents_of_many_nodes_are_one_incident_of_the_control_plane(world: World) -> None:
    for index in range(30):
        world.step(AgentSeen(NodeName(f"n{index}"), "b1"))
    world.after(3600)
    current = [i for i in world.incidents.values() if i.state is not IncidentState.CLOSED]
    assert [(i.entity, i.action) for i in current] == [("control-plane", Action.REPORT)]
    assert not world.cordoned


# --- blame


def test_faults_of_a_program_go_to_its_owner_once(world: World) -> None:
    world.pods(pod())
    for _ in range(5):
        world.record(of_program())
        world.after(60)
    assert [(sent.job, sent.code) for sent in world.sent(TellOwner)] == [("ns/j1", "31")]
    assert world.verdict() == Scopes()
    assert [i.entity for i in world.incidents.values()] == ["job:ns/j1"]
    world.step(JobEnded("ns/j1"))
    assert not world.open("")


def test_a_card_is_suspected_when_jobs_of_two_queues_fault_on_it(world: World) -> None:
    world.pods(pod())
    world.record(of_program())
    world.after(3600)
    world.pods(pod("ns/p2", job="ns/j2", queue="q1"))
    world.record(of_program())
    world.after(3600)
    assert not world.open(), "two jobs of one queue may share a program"
    world.pods(pod("ns/p3", job="ns/j3", queue="q2"))
    world.record(of_program())
    world.after(60)
    assert (world.only().action, world.only().blame) == (Action.RUN_DIAGNOSTICS, Blame.HARDWARE)
    assert world.verdict() == Scopes()


def test_faults_of_two_queues_a_day_apart_suspect_nothing(world: World) -> None:
    world.pods(pod())
    world.record(of_program())
    world.after(24 * 3600 + 1)
    world.pods(pod("ns/p3", job="ns/j3", queue="q2"))
    world.record(of_program())
    world.after(60)
    assert not world.open()


def test_a_job_that_faults_on_many_cards_is_no_evidence_against_any(world: World) -> None:
    for index, (job, queue) in enumerate((("ns/a", "q1"), ("ns/b", "q2"))):
        for node in ("n0", "n1", "n2"):
            world.pods(pod(f"ns/{index}-{node}", GPU, OTHER, job=job, queue=queue), node=node)
            world.record(of_program(), of_program(OTHER), node=node)
        world.after(3600)
    assert not any(world.open(node) for node in ("n0", "n1", "n2"))


def test_errors_after_a_cancelled_job_notify_no_owner(world: World) -> None:
    world.pods(pod())
    world.step(JobEnded("ns/j1"))
    world.record(of_program(code="43"))
    assert not world.sent(TellOwner)


# --- jobs


def test_restart_evicts_the_gang_at_the_verdict(world: World) -> None:
    world.pods(pod(policy=Policy.RESTART), pod("ns/p2", OTHER, job="ns/j2"))
    world.record(reset())
    assert [(e.job, e.deadline) for e in world.sent(EvictGang)] == [("ns/j1", 0.0)]


def test_checkpoint_gives_notice_and_evicts_at_the_deadline(world: World) -> None:
    world.pods(pod(policy=Policy.CHECKPOINT, deadline_s=900.0))
    world.record(reset())
    asked = world.now
    world.after(899)
    assert [e.deadline for e in world.sent(EvictGang)] == [asked + 900]
    world.after(1)
    assert [e.deadline for e in world.sent(EvictGang)] == [asked + 900, 0.0]


def test_ignore_leaves_the_job_alone_and_waits(world: World) -> None:
    world.pods(pod(policy=Policy.IGNORE))
    world.record(reset())
    world.after(86_400)
    assert not world.sent(EvictGang)
    assert not verbs(world)


def test_neighbours_of_a_lost_card_get_notice_before_the_reboot(world: World) -> None:
    world.pods(pod(), pod("ns/p2", OTHER, job="ns/j2"))
    world.record(lost())
    assert [(e.job, e.deadline > world.now) for e in world.sent(EvictGang)] == [("ns/j1", False), ("ns/j2", True)]
    world.after(3600)
    assert [e.job for e in world.sent(EvictGang) if e.deadline == 0.0] == ["ns/j1", "ns/j2"]


# --- breaker, exemptions, hands


def test_no_more_nodes_than_the_limit_are_restricted_and_the_rest_waits_visibly(world: World) -> None:
    for index in range(10):
        world.record(lost(), node=f"n{index}")
    world.after(3600)
    assert len(world.cordoned) == 2, "two, or 5 % of 40 nodes"
    assert len(world.sent(Waiting)[-1].nodes) == 8
    assert all(world.verdict(f"n{index}").cards == (GPU,) for index in range(10)), "cards are isolated all the same"
    assert world.only("n9").held_by == ("breaker",)
    first = min(world.cordoned)
    world.pods(node=first)
    world.boots("b2", first)
    world.step(Validated(NodeName(first), "node", passed=True))
    assert len(world.cordoned) == 2, "the breaker closes by itself: the next of the queue follows"
    assert first not in world.cordoned


def test_at_most_a_fifth_of_a_unit_is_restricted() -> None:
    world = World()
    world.nodes(400)
    for index in range(10):
        world.units[f"n{index}"] = "u1"
        world.seen(f"n{index}")
    for index in range(4):
        world.record(lost(), node=f"n{index}")
    assert len(world.cordoned) == 2


def test_new_restrictions_are_limited_within_ten_minutes() -> None:
    world = World()
    world.nodes(200)
    for index in range(10):
        world.record(lost(), node=f"n{index}")
    assert len(world.cordoned) == 4, "2 % of 200"
    world.after(601)
    assert len(world.cordoned) == 8


def test_evictions_are_limited_within_ten_minutes(world: World) -> None:
    for index in range(6):
        world.pods(pod(f"ns/p{index}", job=f"ns/j{index}"), node=f"n{index}")
        world.record(reset(), node=f"n{index}")
    assert len(world.sent(EvictGang)) == 2
    world.after(601)
    assert len(world.sent(EvictGang)) == 4


def test_an_exemption_records_and_does_nothing_until_it_ends(world: World) -> None:
    world.step(Exempted(Exemption("alice", "spare parts ordered", world.now + 3600, node="n0", code="79")))
    world.record(lost())
    assert world.only().held_by == ("exemption",)
    assert world.verdict() == Scopes()
    world.record(lost(), node="n1")
    assert world.cordoned == {"n1"}
    world.after(3601)
    assert "n0" in world.cordoned


def test_a_cordon_by_hand_is_neither_repeated_nor_taken_away(world: World) -> None:
    world.seen(unschedulable=True, ours=False)
    world.pods()
    world.record(lost())
    world.boots("b2")
    world.step(Validated(N0, "node", passed=True))
    world.after(3600)
    assert not world.sent(Cordon)
    assert not world.sent(Uncordon)


def test_an_uncordon_by_hand_mutes_its_reason_and_no_other(world: World) -> None:
    world.record(lost())
    world.cordoned.clear()
    world.seen()
    world.after(3600)
    assert len(world.sent(Cordon)) == 1
    assert world.verdict().cards == (GPU,), "the lost card takes no work all the same"
    world.record(
        finding(Action.CORDON, "node", kind="filesystem", code="read-only", severity=Severity.FATAL_NODE, scope=Scope.NODE)
    )
    assert len(world.sent(Cordon)) == 2


def test_a_late_uncordon_of_ours_does_not_cancel_a_new_fault() -> None:
    world = World(obey=False)
    world.nodes(1)
    world.pods()
    world.record(lost())
    world.seen(unschedulable=True, ours=True)
    world.boots("b2")
    world.step(Validated(N0, "node", passed=True))
    world.record(
        finding(Action.CORDON, "node", kind="filesystem", code="read-only", severity=Severity.FATAL_NODE, scope=Scope.NODE),
        boot="b2",
    )
    cordons = len(world.sent(Cordon))
    world.seen(unschedulable=False, ours=False)
    assert len(world.sent(Cordon)) == cordons + 1


def test_a_cordon_without_effect_is_requested_again() -> None:
    world = World(obey=False)
    world.nodes(1)
    world.record(lost())
    world.after(59)
    assert len(world.sent(Cordon)) == 1
    world.after(1)
    assert len(world.sent(Cordon)) == 2


def test_what_an_operator_closes_does_not_open_again_by_itself(world: World) -> None:
    world.state(
        "joins", finding(Action.CORDON, "node", kind="joins", code="short", severity=Severity.FATAL_NODE, scope=Scope.NODE)
    )
    assert "n0" in world.cordoned
    world.step(OperatorCloses(N0))
    world.state(
        "joins", finding(Action.CORDON, "node", kind="joins", code="short", severity=Severity.FATAL_NODE, scope=Scope.NODE)
    )
    assert "n0" not in world.cordoned
    assert not world.open()


# --- memory


def test_an_engine_that_loads_a_dump_repeats_nothing(world: World) -> None:
    world.pods(pod())
    world.record(lost())
    world.state("port", port_down(), node="n1")
    world.after(100)
    later = World(memory=copy.deepcopy(world.engine.dump()), now=world.now, cordoned=set(world.cordoned))
    assert [type(effect) for effect in later.after(0.0)] == []
    later.state("port", port_down(), node="n1")
    assert not later.incidents
    later.after(140)
    assert later.verdict("n1").rails_off == ("rail:mlx5_0",)


def test_a_step_back_of_the_clock_is_ignored(world: World) -> None:
    world.state("port", port_down())
    world.after(200)
    world.now -= 10_000
    world.state("port", port_down())
    world.now += 10_000
    world.after(40)
    assert world.verdict().rails_off == ("rail:mlx5_0",)


def test_a_report_without_news_is_not_reviewed(world: World) -> None:
    world.step(AgentSeen(N0, "b1"))
    world.engine.changed()
    world.after(10)
    assert world.step(AgentSeen(N0, "b1")) == []
    assert world.engine.changed() == set()


def test_a_job_that_leaves_for_two_reasons_counts_once_among_the_evictions() -> None:
    world = World()
    world.nodes(10)
    world.pods(pod("ns/p1", GPU, OTHER))
    world.record(reset(GPU))
    world.record(reset(OTHER))
    world.after(120)
    assert len(world.engine.dump().breaker.evicted) == 1
    assert {card for one in world.engine.dump().nodes["n0"].open.values() for card in one.leaving} == {GPU, OTHER}


def test_pods_that_left_are_forgotten_and_a_successor_counts_again() -> None:
    world = World(Policies(validator=True))
    world.nodes(200)
    world.record(reset(GPU))
    for number in range(3):
        world.pods(pod(f"ns/p{number}", GPU, job=f"ns/j{number}"))
        world.pods()
    [incident] = world.engine.dump().nodes["n0"].open.values()
    assert (incident.evicted, incident.notified) == ({}, [])
    assert len(world.engine.dump().breaker.evicted) == 3
