"""A job is withdrawn and comes back under its id, as a PodGroup whose pods are made again: answers to plans for what it was before concern nobody.

Drawing: one node [4/4] of `low` (4); `high` wants 4."""

from dataclasses import replace

import pytest

from hbox_common.events import Plan, PlanAnswer
from hbox_common.model import (
    Claim,
    ClaimState,
    Epoch,
    Index,
    Job,
    JobId,
    PodRef,
    PodUid,
    Queue,
    QueueName,
    RefusalReason,
    SchedulerId,
)
from hbox_scheduler.core import Scheduler
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import DEFAULT_CONF
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.queueing.jobs import JobState
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

CONF = parse_conf(DEFAULT_CONF, plugins=list(PLUGINS))
HIGH = job("high", cards=4, priority=9, created_at=10.0)


def again(one: Job, revision: int) -> Job:
    """The same job with other pods."""
    tasks = tuple(
        replace(spec, pods=tuple(PodRef(PodUid(f"{pod.uid}.{revision}"), f"{pod.name}.{revision}", "1") for pod in spec.pods))
        for spec in one.tasks
    )
    return replace(one, tasks=tasks, revision=revision)


def scheduler() -> tuple[Scheduler, Claim]:
    """All four cards of the node are low's: its claim."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=CONF)
    simulation.put_nodes([node("n0", cards=4)])
    simulation.submit([job("low", cards=4)])
    simulation.run()
    [claim] = simulation.claims.values()
    one = Scheduler(id=SchedulerId("s"), policy=policy_of(PolicyName.BINPACK), conf=CONF)
    one.on_node(node("n0", cards=4))
    one.on_queue(Queue(QueueName("default")))
    one.on_claims_snapshot(epoch=Epoch(1), index=Index(5), frozen=False, claims=[claim], now=0.0)
    return one, claim


def comes_back(one: Scheduler, of: Job, revision: int) -> Job:
    """Withdrawn, and back with other pods."""
    one.on_withdrawn([of.id], [revision - 1])
    back = again(of, revision)
    one.on_jobs([back])
    return back


def planned(one: Scheduler, now: float) -> Plan:
    [plan] = one.cycle(now).plans
    return plan


def answer(one: Scheduler, plan: Plan, reason: RefusalReason | None = None, *, now: float) -> None:
    said = PlanAnswer(plan=plan.id, job=plan.job, committed=reason is None, reason=reason, message="no" if reason else "")
    one.on_answers(epoch=one.epoch, index=one.index, answers=[said], now=now)


def goes(one: Scheduler, claim: Claim, *, now: float) -> None:
    void = replace(claim, state=ClaimState.VOID)
    assert one.on_claims(epoch=one.epoch, previous=one.index, index=Index(one.index + 1), claims=[void], now=now)


def state(one: Scheduler, name: str = "high") -> JobState:
    entry = one.reports.entry(JobId(name))
    assert entry is not None
    return entry.state


@pytest.mark.parametrize("reason", [RefusalReason.CARD_TAKEN, RefusalReason.VICTIM_GONE, RefusalReason.EVICTIONS_PAUSED])
def test_a_refusal_for_what_it_was_leaves_its_nomination_as_it_is(reason: RefusalReason) -> None:
    one, low = scheduler()
    one.on_jobs([HIGH])
    before = planned(one, 1.0)
    back = comes_back(one, HIGH, 3)
    now = planned(one, 3.0)
    assert [victim.pod_uid for victim in now.victims] == ["low-0"]
    answer(one, before, reason, now=3.1)
    assert state(one) is JobState.NOMINATED
    answer(one, now, now=3.2)
    goes(one, low, now=4.0)
    plan = planned(one, 5.0)
    assert ([p.pod_uid for p in plan.placements], plan.victims) == ([back.tasks[0].pods[0].uid], ())


def asked_for() -> tuple[Scheduler, Plan]:
    """The ledger is asked for the places for which low has left."""
    one, low = scheduler()
    one.on_jobs([HIGH])
    answer(one, planned(one, 1.0), now=1.1)
    goes(one, low, now=1.2)
    plan = planned(one, 1.3)
    assert plan.victims == ()
    return one, plan


@pytest.mark.parametrize("reason", [RefusalReason.CARD_TAKEN, RefusalReason.FROZEN, RefusalReason.NODE_UNHEALTHY])
def test_a_refusal_of_places_for_what_it_was_does_not_have_it_wait_for_them(reason: RefusalReason) -> None:
    one, plan = asked_for()
    back = comes_back(one, HIGH, 3)
    one.cycle(2.0)
    answer(one, plan, reason, now=2.1)
    fresh = planned(one, 2.2)
    assert [p.pod_uid for p in fresh.placements] == [back.tasks[0].pods[0].uid]
    assert fresh.victims == ()
    assert set(one.reports.placed_on()) == {back.tasks[0].pods[0].uid}


def test_the_next_ledger_that_does_not_know_them_does_not_have_it_wait_either() -> None:
    one, _ = asked_for()
    back = comes_back(one, HIGH, 3)
    one.cycle(2.0)
    one.on_claims_snapshot(epoch=Epoch(2), index=Index(1), frozen=False, claims=[], now=2.1)
    assert [p.pod_uid for p in planned(one, 2.2).placements] == [back.tasks[0].pods[0].uid]


def test_a_plan_that_is_given_up_before_its_answer_is_not_sent_again() -> None:
    """Behind the word that it is given up the ledger would take it for another one: somebody would leave for nobody."""
    one, _ = scheduler()
    one.on_jobs([HIGH])
    plan = planned(one, 1.0)
    one.on_withdrawn([HIGH.id], [2])
    out = one.cycle(20.0)
    assert ([given.plan for given in out.given_up], out.resend) == ([plan.id], [])
    assert one.reports.outstanding() == []


def test_a_nomination_that_is_given_up_before_its_answer_holds_nobody_up() -> None:
    one, low = scheduler()
    one.on_jobs([HIGH])
    planned(one, 1.0)
    one.on_stayed(epoch=Epoch(1), pods=[low.pod_uid], now=1.5)
    assert [given.plan for given in one.cycle(2.0).given_up] != []
    goes(one, low, now=2.5)
    answer(one, planned(one, 3.0), RefusalReason.CARD_TAKEN, now=3.1)
    assert [p.pod_uid for p in planned(one, 3.2).placements] == ["high-0"]


def test_refusals_for_what_it_was_are_not_counted_against_it() -> None:
    one, low = scheduler()
    goes(one, low, now=0.5)
    one.on_jobs([HIGH])
    before = planned(one, 1.0)
    comes_back(one, HIGH, 3)
    answer(one, before, RefusalReason.CARD_TAKEN, now=1.1)
    entry = one.reports.entry(HIGH.id)
    assert entry is not None
    assert entry.refusals == 0


def test_it_is_tried_again_where_a_refusal_for_what_it_was_frees_a_place_of_the_same_pod() -> None:
    """Another shard had it for a moment, or a list left it out: it is back with the pods that it had."""
    one, low = scheduler()
    goes(one, low, now=0.5)
    one.on_jobs([HIGH])
    before = planned(one, 1.0)
    one.on_withdrawn([HIGH.id], [2])
    one.on_jobs([replace(HIGH, revision=3)])
    assert one.cycle(1.5).plans == [], "its pod has a place that the ledger has not answered"
    answer(one, before, RefusalReason.CARD_TAKEN, now=2.0)
    assert [p.pod_uid for p in planned(one, 2.1).placements] == ["high-0"]


def test_a_job_whose_plan_was_accepted_and_is_lost_with_the_ledgers_end_is_planned_anew() -> None:
    one, low = scheduler()
    goes(one, low, now=0.5)
    one.on_jobs([HIGH])
    plan = planned(one, 1.0)
    said = PlanAnswer(plan=plan.id, job=plan.job, committed=True)
    one.on_answers(epoch=Epoch(1), index=Index(9), answers=[said], now=1.1)
    assert one.cycle(1.2).plans == []
    assert state(one) is JobState.SETTLED
    one.on_claims_snapshot(epoch=Epoch(2), index=Index(0), frozen=False, claims=[], now=2.0)
    assert [p.pod_uid for p in planned(one, 2.1).placements] == ["high-0"]
