"""From what a node shows to what is said and done about it."""

from dataclasses import replace
from typing import Any

import pytest

from hbox_common.events import NodeAction
from hbox_common.model import Card, CardId, Generation, NodeName, NodeState, Taint, TaintEffect, Verdict
from hbox_common.model.annotations import HEALTH_TAINT
from hbox_health.core import (
    OWNER,
    Breaker,
    Decide,
    Effect,
    Event,
    Judged,
    Monitor,
    NodeSeen,
    Publish,
    Retire,
    Rules,
    Scopes,
    Synced,
    Ticked,
    VerdictHeard,
    VerdictsLost,
)

WALL = 1_700_000_000.0
CARDS = tuple(Card(index=i, uuid=f"u{i}", model="A100", memory_mib=40_000) for i in range(2))


def a_node(name: str = "n1", **facts: Any) -> NodeState:
    defaults: dict[str, Any] = {"uid": f"uid-{name}", "generation": Generation(1), "ready": True, "cards": CARDS}
    return NodeState(name=NodeName(name), **(defaults | facts))


def cards(*bad: int) -> tuple[Card, ...]:
    return tuple(replace(card, healthy=card.index not in bad) for card in CARDS)


class Ward:
    """A monitor with a clock."""

    def __init__(self, *, synced: bool = True, **rules: Any) -> None:
        self.core = Monitor(Rules(bad_conditions=("MemoryPressure", "XidError"), **rules))
        self.now = 50.0
        if synced:
            self.step(Synced())

    def step(self, event: Event) -> list[Effect]:
        effects = self.core.step(event, now=self.now, wall=WALL + self.now)
        self.core.validate()
        return effects

    def see(self, name: str = "n1", **facts: Any) -> list[Effect]:
        return self.step(NodeSeen(a_node(name, **facts)))

    def later(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.step(Ticked())


def said(effects: list[Effect]) -> list[tuple[bool, tuple[int, ...], str]]:
    return [(e.verdict.healthy, e.verdict.bad_cards, e.verdict.reason) for e in effects if isinstance(e, Publish)]


def decided(effects: list[Effect]) -> list[tuple[str, NodeAction]]:
    return [(e.node, e.action) for e in effects if isinstance(e, Decide)]


@pytest.mark.parametrize(
    ("facts", "verdict", "cordon"),
    [
        ({}, None, False),
        ({"ready": False}, (False, (), "not ready"), False),
        ({"conditions": {"MemoryPressure": "True"}}, (False, (), "MemoryPressure"), True),
        ({"conditions": {"XidError": "True"}}, (False, (), "XidError"), True),
        ({"conditions": {"XidError": "Unknown", "MemoryPressure": "False"}}, None, False),
        ({"conditions": {"SomethingElse": "True"}}, None, False),
        ({"cards": cards(1)}, (True, (1,), "card u1 unhealthy"), False),
        ({"cards": cards(0, 1)}, (False, (0, 1), "all cards unhealthy"), True),
        ({"ready": False, "conditions": {"XidError": "True"}}, (False, (), "not ready; XidError"), True),
        ({"cards": ()}, None, False),
    ],
)
def test_what_a_node_shows_is_what_is_said_of_it_at_once(
    facts: dict[str, Any], verdict: tuple[bool, tuple[int, ...], str] | None, cordon: bool
) -> None:
    effects = Ward().see(**facts)
    assert said(effects) == ([verdict] if verdict else [])
    assert decided(effects) == ([("n1", NodeAction.CORDON)] if cordon else [])


def test_good_counts_only_after_a_while_without_a_break() -> None:
    ward = Ward()
    ward.see()
    ward.see(ready=False)
    assert ward.see() == []
    assert ward.later(20) == []
    assert ward.see(ready=False) == []
    assert ward.see() == []
    assert ward.later(29.9) == []
    assert said(ward.later(0.2)) == [(True, (), "")]
    assert ward.later(100) == []


def test_each_card_recovers_by_itself() -> None:
    ward = Ward(cordon=False)
    ward.see(cards=cards(0))
    assert said(ward.see(cards=cards(1))) == [(False, (0, 1), "all cards unhealthy")]
    assert said(ward.later(31)) == [(True, (1,), "card u1 unhealthy")]


def test_a_card_that_vanishes_stays_bad_until_it_is_back_and_well() -> None:
    ward = Ward()
    ward.see(cards=cards(1))
    ward.see(cards=CARDS[:1])
    assert ward.later(1000) == []
    assert ward.see(cards=CARDS) == []
    assert said(ward.later(31)) == [(True, (), "")]


def test_generations_follow_the_clock_and_never_fall() -> None:
    ward = Ward(synced=False)
    ahead = Generation(int((WALL + 1e6) * 1000))
    ward.step(VerdictHeard(Verdict(NodeName("n1"), ahead, healthy=True)))
    ward.step(Synced())
    (publish,) = [e for e in ward.see(ready=False) if isinstance(e, Publish)]
    assert publish.verdict.generation == ahead + 1
    (publish,) = [e for e in ward.see("n2", ready=False) if isinstance(e, Publish)]
    assert publish.verdict.generation == int((WALL + ward.now) * 1000)


def test_nothing_is_said_before_the_stream_was_read() -> None:
    ward = Ward(synced=False)
    assert ward.see(ready=False) == []
    assert said(ward.step(Synced())) == [(False, (), "not ready")]


def test_a_restart_says_nothing_that_was_said_already() -> None:
    ward = Ward(synced=False)
    ward.see(ready=False)
    ward.step(VerdictHeard(Verdict(NodeName("n1"), Generation(7), healthy=False, reason="not ready")))
    assert ward.step(Synced()) == []
    assert ward.later(100) == []


def test_a_fault_that_ended_while_nobody_looked_recovers_from_the_restart_on() -> None:
    ward = Ward(synced=False)
    ward.see(unschedulable=True, cordoned_by=OWNER)
    ward.step(
        VerdictHeard(
            Verdict(NodeName("n1"), Generation(7), healthy=False, bad_cards=(1,), reason="XidError", cards=(CardId("gpu:u1"),))
        )
    )
    assert said(ward.step(Synced())) == []
    assert ward.later(29) == []
    effects = ward.later(2)
    assert (said(effects), decided(effects)) == ([(True, (), "")], [("n1", NodeAction.UNCORDON)])


def test_verdict_on_a_card_counts_for_its_mig_instances_and_no_others() -> None:
    """A sick card is divided while it is sick: its instances are new cards of the node, and the card itself is none."""
    ward = Ward(recover_after_s=30.0)
    ward.see(cards=cards(0))
    parts = tuple(Card(i + 2, f"MIG-{i}", "A100", 5_000, parent=f"u{i}") for i in range(2))
    ward.see(cards=parts, lost=(replace(CARDS[0], healthy=False), CARDS[1]))
    verdict = ward.core.verdicts[NodeName("n1")]
    assert [verdict.marks_unhealthy(part) for part in parts] == [True, False]
    assert verdict.healthy
    ward.later(31.0)
    assert not ward.core.verdicts[NodeName("n1")].marks_unhealthy(parts[0]), "its plugin reports the instance healthy"


@pytest.mark.parametrize("healthy", [True, False])
def test_card_without_healthy_mig_instances_does_not_recover(*, healthy: bool) -> None:
    ward = Ward(recover_after_s=30.0)
    ward.see(cards=cards(0))
    part = Card(2, "MIG-0", "A100", 5_000, parent="u0", healthy=healthy)
    ward.see(cards=(part,), lost=(replace(CARDS[0], healthy=False), CARDS[1]))
    assert not ward.core.verdicts[NodeName("n1")].healthy, "all that is left of the node is of the sick card"
    ward.later(31.0)
    verdict = ward.core.verdicts[NodeName("n1")]
    assert (verdict.healthy, "gpu:u0" in verdict.cards) == (healthy, not healthy)


def test_a_lost_stream_gets_all_that_stands_again() -> None:
    ward = Ward()
    ward.see("a", ready=False)
    ward.see("b")
    assert said(ward.step(VerdictsLost())) == [(False, (), "not ready")]


def test_a_lost_stream_gets_no_verdict_of_a_node_that_is_gone() -> None:
    ward = Ward()
    ward.see("a", ready=False)
    ward.see("a", gone=True)
    assert ward.step(VerdictsLost()) == []
    assert said(ward.see("a", uid="another", ready=False)) == [(False, (), "not ready")]


def test_a_node_that_comes_back_as_another_starts_anew() -> None:
    ward = Ward()
    ward.see(ready=False)
    assert said(ward.see(gone=True)) == []
    assert said(ward.see(uid="another")) == [(True, (), "")]


def test_a_cordon_is_asked_for_again_until_the_node_shows_it() -> None:
    ward = Ward()
    sick = {"XidError": "True"}
    assert decided(ward.see(conditions=sick)) == [("n1", NodeAction.CORDON)]
    assert ward.later(59) == []
    assert decided(ward.later(2)) == [("n1", NodeAction.CORDON)]
    assert ward.see(conditions=sick, unschedulable=True, cordoned_by=OWNER) == []
    assert ward.later(1000) == []


def test_what_we_closed_is_opened_when_it_is_well_again() -> None:
    ward = Ward()
    ward.see(conditions={"XidError": "True"})
    closed: dict[str, Any] = {"unschedulable": True, "cordoned_by": OWNER}
    ward.see(conditions={"XidError": "True"}, **closed)
    assert ward.see(**closed) == []
    effects = ward.later(31)
    assert (said(effects), decided(effects)) == ([(True, (), "")], [("n1", NodeAction.UNCORDON)])
    assert decided(ward.later(61)) == [("n1", NodeAction.UNCORDON)]
    assert ward.see() == []
    assert ward.later(100) == []


def test_what_others_closed_is_left_alone() -> None:
    ward = Ward()
    theirs: dict[str, Any] = {"unschedulable": True, "cordoned_by": ""}
    assert decided(ward.see(conditions={"XidError": "True"}, **theirs)) == []
    ward.see(**theirs)
    assert decided(ward.later(31)) == []


def test_a_node_opened_by_hand_is_left_open_until_its_faults_are_over() -> None:
    ward = Ward()
    sick = {"XidError": "True"}
    ward.see(conditions=sick)
    ward.see(conditions=sick, unschedulable=True, cordoned_by=OWNER)
    assert decided(ward.see(conditions=sick)) == []
    assert decided(ward.later(1000)) == []
    ward.see()
    ward.later(31)
    assert decided(ward.see(conditions=sick)) == [("n1", NodeAction.CORDON)]


def test_cordon_marks_end_with_the_cordon_and_a_later_manual_cordon_stays() -> None:
    ward = Ward()
    sick = {"XidError": "True"}
    ward.see(conditions=sick)
    closed: dict[str, Any] = {"unschedulable": True, "cordoned_by": OWNER}
    ward.see(conditions=sick, **closed)
    ward.see(**closed)
    assert decided(ward.see(cordoned_by=OWNER)) == [("n1", NodeAction.UNCORDON)], "uncordoned by hand: remove the marks"
    assert decided(ward.see(**closed)) == [], "cordoned by hand before the marks were removed"
    assert decided(ward.later(31)) == []
    assert decided(ward.later(1000)) == []
    ward.see(unschedulable=True)
    assert decided(ward.later(1000)) == []
    ward.see()
    assert decided(ward.see(conditions=sick)) == [("n1", NodeAction.CORDON)]


def test_a_fault_that_comes_back_while_the_node_is_being_opened_closes_it_again() -> None:
    ward = Ward()
    sick = {"XidError": "True"}
    closed: dict[str, Any] = {"unschedulable": True, "cordoned_by": OWNER}
    ward.see(conditions=sick, **closed)
    ward.see(**closed)
    assert decided(ward.later(31)) == [("n1", NodeAction.UNCORDON)]
    assert decided(ward.see(conditions=sick, **closed)) == [("n1", NodeAction.CORDON)]


def test_no_more_than_a_tenth_of_the_nodes_is_closed_and_the_rest_waits_its_turn() -> None:
    ward = Ward()
    sick = {"XidError": "True"}
    closed: dict[str, Any] = {"unschedulable": True, "cordoned_by": OWNER}
    for i in range(20):
        ward.see(f"n{i}")
    ward.see("no-cards", cards=())
    assert ward.core.limit(with_cards=True) == 2
    effects = [effect for i in range(3) for effect in ward.see(f"n{i}", conditions=sick)]
    assert decided(effects) == [("n0", NodeAction.CORDON), ("n1", NodeAction.CORDON)]
    assert said(effects)[-1] == (False, (), "XidError; not cordoned, since too many nodes are")
    assert Breaker(1) in effects
    assert decided(ward.see("no-cards", cards=(), conditions=sick)) == [("no-cards", NodeAction.CORDON)], "its kind has room"
    for i in range(2):
        ward.see(f"n{i}", conditions=sick, **closed)
        ward.see(f"n{i}", **closed)
    assert sorted(decided(ward.later(31))) == [("n0", NodeAction.UNCORDON), ("n1", NodeAction.UNCORDON)]
    effects = ward.see("n0")
    effects += ward.later(1)
    assert decided(effects) == [("n2", NodeAction.CORDON)]
    assert Breaker(0) in effects
    assert said(effects) == [(False, (), "XidError")]


def test_nodes_in_maintenance_are_cordoned_beyond_the_limit_and_leave_room_for_sick_ones() -> None:
    ward = Ward()
    for i in range(20):
        ward.see(f"n{i}")
    assert ward.core.limit(with_cards=True) == 2

    def maintain(i: int) -> list[Effect]:
        effects = ward.step(Judged(NodeName(f"n{i}"), Scopes(node=False, ordered=True, reason="maintenance")))
        return effects + ward.see(f"n{i}", unschedulable=True, cordoned_by=OWNER)

    for i in range(4):
        assert decided(maintain(i)) == [(f"n{i}", NodeAction.CORDON)]
    effects = [
        effect for i in range(5, 8) for effect in ward.step(Judged(NodeName(f"n{i}"), Scopes(node=False, reason="reboot")))
    ]
    assert decided(effects) == [("n5", NodeAction.CORDON), ("n6", NodeAction.CORDON)]
    assert Breaker(1) in effects
    assert decided(maintain(4)) == [("n4", NodeAction.CORDON)]
    ward.step(Judged(NodeName("n0"), Scopes()))  # the uncordon is not observed yet: still counted in nothing
    ward.see("n5")
    ward.step(Judged(NodeName("n5"), Scopes()))
    assert ("n7", NodeAction.CORDON) in decided(ward.later(1))


def test_a_fault_that_outlasts_a_maintenance_counts_in_the_limit() -> None:
    ward = Ward()
    for i in range(10):
        ward.see(f"n{i}")
    ward.step(Judged(N1, Scopes(node=False, ordered=True)))
    ward.see(unschedulable=True, cordoned_by=OWNER)
    ward.step(Judged(N1, Scopes(node=False, reason="reboot")))
    effects = ward.step(Judged(NodeName("n2"), Scopes(node=False, reason="reboot")))
    assert (decided(effects), Breaker(1) in effects) == ([], True)


def test_a_judged_node_that_waited_for_room_is_cordoned_although_nothing_else_changes() -> None:
    ward = Ward()
    for i in range(10):
        ward.see(f"n{i}")
    ward.step(Judged(N1, Scopes(node=False, reason="reboot")))
    assert decided(ward.step(Judged(NodeName("n2"), Scopes(node=False, reason="reboot")))) == []
    ward.see("n1", unschedulable=True, cordoned_by=OWNER)
    ward.step(Judged(N1, Scopes()))
    effects = ward.see("n1")
    assert decided(effects + ward.later(1)) == [("n2", NodeAction.CORDON)]


def test_without_cordons_the_verdict_is_all_there_is() -> None:
    ward = Ward(cordon=False)
    effects = ward.see(conditions={"XidError": "True"})
    assert (said(effects), decided(effects)) == ([(False, (), "XidError")], [])


def test_only_a_change_of_what_may_be_used_is_told_to_integrators() -> None:
    ward = Ward()
    (first,) = [e for e in ward.see(ready=False) if isinstance(e, Publish)]
    (second,) = [e for e in ward.see(ready=False, conditions={"XidError": "True"}) if isinstance(e, Publish)]
    assert (first.changed, second.changed) == (True, False)
    assert second.verdict.since == first.verdict.since


def test_a_node_that_joins_is_used_as_soon_as_it_is_ready() -> None:
    ward = Ward()
    assert said(ward.see(ready=False)) == [(False, (), "not ready")]
    assert said(ward.see(ready=True)) == [(True, (), "")]
    assert said(ward.see(ready=False)) == [(False, (), "not ready")]
    assert said(ward.see(ready=True)) == [], "from now on it has to stay ready for a while"


def retired(effects: list[Effect]) -> list[str]:
    return [e.verdict.node for e in effects if isinstance(e, Retire)]


def test_the_verdict_of_a_node_that_is_gone_is_said_to_be_the_last_and_again_when_it_is_back() -> None:
    ward = Ward()
    ward.see(ready=True)
    ward.see(conditions={"MemoryPressure": "True"})
    assert retired(ward.see(gone=True)) == ["n1"]
    assert not ward.see(gone=True), "once"
    again = ward.see(uid="another", conditions={"MemoryPressure": "True"})
    assert said(again) == [(False, (), "MemoryPressure")], "the one in the stream does not stay"


def test_a_monitor_that_starts_after_a_node_was_deleted_retires_its_verdict() -> None:
    ward = Ward(synced=False)
    ward.step(VerdictHeard(Verdict(NodeName("n1"), Generation(1), healthy=False, reason="sick")))
    assert retired(ward.step(Synced())) == ["n1"]


@pytest.mark.parametrize("restart", [False, True])
def test_lost_sick_card_stays_sick_and_its_neighbour_is_used(*, restart: bool) -> None:
    """The plugin renumbers the other cards: the neighbour gets the index of the sick card."""
    ward = Ward()
    well, sick = CARDS[0], replace(CARDS[1], healthy=False)
    ward.see(cards=(sick, well))
    if restart:
        verdict, ward = ward.core.verdicts[NodeName("n1")], Ward(synced=False)
        ward.see(cards=(replace(well, index=1),), lost=(sick,))
        ward.step(VerdictHeard(verdict))
        ward.step(Synced())
    else:
        ward.see(cards=(replace(well, index=1),), lost=(sick,))
    ward.later(100)
    verdict = ward.core.verdicts[NodeName("n1")]
    assert (verdict.healthy, verdict.cards) == (True, (sick.id,))
    assert verdict.marks_unhealthy(sick)
    assert not verdict.marks_unhealthy(replace(well, index=1))


# --- judgements of agents' facts

N1 = NodeName("n1")
DEGRADED = Taint(HEALTH_TAINT, "degraded", TaintEffect.PREFER_NO_SCHEDULE)


def test_a_judgement_and_a_fault_of_a_card_are_one_verdict_and_each_ends_by_itself() -> None:
    ward = Ward()
    ward.see(cards=cards(0))
    [published] = [e for e in ward.step(Judged(N1, Scopes(cards=(CardId("gpu:u1"),), reason="lost"))) if isinstance(e, Publish)]
    assert (published.verdict.cards, published.verdict.healthy) == ((CardId("gpu:u0"), CardId("gpu:u1")), False)
    [published] = [e for e in ward.step(Judged(N1, Scopes())) if isinstance(e, Publish)]
    assert (published.verdict.cards, published.verdict.healthy) == ((CardId("gpu:u0"),), True)


def test_a_judgement_of_a_node_that_is_not_known_yet_counts_when_it_is() -> None:
    ward = Ward()
    ward.step(Judged(N1, Scopes(cards=(CardId("gpu:u1"),), reason="lost")))
    assert said(ward.see()) == [(True, (1,), "lost")]


def test_a_judged_card_of_an_earlier_verdict_does_not_recover_by_itself() -> None:
    ward = Ward(synced=False)
    earlier = Verdict(N1, Generation(3), healthy=True, bad_cards=(1,), reason="lost", cards=(CardId("gpu:u1"),), since=1.0)
    ward.step(Judged(N1, Scopes(cards=(CardId("gpu:u1"),), reason="lost")))
    ward.step(VerdictHeard(earlier))
    ward.see()
    ward.step(Synced())
    ward.later(1000)
    assert ward.core.verdicts[N1].cards == (CardId("gpu:u1"),)
    ward.step(Judged(N1, Scopes()))
    assert ward.core.verdicts[N1].cards == ()


@pytest.mark.parametrize("scopes", [Scopes(multi_gpu=False), Scopes(multi_node=False), Scopes(rails_off=("mlx5_0",))])
def test_a_node_that_part_of_the_work_may_not_use_is_tainted_until_it_is_whole(scopes: Scopes) -> None:
    ward = Ward()
    ward.see()
    assert decided(ward.step(Judged(N1, scopes))) == [("n1", NodeAction.TAINT)]
    assert decided(ward.later(59)) == []
    assert decided(ward.later(2)) == [("n1", NodeAction.TAINT)], "it has not appeared"
    assert decided(ward.see(taints=(DEGRADED,))) == []
    assert decided(ward.step(Judged(N1, Scopes()))) == [("n1", NodeAction.UNTAINT)]
    assert decided(ward.see()) == []
    assert decided(ward.later(100)) == []


def test_an_operators_taint_with_the_same_key_and_another_effect_is_left_alone() -> None:
    theirs = replace(DEGRADED, effect=TaintEffect.NO_SCHEDULE)
    ward = Ward()
    assert decided(ward.see(taints=(theirs,))) == []
    assert decided(ward.step(Judged(N1, Scopes(multi_gpu=False)))) == [("n1", NodeAction.TAINT)]
    assert decided(ward.see(taints=(theirs, DEGRADED))) == []


def test_a_card_alone_or_a_closed_node_is_not_tainted() -> None:
    ward = Ward()
    ward.see()
    assert decided(ward.step(Judged(N1, Scopes(cards=(CardId("gpu:u0"),))))) == []
    assert decided(ward.step(Judged(N1, Scopes(node=False, reason="reboot")))) == [("n1", NodeAction.CORDON)]
