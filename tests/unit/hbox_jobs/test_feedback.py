from dataclasses import replace
from typing import Any

import pytest

from hbox_common.events import DeviceErrorSeen, JobVerdict, PodScore
from hbox_common.model import NodeName, PodUid
from hbox_common.model.annotations import ON_SICK_HARDWARE
from hbox_jobs.core.feedback import POD_EVENTS_S, SELECT_AGAIN_S, UNKNOWN_FIELD, Feedback, Kind, SelectionWrite
from hbox_jobs.core.jobs import Jobs
from hbox_jobs.core.views import GroupCondition, GroupPhase, GroupStatus, PodStatus, PodView
from hbox_jobs.core.volumes import Binding, ClaimView, VolumeUse

from .job_world import BROKEN, group, pod

DELAY_S = 1.0
NEW = GroupStatus()
WHY = "0/3 nodes are available: 3 Insufficient cpu."


class World:
    """The core as its shell drives it."""

    def __init__(self) -> None:
        self.jobs = Jobs(publish_after_s=DELAY_S)
        self.feedback = Feedback(self.jobs)

    def pod(self, new: PodView, now: float = 0.0) -> None:
        old = self.jobs.view(new.uid)
        self.jobs.pod(new, now)
        self.feedback.pod(old, new, now)

    def settle(self, now: float = 0.0) -> None:
        for record in self.jobs.take(now + 10, 1e9).settled:
            self.feedback.settled(record, now)

    def verdict(self, job: str, message: str = WHY, now: float = 0.0, code: str = "", outcome: str = "") -> Any:
        record = self.jobs.verdict(JobVerdict(job=job, message=message, code=code, outcome=outcome), now)
        if record is not None:
            self.feedback.settled(record, now)

    def conditions(self, now: float) -> Any:
        return [(w.name, w.message) for w in self.feedback.conditions(now, 100)]

    def events(self, now: float) -> Any:
        return [(w.kind, w.name, w.reason, w.message) for w in self.feedback.events(now, 100)]

    def status(self, now: float) -> Any:
        return [w.status for w in self.feedback.statuses(now, 100, "now")]


@pytest.fixture
def world() -> Any:
    return World()


@pytest.fixture
def waiting_pod(world: World) -> Any:
    world.pod(pod("a"))
    world.settle()
    world.verdict("uid-a")
    return world


def test_a_pod_is_told_why_it_waits_only_after_it_waited_a_while(waiting_pod: World) -> None:
    assert waiting_pod.conditions(DELAY_S - 0.1) == []
    assert waiting_pod.conditions(DELAY_S) == [("a", WHY)]
    assert waiting_pod.events(DELAY_S) == [(Kind.POD, "a", "FailedScheduling", WHY)]


def test_a_pod_that_got_its_node_meanwhile_is_told_nothing_but_its_success(waiting_pod: World) -> None:
    waiting_pod.pod(pod("a", node="n1"))
    waiting_pod.settle()
    assert waiting_pod.conditions(9.0) == []
    assert waiting_pod.events(9.0) == [(Kind.POD, "a", "Scheduled", "Successfully assigned ml/a to n1")]


def test_events_of_a_gang_and_its_pods_belong_to_one_job(world: World) -> None:
    world.jobs.group(group(min_member=1), 0.0)
    world.pod(pod("a", group="g"))
    world.settle()
    world.pod(pod("a", group="g", node="n1"))
    world.settle()
    written = world.feedback.events(9.0, 100)
    assert {(one.kind, one.job) for one in written} == {(Kind.POD, "uid-g"), (Kind.POD_GROUP, "uid-g")}


@pytest.mark.parametrize(("node", "score"), [("n1", ": score 12, runner-up n2 with 7"), ("n3", "")])
def test_event_of_a_bound_pod_names_the_score_of_its_node(waiting_pod: World, node: str, score: str) -> None:
    waiting_pod.feedback.scored([PodScore(pod_uid=PodUid("uid-a"), node=NodeName("n1"), note="score 12, runner-up n2 with 7")])
    waiting_pod.pod(pod("a", node=node))
    waiting_pod.settle()
    assert waiting_pod.events(9.0) == [(Kind.POD, "a", "Scheduled", f"Successfully assigned ml/a to {node}{score}")]


def test_a_pod_that_says_it_already_is_not_written_again_also_after_a_restart(waiting_pod: World) -> None:
    waiting_pod.pod(pod("a", rv="2", condition_message=WHY))
    assert waiting_pod.conditions(9.0) == []


def test_only_the_newest_text_is_written_and_only_when_it_changed(waiting_pod: World) -> None:
    waiting_pod.verdict("uid-a", "other", now=0.5)
    assert waiting_pod.conditions(DELAY_S) == [("a", "other")]
    waiting_pod.pod(pod("a", rv="2", condition_message="other"))
    waiting_pod.verdict("uid-a", "other", now=2.0)
    assert waiting_pod.conditions(9.0) == []
    waiting_pod.verdict("uid-a", "third", now=9.0)
    (write,) = waiting_pod.feedback.conditions(9.0 + DELAY_S, 9)
    assert (write.message, write.fresh, write.resource_version) == ("third", False, "2")


def test_a_write_that_a_change_of_the_pod_overtook_is_made_again_on_the_new_version(waiting_pod: World) -> None:
    assert waiting_pod.feedback.conditions(DELAY_S, 9)[0].resource_version == "1"
    waiting_pod.pod(pod("a", rv="2"), 2.0)
    assert waiting_pod.feedback.conditions(2.0, 9)[0].resource_version == "2"


def test_a_version_of_a_pod_is_written_on_once(waiting_pod: World) -> None:
    assert waiting_pod.conditions(2.0) == [("a", WHY)]
    # The watch is late: whatever came of the write, another on this version can only conflict.
    waiting_pod.verdict("uid-a", "0/4 nodes are available: 4 Insufficient cpu.", 2.0)
    assert waiting_pod.conditions(9.0) == []
    waiting_pod.pod(replace(pod("a"), resource_version="99"), 9.0)
    assert waiting_pod.conditions(9.0) == [("a", "0/4 nodes are available: 4 Insufficient cpu.")]


def test_a_write_that_failed_is_made_again_with_the_truth_of_then(waiting_pod: World) -> None:
    (write,) = waiting_pod.feedback.conditions(DELAY_S, 9)
    waiting_pod.feedback.again_condition(write, 3.0)
    waiting_pod.verdict("uid-a", "newer", now=2.5)
    assert waiting_pod.conditions(2.5 + DELAY_S) == [("a", "newer")]


def test_a_new_reason_has_to_stand_a_while_and_one_that_changes_all_the_time_is_told_all_the_same(waiting_pod: World) -> None:
    assert waiting_pod.conditions(DELAY_S) == [("a", WHY)]
    waiting_pod.pod(pod("a", rv="2", condition_message=WHY), 2.0)
    waiting_pod.verdict("uid-a", "second", now=2.0)
    assert waiting_pod.conditions(2.9) == []
    waiting_pod.verdict("uid-a", "third", now=2.9)
    assert waiting_pod.conditions(2.0 + DELAY_S) == [("a", "third")]
    assert waiting_pod.events(2.0 + DELAY_S) == [(Kind.POD, "a", "FailedScheduling", "third")]


def test_nothing_is_written_on_a_pod_that_is_being_bound_until_that_came_to_nothing(waiting_pod: World) -> None:
    waiting_pod.feedback.decided([PodUid("uid-a"), PodUid("uid-nobody")], 0.5)
    assert waiting_pod.conditions(9.0) == []
    waiting_pod.feedback.not_bound(PodUid("uid-a"), 9.0)
    waiting_pod.feedback.not_bound(PodUid("uid-nobody"), 9.0)
    assert waiting_pod.conditions(9.0) == [("a", WHY)]


def test_a_decision_whose_outcome_never_comes_silences_a_pod_for_half_a_minute(waiting_pod: World) -> None:
    waiting_pod.feedback.decided([PodUid("uid-a")], 0.5)
    assert waiting_pod.conditions(30.0) == []
    assert waiting_pod.feedback.next_condition() == 30.5
    assert waiting_pod.conditions(30.5) == [("a", WHY)]


def test_a_gang_that_became_complete_is_not_told_that_it_is_too_small(world: World) -> None:
    world.jobs.group(group(min_member=2), 0.0)
    world.pod(pod("a", group="g"))
    world.settle()
    world.verdict("uid-g", "GangIncomplete")
    world.pod(pod("b", group="g"), 0.9)
    for record in world.jobs.take(0.9, 1e9).settled:
        world.feedback.settled(record, 0.9)
    assert world.conditions(1.8) == []
    assert sorted(name for name, _ in world.conditions(1.9)) == ["a", "b"]


def test_a_problem_of_the_job_is_told_without_any_verdict(world: World) -> None:
    world.pod(pod("a", shape=BROKEN))
    world.settle()
    ((name, message),) = world.conditions(20.0)
    assert name == "a"
    assert "nvidia.com/gpumem given without nvidia.com/gpu" in message


IN_USE = "wait: CardsInUse: all fitting cards are in use"
TOO_LARGE = "change: GangTooLarge: the gang is larger than the cluster"


def waiting_gang(world: World, now: float = 0.0) -> None:
    world.jobs.group(group(min_member=2), now)
    world.pod(pod("a", group="g"), now)
    world.pod(pod("b", group="g"), now)
    world.settle(now)


def conditioned(world: World, now: float) -> None:
    """Write the conditions that are due, as the watch then delivers them."""
    for number, (name, message) in enumerate(world.conditions(now)):
        world.pod(pod(name, group="g", rv=f"{now:.0f}{number}", condition_message=message), now)


def test_condition_and_event_name_outcome_and_code(world: World) -> None:
    world.pod(pod("a"))
    world.settle()
    world.verdict("uid-a", code="CardsInUse", outcome="wait")
    assert world.conditions(9.0) == [("a", f"{IN_USE}: {WHY}")]
    assert world.events(9.0) == [(Kind.POD, "a", "FailedScheduling", f"{IN_USE}: {WHY}")]


def test_each_pod_of_a_gang_has_one_event_per_change_of_the_code(world: World) -> None:
    waiting_gang(world)
    world.verdict("uid-g", code="CardsInUse", outcome="wait")
    conditioned(world, 9.0)
    events = world.events(9.0)
    assert events[0] == (Kind.POD_GROUP, "g", "FailedScheduling", f"{IN_USE}: {WHY}")
    assert [(kind, name, note.startswith(f"{IN_USE}. Wait until")) for kind, name, _, note in events[1:]] == [
        (Kind.POD, "a", True),
        (Kind.POD, "b", True),
    ]
    world.verdict("uid-g", "0/4 nodes", 100.0, code="CardsInUse", outcome="wait")
    conditioned(world, 109.0)
    assert [name for _, name, _, _ in world.events(109.0)] == ["g"], "another count is no other code"
    world.verdict("uid-g", "0/4 nodes", 200.0, code="GangTooLarge", outcome="change")
    conditioned(world, 209.0)
    assert [(name, note.startswith(TOO_LARGE)) for _, name, _, note in world.events(209.0)] == [
        ("g", True),
        ("a", True),
        ("b", True),
    ]


def test_events_of_a_gangs_pods_are_a_minute_apart(world: World) -> None:
    waiting_gang(world)
    named = []
    for now, code in ((10.0, "CardsInUse"), (20.0, "GangTooLarge"), (30.0, "CardsInUse"), (40.0, "GangTooLarge")):
        world.verdict("uid-g", now=now, code=code)
        conditioned(world, now + DELAY_S)
        named.append([name for _, name, _, _ in world.events(now + DELAY_S)])
    assert named == [["g", "a", "b"], ["g"], ["g"], ["g"]]
    assert world.events(10.9 + POD_EVENTS_S) == []
    assert [(name, note.startswith(TOO_LARGE)) for _, name, _, note in world.events(11.0 + POD_EVENTS_S)] == [
        ("a", True),
        ("b", True),
    ]


def test_pod_that_got_its_node_has_no_event_of_an_older_code(world: World) -> None:
    waiting_gang(world)
    world.verdict("uid-g", code="CardsInUse")
    conditioned(world, 9.0)
    world.pod(pod("a", group="g", node="n1"), 9.0)
    world.settle(9.0)
    assert [(name, reason) for _, name, reason, _ in world.events(99.0)] == [
        ("a", "Scheduled"),
        ("g", "FailedScheduling"),
        ("b", "FailedScheduling"),
    ]


def test_a_restart_repeats_no_event_of_a_gangs_pods() -> None:
    world = World()
    world.jobs.group(group(min_member=2), 0.0)
    for name in ("a", "b"):
        world.pod(pod(name, group="g", condition_message=f"{IN_USE}: 0/2 nodes"))
    world.settle()
    world.verdict("uid-g", code="CardsInUse", outcome="wait")
    conditioned(world, 9.0)
    assert [name for _, name, _, _ in world.events(9.0)] == ["g"]


def test_gang_waits_with_one_event_on_its_group_and_each_member_has_one_once_scheduled(world: World) -> None:
    world.jobs.group(group(min_member=2), 0.0)
    world.pod(pod("a", group="g"))
    world.pod(pod("b", group="g"))
    world.settle()
    world.verdict("uid-g")
    assert world.conditions(9.0) == [("a", WHY), ("b", WHY)]
    assert world.events(9.0) == [(Kind.POD_GROUP, "g", "FailedScheduling", WHY)]
    world.verdict("uid-g", now=9.0)
    assert world.events(10.0) == []
    world.pod(pod("a", group="g", node="n1"))
    world.settle(10.0)
    assert world.events(10.0) == [(Kind.POD, "a", "Scheduled", "Successfully assigned ml/a to n1")]
    world.pod(pod("b", group="g", node="n1"))
    world.settle(10.0)
    assert world.events(10.0) == [
        (Kind.POD, "b", "Scheduled", "Successfully assigned ml/b to n1"),
        (Kind.POD_GROUP, "g", "Scheduled", "2 of 2 pods have nodes, 2 were needed"),
    ]


def test_pods_found_bound_at_the_start_are_no_news(world: World) -> None:
    world.jobs.group(group(min_member=1), 0.0)
    world.pod(pod("a", group="g", node="n1"))
    world.pod(pod("b", node="n1"))
    world.settle()
    assert world.events(9.0) == []


def gang(world: World, *states: Any, status: Any = NEW, min_member: Any = 2) -> None:
    world.jobs.group(group(min_member=min_member, status=status), 0.0)
    for n, (node, phase) in enumerate(states):
        world.pod(pod(f"p{n}", group="g", node=node, status=phase))
    world.settle()


@pytest.mark.parametrize(
    ("states", "before", "phase"),
    [
        ([], "", "Inqueue"),
        ([("", "Pending")], "Pending", "Inqueue"),
        ([("n1", "Running"), ("", "Pending")], "Inqueue", "Inqueue"),
        ([("n1", "Pending"), ("n1", "Running")], "Inqueue", "Running"),
        ([("n1", "Succeeded"), ("n1", "Running")], "Running", "Running"),
        ([("n1", "Running"), ("", "Pending")], "Running", "Unknown"),
        ([("", "Pending"), ("", "Pending")], "Running", "Inqueue"),
        ([("n1", "Succeeded"), ("n1", "Failed")], "Running", "Completed"),
    ],
)
def test_a_podgroup_goes_through_volcanos_phases(world: World, states: Any, before: Any, phase: Any) -> None:
    gang(world, *states, status=GroupStatus(GroupPhase(before)))
    written = world.status(0.0)
    assert (written[0].phase if written else before) == phase


def test_a_podgroups_status_counts_its_pods(world: World) -> None:
    gang(world, ("n1", "Running"), ("n1", "Succeeded"), ("n1", "Failed"), ("", "Pending"))
    (status,) = world.status(0.0)
    assert (status.running, status.succeeded, status.failed) == (1, 1, 1)


def test_a_podgroup_that_says_it_already_is_not_written(world: World) -> None:
    gang(world, ("n1", "Running"), ("n1", "Running"))
    (status,) = world.status(0.0)
    world.jobs.group(group(min_member=2, status=status), 0.0)
    world.settle()
    assert world.status(0.0) == []


def test_a_waiting_podgroup_gets_its_condition_after_a_while_and_loses_it_when_it_starts(world: World) -> None:
    others = GroupCondition("Theirs", "True", "r", "m", "then")
    gang(world, ("", "Pending"), ("", "Pending"), status=GroupStatus(GroupPhase.INQUEUE, conditions=(others,)))
    world.verdict("uid-g")
    assert world.status(0.0) == []
    (status,) = world.status(DELAY_S)
    assert status.conditions == (others, GroupCondition("Unschedulable", "True", "NotEnoughResources", WHY, "now"))
    world.jobs.group(group(min_member=2, status=status), 2.0)
    world.pod(pod("p0", group="g", node="n1"))
    world.pod(pod("p1", group="g", node="n1"))
    world.settle(2.0)
    (started,) = world.status(2.0)
    assert {c.type: c.status for c in started.conditions} == {"Theirs": "True", "Unschedulable": "False", "Scheduled": "True"}


def test_the_time_of_a_condition_moves_only_with_its_status(world: World) -> None:
    old = GroupCondition("Unschedulable", "True", "NotEnoughResources", "older text", "then")
    gang(world, ("", "Pending"), status=GroupStatus(GroupPhase.INQUEUE, conditions=(old,)))
    world.verdict("uid-g")
    (status,) = world.status(DELAY_S)
    assert status.conditions == (replace(old, message=WHY),)


def test_where_a_pod_was_put_is_not_told_of_one_that_has_left(waiting_pod: World) -> None:
    waiting_pod.pod(pod("a", node="n1"))
    waiting_pod.jobs.pod_gone(PodUid("uid-a"), 1.0)
    assert waiting_pod.events(9.0) == []


def test_a_claim_that_waited_for_its_first_consumer_is_told_the_node_once(world: World) -> None:
    world.jobs.volumes.storage_class("placed", Binding.PLACED)
    world.jobs.volumes.claim("ml/data", ClaimView(storage_class="placed"))
    world.pod(pod("a", volumes=(VolumeUse("data"),)))
    assert world.feedback.selections(1.0, 9) == []
    world.pod(pod("a", volumes=(VolumeUse("data"),), node="n1"))
    assert world.feedback.selections(1.0, 9) == [SelectionWrite(PodUid("uid-a"), "ml", "data", "n1")]
    world.jobs.volumes.claim("ml/data", ClaimView(storage_class="placed", selected="n1"))
    world.pod(pod("a", rv="9", volumes=(VolumeUse("data"),), node="n1"))
    assert world.feedback.selections(2.0, 9) == []


def test_a_claim_that_is_seen_behind_its_pods_node_or_was_given_up_by_its_provisioner_is_told_the_node_after_a_moment(
    world: World,
) -> None:
    write = SelectionWrite(PodUid("uid-a"), "ml", "data", "n1")

    def change(claims: list[str], now: float) -> None:
        world.feedback.claims_changed(claims, now)

    world.pod(pod("a", volumes=(VolumeUse("data"),), node="n1"))
    world.pod(pod("ended", volumes=(VolumeUse("data"),), node="n1", status="Succeeded"))
    world.pod(pod("waits", volumes=(VolumeUse("data"),)))
    change(world.jobs.volumes.claim("ml/data", ClaimView(storage_class="placed")), 0.0)
    assert world.feedback.next_selection() is None, "when its volumes are made is not known yet"
    change(world.jobs.volumes.storage_class("placed", Binding.PLACED), 1.0)
    assert world.feedback.selections(1.0 + SELECT_AGAIN_S - 0.1, 9) == []
    assert world.feedback.selections(1.0 + SELECT_AGAIN_S, 9) == [write]
    change(world.jobs.volumes.claim("ml/data", ClaimView(storage_class="placed", selected="n1")), 10.0)
    assert world.feedback.next_selection() is None
    change(world.jobs.volumes.claim("ml/data", ClaimView(storage_class="placed")), 20.0)
    assert world.feedback.selections(20.0 + SELECT_AGAIN_S, 9) == [write]
    change(world.jobs.volumes.claim("ml/data", ClaimView(storage_class="placed", volume="v", bound=True)), 30.0)
    assert world.feedback.next_selection() is None


# Members that leave, members that nobody may place, members of others.

GATES = (
    "SchedulingGated: {} scheduling gates, and the gang lacks {} of the 2 that it needs; they wait until the gates are removed"
)


def test_who_waits_for_volcanos_scheduler_to_open_its_gate_is_told_what_to_do(world: World) -> None:
    world.jobs.group(group(min_member=2, status=GroupStatus(GroupPhase.INQUEUE)), 0.0)
    world.pod(pod("a", group="g", gated=True))
    world.pod(pod("b", group="g", gated=True, queue_gate=True))
    world.settle()
    assert [verdict.message for verdict in world.jobs.verdicts()] == [
        "SchedulingGated: 2 pods have scheduling gates, and the gang lacks 2 of the 2 that it needs; no controller removes "
        "scheduling.volcano.sh/queue-allocation-gate while HBox schedules: create the pods without that annotation"
    ]
    world.pod(pod("b", group="g", gated=True, rv="2"), 100.0)
    world.settle(100.0)
    assert [verdict.message for verdict in world.jobs.verdicts()] == [GATES.format("2 pods have", 2)]


def test_a_group_stays_running_while_a_member_takes_its_time_to_end(world: World) -> None:
    world.jobs.group(group(min_member=2, status=GroupStatus(GroupPhase.RUNNING, 2)), 0.0)
    world.pod(pod("a", group="g", node="n1", status="Running"))
    world.pod(pod("b", group="g", node="n1", status="Running", deleting=True))
    world.settle()
    (status,) = world.status(1.0)
    assert (status.phase, status.running) == (GroupPhase.RUNNING, 1)
    world.jobs.pod_gone(PodUid("uid-b"), 2.0)
    world.settle(2.0)
    assert [status.phase for status in world.status(9.0)] == [GroupPhase.UNKNOWN]


def test_a_group_of_one_stays_running_until_its_pod_is_gone(world: World) -> None:
    world.jobs.group(group(min_member=1, status=GroupStatus(GroupPhase.RUNNING, 1)), 0.0)
    world.pod(pod("a", group="g", node="n1", status="Running", deleting=True))
    world.settle()
    assert [status.phase for status in world.status(1.0)] == [GroupPhase.RUNNING]


def test_a_group_of_which_one_leaves_and_one_has_finished_is_not_completed_yet(world: World) -> None:
    world.jobs.group(group(min_member=1, status=GroupStatus(GroupPhase.RUNNING, 1)), 0.0)
    world.pod(pod("a", group="g", node="n1", status="Running", deleting=True))
    world.pod(pod("b", group="g", node="n1", status="Succeeded"))
    world.settle()
    assert [status.phase for status in world.status(1.0)] == [GroupPhase.RUNNING]


def test_who_waits_to_take_the_place_of_a_member_that_leaves_is_told_why(world: World) -> None:
    world.jobs.group(group(min_member=1, status=GroupStatus(GroupPhase.RUNNING, 1)), 0.0)
    world.pod(pod("a", group="g", node="n1", status="Running", deleting=True))
    world.pod(pod("b", group="g"))
    world.settle()
    world.verdict("uid-g")
    (status,) = world.status(9.0)
    assert status.phase is GroupPhase.RUNNING
    assert [(c.type, c.status, c.message) for c in status.conditions] == [("Unschedulable", "True", WHY)]


def test_a_gang_that_is_being_made_is_not_told_that_it_is_too_small_while_pods_come(world: World) -> None:
    world.jobs.group(group(min_member=4, created_at=90.0), 0.0)
    world.settle()
    for number in range(3):
        came = 0.6 * number
        world.pod(pod(f"a{number}", group="g", created_at=90.0 + came), came)
        world.settle(came)
        assert world.conditions(came) == world.events(came) == []
        world.verdict("uid-g", f"GangIncomplete {number}", came)
    assert world.conditions(1.1 + DELAY_S) == []
    names = {name for name, _ in world.conditions(1.2 + DELAY_S)}
    assert names == {"a0", "a1", "a2"}
    assert [reason for _, _, reason, _ in world.events(1.2 + DELAY_S)] == ["FailedScheduling"]


def test_a_gang_that_loses_and_gets_pods_all_the_time_is_told_all_the_same(world: World) -> None:
    world.jobs.group(group(min_member=4, created_at=90.0), 0.0)
    world.settle()
    condition_message = []
    for number in range(4):
        came = 0.6 * number
        world.pod(pod(f"a{number}", group="g", created_at=150.0 + came), came)
        world.settle(came)
        condition_message += world.conditions(came)
        world.verdict("uid-g", f"GangIncomplete {number}", came)
        world.jobs.pod_gone(PodUid(f"uid-a{number - 1}"), came)
    assert condition_message


def test_a_gang_whose_pods_have_gates_is_told_so_and_no_more_once_they_have_none(world: World) -> None:
    world.jobs.group(group(min_member=2, status=GroupStatus(GroupPhase.INQUEUE)), 0.0)
    world.pod(pod("a", group="g", gated=True))
    world.pod(pod("b", group="g", gated=True))
    world.settle()
    why = GATES.format("2 pods have", 2)
    line = f"wait: SchedulingGated: pods have scheduling gates: {why.removeprefix('SchedulingGated: ')}"
    assert world.events(99.0) == [(Kind.POD_GROUP, "g", "FailedScheduling", line)]
    (status,) = world.status(99.0)
    assert [(c.type, c.status, c.message) for c in status.conditions] == [("Unschedulable", "True", line)]
    assert [verdict.message for verdict in world.jobs.verdicts()] == [why]
    world.pod(pod("a", group="g", rv="2"), 100.0)
    world.settle(100.0)
    world.verdict("uid-g", "GangIncomplete", 100.0)
    assert [verdict.message for verdict in world.jobs.verdicts()] == [GATES.format("1 pod has", 1)]
    world.pod(pod("b", group="g", rv="2"), 200.0)
    world.settle(200.0)
    world.verdict("uid-g", WHY, 200.0)
    assert [verdict.message for verdict in world.jobs.verdicts()] == [WHY]


def test_a_group_whose_pods_are_anothers_is_left_to_that_scheduler(world: World) -> None:
    world.jobs.group(group(min_member=1), 0.0)
    world.pod(pod("a", group="g", ours=False))
    world.settle()
    assert world.status(9.0) == []
    world.pod(pod("b", group="g"))
    world.settle()
    assert [status.phase for status in world.status(9.0)] == [GroupPhase.INQUEUE]
    world.jobs.pod_gone(PodUid("uid-b"), 9.0)
    world.settle(9.0)
    assert world.status(99.0) == []
    world.jobs.pod_gone(PodUid("uid-a"), 9.0)
    world.settle(9.0)
    assert [status.phase for status in world.status(99.0)] == [GroupPhase.INQUEUE]
    world.jobs.validate()


def test_pod_refused_by_its_kubelet_gets_an_event(world: World) -> None:
    bound = replace(pod("a"), node=NodeName("n1"), resource_version="2")
    world.pod(bound)
    world.feedback.events(1.0, 100)
    failed = replace(bound, resource_version="3", status=PodStatus.FAILED, refusal="UnexpectedAdmissionError: no NVML")
    world.pod(failed, 1.0)
    world.pod(replace(failed, resource_version="4"), 2.0)
    assert world.events(3.0) == [
        (Kind.POD, "a", "FailedAllocation", "the kubelet of node n1 refused it: UnexpectedAdmissionError: no NVML")
    ]


def test_of_a_pod_that_failed_before_this_process_nothing_is_said_again(world: World) -> None:
    world.pod(replace(pod("a"), node=NodeName("n1"), status=PodStatus.FAILED, refusal="UnexpectedAdmissionError"))
    assert world.events(3.0) == []


def test_unknown_fields_of_a_podgroup_are_named_once_in_an_event(world: World) -> None:
    wrong = "spec.minMembers: unknown field, ignored; did you mean spec.minMember?"

    def seen(*unknown: str, uid: str = "uid-g", **fields: Any) -> list[str]:
        world.jobs.group(group(uid=uid, unknown_fields=unknown, **fields), 0.0)
        world.settle()
        return [said for kind, _, reason, said in world.events(0.0) if (kind, reason) == (Kind.POD_GROUP, UNKNOWN_FIELD)]

    assert seen(wrong) == [wrong]
    assert seen(wrong, min_member=3) == []
    assert seen(wrong, "spec.colour: unknown field, ignored") == [f"{wrong}; spec.colour: unknown field, ignored"]
    assert seen() == []
    assert seen(wrong) == [wrong]
    assert seen(wrong, uid="another") == [wrong]


def test_an_unknown_policy_for_sick_hardware_is_named_in_an_event_of_the_podgroup_or_of_a_pod_without_one(world: World) -> None:
    notes = {ON_SICK_HARDWARE: "restrat"}
    text = "annotation hbox.io/on-sick-hardware is 'restrat', ignored; it may be restart, checkpoint, shrink, ignore"
    world.jobs.group(group(annotations=notes), 0.0)
    world.pod(pod("member", group="g", annotations=notes))
    world.pod(pod("alone", annotations=notes))
    world.pod(pod("right", annotations={ON_SICK_HARDWARE: "ignore"}))
    world.settle()
    found = [(kind, name, note) for kind, name, reason, note in world.events(0.0) if reason == UNKNOWN_FIELD]
    assert sorted(found) == [(Kind.POD, "alone", text), (Kind.POD_GROUP, "g", text)]


def test_a_fault_of_a_pods_hardware_is_an_event_of_that_pod(world: World) -> None:
    world.pod(pod("a"))
    [announced] = world.jobs.take(10.0, 1e9).pending
    seen = DeviceErrorSeen(
        node=NodeName("n0"), incident="i1", pod="ml/a", job=announced.id, card="gpu:GPU-0", code="94", message="xid 94"
    )
    world.feedback.device_error(seen, 1.0)
    assert world.events(1.0) == [(Kind.POD, "a", "DeviceError", "xid 94 (incident i1)")]
    world.feedback.device_error(seen.model_copy(update={"pod": "ml/gone"}), 2.0)
    assert world.events(2.0) == []
