"""A scheduler that starts finds at the ledger for whom others leave. Drawing: one node [4/4] of `low` (4); `high` wants 4."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hbox_common.events import HeldNomination, Plan, PlanAnswer
from hbox_common.model import (
    CardId,
    Claim,
    ClaimId,
    ClaimState,
    Epoch,
    Index,
    Job,
    JobId,
    NodeName,
    PodUid,
    Queue,
    QueueName,
    RefusalReason,
    SchedulerId,
)
from hbox_common.model.claim import KUBELET_GAVE
from hbox_scheduler.core import Scheduler
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import DEFAULT_CONF
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.queueing.jobs import JobState
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

HIGH = job("high", cards=4, priority=9, created_at=10.0)
CONF = parse_conf(DEFAULT_CONF, plugins=list(PLUGINS))


def scheduler(id: str, *, cards: int = 4) -> Scheduler:
    made = Scheduler(id=SchedulerId(id), policy=policy_of(PolicyName.BINPACK), conf=CONF)
    made.on_node(node("n0", cards=cards))
    made.on_queue(Queue(QueueName("default")))
    return made


def nominated() -> tuple[HeldNomination, list[Claim]]:
    """As the ledger has it, and its claims."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=CONF)
    simulation.put_nodes([node("n0", cards=4)])
    simulation.submit([job("low", cards=4)])
    simulation.run()
    simulation.submit([HIGH])
    [plan] = simulation.run()
    assert [victim.pod_uid for victim in plan.victims] == ["low-0"]
    return HeldNomination(scheduler=SchedulerId("before"), plan=plan, models=({},), moved=(), until=300.0), list(
        simulation.claims.values()
    )


def told(
    one: Scheduler, claims: Sequence[Claim], *nominations: HeldNomination, epoch: int = 1, index: int = 5, now: float = 0.0
) -> None:
    one.on_claims_snapshot(
        epoch=Epoch(epoch), index=Index(index), frozen=False, claims=claims, nominations=nominations, now=now
    )


def goes(one: Scheduler, claim: Claim, *, index: int = 6) -> None:
    void = replace(claim, state=ClaimState.VOID)
    assert one.on_claims(epoch=one.epoch, previous=one.index, index=Index(index), claims=[void], now=1.0)


def placed(plans: Sequence[Plan]) -> dict[str, str]:
    return {p.pod_uid: p.node for plan in plans if not plan.victims for p in plan.placements}


def test_it_gets_its_places_when_the_last_victim_is_gone_and_nobody_else_does() -> None:
    nomination, claims = nominated()
    fresh = scheduler("after")
    told(fresh, claims, nomination)
    fresh.on_jobs([HIGH, job("thief", cards=1)])
    assert fresh.cycle(0.5).plans == [], "nobody has to leave a second time"
    goes(fresh, claims[0])
    assert placed(fresh.cycle(1.0).plans) == {"high-0": "n0"}


def test_its_places_are_kept_though_its_job_is_not_heard_of_yet() -> None:
    nomination, claims = nominated()
    fresh = scheduler("after")
    told(fresh, claims, nomination)
    goes(fresh, claims[0])
    fresh.on_jobs([job("thief", cards=1)])
    assert fresh.cycle(1.0).plans == []
    fresh.on_jobs([HIGH])
    assert placed(fresh.cycle(2.0).plans) == {"high-0": "n0"}


def test_after_two_minutes_without_its_job_the_places_are_free() -> None:
    nomination, claims = nominated()
    fresh = scheduler("after")
    told(fresh, claims, nomination)
    goes(fresh, claims[0])
    fresh.on_jobs([job("thief", cards=1)])
    assert fresh.cycle(119.0).plans == []
    out = fresh.cycle(120.0)
    assert [one.plan for one in out.given_up] == [nomination.plan.id]
    assert placed(out.plans) == {"thief-0": "n0"}


@pytest.mark.parametrize("other", [replace(HIGH, tasks=()), job("high", cards=2, priority=9, created_at=10.0)])
def test_a_job_that_asks_for_something_else_by_now_gives_its_places_up(other: Job) -> None:
    nomination, claims = nominated()
    fresh = scheduler("after")
    told(fresh, claims, nomination)
    goes(fresh, claims[0])
    fresh.on_jobs([other, job("thief", cards=1)])
    out = fresh.cycle(1.0)
    assert [one.plan for one in out.given_up] == [nomination.plan.id]
    assert placed(out.plans)["thief-0"] == "n0"


def test_what_the_ledger_has_ended_is_kept_no_longer() -> None:
    nomination, claims = nominated()
    fresh = scheduler("after")
    told(fresh, claims, nomination)
    goes(fresh, claims[0])
    fresh.on_jobs([job("thief", cards=1)])
    assert fresh.on_claims(epoch=Epoch(1), previous=Index(6), index=Index(6), claims=[], ended=[nomination.plan.id], now=1.0)
    assert placed(fresh.cycle(1.0).plans) == {"thief-0": "n0"}


def test_what_is_missing_in_a_later_snapshot_has_ended() -> None:
    nomination, claims = nominated()
    fresh = scheduler("after")
    told(fresh, claims, nomination)
    goes(fresh, claims[0])
    fresh.on_jobs([job("thief", cards=1)])
    told(fresh, (), index=7)
    assert placed(fresh.cycle(1.0).plans) == {"thief-0": "n0"}


def test_a_nomination_that_the_ledger_makes_after_the_snapshot_is_taken_over_too() -> None:
    """The plan was under way when its scheduler died."""
    nomination, claims = nominated()
    fresh = scheduler("after")
    told(fresh, claims)
    fresh.on_jobs([HIGH])
    assert fresh.on_claims(epoch=Epoch(1), previous=Index(5), index=Index(5), claims=[], nominations=[nomination], now=0.1)
    assert fresh.cycle(0.5).plans == []
    goes(fresh, claims[0])
    assert placed(fresh.cycle(1.0).plans) == {"high-0": "n0"}


def test_ones_own_nomination_that_was_given_up_is_not_taken_over_again() -> None:
    nomination, claims = nominated()
    own = scheduler("before")
    told(own, claims, nomination)
    goes(own, claims[0])
    own.on_jobs([job("thief", cards=1)])
    assert placed(own.cycle(1.0).plans) == {"thief-0": "n0"}


def test_a_plan_whose_answer_was_lost_with_the_ledger_holds_where_the_next_one_remembers_it() -> None:
    _, claims = nominated()
    one = scheduler("s")
    told(one, claims)
    one.on_jobs([HIGH])
    [plan] = one.cycle(1.0).plans
    held = HeldNomination(scheduler=SchedulerId("s"), plan=plan, models=({},), moved=(), until=300.0)
    told(one, claims, held, epoch=2, index=0)
    entry = one.reports.entry(JobId("high"))
    assert entry is not None
    assert (entry.state, entry.plans) == (JobState.NOMINATED, set())
    assert one.cycle(2.0).plans == []
    goes(one, claims[0], index=1)
    assert placed(one.cycle(3.0).plans) == {"high-0": "n0"}


def test_a_plan_that_the_next_ledger_does_not_remember_is_made_anew() -> None:
    _, claims = nominated()
    one = scheduler("s")
    told(one, claims)
    one.on_jobs([HIGH])
    [plan] = one.cycle(1.0).plans
    told(one, claims, epoch=2, index=0)
    [again] = one.cycle(2.0).plans
    assert again.victims == plan.victims
    assert again.id != plan.id


def test_the_ledger_is_told_that_a_withdrawn_job_needs_no_places() -> None:
    nomination, claims = nominated()
    fresh = scheduler("after")
    told(fresh, claims, nomination)
    fresh.on_jobs([HIGH])
    assert fresh.cycle(0.5).given_up == []
    fresh.on_withdrawn([HIGH.id], [9])
    assert [one.plan for one in fresh.cycle(1.0).given_up] == [nomination.plan.id]


def test_a_refused_plan_after_a_take_over_is_tried_anew() -> None:
    nomination, claims = nominated()
    fresh = scheduler("after")
    told(fresh, claims, nomination)
    fresh.on_jobs([HIGH])
    fresh.cycle(0.5)
    goes(fresh, claims[0])
    [plan] = fresh.cycle(1.0).plans
    refused = PlanAnswer(plan=plan.id, job=plan.job, committed=False, reason=RefusalReason.CARD_TAKEN)
    fresh.on_answers(epoch=Epoch(1), index=Index(6), answers=[refused], now=1.1)
    assert placed(fresh.cycle(2.0).plans) == {"high-0": "n0"}
    assert fresh.reports.placed_on()[PodUid("high-0")] == NodeName("n0")


@pytest.mark.parametrize("heard", ["before the take-over", "after it", "by the scheduler that nominated"])
def test_places_leave_cards_that_a_kubelet_gave_others(heard: str) -> None:
    """[b b . . . low low low]: `high` is nominated for six cards. Then b's kubelet says that b is on the first and the last idle one."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=CONF)
    simulation.put_nodes([node("n0", cards=8)])
    simulation.submit([job("b", cards=2, priority=9), job("low", cards=3)])
    simulation.run()
    high = job("high", cards=6, priority=9, created_at=10.0)
    before = simulation.claims.values()
    b, low = (next(claim for claim in before if claim.job == name) for name in ("b", "low"))
    idle = sorted(set(range(8)) - {s.index for claim in (b, low) for s in claim.slices})

    one = scheduler("s", cards=8)
    told(one, [b, low])
    one.on_jobs([high])
    [plan] = one.cycle(0.5).plans
    assert [victim.pod_uid for victim in plan.victims] == ["low-0"]
    nomination = HeldNomination(scheduler=SchedulerId("s"), plan=plan, models=({},), moved=(), until=300.0)
    kept, lost = b.slices
    given = replace(
        b, id=ClaimId("given"), slices=(kept, replace(lost, index=idle[-1], card=CardId(str(idle[-1])))), reason=KUBELET_GAVE
    )
    if heard == "by the scheduler that nominated":
        one.on_answers(
            epoch=Epoch(1), index=Index(5), answers=[PlanAnswer(plan=plan.id, job=plan.job, committed=True)], now=0.6
        )
    else:
        one = scheduler("after", cards=8)
        told(one, [given if heard == "before the take-over" else b, low], nomination)
        one.on_jobs([high])
    assert one.on_claims(
        epoch=Epoch(1), previous=Index(5), index=Index(6), claims=[replace(b, state=ClaimState.VOID), given], now=0.7
    )
    one.on_jobs([job("thief", cards=1)])
    assert one.cycle(0.8).plans == [], "no card is idle"
    goes(one, low, index=7)
    [last] = one.cycle(1.0).plans
    assert {s.index for p in last.placements for s in p.slices} == set(range(8)) - {s.index for s in given.slices}
    assert [p.pod_uid for p in last.placements] == ["high-0"]


def refused(plan: Plan, reason: RefusalReason, *, refresh: int = 0) -> PlanAnswer:
    return PlanAnswer(plan=plan.id, job=plan.job, committed=False, reason=reason, refresh=Index(refresh))


def asked_for(*, thief: int) -> tuple[Scheduler, Plan, Claim]:
    """[b b . . . low low low]: `high` was nominated for six cards, `low` is gone, and the ledger is asked for them; a thief waits whose turn is before
    its own. The plan, and b's claim."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=CONF)
    simulation.put_nodes([node("n0", cards=8)])
    simulation.submit([job("b", cards=2, priority=9), job("low", cards=3)])
    simulation.run()
    b, low = (next(claim for claim in simulation.claims.values() if claim.job == name) for name in ("b", "low"))
    one = scheduler("s", cards=8)
    told(one, [b, low])
    one.on_jobs([job("high", cards=6, priority=9, created_at=10.0)])
    [plan] = one.cycle(0.5).plans
    accepted = PlanAnswer(plan=plan.id, job=plan.job, committed=True)
    one.on_answers(epoch=Epoch(1), index=Index(5), answers=[accepted], now=0.6)
    goes(one, low)
    one.on_jobs([job("thief", cards=thief, priority=20)])
    [plan] = one.cycle(1.0).plans
    assert [p.pod_uid for p in plan.placements] == ["high-0"]
    return one, plan, b


@pytest.mark.parametrize("first", ["claim", "answer"])
def test_places_stay_nominated_where_a_kubelet_gave_one_of_their_cards_while_they_were_asked_for(first: str) -> None:
    one, plan, b = asked_for(thief=3)
    kept, lost = b.slices
    wished = {s.index for p in plan.placements for s in p.slices}
    given = replace(
        b,
        id=ClaimId("given"),
        slices=(kept, replace(lost, index=max(wished), card=CardId(str(max(wished))))),
        reason=KUBELET_GAVE,
    )
    answer = refused(plan, RefusalReason.CARD_TAKEN, refresh=7)

    def answers() -> None:
        one.on_answers(epoch=Epoch(1), index=Index(7), answers=[answer], now=1.1)

    if first == "answer":
        answers()
        assert one.cycle(1.2).plans == [], "which cards are left is not known yet"
    claims = [replace(b, state=ClaimState.VOID), given]
    assert one.on_claims(epoch=Epoch(1), previous=Index(6), index=Index(7), claims=claims, now=1.3)
    if first == "claim":
        answers()
    [again] = one.cycle(1.4).plans
    assert [p.pod_uid for p in again.placements] == ["high-0"]
    assert {s.index for p in again.placements for s in p.slices} == set(range(8)) - {s.index for s in given.slices}
    assert again.victims == ()
    assert one.reports.placed_on().keys() >= {PodUid("high-0")}
    assert PodUid("thief-0") not in one.reports.placed_on()


@pytest.mark.parametrize("reason", [RefusalReason.PODS_UNSEEN, RefusalReason.FROZEN, RefusalReason.STALE_EPOCH])
def test_places_stay_nominated_where_the_ledger_accepted_nothing(reason: RefusalReason) -> None:
    one, plan, _ = asked_for(thief=3)
    one.on_answers(epoch=Epoch(1), index=Index(6), answers=[refused(plan, reason)], now=1.1)
    [again] = one.cycle(1.4).plans
    assert placed([again]) == {"high-0": "n0"}
    assert again.id != plan.id


def test_places_stay_nominated_where_the_next_ledger_knows_nothing_of_a_plan() -> None:
    one, plan, b = asked_for(thief=3)
    told(one, [b], epoch=2, index=1)
    [again] = one.cycle(1.4).plans
    assert placed([again]) == {"high-0": "n0"}
    assert again.id != plan.id


def test_what_a_refusal_of_the_ledger_before_named_is_not_waited_for() -> None:
    one, plan, b = asked_for(thief=3)
    answer = refused(plan, RefusalReason.CARD_TAKEN, refresh=99)
    one.on_answers(epoch=Epoch(1), index=Index(6), answers=[answer], now=1.1)
    assert one.cycle(1.2).plans == []
    told(one, [b], epoch=2, index=1)
    assert placed(one.cycle(1.4).plans) == {"high-0": "n0"}


def test_places_that_the_ledger_has_something_against_are_given_up() -> None:
    one, plan, _ = asked_for(thief=8)
    one.on_answers(epoch=Epoch(1), index=Index(6), answers=[refused(plan, RefusalReason.NODE_UNHEALTHY)], now=1.1)
    assert len(one.cycle(1.2).given_up) == 1
    assert one.cycle(1.3).given_up == []


def test_places_that_are_refused_again_and_again_are_asked_for_after_a_while_and_given_up_in_the_end() -> None:
    one, plan, _ = asked_for(thief=8)
    refusals, now = 0, 1.0
    while True:
        refusals += 1
        one.on_answers(epoch=Epoch(1), index=Index(6), answers=[refused(plan, RefusalReason.CARD_TAKEN)], now=now)
        cycle = one.cycle(now)
        if cycle.given_up:
            break
        if refusals > 1:
            assert cycle.plans == []
            assert cycle.wake_at is not None
            assert now < cycle.wake_at < now + 5.1
            now = cycle.wake_at
            cycle = one.cycle(now)
        [plan] = cycle.plans
    assert (refusals, 6.0 < now < 9.0) == (9, True)


def test_a_plan_that_was_accepted_has_no_places_to_keep() -> None:
    one, plan, b = asked_for(thief=3)
    accepted = PlanAnswer(plan=plan.id, job=plan.job, committed=True)
    one.on_answers(epoch=Epoch(1), index=Index(7), answers=[accepted], now=1.1)
    claim = replace(b, id=ClaimId("high"), pod_uid=PodUid("high-0"), job=JobId("high"), plan=plan.id)
    assert one.on_claims(epoch=Epoch(1), previous=Index(6), index=Index(7), claims=[claim], now=1.2)
    goes(one, claim, index=8)
    one.on_withdrawn([JobId("high")], [9])
    told(one, [b], epoch=2, index=1)
    assert placed(one.cycle(2.0).plans) == {"thief-0": "n0"}


def test_a_nomination_that_is_overdue_while_the_ledger_is_frozen_is_given_up_when_it_opens_and_not_looked_at_meanwhile() -> (
    None
):
    held, claims = nominated()
    one = scheduler("s")
    one.on_jobs([HIGH])
    one.on_claims_snapshot(epoch=Epoch(1), index=Index(5), frozen=True, claims=claims, nominations=[held], now=0.0)
    for now in (1.0, 150.0, 200.0, 400.0):
        cycle = one.cycle(now)
        assert (cycle.plans, cycle.given_up) == ([], [])
        assert cycle.wake_at is None or cycle.wake_at >= now + 1.0, "it would spin"
    told(one, claims, held, now=400.5)
    assert [given.plan for given in one.cycle(401.0).given_up] == [held.plan.id]


@pytest.mark.parametrize("end", ["it leaves", "the other one's nomination ends, and it leaves"])
def test_who_leaves_for_two_is_waited_for_by_both(end: str) -> None:
    """Schedulers of two shards nominated at once, and each hears of the other's plan for two of the four cards that `low` leaves."""
    other, claims = nominated()
    one = scheduler("s")
    told(one, claims)
    one.on_jobs([job("mine", cards=2, priority=9)])
    [plan] = one.cycle(0.5).plans
    assert [victim.pod_uid for victim in plan.victims] == ["low-0"]
    accepted = PlanAnswer(plan=plan.id, job=plan.job, committed=True)
    one.on_answers(epoch=Epoch(1), index=Index(5), answers=[accepted], now=0.6)
    taken = {s.index for p in plan.placements for s in p.slices}
    [place] = other.plan.placements
    rest = replace(place, slices=tuple(s for s in place.slices if s.index not in taken))
    theirs = other.plan.model_copy(update={"placements": (rest,), "requests": plan.requests})
    held = other.model_copy(update={"plan": theirs})
    assert one.on_claims(epoch=Epoch(1), previous=Index(5), index=Index(5), claims=[], nominations=[held], now=0.7)
    if end != "it leaves":
        assert one.on_claims(epoch=Epoch(1), previous=Index(5), index=Index(5), claims=[], ended=[theirs.id], now=0.8)
        one.on_jobs([job("next", cards=4, priority=20)])
        assert one.cycle(0.9).plans == [], "nobody is asked to leave twice"
    goes(one, claims[0])
    assert placed(one.cycle(1.0).plans)["mine-0"] == "n0"
