"""Active steps of the check of what was repaired: DCGM's diagnostics, and the operator's Job."""

import json
from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from hbox_common.health.gatejob import GateJob, JobOutcome
from hbox_common.model import IncidentState, StepResult
from hbox_common.model.remedy import REPAIRS, Outcome, Verb
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.gate import LATE_S, LONGEST_S, UNAVAILABLE_S, gate_jobs
from hbox_health.core.judge.happenings import (
    AgentSeen,
    JobObserved,
    JobsSeen,
    Maintenance,
    OperatorAccepts,
    OperatorCloses,
    PodOnCards,
    Remedied,
    Remedy,
    Tick,
)
from hbox_health.core.judge.incidents import Incidents
from hbox_health.core.judge.memory import Memory
from hbox_health.remedying import decisions_of

from .test_joining import CARDS, N0, Box

CARD, UUID = CARDS[0], "GPU-0"
MANIFEST = json.dumps(
    {"apiVersion": "batch/v1", "kind": "Job", "spec": {"activeDeadlineSeconds": 300, "template": {"spec": {}}}}
)
BOTH = Policies(verbs=REPAIRS | {Verb.DIAGNOSE}, job=MANIFEST, validated_s=60.0)
JOB_ALONE = replace(BOTH, verbs=REPAIRS)
POD = PodOnCards("ns/p", "ns/j", "q", (CARD,))


class Gate(Box):
    """A card that was reset, and whose states are good again."""

    def repaired(self) -> None:
        self.joins()
        self.breaks()
        self.resets()

    def joins(self) -> None:
        """The node has worked before an operator enabled the steps."""
        self.engine.use(replace(self.policies, verbs=REPAIRS, job=""))
        self.starts()
        self.after(30)
        self.engine.use(self.policies)

    def breaks(self) -> None:
        self.card(CARD, recovery_action=1)

    def resets(self) -> None:
        asked = [one for one in self.sent(Remedy) if one.verb is Verb.RESET][-1]
        for outcome in (Outcome.BEGUN, Outcome.DONE):
            self.step(Remedied(N0, CARD, Verb.RESET, outcome, decision=asked.decision))
        self.after(31)
        self.card(CARD)

    @property
    def diagnosis(self) -> Remedy | None:
        """The decision of diagnostics that is valid now."""
        found = decisions_of(self.engine.dump().nodes["n0"], expires=self.now + 60)
        ids = {one.id for one in found if one.verb is Verb.DIAGNOSE}
        return next((one for one in reversed(self.sent(Remedy)) if one.decision in ids), None)

    @property
    def jobs(self) -> list[GateJob]:
        return list(gate_jobs(self.engine.dump().nodes["n0"], self.policies.job))

    def diagnosed(self, outcome: Outcome, text: str = "", *, begun: bool = True) -> None:
        asked = self.diagnosis
        assert asked is not None
        if begun:
            self.step(Remedied(N0, asked.entity, Verb.DIAGNOSE, Outcome.BEGUN, decision=asked.decision))
        self.step(Remedied(N0, asked.entity, Verb.DIAGNOSE, outcome, decision=asked.decision, text=text))

    def observed(self, outcome: JobOutcome, text: str = "", *, job: str = "") -> None:
        self.step(JobObserved(N0, job or self.jobs[0].id, outcome, text))

    def succeeds(self) -> None:
        self.observed(JobOutcome.STARTED)
        self.observed(JobOutcome.SUCCEEDED)

    @property
    def steps(self) -> list[tuple[str, StepResult, int]]:
        last = list(self.incidents.values())[-1]
        return [(step.name, step.result, step.attempt) for step in last.steps]


def gate(policies: Policies = BOTH) -> Gate:
    box = Gate(policies)
    box.repaired()
    return box


def test_a_repaired_card_returns_after_diagnostics_and_the_job_have_passed() -> None:
    box = gate()
    asked = box.diagnosis
    assert asked is not None
    assert (asked.entity, asked.boot_id) == (CARD, "b1")
    assert box.jobs == []
    box.diagnosed(Outcome.DONE, "3 results are good")
    assert box.diagnosis is None
    [job] = box.jobs
    assert (job.entity, job.cards, job.deadline_s, job.attempt) == (CARD, (UUID,), 300, 1)
    box.after(100)
    assert box.verdict().cards == (CARD,), "the Job runs"
    box.succeeds()
    assert not box.open()
    assert box.verdict().cards == ()
    assert box.steps == [("diagnostics", StepResult.PASSED, 1), ("job", StepResult.PASSED, 1)]
    assert box.jobs == []


def test_steps_that_pass_early_do_not_shorten_the_time_without_a_new_fault() -> None:
    box = gate(JOB_ALONE)
    box.succeeds()
    assert box.only().state is IncidentState.VALIDATING
    box.after(60)
    assert not box.open()


def test_a_gate_without_steps_is_as_before() -> None:
    box = gate(Policies(verbs=REPAIRS, validated_s=60.0))
    assert (box.diagnosis, box.jobs) == (None, [])
    box.after(60)
    assert not box.open()


def test_no_step_begins_before_the_facts_are_good() -> None:
    box = Gate(BOTH)
    box.joins()
    box.breaks()
    asked = box.sent(Remedy)[-1]
    for outcome in (Outcome.BEGUN, Outcome.DONE):
        box.step(Remedied(N0, CARD, Verb.RESET, outcome, decision=asked.decision))
    box.after(31)
    assert (box.diagnosis, box.jobs) == (None, [])
    assert ("diagnostics", StepResult.WAITING, 0) in box.steps


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.SKIPPED])
def test_diagnostics_that_a_node_does_not_have_are_skipped_and_recorded(outcome: Outcome) -> None:
    box = gate(replace(BOTH, job=""))
    box.after(61)
    box.diagnosed(outcome, "DCGM is not installed on the node", begun=outcome is Outcome.DONE)
    assert not box.open()
    [step] = list(box.incidents.values())[-1].steps
    assert (step.result, step.text, step.at) == (
        StepResult.SKIPPED if outcome is Outcome.SKIPPED else StepResult.PASSED,
        "DCGM is not installed on the node",
        box.now,
    )


def test_a_node_without_node_remedy_skips_diagnostics_after_a_while() -> None:
    box = gate(replace(BOTH, job=""))
    box.after(UNAVAILABLE_S - 1)
    assert "node-remedy" in box.only().held_by
    assert box.verdict().cards == (CARD,)
    box.after(2)
    assert not box.open()
    assert box.steps == [("diagnostics", StepResult.SKIPPED, 1)]


def test_diagnostics_that_began_are_waited_for() -> None:
    box = gate(replace(BOTH, job=""))
    asked = box.diagnosis
    assert asked is not None
    box.step(Remedied(N0, CARD, Verb.DIAGNOSE, Outcome.BEGUN, decision=asked.decision))
    box.after(UNAVAILABLE_S + 100)
    assert box.verdict().cards == (CARD,)
    assert "check: diagnostics is running" in box.only().held_by


def test_diagnostics_that_begin_and_never_end_are_asked_for_again() -> None:
    box = gate(replace(BOTH, job=""))
    asked = box.diagnosis
    assert asked is not None
    box.step(Remedied(N0, CARD, Verb.DIAGNOSE, Outcome.BEGUN, decision=asked.decision))
    box.after(LONGEST_S + 1)
    assert "check: diagnostics is waiting, refused: node-remedy reported no end within 4 h" in box.only().held_by
    box.after(box.policies.retry_s + 1)
    assert box.steps == [("diagnostics", StepResult.RUNNING, 2)]
    assert box.verdict().cards == (CARD,)


def test_a_node_that_is_silent_skips_no_diagnostics() -> None:
    """As while the broker is away: nothing is known about its node-remedy."""
    box = gate(replace(BOTH, job=""))
    box.step(AgentSeen(N0, box.boot, heartbeat=True))
    box.after(UNAVAILABLE_S + 100)
    assert box.verdict().cards == (CARD,)
    [incident] = [one for one in box.open() if one.kind == "card"]
    assert "node-remedy" in incident.held_by
    box.step(AgentSeen(N0, box.boot, heartbeat=True))
    box.after(10)
    assert box.verdict().cards == ()


@pytest.mark.parametrize("policies", [replace(BOTH, job=""), JOB_ALONE])
def test_results_of_the_time_without_health_monitor_are_read_before_a_step_counts_as_late(policies: Policies) -> None:
    box = gate(policies)
    asked, jobs = box.diagnosis, box.jobs
    if asked is None:
        box.observed(JobOutcome.STARTED)
    box.now += 24 * 3600
    box.engine = Incidents(box.policies, box.engine.assess, box.engine.dump(), box.now)
    box.step(AgentSeen(N0, box.boot, heartbeat=True))
    box.card(CARD)
    box.after(1)
    if asked is not None:
        for outcome in (Outcome.BEGUN, Outcome.FAILED):
            box.step(Remedied(N0, CARD, Verb.DIAGNOSE, outcome, decision=asked.decision))
        assert box.verdict().cards == (CARD,)
    else:
        box.observed(JobOutcome.SUCCEEDED, job=jobs[0].id)
        assert not box.open()


def test_nothing_returns_while_the_files_of_an_operator_are_unread_since_the_start() -> None:
    box = gate(JOB_ALONE)
    box.observed(JobOutcome.STARTED)
    job = box.jobs[0].id
    box.engine.use(replace(JOB_ALONE, job="", unread="gate-job.yaml: template: a mapping is expected"))
    box.after(600)
    assert box.verdict().cards == (CARD,)
    assert "rules" in box.only().held_by
    box.observed(JobOutcome.SUCCEEDED, job=job)
    box.engine.use(JOB_ALONE)
    box.step(Tick())
    assert not box.open()


def test_failed_diagnostics_are_a_failed_reset_with_the_tests_as_evidence() -> None:
    box = gate()
    box.diagnosed(Outcome.FAILED, "memory (GPU 3): 8 bytes differ")
    assert box.only().state is not IncidentState.VALIDATING
    assert box.verdict().cards == (CARD,)
    [step] = [one for one in box.only().steps if one.result is StepResult.FAILED]
    assert step.text == "memory (GPU 3): 8 bytes differ"
    assert any("8 bytes differ" in line for line in box.only().evidence)
    resets = [one for one in box.sent(Remedy) if one.verb is Verb.RESET]
    assert len(resets) == 2, "as after a reset that failed"
    box.after(10)
    assert box.verdict().cards == (CARD,), "its states are good, and it has failed its check"
    box.resets()
    asked = box.diagnosis
    assert asked is not None
    assert asked.attempt == 2, "a later attempt has an id of its own"
    box.diagnosed(Outcome.FAILED, "memory (GPU 3): 8 bytes differ")
    assert any(one.action == "reboot" for one in box.open())


def test_refused_diagnostics_wait_and_are_named() -> None:
    box = gate()
    box.diagnosed(Outcome.REFUSED, "processes have the card open", begun=False)
    assert any("diagnostics is waiting" in held and "processes have the card open" in held for held in box.only().held_by)
    assert box.diagnosis is None
    box.after(box.policies.retry_s)
    assert box.diagnosis is not None


def test_a_job_that_fails_is_tried_again_and_the_last_failure_is_a_failed_repair() -> None:
    box = gate(JOB_ALONE)
    box.observed(JobOutcome.STARTED)
    first = box.jobs[0]
    box.observed(JobOutcome.FAILED, "BackoffLimitExceeded")
    [second] = box.jobs
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.name != second.name
    box.after(200)
    assert box.verdict().cards == (CARD,), "it returns only after a success"
    box.observed(JobOutcome.FAILED, job=first.id)
    assert box.jobs == [second], "a result of an earlier attempt counts for nothing"
    box.observed(JobOutcome.STARTED)
    box.observed(JobOutcome.FAILED, "BackoffLimitExceeded")
    assert box.jobs == []
    assert box.only().state is not IncidentState.VALIDATING
    assert len([one for one in box.sent(Remedy) if one.verb is Verb.RESET]) == 2


def test_a_job_that_fails_once_and_then_succeeds_returns_the_card() -> None:
    box = gate(JOB_ALONE)
    box.after(61)
    box.observed(JobOutcome.STARTED)
    box.observed(JobOutcome.FAILED, "DeadlineExceeded")
    assert box.verdict().cards == (CARD,)
    box.succeeds()
    assert not box.open()
    assert box.steps == [("job", StepResult.FAILED, 1), ("job", StepResult.PASSED, 2)]


def test_a_job_that_the_binder_does_not_create_is_named_and_fails_nothing() -> None:
    box = gate(JOB_ALONE)
    box.after(3600)
    assert "binder" in box.only().held_by
    box.observed(JobOutcome.REFUSED, "the binder may not create Jobs")
    assert any("may not create Jobs" in held for held in box.only().held_by)
    assert box.jobs == []
    box.after(box.policies.retry_s)
    assert box.jobs[0].attempt == 2
    assert len([one for one in box.sent(Remedy) if one.verb is Verb.RESET]) == 1


def test_a_job_without_a_result_fails_after_its_deadline() -> None:
    box = gate(JOB_ALONE)
    box.observed(JobOutcome.STARTED)
    box.after(300 + LATE_S - 1)
    assert box.jobs[0].attempt == 1
    box.after(2)
    assert box.jobs[0].attempt == 2


def test_no_step_begins_while_a_pod_uses_the_card_and_neighbours_do_not_matter() -> None:
    box = Gate(JOB_ALONE)
    box.joins()
    box.breaks()
    box.resets()
    box.step(JobsSeen(N0, (replace(POD, cards=(CARDS[1],)),)))
    assert len(box.jobs) == 1, "the pod is on another card"
    busy = Gate(replace(JOB_ALONE, policy=POD.policy))
    busy.joins()
    busy.breaks()
    asked = busy.sent(Remedy)[-1]
    for outcome in (Outcome.BEGUN, Outcome.DONE):
        busy.step(Remedied(N0, CARD, Verb.RESET, outcome, decision=asked.decision))
    busy.after(31)
    busy.step(JobsSeen(N0, (POD,)))
    busy.card(CARD)
    assert busy.jobs == []
    assert any("pods that use the hardware" in held for held in busy.only().held_by)
    busy.step(JobsSeen(N0, ()))
    assert len(busy.jobs) == 1


def test_a_new_fault_withdraws_what_runs() -> None:
    box = gate()
    before = box.diagnosis
    box.breaks()
    assert [before is None, box.diagnosis is None] == [False, True]
    other = gate(JOB_ALONE)
    assert len(other.jobs) == 1
    other.breaks()
    assert other.jobs == []
    assert other.verdict().cards == (CARD,)


def test_a_boot_ends_what_runs_and_it_is_tried_again_on_the_new_boot() -> None:
    box = gate(JOB_ALONE)
    box.observed(JobOutcome.STARTED)
    box.starts(boot="b2")
    assert [one.attempt for one in box.jobs] == [2]


def test_one_step_runs_on_a_node_at_a_time() -> None:
    box = gate(JOB_ALONE)
    box.card(CARDS[1], recovery_action=1)
    asked = [one for one in box.sent(Remedy) if one.entity == CARDS[1]][-1]
    for outcome in (Outcome.BEGUN, Outcome.DONE):
        box.step(Remedied(N0, CARDS[1], Verb.RESET, outcome, decision=asked.decision))
    box.after(31)
    box.card(CARDS[1])
    assert [one.entity for one in box.jobs] == [CARD]
    box.succeeds()
    box.after(11)
    assert [one.entity for one in box.jobs] == [CARDS[1]]


def test_a_maintenance_ends_with_the_steps_on_all_cards() -> None:
    box = Gate(BOTH)
    box.joins()
    box.step(Maintenance(N0, box.now + 100, "power supply"))
    box.after(101)
    assert not box.verdict().node
    asked = box.diagnosis
    assert asked is not None
    assert asked.entity == "node"
    box.diagnosed(Outcome.SKIPPED, begun=False)
    assert box.jobs[0].cards == tuple(card.removeprefix("gpu:") for card in CARDS)
    box.after(70)
    assert not box.verdict().node
    box.succeeds()
    assert box.verdict().node
    assert not box.open()


def test_a_failed_job_after_a_maintenance_keeps_the_node_closed_as_a_ticket() -> None:
    box = Gate(replace(JOB_ALONE, job_attempts=1))
    box.joins()
    box.step(Maintenance(N0, box.now + 100, "power supply"))
    box.after(101)
    box.observed(JobOutcome.STARTED)
    box.observed(JobOutcome.FAILED, "BackoffLimitExceeded")
    box.after(3600)
    assert not box.verdict().node
    assert box.only().why == "job failed after maintenance: BackoffLimitExceeded"
    box.step(OperatorCloses(N0))
    assert box.verdict().node


def test_a_step_outlives_a_restart_with_its_id() -> None:
    box = gate(JOB_ALONE)
    [job] = box.jobs
    box.observed(JobOutcome.STARTED)
    later = Gate.__new__(Gate)
    later.__dict__.update(box.__dict__)

    stored = TypeAdapter(Memory)
    memory = stored.validate_json(stored.dump_json(box.engine.dump()))
    later.engine = Incidents(box.policies, box.engine.assess, memory, box.now)
    assert later.jobs == [job]
    later.after(61)
    later.observed(JobOutcome.SUCCEEDED)
    assert not later.open()


def test_a_job_that_is_configured_no_more_is_withdrawn() -> None:
    box = gate(JOB_ALONE)
    box.after(61)
    box.engine.use(replace(JOB_ALONE, job=""))
    box.after(1)
    box.step(JobObserved(N0, "x", JobOutcome.FAILED))
    assert not box.open()


def test_a_node_whose_job_fails_after_a_reboot_stays_closed() -> None:
    box = Gate(replace(JOB_ALONE, job_attempts=1))
    box.joins()
    box.card(CARD, every_call=15)
    assert [one.verb for one in box.sent(Remedy)] == ["reboot"]
    box.starts(boot="b2")
    assert box.jobs[0].entity == "node"
    box.observed(JobOutcome.STARTED)
    box.observed(JobOutcome.FAILED, "BackoffLimitExceeded")
    box.after(3600)
    assert not box.verdict().node, "the states that were bad are good"
    assert box.only().action == "ticket"
    assert len(box.sent(Remedy)) == 1


# --- nodes that join


def joined(policies: Policies = JOB_ALONE, *, cards: int = 8) -> Gate:
    box = Gate(policies)
    box.starts(cards)
    return box


def test_a_new_node_takes_no_work_before_its_job_has_passed() -> None:
    box = joined()
    assert not box.verdict().node
    assert "n0" in box.cordoned
    assert box.jobs == [], "its cards and links are still counted"
    box.after(21)
    assert box.only().kind == "new-node"
    box.observed(JobOutcome.STARTED)
    box.observed(JobOutcome.FAILED, "BackoffLimitExceeded")
    assert not box.verdict().node
    box.succeeds()
    assert box.verdict().node
    assert not box.open()
    assert box.cordoned == set()
    box.starts(boot="b2")
    box.after(60)
    assert box.verdict().node, "it is not new any more"


def test_a_new_node_whose_job_fails_stays_closed_until_an_operator_closes_the_incident() -> None:
    box = joined(replace(JOB_ALONE, job_attempts=1))
    box.after(21)
    box.observed(JobOutcome.STARTED)
    box.observed(JobOutcome.FAILED, "BackoffLimitExceeded")
    box.after(3600)
    assert not box.verdict().node
    assert box.only().why == "job failed after new-node: BackoffLimitExceeded"
    box.step(OperatorCloses(N0))
    box.after(60)
    assert box.verdict().node
    assert not box.open()


def test_a_new_node_that_lacks_a_card_is_checked_once_it_is_accepted() -> None:
    box = joined(cards=7)
    box.after(60)
    assert box.jobs == []
    box.step(OperatorAccepts(N0))
    assert len(box.jobs) == 1
    box.succeeds()
    assert box.verdict().node


def test_new_nodes_are_within_no_limit_of_the_breaker() -> None:
    box = joined()
    assert box.engine.dump().breaker.restricted == {}
    assert box.verdict().ordered


@pytest.mark.parametrize("labels", [{}, {"hbox.io/profile": "H100"}])
def test_a_node_that_runs_pods_or_has_no_profile_is_not_new(labels: dict[str, str]) -> None:
    box = Gate(JOB_ALONE)
    box.seen(labels=labels)
    if labels:
        box.step(JobsSeen(N0, (POD,)))
    box.starts()
    box.after(60)
    assert box.verdict().node
    assert not box.open()
