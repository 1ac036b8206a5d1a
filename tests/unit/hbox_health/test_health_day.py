"""A day of 10,000 cards under three policies (`python -m tests.bench health-day`): HBox finds all faults, drains no healthy node, and loses the least."""

from hbox_health.data import shipped_rules

from ...bench.health_day import day, found_after, returned_alone
from ...bench.health_day.faults import Cure
from ...bench.health_day.policies import CordonFatal, HBox, ReportOnly
from ...bench.health_day.world import CARDS

SEED = 39


def test_a_day_of_faults_costs_least_under_hbox() -> None:
    hbox, *others = (day(policy, SEED) for policy in (HBox(shipped_rules()), CordonFatal(), ReportOnly()))
    sick = {fault.node for fault in hbox.faults}
    assert len(sick) >= 8
    assert [fault.kind.name for fault in hbox.faults if found_after(hbox, fault) is None] == []
    assert set(hbox.disturbed) - sick - hbox.by_hand == set()
    curable = [fault for fault in hbox.faults if fault.kind.cure is not Cure.HANDS]
    assert [fault.kind.name for fault in curable if not returned_alone(hbox, fault)] == []
    for other in others:
        assert {fault.node for fault in other.faults} == sick
        assert hbox.card_s < other.card_s
        assert hbox.gang_s[True] < other.gang_s[True] + CARDS * 60
