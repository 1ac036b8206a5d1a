"""Incidents of single cards by NVML's recovery action, lost cards and XID 79."""

from typing import Any

import pytest

from hbox_common.health.report import Check, Fact
from hbox_common.model import Incident, IncidentState, NodeName
from hbox_health.core.recoveryactions import Incidents

NODE = NodeName("n1")
CARD, OTHER = "gpu:GPU-1", "gpu:GPU-2"


class World:
    def __init__(self) -> None:
        self.incidents, self.seq, self.now = Incidents(), 0, 100.0

    def fact(self, check: str, code: str, entity: str = CARD, **value: Any) -> Fact:
        self.seq += 1
        return Fact(self.seq, 5.0, check, entity, code, value)

    def report(self, *facts: Fact, boot: str = "b1") -> list[Incident]:
        self.now += 1
        return list(self.incidents.report(NODE, boot, facts, self.now).values())

    def card(self, action: int = 0, entity: str = CARD, boot: str = "b1", **value: Any) -> list[Incident]:
        return self.report(self.fact(Check.NVML, "card", entity, recovery_action=action, **value), boot=boot)

    def cards_off(self) -> tuple[str, ...]:
        return self.incidents.scopes(NODE).cards


@pytest.mark.parametrize(
    ("action", "wanted"),
    [(1, "reset"), (2, "reboot"), (4, "drain-and-reset"), (6, "reboot"), (7, "reboot"), (8, "isolate-gpu")],
)
def test_a_recovery_action_takes_the_card_out_of_use_until_it_is_none(action: int, wanted: str) -> None:
    world = World()
    [opened] = world.card(action)
    assert (opened.entity, opened.kind, opened.code, opened.action) == (CARD, "recovery-action", str(action), wanted)
    assert (opened.state, opened.authority, world.cards_off()) == (IncidentState.CONFIRMED, "recovery-action", (CARD,))
    [closed] = world.card()
    assert (closed.id, closed.state, closed.closed, world.cards_off()) == (opened.id, IncidentState.CLOSED, world.now, ())


def test_drain_p2p_takes_multi_card_work_off_and_no_card() -> None:
    world = World()
    world.card(3)
    scopes = world.incidents.scopes(NODE)
    assert (scopes.cards, scopes.multi_gpu, scopes.node) == ((), False, True)


def test_an_imex_domain_to_recover_leaves_local_work_alone() -> None:
    world = World()
    assert world.card(5) == []


def test_a_lost_card_and_its_xid_are_one_incident() -> None:
    world = World()
    [opened] = world.report(world.fact(Check.KERNEL_LOG, "79"))
    [same] = world.report(world.fact(Check.NVML, "card", every_call=15))
    assert (same.id, same.kind, same.code, len(same.evidence)) == (opened.id, "gpu-lost", "lost", 2)
    assert world.incidents.scopes(NODE).incidents == (opened.id,)


def test_only_the_card_that_recovers_returns() -> None:
    world = World()
    world.card(1)
    world.card(1, entity=OTHER)
    assert set(world.cards_off()) == {CARD, OTHER}
    world.card()
    assert world.cards_off() == (OTHER,)


def test_facts_that_were_judged_are_not_judged_again() -> None:
    world = World()
    sick = world.fact(Check.NVML, "card", recovery_action=1)
    world.report(sick)
    world.card()
    assert world.report(sick) == []
    assert world.cards_off() == ()


def test_facts_of_an_earlier_boot_change_nothing() -> None:
    world = World()
    sick = world.fact(Check.NVML, "card", recovery_action=2)
    world.report(sick)
    world.seq = 0
    assert [one.state for one in world.card(boot="b2")] == [IncidentState.CLOSED]
    world.seq = 99
    assert world.card(2, boot="b1") == []
    assert world.cards_off() == ()


def test_numbers_of_facts_begin_again_with_a_boot() -> None:
    world = World()
    for _ in range(5):
        world.card()
    world.seq = 0
    assert [one.code for one in world.card(1, boot="b2")] == ["1"]


@pytest.mark.parametrize("entity", ["node", "rail:mlx5_0", "switch:0000:05:00.0"])
def test_other_entities_have_no_incident_here(entity: str) -> None:
    world = World()
    assert world.report(world.fact(Check.KERNEL_LOG, "79", entity)) == []


def test_other_xids_decide_nothing() -> None:
    world = World()
    assert world.report(world.fact(Check.KERNEL_LOG, "31"), world.fact(Check.KERNEL_LOG, "45")) == []


def test_a_driver_that_states_no_recovery_action_returns_no_card() -> None:
    world = World()
    world.report(world.fact(Check.KERNEL_LOG, "79"))
    assert world.report(world.fact(Check.NVML, "card", index=0)) == []
    assert world.cards_off() == (CARD,)
