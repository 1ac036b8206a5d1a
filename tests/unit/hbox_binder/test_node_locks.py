"""Turns on a node in allocation, and whose lock may be removed."""

from dataclasses import replace

import pytest

from hbox_binder.core import (
    Answer,
    Answered,
    Binder,
    CardsChanged,
    Decided,
    Effect,
    Finding,
    Limits,
    LockStands,
    NodeCards,
    Report,
    Start,
    Ticked,
    Unlock,
    Unlocked,
    Verb,
)
from hbox_binder.core.stalelocks import LockOwner, stale
from hbox_common.errors import InvalidRequest
from hbox_common.events import Bind, BindOutcome, Evict, EvictKind
from hbox_common.model import (
    CardSlice,
    ClaimId,
    DecisionId,
    Epoch,
    Generation,
    JobId,
    NodeName,
    NodeState,
    PlanId,
    PodUid,
    QueueName,
)
from hbox_common.model.devices import Card, parse_lock

N1, N2 = NodeName("n1"), NodeName("n2")
CARDS = tuple(Card(index=i, uuid=f"GPU-{i}", model="A100", memory_mib=40_960, shares=10, kind="NVIDIA") for i in range(2))


def state(name: NodeName, *registered: str, cards: tuple[Card, ...] = CARDS) -> NodeState:
    return NodeState(name, name, Generation(1), True, cards=cards, registered=registered)


def a_bind(pod: str, node: NodeName = N1, *, deadline: float = 0.0, layout: str = "") -> Bind:
    return Bind(
        DecisionId(pod), ClaimId(pod), 1, PlanId("p"), JobId("j"), QueueName("q"), "ml", pod, PodUid(pod), "1", node,
        (CardSlice(0, 30, 3000),), deadline, layout=layout,
    )  # fmt: skip


class Desk:
    def __init__(self, *registered: str) -> None:
        self.cards = NodeCards()
        for node in (N1, N2):
            self.cards.see(state(node, *registered))
        self.core = Binder(Limits(), takes_turns=self.cards.takes_turns)
        self.now, self.set_back_s = 0.0, 0.0

    def step(self, event: Decided | Answered | Unlocked | LockStands | CardsChanged | Ticked) -> list[Effect]:
        effects = self.core.step(event, now=self.now, wall=self.now - self.set_back_s)
        self.core.validate()
        return effects

    def decide(self, *decisions: Bind | Evict) -> list[str]:
        return started(self.step(Decided(Epoch(1), decisions)))

    def answer(self, bind: Bind, finding: Finding) -> list[Effect]:
        return self.step(Answered(bind.id, Answer(finding)))


def started(effects: list[Effect]) -> list[str]:
    return [f"{effect.call.verb} {effect.call.decision.pod}" for effect in effects if isinstance(effect, Start)]


def test_one_pod_a_node_is_in_allocation_and_other_nodes_are_not_slowed() -> None:
    desk = Desk("NVIDIA")
    a, b, other = a_bind("a"), a_bind("b"), a_bind("other", N2)
    assert desk.decide(a, b, other) == ["bind a", "bind other"]
    assert desk.core.in_line == 1
    assert started(desk.answer(a, Finding.BOUND)) == [], "its cards are not handed over yet"
    assert started(desk.step(Unlocked(N1))) == ["bind b"]


def test_nodes_without_a_plugin_of_hamis_have_no_turns() -> None:
    assert Desk().decide(a_bind("a"), a_bind("b")) == ["bind a", "bind b"]


def test_who_finds_the_node_locked_is_still_the_next() -> None:
    desk = Desk("NVIDIA")
    a, b = a_bind("a"), a_bind("b")
    desk.decide(a, b)
    assert started(desk.answer(a, Finding.LOCKED)) == []
    assert started(desk.step(Unlocked(N1))) == ["bind a"]


def locked_by(pod: str) -> Answer:
    return Answer(Finding.LOCKED, holder=("ml", pod))


def test_the_pod_that_has_the_lock_already_comes_first() -> None:
    """A binder that was killed locked the node for c, and nobody else would ever release it."""
    desk = Desk("NVIDIA")
    a, b, c = a_bind("a"), a_bind("b"), a_bind("c")
    desk.decide(a, b, c)
    assert started(desk.step(Answered(a.id, locked_by("c")))) == ["bind c"]
    assert started(desk.answer(c, Finding.BOUND)) == []
    assert started(desk.step(Unlocked(N1))) == ["bind a"]


def test_the_pod_that_has_the_lock_comes_first_whenever_its_decision_comes() -> None:
    desk = Desk("NVIDIA")
    a, b, c = a_bind("a"), a_bind("b"), a_bind("c")
    desk.decide(a, b)
    assert started(desk.step(Answered(a.id, locked_by("c")))) == []
    assert desk.decide(c) == ["bind c"]
    assert desk.core.in_line == 2


def test_the_pod_that_has_the_lock_comes_first_though_the_one_before_it_is_bound_already() -> None:
    """A binder bound a, locked the node for c, and was killed: the next one finds a bound, and the lock that stands is not a's."""
    desk = Desk("NVIDIA")
    a, b, c = a_bind("a"), a_bind("b"), a_bind("c")
    desk.decide(a, b, c)
    desk.answer(a, Finding.BOUND)
    assert started(desk.step(LockStands(N1, ("ml", "a")))) == [], "its plugin hands over"
    assert started(desk.step(LockStands(N1, ("ml", "c")))) == ["bind c"]
    assert started(desk.step(LockStands(N1, ("ml", "b")))) == [], "it is somebody's turn"
    desk.answer(c, Finding.BOUND)
    assert started(desk.step(Unlocked(N1))) == ["bind b"]


def test_two_that_each_say_the_other_has_the_lock_do_not_go_on_for_ever() -> None:
    desk = Desk("NVIDIA")
    a, b = a_bind("a"), a_bind("b")
    desk.decide(a, b)
    assert started(desk.answer(a, Finding.LOCKED)) == [], "locks of several pods have no holder"
    assert started(desk.step(Unlocked(N1))) == ["bind a"]


def test_a_lock_that_a_bound_pod_had_lets_nobody_in_before_it_is_gone() -> None:
    desk = Desk("NVIDIA")
    a, b = a_bind("a"), a_bind("b")
    desk.decide(a)
    desk.answer(a, Finding.BOUND)
    assert desk.decide(b) == []


def test_a_node_that_waits_for_its_next_pod_comes_before_the_rest_of_the_line() -> None:
    desk = Desk("NVIDIA")
    desk.cards.see(state(N2))  # without a plugin
    desk.core.limits = Limits(slots=2, urgent_slots=0)
    a, b = a_bind("a"), a_bind("b")
    others = [a_bind(f"other-{i}", N2) for i in range(4)]
    assert desk.decide(a, others[0], b, *others[1:]) == ["bind a", "bind other-0"]
    assert started(desk.answer(a, Finding.BOUND)) == ["bind other-1"]
    assert started(desk.step(Unlocked(N1))) == []
    assert started(desk.answer(others[0], Finding.BOUND)) == ["bind b"]


@pytest.mark.parametrize(("finding", "outcome"), [(Finding.GONE, BindOutcome.GONE), (Finding.ELSEWHERE, BindOutcome.CONFLICT)])
def test_a_bind_of_which_nothing_came_unlocks_its_node(finding: Finding, outcome: BindOutcome) -> None:
    desk = Desk("NVIDIA")
    a, b = a_bind("a"), a_bind("b")
    desk.decide(a, b)
    effects = desk.answer(a, finding)
    assert [e.bind.pod for e in effects if isinstance(e, Unlock)] == ["a"]
    assert [e.outcome.outcome for e in effects if isinstance(e, Report)] == [outcome]
    assert started(effects) == []
    assert started(desk.step(Unlocked(N1))) == ["bind b"]


def test_who_stands_in_line_is_reported_and_expires_like_any_other() -> None:
    desk = Desk("NVIDIA")
    a, b = a_bind("a"), a_bind("b", deadline=5.0)
    desk.decide(a, b)
    desk.answer(a, Finding.BOUND)
    desk.now = 3.1
    assert [e.outcome.outcome for e in desk.step(Ticked()) if isinstance(e, Report)] == [BindOutcome.UNKNOWN]
    desk.now = 5.0
    assert started(desk.step(Ticked())) == ["fence b"]
    assert [e.outcome.outcome for e in desk.answer(b, Finding.UNBOUND) if isinstance(e, Report)] == [BindOutcome.EXPIRED]


def test_who_stands_in_line_expires_also_where_the_wall_clock_was_set_back_meanwhile() -> None:
    """By a microsecond, as where two clocks are read one after the other, or by minutes."""
    desk = Desk("NVIDIA")
    a, b = a_bind("a"), a_bind("b", deadline=5.0)
    desk.decide(a, b)
    desk.answer(a, Finding.BOUND)
    desk.now, desk.set_back_s = 5.0, 60.0
    assert started(desk.step(Ticked())) == []
    desk.now = 65.1
    wakes_at = desk.core.next_wake()
    assert wakes_at is not None
    assert wakes_at <= desk.now
    assert started(desk.step(Ticked())) == ["fence b"]


def test_a_revocation_takes_the_pod_out_of_the_line() -> None:
    desk = Desk("NVIDIA")
    a, b, c = a_bind("a"), a_bind("b"), a_bind("c")
    desk.decide(a, b, c)
    revoke = Evict(
        id=DecisionId("b-2"), kind=EvictKind.REVOKE, claim=b.claim, generation=2, job=b.job, namespace="ml", pod="b", pod_uid=b.pod_uid, reason=""
    )  # fmt: skip
    assert desk.decide(revoke) == ["fence b"]
    desk.answer(a, Finding.BOUND)
    assert started(desk.step(Unlocked(N1))) == ["bind c"]


def test_a_bind_says_for_how_long_it_stood_in_line() -> None:
    desk = Desk("NVIDIA")
    a, b = a_bind("a"), a_bind("b")
    desk.decide(a, b)
    desk.answer(a, Finding.BOUND)
    desk.now = 0.5
    [start] = [e for e in desk.step(Unlocked(N1)) if isinstance(e, Start)]
    assert (start.lock_wait_s, start.call.locked, start.call.verb) == (0.5, True, Verb.BIND)


def test_cards_that_are_not_known_yet_are_waited_for() -> None:
    cards = NodeCards()
    bind = a_bind("a")
    assert not cards.knows(bind)
    cards.see(state(N1, "NVIDIA", cards=()))
    assert not cards.knows(bind)
    cards.see(state(N1, "NVIDIA"))
    assert cards.knows(bind)
    card = state(N1, "NVIDIA").cards[0]
    named = replace(bind, slices=(replace(bind.slices[0], card=card.id),))
    assert (cards.knows(named), cards.lacking(named)) == (True, "")
    other = replace(card, uuid="GPU-other")  # has the index of the lost card
    cards.see(replace(state(N1, "NVIDIA", cards=(other,)), lost=(card,)))
    assert (cards.knows(named), cards.lacking(named)) == (False, "node n1 has lost card GPU-0")


def test_binds_to_cards_of_a_deleted_node_are_refused_until_the_new_node_has_these_cards() -> None:
    cards = NodeCards()
    old = replace(state(N1, "NVIDIA"), uid="old")
    cards.see(old)
    card = old.cards[0]
    bind = replace(a_bind("a"), slices=(replace(a_bind("a").slices[0], card=card.id),))
    assert cards.see(replace(old, cards=(), registered=(), gone=True))
    assert (cards.knows(bind), cards.lacking(bind)) == (False, "node n1 was deleted")
    new = replace(old, uid="new", cards=())
    for same in (True, False):
        assert cards.see(new) is same, "other cards, and then the same ones"
        assert (cards.knows(bind), cards.lacking(bind)) == (False, "node n1 has lost card GPU-0")
    assert cards.see(replace(new, cards=(card,)))
    assert cards.knows(bind)


def test_bind_that_waits_for_another_attempt_starts_when_the_cards_of_its_node_change() -> None:
    desk = Desk("NVIDIA")
    a, b = a_bind("a"), a_bind("b")
    desk.decide(a, b)
    for wait_s in (0.1, 0.2, 0.4, 0.8, 1.6):
        desk.answer(a, Finding.UNCLEAR)
        desk.now += wait_s
        assert started(desk.step(Ticked())) == ["bind a"]
    desk.answer(a, Finding.UNCLEAR)
    assert started(desk.step(CardsChanged(N2))) == []
    assert started(desk.step(CardsChanged(N1))) == ["bind a"]
    desk.answer(a, Finding.REFUSED)
    desk.answer(a, Finding.UNBOUND)
    assert started(desk.step(Unlocked(N1))) == ["bind b"]


def test_bind_that_may_be_made_is_read_before_its_node_is_locked_again_when_the_cards_change() -> None:
    desk = Desk("NVIDIA")
    a = a_bind("a")
    desk.decide(a)
    desk.answer(a, Finding.UNCLEAR)
    [start] = [effect for effect in desk.step(CardsChanged(N1)) if isinstance(effect, Start)]
    assert start.call.locked
    assert start.call.seen


def test_the_layout_says_which_container_has_the_cards() -> None:
    cards = NodeCards()
    cards.see(state(N1, "NVIDIA"))
    allocation = cards.allocation(a_bind("a", layout=";|;0:30:3000;;"), 0.0)
    assert allocation.annotations["hami.io/vgpu-devices-to-allocate"] == ";;GPU-0,NVIDIA,3000,30:;;"
    assert (allocation.locks, allocation.labels) == (("hami.io/mutex.lock",), {"hami.io/vgpu-node": "n1"})
    for wrong in ("1:30:3000;", "garbage;"):
        with pytest.raises(InvalidRequest):
            cards.allocation(a_bind("a", layout=wrong), 0.0)


PENDING = LockOwner(node="n1", ended=False, admitted=False, waited_for=False)
LOCK = parse_lock("2027-01-15T08:00:00Z,ml,a")


@pytest.mark.parametrize(
    ("owner", "seen_s", "why"),
    [
        (None, 0.0, "pod gone"),
        (PENDING, 60.0, ""),
        (PENDING, 301.0, ""),  # without the lock the plugin would allocate it the cards of the next pod
        (LockOwner("", ended=False, admitted=False, waited_for=True), 301.0, "expired"),
        (LockOwner("n1", ended=True, admitted=True, waited_for=False), 0.0, "pod ended"),
        (LockOwner("n2", ended=False, admitted=False, waited_for=False), 0.0, "pod elsewhere"),
        (LockOwner("n1", ended=False, admitted=True, waited_for=False), 1.0, ""),
        (LockOwner("n1", ended=False, admitted=True, waited_for=False), 2.0, "pod admitted"),
        (LockOwner("", ended=False, admitted=False, waited_for=True), 60.0, ""),
        (LockOwner("", ended=False, admitted=False, waited_for=False), 9.0, ""),
        (LockOwner("", ended=False, admitted=False, waited_for=False), 10.0, "never bound"),
    ],
)
def test_a_lock_is_removed_when_its_pod_shows_that_nobody_needs_it(owner: LockOwner | None, seen_s: float, why: str) -> None:
    assert stale(LOCK, owner, node="n1", now=LOCK.at + seen_s, seen_s=seen_s, expires_s=300.0) == why


@pytest.mark.parametrize("text", ["garbage", "2099-01-01T00:00:00Z", "2099-01-01T00:00:00Z,ml,a"])
def test_a_lock_of_no_time_or_of_one_to_come_expires_by_when_it_was_seen(text: str) -> None:
    lock = parse_lock(text)
    unbound = LockOwner("", ended=False, admitted=False, waited_for=True)
    assert stale(lock, unbound, node="n1", now=LOCK.at, seen_s=299.0, expires_s=300.0) == ""
    assert stale(lock, unbound, node="n1", now=LOCK.at, seen_s=301.0, expires_s=300.0) == "expired"
