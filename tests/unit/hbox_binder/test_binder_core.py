"""The binder's rules, one by one."""

import pytest

from hbox_binder.core import (
    Acknowledge,
    Answer,
    Answered,
    Binder,
    Breaker,
    Decided,
    Effect,
    Finding,
    Limits,
    Report,
    Start,
    Ticked,
    Verb,
    fence_value,
    fences_off,
)
from hbox_common.events import Bind, BindOutcome, Evict, EvictKind
from hbox_common.model import ClaimId, DecisionId, Epoch, JobId, NodeName, PlanId, PodUid, QueueName

WALL = 1_000_000.0


def a_bind(
    pod: str = "a", *, claim: str = "", generation: int = 1, deadline: float = 0.0, volume_claims: tuple[str, ...] = ()
) -> Bind:
    claim = claim or f"claim-{pod}"
    return Bind(
        id=DecisionId(f"{claim}-{generation}-bind"),
        claim=ClaimId(claim),
        generation=generation,
        plan=PlanId("plan"),
        job=JobId("job"),
        queue=QueueName("default"),
        namespace="ml",
        pod=pod,
        pod_uid=PodUid(f"uid-{pod}"),
        resource_version="7",
        node=NodeName("n1"),
        deadline=deadline,
        volume_claims=volume_claims,
    )


def an_evict(pod: str = "a", *, claim: str = "", generation: int = 2, kind: EvictKind = EvictKind.EVICT) -> Evict:
    claim = claim or f"claim-{pod}"
    return Evict(
        id=DecisionId(f"{claim}-{generation}-{kind}"),
        kind=kind,
        claim=ClaimId(claim),
        generation=generation,
        job=JobId("job"),
        namespace="ml",
        pod=pod,
        pod_uid=PodUid(f"uid-{pod}"),
        reason="unwound",
    )


def a_revoke(pod: str = "a", *, claim: str = "", generation: int = 2) -> Evict:
    return an_evict(pod, claim=claim, generation=generation, kind=EvictKind.REVOKE)


class Desk:
    """A core with a clock, and its effects sorted."""

    def __init__(self, **limits: float) -> None:
        self.core = Binder(Limits(**limits))  # type: ignore[arg-type]
        self.now = 100.0
        self.effects: list[Effect] = []

    def decide(self, *decisions: Bind | Evict, epoch: int = 1) -> list[Effect]:
        return self._keep(self.core.step(Decided(Epoch(epoch), decisions), now=self.now, wall=self.wall))

    def answer(self, decision: Bind | Evict, finding: Finding, **facts: object) -> list[Effect]:
        answer = Answer(finding, **facts)  # type: ignore[arg-type]
        return self._keep(self.core.step(Answered(decision.id, answer), now=self.now, wall=self.wall))

    def later(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self._keep(self.core.step(Ticked(), now=self.now, wall=self.wall))

    @property
    def wall(self) -> float:
        return WALL + self.now

    def _keep(self, effects: list[Effect]) -> list[Effect]:
        self.core.validate()
        self.effects += effects
        return effects


def started(effects: list[Effect]) -> list[tuple[str, Verb]]:
    return [(e.call.decision.pod, e.call.verb) for e in effects if isinstance(e, Start)]


def outcomes(effects: list[Effect]) -> dict[str, BindOutcome]:
    return {e.outcome.decision: e.outcome.outcome for e in effects if isinstance(e, Report)}


@pytest.mark.parametrize(
    ("finding", "outcome"),
    [
        (Finding.BOUND, BindOutcome.BOUND),
        (Finding.ELSEWHERE, BindOutcome.CONFLICT),
        (Finding.GONE, BindOutcome.GONE),
    ],
)
def test_a_bind_is_settled_by_what_is_certain(finding: Finding, outcome: BindOutcome) -> None:
    desk = Desk()
    bind = a_bind()
    assert started(desk.decide(bind)) == [("a", Verb.BIND)]
    assert outcomes(desk.answer(bind, finding)) == {bind.id: outcome}
    assert desk.core.waiting == desk.core.running == 0


@pytest.mark.parametrize(
    ("finding", "outcome"),
    [
        (Finding.UNBOUND, BindOutcome.REVOKED),
        (Finding.BOUND, BindOutcome.BOUND),
        (Finding.ELSEWHERE, BindOutcome.CONFLICT),
        (Finding.GONE, BindOutcome.GONE),
    ],
)
def test_a_revocation_is_settled_by_its_fence(finding: Finding, outcome: BindOutcome) -> None:
    desk = Desk()
    revoke = a_revoke()
    assert started(desk.decide(revoke)) == [("a", Verb.FENCE)]
    assert outcomes(desk.answer(revoke, finding)) == {revoke.id: outcome}


@pytest.mark.parametrize(
    ("finding", "outcome"), [(Finding.FENCED, BindOutcome.REVOKED), (Finding.REFUSED, BindOutcome.REJECTED)]
)
def test_a_bind_that_will_not_be_is_fenced_before_its_claim_may_be_freed(finding: Finding, outcome: BindOutcome) -> None:
    desk = Desk()
    bind = a_bind()
    desk.decide(bind)
    effects = desk.answer(bind, finding, message="because")
    assert (started(effects), outcomes(effects)) == ([("a", Verb.FENCE)], {})
    effects = desk.answer(bind, Finding.UNBOUND)
    assert outcomes(effects) == {bind.id: outcome}
    assert [e.outcome.message for e in effects if isinstance(e, Report)] == ["because"]


def test_a_bind_begun_after_its_deadline_is_fenced_and_expires() -> None:
    desk = Desk()
    bind = a_bind(deadline=desk.wall - 1)
    assert started(desk.decide(bind)) == [("a", Verb.FENCE)]
    assert outcomes(desk.answer(bind, Finding.UNBOUND)) == {bind.id: BindOutcome.EXPIRED}


def test_an_unclear_bind_is_tried_again_and_expires_at_its_deadline() -> None:
    desk = Desk(retry_base_s=1.0)
    bind = a_bind(deadline=desk.wall + 2.5)
    desk.decide(bind)
    assert started(desk.answer(bind, Finding.UNCLEAR)) == []
    assert started(desk.later(1.0)) == [("a", Verb.BIND)]
    desk.answer(bind, Finding.UNCLEAR)
    assert started(desk.later(2.0)) == [("a", Verb.FENCE)]
    assert outcomes(desk.answer(bind, Finding.BOUND)) == {bind.id: BindOutcome.BOUND}


def test_the_servers_wish_to_wait_is_honoured() -> None:
    desk = Desk()
    bind = a_bind()
    desk.decide(bind)
    desk.answer(bind, Finding.UNCLEAR, retry_after_s=7.0)
    assert started(desk.later(6.9)) == []
    assert started(desk.later(0.2)) == [("a", Verb.BIND)]


def test_what_stays_open_is_reported_as_unknown_after_the_patience_and_then_every_ten_seconds() -> None:
    desk = Desk()
    evict = an_evict()
    desk.decide(evict)
    desk.answer(evict, Finding.UNCLEAR, retry_after_s=60.0)
    assert outcomes(desk.later(2.9)) == {}
    assert outcomes(desk.later(0.2)) == {evict.id: BindOutcome.UNKNOWN}
    assert outcomes(desk.later(9.0)) == {}
    assert outcomes(desk.later(1.1)) == {evict.id: BindOutcome.UNKNOWN}
    assert started(desk.later(60.0)) == [("a", Verb.EVICT)]
    assert outcomes(desk.answer(evict, Finding.ACCEPTED)) == {evict.id: BindOutcome.EVICTED}


def test_a_bind_without_an_answer_is_reported_as_unknown_after_the_patience() -> None:
    desk = Desk()
    bind = a_bind()
    desk.decide(bind)
    assert outcomes(desk.later(2.9)) == {}
    assert outcomes(desk.later(0.2)) == {bind.id: BindOutcome.UNKNOWN}
    assert outcomes(desk.answer(bind, Finding.BOUND)) == {bind.id: BindOutcome.BOUND}


def test_a_revocation_whose_fence_is_refused_stays_open_until_one_is_set() -> None:
    desk = Desk()
    revoke = a_revoke()
    desk.decide(revoke)
    assert outcomes(desk.answer(revoke, Finding.REFUSED)) == {}
    assert started(desk.later(11.0)) == [("a", Verb.FENCE)]
    assert outcomes(desk.answer(revoke, Finding.UNBOUND)) == {revoke.id: BindOutcome.REVOKED}


def test_of_one_pod_one_call_is_under_way_and_the_eviction_comes_first() -> None:
    desk = Desk()
    first, second, revoke = a_bind(), a_bind(claim="later"), a_revoke(claim="other", generation=5)
    assert started(desk.decide(first, second, revoke)) == [("a", Verb.FENCE)]
    assert started(desk.answer(revoke, Finding.UNBOUND)) == [("a", Verb.BIND)]
    assert started(desk.answer(first, Finding.GONE)) == [("a", Verb.BIND)]


def test_a_superseded_bind_is_not_begun_and_shares_the_outcome() -> None:
    desk = Desk()
    busy, bind, revoke = a_bind(claim="busy"), a_bind(), a_revoke()
    desk.decide(busy)
    desk.decide(bind)
    desk.decide(revoke)
    assert started(desk.answer(busy, Finding.GONE)) == [("a", Verb.FENCE)]
    assert outcomes(desk.answer(revoke, Finding.UNBOUND)) == {
        bind.id: BindOutcome.REVOKED,
        revoke.id: BindOutcome.REVOKED,
    }


def test_a_bind_under_way_is_answered_before_its_revocation_begins() -> None:
    desk = Desk()
    bind, revoke = a_bind(), a_revoke()
    desk.decide(bind)
    assert started(desk.decide(revoke)) == []
    effects = desk.answer(bind, Finding.BOUND)
    assert (outcomes(effects), started(effects)) == ({bind.id: BindOutcome.BOUND}, [("a", Verb.FENCE)])
    assert outcomes(desk.answer(revoke, Finding.BOUND)) == {revoke.id: BindOutcome.BOUND}


def test_an_unclear_bind_is_left_to_the_revocation_that_came_meanwhile() -> None:
    desk = Desk()
    bind, revoke = a_bind(), a_revoke()
    desk.decide(bind)
    desk.decide(revoke)
    assert started(desk.answer(bind, Finding.UNCLEAR)) == [("a", Verb.FENCE)]
    assert outcomes(desk.answer(revoke, Finding.UNBOUND)) == {
        bind.id: BindOutcome.REVOKED,
        revoke.id: BindOutcome.REVOKED,
    }


def test_a_lower_decision_that_comes_late_gets_the_outcome_of_the_higher_one() -> None:
    desk = Desk()
    bind, revoke = a_bind(), a_revoke()
    desk.decide(revoke)
    assert started(desk.decide(bind)) == []
    desk.answer(revoke, Finding.UNBOUND)
    assert outcomes(desk.decide(a_bind())) == {bind.id: BindOutcome.REVOKED}
    unseen = a_bind(generation=0)
    effects = desk.decide(unseen)
    assert (started(effects), outcomes(effects)) == ([], {unseen.id: BindOutcome.REVOKED})


def test_a_settled_decision_gets_its_outcome_again_without_a_call() -> None:
    desk = Desk()
    bind = a_bind()
    desk.decide(bind)
    desk.answer(bind, Finding.BOUND)
    effects = desk.decide(bind, epoch=2)
    assert (started(effects), outcomes(effects)) == ([], {bind.id: BindOutcome.BOUND})


def test_a_decision_under_way_is_joined() -> None:
    desk = Desk()
    bind = a_bind()
    desk.decide(bind)
    assert desk.decide(bind) == []
    desk.answer(bind, Finding.UNCLEAR, retry_after_s=30.0)
    desk.later(4.0)
    assert desk.decide(bind) == [Acknowledge(bind.id, stale=False)]


def test_decisions_of_an_older_epoch_are_dropped_and_so_are_those_that_wait() -> None:
    desk = Desk()
    begun, waits, late = a_bind(), a_bind(claim="other"), a_bind("b")
    desk.decide(begun, waits)
    assert desk.decide(epoch=2) == [Acknowledge(waits.id, stale=True)]
    assert desk.decide(late, epoch=1) == [Acknowledge(late.id, stale=True)]
    assert outcomes(desk.answer(begun, Finding.BOUND)) == {begun.id: BindOutcome.BOUND}
    assert started(desk.decide(late, epoch=2)) == [("b", Verb.BIND)]


def test_slots_are_kept_for_fences_and_evictions() -> None:
    desk = Desk(slots=4, urgent_slots=1)
    binds = [a_bind(f"p{i}") for i in range(6)]
    assert len(started(desk.decide(*binds))) == 3
    assert started(desk.decide(an_evict("x"), an_evict("y"))) == [("x", Verb.EVICT)]
    assert started(desk.answer(binds[0], Finding.BOUND)) == [("y", Verb.EVICT)]


def test_binds_are_begun_at_the_rate() -> None:
    desk = Desk(binds_per_s=100.0)
    binds = [a_bind(f"p{i}") for i in range(10)]
    assert len(started(desk.decide(*binds))) == 5, "the burst: a twentieth of a second's worth"
    wake = desk.core.next_wake()
    assert wake is not None
    assert len(started(desk.later(wake - desk.now + 1e-6))) == 1
    assert len(started(desk.later(1.0))) == 4


def test_a_storm_of_evictions_is_held_back_said_and_over_again() -> None:
    desk = Desk(evictions_per_min=2.0)
    evictions = [an_evict(f"p{i}") for i in range(3)]
    effects = desk.decide(*evictions, a_revoke("r"))
    assert started(effects) == [("r", Verb.FENCE), ("p0", Verb.EVICT), ("p1", Verb.EVICT)]
    assert Breaker(open=True, waiting=1) in effects
    assert outcomes(desk.later(5.0))[evictions[2].id] is BindOutcome.UNKNOWN
    effects = desk.later(25.1)
    assert started(effects) == [("p2", Verb.EVICT)]
    assert Breaker(open=False, waiting=0) in effects


def test_an_eviction_that_is_refused_is_never_given_up() -> None:
    desk = Desk()
    evict = an_evict()
    desk.decide(evict)
    assert outcomes(desk.answer(evict, Finding.REFUSED)) == {evict.id: BindOutcome.UNKNOWN}
    assert started(desk.later(10.1)) == [("a", Verb.EVICT)]


def test_a_very_long_message_is_cut() -> None:
    desk = Desk()
    bind = a_bind()
    desk.decide(bind)
    (report,) = [e for e in desk.answer(bind, Finding.GONE, message="x" * 1_000_000) if isinstance(e, Report)]
    assert len(report.outcome.message) == 1000


def test_memory_is_bounded() -> None:
    desk = Desk(remembered=10)
    for i in range(50):
        bind = a_bind(f"p{i}")
        desk.decide(bind)
        desk.answer(bind, Finding.BOUND)
    assert len(desk.core._settled) == len(desk.core._last_word) == 10


@pytest.mark.parametrize(
    ("value", "forbidden"),
    [
        ("", False),
        (fence_value(ClaimId("mine"), 1), False),
        (fence_value(ClaimId("mine"), 2), True),
        (fence_value(ClaimId("mine"), 3), True),
        (fence_value(ClaimId("other"), 1), True),
        ("7", True),
        ("mine:x", True),
        ("mine:" + "9" * 5000, True),
    ],
)
def test_which_fences_forbid_the_second_decision_of_my_claim(value: str, forbidden: bool) -> None:
    assert fences_off(value, ClaimId("mine"), 2) is forbidden


def test_an_eviction_that_a_budget_forbids_is_said_to_be_blocked_at_once_and_again_to_who_sends_it_again() -> None:
    desk = Desk()
    evict = an_evict()
    desk.decide(evict)
    for effects in (desk.answer(evict, Finding.BLOCKED, message="web needs 3"), desk.decide(evict, epoch=2)):
        (report,) = [effect for effect in effects if isinstance(effect, Report)]
        said = report.outcome
        assert (said.outcome, said.blocked, said.message, said.reason) == (BindOutcome.UNKNOWN, True, "web needs 3", "unwound")
    desk.later(0.2)
    desk.answer(evict, Finding.UNCLEAR)
    desk.later(10.0)
    assert [e.outcome.blocked for e in desk.effects if isinstance(e, Report)] == [True, True, False]


def test_four_thousand_blocked_evictions_keep_no_new_one_waiting() -> None:
    """They were asked for again out of the rate of all, in front of what is new: it began after 110 s."""
    core, now, calls = Binder(Limits()), 0.0, 0

    def refuse(effects: list[Effect]) -> None:
        nonlocal calls
        asked = [e.call.decision.id for e in effects if isinstance(e, Start)]
        while asked:
            calls += 1
            answered = core.step(Answered(asked.pop(), Answer(Finding.BLOCKED)), now=now, wall=0.0)
            asked += [e.call.decision.id for e in answered if isinstance(e, Start)]

    refuse(core.step(Decided(Epoch(1), tuple(an_evict(f"p{i}") for i in range(4000))), now=now, wall=0.0))
    assert calls == 4000, "the rate is of those who leave"
    while now < 60.0:
        now += 0.25
        refuse(core.step(Ticked(), now=now, wall=0.0))
    assert 1000 < calls - 4000 <= core.limits.retries_per_s * 60 * 1.1
    fresh = core.step(Decided(Epoch(1), (an_evict("fresh"),)), now=now, wall=0.0)
    assert ("fresh", Verb.EVICT) in started(fresh), "at once"


def test_blocked_evictions_that_may_go_at_last_are_held_back_as_any_storm() -> None:
    desk = Desk(evictions_per_min=60.0)
    evictions = [an_evict(f"p{i}") for i in range(200)]
    effects = desk.decide(*evictions)
    while calls := [e.call.decision for e in effects if isinstance(e, Start)]:
        effects = [e for call in calls for e in desk.answer(call, Finding.BLOCKED)]
    accepted = 0
    for _ in range(60):
        calls = [e.call.decision for e in desk.later(1.0) if isinstance(e, Start)]
        while calls:
            accepted += len(calls)
            calls = [e.call.decision for call in calls for e in desk.answer(call, Finding.ACCEPTED) if isinstance(e, Start)]
    assert 60 <= accepted <= 121, "the burst, and one a second"


def test_volumes_are_bound_before_their_pod() -> None:
    desk, bind = Desk(), a_bind(volume_claims=("data",))
    assert started(desk.decide(bind)) == [("a", Verb.VOLUME)]
    assert started(desk.answer(bind, Finding.WAITING)) == []
    assert started(desk.later(1.0)) == [("a", Verb.VOLUME)]
    assert started(desk.answer(bind, Finding.READY)) == [("a", Verb.BIND)]
    assert outcomes(desk.answer(bind, Finding.BOUND)) == {bind.id: BindOutcome.BOUND}


def test_volume_that_is_not_made_for_the_node_ends_in_a_fence_and_a_rejection() -> None:
    desk, bind = Desk(), a_bind(volume_claims=("data",))
    desk.decide(bind)
    assert started(desk.answer(bind, Finding.REFUSED, message="no volume on n1")) == [("a", Verb.FENCE)]
    effects = desk.answer(bind, Finding.UNBOUND)
    assert outcomes(effects) == {bind.id: BindOutcome.REJECTED}
    assert [e.outcome.message for e in effects if isinstance(e, Report)] == ["no volume on n1"]


def test_wait_for_a_volume_is_counted_from_the_first_call_that_found_all_claims_with_a_node() -> None:
    desk, bind = Desk(), a_bind(volume_claims=("data",))
    desk.decide(bind)
    desk.answer(bind, Finding.UNCLEAR)
    desk.later(10.0)
    desk.answer(bind, Finding.WAITING)
    since = desk.wall
    for _ in range(3):
        (start,) = [e for e in desk.later(1.0) if isinstance(e, Start)]
        assert start.call.waits_since == since
        desk.answer(bind, Finding.WAITING)


def test_binds_precede_reads_of_claims_that_wait_for_volumes() -> None:
    desk = Desk(slots=2, urgent_slots=1)
    waiting = [a_bind(pod, volume_claims=("data",)) for pod in "ab"]
    desk.decide(*waiting)
    for bind in waiting:
        desk.answer(bind, Finding.WAITING)
    assert started(desk.later(1.0)) == [("a", Verb.VOLUME)]
    desk.decide(a_bind("c"))
    assert started(desk.answer(waiting[0], Finding.WAITING)) == [("c", Verb.BIND)]


def test_reads_of_claims_that_wait_for_volumes_are_limited() -> None:
    desk = Desk(volume_reads_per_s=10.0, slots=4, urgent_slots=1)
    waiting = [a_bind(f"p{i}", volume_claims=("data",)) for i in range(50)]
    open_calls = started(desk.decide(*waiting))
    reads = 0
    by_pod = {bind.pod: bind for bind in waiting}
    for _ in range(400):
        answered, open_calls = open_calls, []
        for pod, _ in answered:
            open_calls += started(desk.answer(by_pod[pod], Finding.WAITING))
        reads += len(answered)
        open_calls += started(desk.later(0.01))
    assert 50 <= reads <= 50 + 4 + 40, "each once, the burst, and ten a second for four seconds"


def test_wait_for_a_volume_ends_at_the_deadline_of_the_bind() -> None:
    desk = Desk()
    bind = a_bind(volume_claims=("data",), deadline=desk.wall + 5.0)
    desk.decide(bind)
    desk.answer(bind, Finding.WAITING)
    assert started(desk.later(5.0)) == [("a", Verb.FENCE)]
    assert outcomes(desk.answer(bind, Finding.UNBOUND)) == {bind.id: BindOutcome.EXPIRED}
