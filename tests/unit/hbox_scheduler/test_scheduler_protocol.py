"""The core's half of the protocol with the ledger: answers, claims, epochs, repetition."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hbox_common.events import JobVerdict, Plan, PlanAnswer, PlansProposed
from hbox_common.events.codec import decode, encode, headers
from hbox_common.model import (
    DEFAULT_QUEUE,
    Claim,
    ClaimId,
    ClaimState,
    Epoch,
    Index,
    JobId,
    NodeName,
    PlanId,
    PodUid,
    Queue,
    RefusalReason,
    SchedulerId,
)
from hbox_scheduler.core import Scheduler
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.protocol.inflight import Verdicts
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.queueing.jobs import Entry, JobState
from hbox_scheduler.core.simulate import job, node

#: As `started`, with one job; prints the id of its plan.
FIRST_ID = """
from hbox_common.model import DEFAULT_QUEUE, Epoch, Index, Queue, SchedulerId
from hbox_scheduler.core import Scheduler
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.simulate import job, node
s = Scheduler(id=SchedulerId("s1"), policy=policy_of(PolicyName.BINPACK), limits=Limits(placements=4))
s.on_queue(Queue(DEFAULT_QUEUE))
s.on_claims_snapshot(epoch=Epoch(1), index=Index(10), frozen=False, claims=(), now=0.0)
for i in range(2):
    s.on_node(node(f"n{i}", cards=2))
s.on_jobs([job("a", cards=1)])
print(*(plan.id for plan in s.cycle(0.0).plans))
"""


@pytest.fixture
def scheduler() -> Scheduler:
    return started()


def started() -> Scheduler:
    s = Scheduler(id=SchedulerId("s1"), policy=policy_of(PolicyName.BINPACK), limits=Limits(placements=4))
    s.on_queue(Queue(DEFAULT_QUEUE))
    s.on_claims_snapshot(epoch=Epoch(1), index=Index(10), frozen=False, claims=(), now=0.0)
    for i in range(2):
        s.on_node(node(f"n{i}", cards=2))
    return s


def claims_of(plan: Plan, state: ClaimState = ClaimState.PENDING) -> list[Claim]:
    return [
        Claim(
            id=ClaimId(f"c-{plan.id}-{p.pod_uid}"),
            pod_uid=p.pod_uid,
            namespace="default",
            pod=p.pod,
            job=plan.job,
            plan=plan.id,
            queue=plan.queue,
            priority=0,
            node=p.node,
            requests=plan.requests[p.requests],
            slices=p.slices,
            state=state,
        )
        for p in plan.placements
    ]


def answer(s: Scheduler, plan: Plan, *, committed: bool, index: int, refresh: int = 0, now: float = 0.0) -> bool:
    reason = None if committed else RefusalReason.CARD_TAKEN
    given = PlanAnswer(plan=plan.id, job=plan.job, committed=committed, reason=reason, message="taken", refresh=Index(refresh))
    return s.on_answers(epoch=s.epoch, index=Index(index), answers=[given], now=now)


def changed(s: Scheduler, claims: list[Claim], *, previous: int, index: int, now: float = 0.0) -> bool:
    return s.on_claims(epoch=s.epoch, previous=Index(previous), index=Index(index), claims=claims, now=now)


def planned(s: Scheduler, now: float = 0.0) -> Plan:
    plans = s.cycle(now).plans
    assert len(plans) == 1
    return plans[0]


def state(s: Scheduler, name: str) -> JobState:
    entry = s.reports.entry(JobId(name))
    assert entry is not None
    return entry.state


def test_a_plan_names_what_it_was_made_on(scheduler: Scheduler) -> None:
    scheduler.on_jobs([replace(job("a", cards=2, pods=2), traceparent="00-x")])
    plan = planned(scheduler)
    assert (plan.job, plan.min_member, plan.bound, plan.traceparent) == ("a", 2, 0, "00-x")
    assert [(p.pod_uid, p.node, p.generation, len(p.slices)) for p in plan.placements] == [
        ("a-0", "n0", 1, 2),
        ("a-1", "n1", 1, 2),
    ]
    assert Plan.model_validate(plan.model_dump()) == plan, "made without validation, and valid"


def test_a_plan_survives_the_bus(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=2, pods=2)])
    plan = planned(scheduler)
    said = PlansProposed(scheduler=SchedulerId("s1"), epoch=Epoch(1), seen=Index(10), plans=(plan,))
    assert decode(encode(said), headers(said, source="s1", message_id="1", now=0.0)) == said


def test_plan_ids_are_the_same_for_the_same_history_and_differ_between_attempts(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=1)])
    first = planned(scheduler)
    answer(scheduler, first, committed=False, index=10)
    second = planned(scheduler)
    assert first.id != second.id
    again = started()
    again.on_jobs([job("a", cards=1)])
    assert planned(again).id == first.id
    answer(again, first, committed=False, index=10)
    assert planned(again).id == second.id


def test_a_job_that_was_gone_and_is_back_has_plans_of_other_ids(scheduler: Scheduler) -> None:
    """A PodGroup whose pods all have places is withdrawn; when they are made again it comes back with the same id, and the ledger answers a plan that it knows
    as it did before."""
    scheduler.on_jobs([job("a", cards=1)])
    before = planned(scheduler)
    answer(scheduler, before, committed=False, index=10)
    scheduler.on_withdrawn([before.job], [2])
    scheduler.on_jobs([job("a", cards=1, revision=3)])
    assert planned(scheduler).id != before.id


def test_plan_ids_are_the_same_in_another_process() -> None:
    """One in which sets and hashes are in another order."""
    first = started()
    first.on_jobs([job("a", cards=1)])
    other = subprocess.run(
        [sys.executable, "-c", FIRST_ID],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.split() == [planned(first).id]


def test_a_job_proposed_is_not_proposed_again_before_the_answer(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=1)])
    planned(scheduler)
    assert scheduler.cycle(0.0).plans == []
    scheduler.on_jobs([job("a", cards=1, revision=2)])
    assert scheduler.cycle(1.0).plans == []


def test_a_queue_that_the_ledger_stopped_is_proposed_no_cards_for_and_its_words_are_the_verdict(scheduler: Scheduler) -> None:
    scheduler.on_queue(Queue(DEFAULT_QUEUE, stopped="its budget is spent"))
    scheduler.on_jobs([job("cards", cards=1), job("none", cards=0)])
    made = scheduler.cycle(0.0)
    assert [plan.job for plan in made.plans] == ["none"]
    assert [(v.job, v.message) for v in made.verdicts] == [("cards", "QueueBudgetSpent: its budget is spent")]
    scheduler.on_queue(Queue(DEFAULT_QUEUE))
    assert [plan.job for plan in scheduler.cycle(1.0).plans] == ["cards"]


def test_a_refusal_waits_for_the_view_that_explains_it(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=1)])
    answer(scheduler, planned(scheduler), committed=False, index=12, refresh=12)
    assert state(scheduler, "a") is JobState.AWAITING_STATE
    assert scheduler.cycle(0.0).plans == []
    changed(scheduler, [], previous=10, index=12)
    assert planned(scheduler).job == "a"


def test_while_the_ledger_holds_plans_nothing_is_planned_and_the_job_is_told_why(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("j", cards=1)])
    plan = planned(scheduler)
    why = "pods were last seen 31 s ago"
    unseen = PlanAnswer(plan=plan.id, job=plan.job, committed=False, reason=RefusalReason.PODS_UNSEEN, message=why)
    scheduler.on_held(why)
    scheduler.on_answers(epoch=scheduler.epoch, index=Index(10), answers=[unseen], now=0.0)
    said = []
    for second in range(1, 10):
        out = scheduler.cycle(float(second))
        said += out.verdicts
        assert not out.plans
        assert out.wake_at is None or out.wake_at > second, "it would spin"
    assert any(why in verdict.message for verdict in said)
    scheduler.on_held("")
    assert planned(scheduler, 10.0).job == plan.job, "at once: it was nothing against the plan"


def test_refusals_in_a_row_are_answered_later_and_later(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=1)])
    answer(scheduler, planned(scheduler), committed=False, index=10)
    answer(scheduler, planned(scheduler), committed=False, index=10)
    out = scheduler.cycle(0.0)
    assert out.plans == []
    assert [v.message for v in out.verdicts] == ["CardTaken: taken"]
    assert out.wake_at == pytest.approx(0.05)
    answer(scheduler, planned(scheduler, 0.05), committed=False, index=10, now=0.05)
    assert scheduler.cycle(0.1).plans == []
    assert planned(scheduler, 0.2).job == "a"


def test_a_repeated_answer_has_no_effect(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=1)])
    plan = planned(scheduler)
    answer(scheduler, plan, committed=True, index=11)
    changed(scheduler, claims_of(plan), previous=10, index=11)
    before = scheduler.columns.used.tobytes()
    answer(scheduler, plan, committed=False, index=11)
    assert scheduler.columns.used.tobytes() == before
    assert scheduler.reports.is_claimed(PodUid("a-0"))


@pytest.mark.parametrize("answer_first", [True, False])
def test_a_commit_and_its_claims_may_come_in_any_order(scheduler: Scheduler, *, answer_first: bool) -> None:
    scheduler.on_jobs([job("a", cards=1)])
    plan = planned(scheduler)
    before = scheduler.columns.changes.end
    if answer_first:
        answer(scheduler, plan, committed=True, index=11)
    changed(scheduler, claims_of(plan), previous=10, index=11)
    if not answer_first:
        answer(scheduler, plan, committed=True, index=11)
    scheduler.cycle(0.0)
    assert state(scheduler, "a") is JobState.SETTLED
    assert scheduler.reports.outstanding() == []
    assert scheduler.columns.changes.end == before, "the claim is what was booked already"


def test_a_refusal_that_comes_after_the_claims_takes_nothing_from_the_ledger(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=2)])
    plan = planned(scheduler)
    assert changed(scheduler, claims_of(plan), previous=10, index=11)
    answer(scheduler, plan, committed=False, index=12)
    assert scheduler.bookings.get(PodUid("a-0")) is not None
    scheduler.on_jobs([job("b", cards=2), job("c", cards=2)])
    assert [len(out.placements) for out in scheduler.cycle(1.0).plans] == [1]


def test_a_plan_without_an_answer_is_sent_again_with_the_same_id(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=1)])
    plan = planned(scheduler)
    assert scheduler.cycle(4.9).resend == []
    assert scheduler.cycle(5.0).resend == [plan]
    assert scheduler.cycle(5.1).resend == []
    assert scheduler.cycle(10.0).resend == [plan]


def test_a_claim_that_is_void_while_its_pod_waits_is_placed_again(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=1)])
    plan = planned(scheduler)
    changed(scheduler, claims_of(plan), previous=10, index=11)
    scheduler.cycle(0.0)
    changed(scheduler, claims_of(plan, ClaimState.VOID), previous=11, index=12)
    again = planned(scheduler)
    assert again.placements[0].pod_uid == "a-0"


def test_a_gang_that_lost_a_member_places_it_alone(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=1, pods=3)])
    plan = planned(scheduler)
    claims = claims_of(plan)
    changed(scheduler, claims, previous=10, index=11)
    scheduler.cycle(0.0)
    changed(scheduler, [replace(claims[1], state=ClaimState.VOID)], previous=11, index=12)
    again = planned(scheduler)
    assert [p.pod_uid for p in again.placements] == ["a-1"]
    assert again.bound == 2


def test_a_void_of_an_older_claim_does_not_touch_the_newer_one(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=1)])
    claim = claims_of(planned(scheduler))[0]
    newer = replace(claim, id=ClaimId("newer"))
    changed(scheduler, [newer], previous=10, index=11)
    changed(scheduler, [replace(claim, state=ClaimState.VOID)], previous=11, index=12)
    assert scheduler.reports.is_claimed(PodUid("a-0"))


def test_a_gap_in_the_claims_asks_for_a_snapshot_and_old_news_do_not(scheduler: Scheduler) -> None:
    assert changed(scheduler, [], previous=11, index=12) is False
    assert changed(scheduler, [], previous=8, index=10) is True
    assert changed(scheduler, [], previous=9, index=11) is True
    assert scheduler.on_claims(epoch=Epoch(2), previous=Index(0), index=Index(1), claims=[], now=0.0) is False


def test_a_new_epoch_undoes_what_was_not_claimed_and_plans_it_anew(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=1), job("b", cards=1)])
    kept, lost = scheduler.cycle(0.0).plans
    assert scheduler.on_answers(epoch=Epoch(2), index=Index(0), answers=[], now=0.0) is False
    scheduler.on_claims_snapshot(epoch=Epoch(2), index=Index(3), frozen=True, claims=claims_of(kept), now=0.0)
    assert scheduler.reports.outstanding() == []
    assert scheduler.cycle(0.0).plans == [], "the books are frozen"
    scheduler.on_claims_snapshot(epoch=Epoch(2), index=Index(3), frozen=False, claims=claims_of(kept), now=0.0)
    again = planned(scheduler)
    assert (again.job, again.id != lost.id) == ("b", True)


def test_a_snapshot_of_an_older_epoch_is_ignored(scheduler: Scheduler) -> None:
    scheduler.on_claims_snapshot(epoch=Epoch(0), index=Index(99), frozen=True, claims=(), now=0.0)
    assert (scheduler.epoch, scheduler.index, scheduler.frozen) == (1, 10, False)


def test_a_foreign_claim_takes_room_and_its_end_gives_it_back(scheduler: Scheduler) -> None:
    foreign = Claim(
        ClaimId("f"),
        PodUid("foreign"),
        "kube-system",
        "x",
        JobId("x"),
        plan=PlanId(""),
        queue=DEFAULT_QUEUE,
        priority=0,
        node=NodeName("n0"),
        requests={"cpu": 64_000},
    )
    changed(scheduler, [foreign], previous=10, index=11)
    scheduler.on_jobs([job("a", cpu_milli=64_000, cards=2, pods=2)])
    assert scheduler.cycle(0.0).plans == []
    changed(scheduler, [replace(foreign, state=ClaimState.VOID)], previous=11, index=12)
    assert len(planned(scheduler).placements) == 2


def test_a_cycle_ends_at_its_limit_and_goes_on_at_once(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job(f"j{i}", cpu_milli=100, created_at=i) for i in range(6)])
    first = scheduler.cycle(0.0)
    assert ([p.job for p in first.plans], first.more) == (["j0", "j1", "j2", "j3"], True)
    second = scheduler.cycle(0.0)
    assert ([p.job for p in second.plans], second.more) == (["j4", "j5"], False)


def test_sessions_have_the_jobs_that_they_come_to(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a flood without places 64 are tried in a session: one of 512 would be made for 448 in vain. Where all are placed sessions grow again."""
    sizes: list[int] = []
    place = scheduler._runner.place

    def counted(entries: Sequence[Entry], *args: Any, **more: Any) -> Any:
        sizes.append(len(entries))
        return place(entries, *args, **more)

    monkeypatch.setattr(scheduler._runner, "place", counted)
    flood = [job(f"f{i}", cards=3) for i in range(1000)]
    scheduler.on_jobs(flood)
    cycles = 1
    while scheduler.cycle(0.0).more:
        cycles += 1
    assert sizes[0] == 512
    assert max(sizes[1:]) == 64, sizes
    assert (len(sizes), cycles) == (16, 16)
    assert all(state(scheduler, one.id) is JobState.UNSCHEDULABLE for one in flood)

    scheduler.on_withdrawn([one.id for one in flood], [one.revision + 1 for one in flood])
    scheduler.limits = Limits(placements=10_000)
    for name in range(600):
        scheduler.on_node(node(f"m{name}", cards=2))
    scheduler.on_jobs([job(f"j{i}", cards=2) for i in range(512)])
    sizes.clear()
    cycle = scheduler.cycle(1.0)
    assert len(cycle.plans) == 512
    assert sizes == [64, 128, 256, 64]


def test_what_is_withdrawn_is_forgotten_and_an_older_revision_does_not_bring_it_back(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=1, revision=5)])
    scheduler.on_withdrawn([JobId("a")], [6])
    scheduler.on_jobs([job("a", cards=1, revision=5)])
    assert scheduler.cycle(0.0).plans == []
    scheduler.on_jobs([job("a", cards=1, revision=7)])
    assert planned(scheduler).job == "a"


def test_a_snapshot_of_jobs_forgets_those_that_are_gone_but_not_those_heard_of_meanwhile(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("gone", cards=4), job("stays", cards=4)])
    mark = scheduler.mark()
    scheduler.on_jobs([job("new", cards=4)])
    scheduler.on_jobs_snapshot([job("stays", cards=4)], since=mark)
    assert [scheduler.reports.entry(JobId(name)) is not None for name in ("gone", "stays", "new")] == [False, True, True]


def test_an_unschedulable_job_is_not_tried_again_until_something_changes(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.on_jobs([job("big", cards=2, pods=3)])
    assert len(scheduler.cycle(0.0).verdicts) == 1
    monkeypatch.setattr(type(scheduler.views), "of", lambda *_: pytest.fail("looked at the nodes again"))
    scheduler.cycle(1.0)
    scheduler.on_jobs([job("big", cards=2, pods=3, revision=2)])
    scheduler.cycle(2.0)
    assert state(scheduler, "big") is JobState.UNSCHEDULABLE


def test_a_new_revision_that_asks_for_less_is_tried(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=2, pods=3)])
    scheduler.cycle(0.0)
    scheduler.on_jobs([job("a", cards=2, pods=2, revision=2)])
    assert len(planned(scheduler).placements) == 2


def test_a_verdict_is_said_again_of_a_job_that_is_told_anew(scheduler: Scheduler) -> None:
    """job-controller was killed, and the verdict came while nobody listened: its successor knows the job and not why it waits."""
    scheduler.on_jobs([job("big", pods=2, cards=8)])
    [said] = scheduler.cycle(0.0).verdicts
    assert scheduler.cycle(10.0).verdicts == []
    scheduler.on_jobs([job("big", pods=2, cards=8)])
    assert scheduler.cycle(20.0).verdicts == [], "the same revision is no news"
    scheduler.on_jobs([job("big", pods=2, cards=8, revision=2)])
    assert scheduler.cycle(20.0).verdicts == [said]
    assert scheduler.cycle(30.0).verdicts == []


def test_a_verdict_is_said_once_and_again_only_when_it_differs_and_not_too_often(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=8)])
    assert len(scheduler.cycle(0.0).verdicts) == 1
    scheduler.on_node(node("n2", cards=4))
    assert scheduler.cycle(0.1).verdicts == []
    scheduler.on_jobs([job("a", cards=9, revision=2)])
    out = scheduler.cycle(0.2)
    assert out.verdicts == []
    assert out.wake_at == pytest.approx(2.0)
    assert [v.nodes for v in scheduler.cycle(2.0).verdicts] == [3]


def test_a_verdict_that_attempts_come_to_again_and_again_is_said_once() -> None:
    verdicts = Verdicts(every_s=2.0)
    full = JobVerdict(job=JobId("default/a"), message="full")
    verdicts.put(full, 0.0)
    assert verdicts.due(0.0) == [full]
    for now in (1.0, 2.0, 9.0):
        verdicts.put(full, now)
        assert (verdicts.due(now), verdicts.next_at()) == ([], [])


def test_a_verdict_that_could_not_be_sent_is_due_again_unless_there_is_a_newer_one() -> None:
    verdicts = Verdicts(every_s=2.0)
    full, closed = (JobVerdict(job=JobId("default/a"), message=message) for message in ("full", "closed"))
    verdicts.put(full, 0.0)
    verdicts.due(0.0)
    verdicts.unpublished(full, 1.0)
    assert (verdicts.due(1.0), verdicts.due(3.0)) == ([], [full])
    verdicts.put(closed, 6.0)
    verdicts.unpublished(full, 6.0)
    assert (verdicts.due(6.0), verdicts.due(9.0)) == ([closed], [])


def test_a_job_with_a_problem_is_told_so_and_not_tried(scheduler: Scheduler) -> None:
    scheduler.on_jobs([replace(job("a"), problem="PodGroup x does not exist")])
    out = scheduler.cycle(0.0)
    assert (out.plans, [v.message for v in out.verdicts]) == ([], ["PodGroup x does not exist"])


def test_a_node_that_went_and_came_back_still_carries_its_claims(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=2)])
    changed(scheduler, claims_of(planned(scheduler)), previous=10, index=11)
    scheduler.on_node(replace(node("n0", cards=2, generation=2), gone=True))
    scheduler.on_node(node("n0", cards=2, generation=3))
    scheduler.on_jobs([job("b", cards=2)])
    assert planned(scheduler).placements[0].node == "n1"


def test_an_older_node_state_is_ignored(scheduler: Scheduler) -> None:
    scheduler.on_node(node("n0", cards=2, generation=9, unschedulable=True))
    scheduler.on_node(node("n0", cards=2, generation=8))
    assert not scheduler.columns.schedulable[scheduler.columns.row_of[NodeName("n0")]]


def test_a_job_that_is_told_twice_before_its_turn_has_one_turn(scheduler: Scheduler) -> None:
    """Its news and a change of its queue come while it waits for the cycle: it is placed once."""
    one = job("a")
    scheduler.on_jobs([one])
    scheduler.on_jobs([replace(one, revision=2)])
    scheduler.on_jobs([replace(one, revision=3), job("b")])
    plans = scheduler.cycle(0.0).plans
    assert sorted(plan.job for plan in plans) == ["a", "b"]


def test_pages_of_claims_and_their_snapshot_are_as_the_snapshot_alone() -> None:
    paged, whole = started(), started()
    paged.on_jobs([job("a", cards=1), job("b", cards=1)])
    whole.on_jobs([job("a", cards=1), job("b", cards=1)])
    plans = paged.cycle(0.0).plans
    whole.cycle(0.0)
    claims = [*claims_of(plans[0]), *claims_of(plans[1], ClaimState.VOID)]
    for claim in claims:
        paged.on_claims_page(epoch=Epoch(2), index=Index(20), claims=[claim], now=0.0)
    for one in (paged, whole):
        one.on_claims_snapshot(epoch=Epoch(2), index=Index(20), frozen=False, claims=claims, now=0.0)
        assert (one.epoch, one.index) == (2, 20)
        assert one.reports.is_claimed(plans[0].placements[0].pod_uid)
        assert not one.reports.is_claimed(plans[1].placements[0].pod_uid)
        assert planned(one).job == "b"


def test_claims_of_pages_that_broke_off_end_with_the_next_snapshot(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=1)])
    [claim] = claims_of(planned(scheduler))
    scheduler.on_claims_page(epoch=Epoch(1), index=Index(12), claims=[claim], now=0.0)
    assert (scheduler.index, scheduler.reports.is_claimed(claim.pod_uid)) == (10, True)
    scheduler.on_claims_snapshot(epoch=Epoch(1), index=Index(13), frozen=False, claims=(), now=0.0)
    assert not scheduler.reports.is_claimed(claim.pod_uid)


def test_a_page_of_an_older_snapshot_is_ignored(scheduler: Scheduler) -> None:
    scheduler.on_jobs([job("a", cards=1)])
    [claim] = claims_of(planned(scheduler))
    scheduler.on_claims_page(epoch=Epoch(1), index=Index(9), claims=[claim], now=0.0)
    scheduler.on_claims_page(epoch=Epoch(0), index=Index(99), claims=[claim], now=0.0)
    assert not scheduler.reports.is_claimed(claim.pod_uid)


def test_a_claim_that_a_page_booked_is_not_booked_again_by_its_snapshot(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.on_jobs([job("a", cards=1), job("b", cards=1)])
    claims = [claim for plan in scheduler.cycle(0.0).plans for claim in claims_of(plan)]
    for claim in claims:
        scheduler.on_claims_page(epoch=Epoch(2), index=Index(20), claims=[claim], now=0.0)
    scheduler.on_claims_snapshot(epoch=Epoch(2), index=Index(20), frozen=False, claims=claims, now=0.0)
    put: list[object] = []
    monkeypatch.setattr(scheduler.bookings, "put", put.append)
    scheduler.on_claims_snapshot(epoch=Epoch(2), index=Index(20), frozen=False, claims=claims, now=0.0)
    assert put == []


def test_a_job_of_a_page_that_its_snapshot_does_not_name_is_removed(scheduler: Scheduler) -> None:
    mark = scheduler.mark()
    scheduler.on_jobs([job("new", cards=4)])
    scheduler.on_jobs_page([job("gone", cards=4), job("stays", cards=4), job("new", cards=4)], since=mark)
    scheduler.on_jobs_snapshot([job("stays", cards=4)], since=mark)
    assert [scheduler.reports.entry(JobId(name)) is not None for name in ("gone", "stays", "new")] == [False, True, True]


def test_a_withdrawn_job_does_not_return_with_a_page(scheduler: Scheduler) -> None:
    mark = scheduler.mark()
    scheduler.on_withdrawn([JobId("a")], [6])
    scheduler.on_jobs_page([job("a", cards=1, revision=5)], since=mark)
    assert scheduler.reports.entry(JobId("a")) is None
