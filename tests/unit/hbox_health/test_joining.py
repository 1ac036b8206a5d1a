"""Nodes that join with fewer cards, NVLinks or ports than their profile, and the check of what was repaired."""

from typing import Any

import pytest

from hbox_common.health.report import Check, Fact
from hbox_common.model import IncidentState, NodeName
from hbox_common.model.remedy import REPAIRS, Outcome
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.facts import Assessor
from hbox_health.core.judge.finding import Action
from hbox_health.core.judge.happenings import (
    AgentSeen,
    Effect,
    FactSeen,
    JobsSeen,
    NodeSeen,
    OperatorAccepts,
    OperatorCloses,
    Remedied,
    Remedy,
)
from hbox_health.core.judge.incidents import Incidents
from hbox_health.data import shipped_rules

from .incident_world import World

N0 = NodeName("n0")
CARDS = tuple(f"gpu:GPU-{index}" for index in range(8))
MODEL = "NVIDIA H100 80GB HBM3"


class Box(World):
    """A node of eight H100 whose agent reports."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.engine = Incidents(self.policies, Assessor(shipped_rules()), self.memory)
        self.seq, self.boot = 0, "b1"
        self.seen()
        self.step(JobsSeen(N0, ()))

    def seen(
        self, node: str = "n0", *, unschedulable: bool | None = None, ours: bool | None = None, **more: Any
    ) -> list[Effect]:
        closed = node in self.cordoned if unschedulable is None else unschedulable
        more = {"labels": {"hbox.io/profile": "H100"}} | more
        return self.step(NodeSeen(N0, CARDS, unschedulable=closed, ours=closed if ours is None else ours, **more))

    def fact(self, check: Check, entity: str, code: str, /, **value: Any) -> None:
        self.seq += 1
        self.step(FactSeen(N0, self.boot, Fact(self.seq, self.now, check, entity, code, value)))

    def starts(self, cards: int = 8, *, links: int = 18, ports: int = 8, boot: str = "b1") -> None:
        """The first report of a boot."""
        self.boot, self.seq = boot, self.seq if boot == self.boot else 0
        self.listed(cards)
        for card in CARDS[:cards]:
            self.card(card, nvlinks_active=links)
        for port in range(ports):
            self.fact(Check.PORTS, f"rail:mlx5_{port}", "port", state="4: ACTIVE")

    def listed(self, cards: int) -> None:
        found = tuple(card.removeprefix("gpu:") for card in CARDS[:cards])
        self.fact(Check.NVML, "node", "cards", init=0, count=cards, listed=found, inventory=found)

    def card(self, entity: str, **value: Any) -> None:
        self.fact(Check.NVML, entity, "card", **({"model": MODEL, "nvlinks_active": 18, "recovery_action": 0} | value))


@pytest.fixture
def box() -> Box:
    return Box(Policies(verbs=REPAIRS))


def test_a_complete_node_joins_and_works(box: Box) -> None:
    box.starts()
    box.after(60)
    assert not box.incidents
    assert box.verdict().node


def test_a_node_with_fewer_cards_takes_no_work_until_an_operator_accepts_it(box: Box) -> None:
    box.starts(7)
    assert (box.only().kind, box.only().action, box.only().state) == ("joins-short", Action.CORDON, IncidentState.CONFIRMED)
    assert "7 of 8 cards, profile H100" in box.only().why
    assert not box.verdict().node
    assert "n0" in box.cordoned
    box.step(OperatorAccepts(N0))
    assert not box.open()
    assert box.verdict().node
    box.starts(7, boot="b2")
    box.after(60)
    assert not box.open(), "it stays accepted"


@pytest.mark.parametrize(("links", "ports", "why"), [(17, 8, "17 of 18 NVLinks of a card"), (18, 6, "6 of 8 ports")])
def test_fewer_links_or_ports_close_a_joining_node_too(box: Box, links: int, ports: int, why: str) -> None:
    box.starts(links=links, ports=ports)
    assert box.verdict().node, "they are still counted"
    box.after(21)
    assert any(why in one.why for one in box.open())
    assert not box.verdict().node


def test_what_is_missing_and_comes_later_opens_the_node(box: Box) -> None:
    box.starts(links=12)
    box.after(21)
    assert not box.verdict().node
    for card in CARDS:
        box.card(card)
    assert box.verdict().node
    assert [one for one in box.open() if one.kind == "joins-short"] == []


@pytest.mark.parametrize("labels", [{}, {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, {"hbox.io/profile": "Z9"}])
def test_a_node_without_a_known_profile_by_label_works_with_fewer_cards(box: Box, labels: dict[str, str]) -> None:
    """Machines with two H100 are sold, too."""
    box.seen(labels=labels)
    box.listed(2)
    for card in CARDS[:2]:
        box.card(card)
    box.after(60)
    assert not box.open()


def test_a_card_that_is_lost_as_the_node_joins_is_a_fault_and_not_missing(box: Box) -> None:
    seven = tuple(card.removeprefix("gpu:") for card in CARDS[1:])
    box.fact(Check.NVML, "node", "cards", init=0, count=8, listed=seven, inventory=(*seven, "GPU-0"))
    for card in CARDS:
        box.card(card, **({"every_call": 15} if card == CARDS[0] else {}))
    box.after(60)
    assert [one.kind for one in box.open()] == ["node-fault"]


def test_a_divided_card_needs_no_links(box: Box) -> None:
    box.listed(8)
    for card in CARDS:
        box.card(card, nvlinks_active=0, mig=True)
    box.after(60)
    assert not box.open()


def test_an_accepted_node_that_boots_with_fewer_cards_has_lost_them(box: Box) -> None:
    box.starts()
    box.after(21)
    box.starts(7, boot="b2")
    box.after(21)
    assert (box.only().kind, box.only().action) == ("node-fault", Action.REBOOT)


def test_an_operator_who_accepts_a_node_ends_its_lost_cards(box: Box) -> None:
    box.starts()
    box.after(21)
    box.starts(7, boot="b2")
    box.step(OperatorAccepts(N0))
    box.after(60)
    assert not box.open()


# --- the check of a repair


def fault(box: Box) -> None:
    """A card asks for a reset, and gets it."""
    box.starts()
    box.card(CARDS[0], recovery_action=1)
    [asked] = box.sent(Remedy)
    for outcome in (Outcome.BEGUN, Outcome.DONE):
        box.step(Remedied(N0, asked.entity, asked.verb, outcome, decision=asked.decision))


def test_a_card_whose_state_is_bad_after_its_reset_is_reset_again(box: Box) -> None:
    fault(box)
    box.after(601)
    assert [one.attempt for one in box.sent(Remedy)] == [1, 2]
    assert box.only().checks[0] == "no new fault for 600 s: passed"
    assert "nvml recovery-action of gpu:GPU-0 ended: failed" in box.only().checks


def test_a_card_that_is_well_after_its_reset_returns_with_the_results_of_its_check(box: Box) -> None:
    fault(box)
    box.card(CARDS[0])
    assert box.verdict().cards == (CARDS[0],)
    assert box.only().held_by == ("check: no new fault for 600 s",)
    box.after(601)
    assert box.verdict().cards == ()
    [closed] = box.incidents.values()
    assert closed.state is IncidentState.CLOSED
    assert closed.checks == ("no new fault for 600 s: passed", "nvml recovery-action of gpu:GPU-0 ended: passed")


def test_a_silent_agent_delays_the_return_and_fails_nothing(box: Box) -> None:
    box.step(AgentSeen(N0, "b1"))
    box.after(5)
    fault(box)
    box.card(CARDS[0])
    box.after(3600)
    [card] = [one for one in box.open() if one.entity == CARDS[0]]
    assert card.held_by == ("check: the agent reports",)
    assert len(box.sent(Remedy)) == 1
    box.step(AgentSeen(N0, "b1"))
    assert box.verdict().cards == ()


def test_a_node_returns_from_a_reboot_when_all_its_cards_are_listed(box: Box) -> None:
    box.starts()
    box.card(CARDS[0], every_call=15)
    assert [one.verb for one in box.sent(Remedy)] == ["reboot"]
    box.boot, box.seq = "b2", 0
    box.fact(Check.UNITS, "node", "units", units={})
    box.after(601)
    assert "check: 0 of 8 cards are listed" in box.only().held_by
    assert not box.verdict().node
    box.starts(boot="b2")
    assert box.verdict().node
    assert not box.open()


def test_what_keeps_a_repaired_card_unused_is_named(box: Box) -> None:
    fault(box)
    box.card(CARDS[0])
    box.seen(unschedulable=True, ours=False, refused=(CARDS[0],))
    assert box.only().held_by == ("check: no new fault for 600 s", "hand", "device-plugin")


def test_an_operator_may_close_what_the_check_holds(box: Box) -> None:
    fault(box)
    box.step(OperatorCloses(N0))
    assert box.verdict().cards == ()
