"""What a node had before its boot: a card, an NVLink or a port that is missing already when it starts again is found, also without a profile."""

from typing import Any

import pytest

from hbox_common.health.report import Check
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.facts import Assessor
from hbox_health.core.judge.finding import Action
from hbox_health.core.judge.happenings import Effect, NodeSeen, OperatorAccepts
from hbox_health.core.judge.incidents import Incidents
from hbox_health.data import shipped_rules

from .test_joining import CARDS, N0, Box

MODEL = {"nvidia.com/gpu.product": "NVIDIA-Q9000"}  # no profile has it


class Plain(Box):
    """A node without the label of a profile."""

    def seen(self, node: str = "n0", **more: Any) -> list[Effect]:
        return super().seen(node, **{"labels": MODEL} | more)

    def boots_with(
        self, boot: str, cards: tuple[str, ...] = CARDS, *, ports: tuple[int, ...] = tuple(range(8)), **card: Any
    ) -> None:
        self.boot, self.seq = boot, 0
        uuids = tuple(one.removeprefix("gpu:") for one in cards)
        self.fact(Check.NVML, "node", "cards", init=0, count=len(cards), listed=uuids, inventory=uuids)
        for place, one in enumerate(cards):
            self.card(one, pci=f"0000:{place:02x}:00", **card)
        for port in ports:
            self.fact(Check.PORTS, f"rail:mlx5_{port}", "port", state="4: ACTIVE", pci=f"0000:a{port}:00.0")

    def restarts(self) -> None:
        """health-monitor, with what it stored."""
        self.engine = Incidents(self.policies, Assessor(shipped_rules()), self.engine.dump(), self.now)


@pytest.fixture
def box() -> Plain:
    return Plain(Policies())


def closed(box: Plain) -> list[tuple[str, str]]:
    return sorted(
        (reason.finding.entity, reason.finding.code)
        for incident in box.engine.dump().nodes["n0"].open.values()
        for reason in incident.reasons.values()
    )


@pytest.mark.parametrize("restarted", [False, True])
def test_a_card_that_is_missing_already_at_the_boot_is_lost_and_named(box: Plain, restarted: bool) -> None:
    box.boots_with("b1")
    box.after(60)
    assert not box.open()
    if restarted:
        box.restarts()
    box.boots_with("b2", (*CARDS[:3], *CARDS[4:]))
    assert closed(box) == [("gpu:GPU-3", "lost")]
    box.after(21)
    assert (box.only().kind, box.only().action) == ("node-fault", Action.REBOOT)
    assert "7 cards of 8; missing: GPU-3 at 0000:03:00" in box.only().why
    assert not box.verdict().node


def test_a_card_that_nvml_counts_and_that_does_not_answer_since_the_boot_is_lost(box: Plain) -> None:
    """Its agent does not know its uuid: the card answers nothing, and the boot's inventory is new."""
    box.boots_with("b1")
    box.boot, box.seq = "b2", 0
    seven = tuple(card.removeprefix("gpu:") for card in CARDS[1:])
    box.fact(Check.NVML, "node", "cards", init=0, count=8, listed=seven, inventory=seven)
    box.after(21)
    assert closed(box) == [("gpu:GPU-0", "lost")]


def test_a_card_that_comes_back_ends_its_loss(box: Plain) -> None:
    box.boots_with("b1")
    box.boots_with("b2", CARDS[1:])
    box.boots_with("b3")
    box.after(700)
    assert not box.open()
    assert box.verdict().node


def test_a_card_that_was_replaced_is_not_lost_and_the_new_one_is_remembered(box: Plain) -> None:
    box.boots_with("b1")
    changed = ("gpu:GPU-new", *CARDS[1:])
    box.boots_with("b2", changed)
    box.after(60)
    assert not box.open()
    box.boots_with("b3", CARDS[1:])
    assert closed(box) == [("gpu:GPU-new", "lost")]


def test_cards_that_are_replaced_one_after_the_other_are_not_missing(box: Plain) -> None:
    new = ("gpu:GPU-x", "gpu:GPU-y")
    for boot, cards in enumerate((CARDS, CARDS[:6], (*CARDS[:6], new[0]), (*CARDS[:6], *new))):
        box.boots_with(f"b{boot}", cards)
        box.after(60)
    assert set(box.engine.dump().nodes["n0"].parts.cards) == {card.removeprefix("gpu:") for card in (*CARDS[:6], *new)}


def test_of_two_missing_cards_one_may_be_replaced(box: Plain) -> None:
    box.boots_with("b1")
    box.boots_with("b2", ("gpu:GPU-new", *CARDS[2:]))
    box.after(21)
    assert not box.verdict().node


def test_after_an_operator_accepts_the_node_its_removed_card_is_not_expected(box: Plain) -> None:
    box.boots_with("b1")
    box.boots_with("b2", CARDS[1:])
    box.after(21)
    box.step(OperatorAccepts(N0))
    assert not box.open()
    for boot in ("b2", "b3"):
        box.boots_with(boot, CARDS[1:])
        box.after(700)
        assert not box.open()
    box.boots_with("b4", CARDS[2:])
    assert closed(box) == [("gpu:GPU-1", "lost")], "the accepted ones are expected"


def test_accepting_a_node_ends_the_ticket_for_its_missing_card(box: Plain) -> None:
    box.boots_with("b1")
    box.boots_with("b2", CARDS[1:])
    box.after(21)
    box.boots_with("b3", CARDS[1:])
    box.after(21)
    assert box.only().action == Action.TICKET
    box.step(OperatorAccepts(N0))
    assert not box.open()


def test_a_card_that_fell_off_and_was_accepted_stays_accepted_when_its_agent_states_it_again(box: Plain) -> None:
    box.boots_with("b1")
    seven, eight = tuple(card.removeprefix("gpu:") for card in CARDS[1:]), tuple(card.removeprefix("gpu:") for card in CARDS)
    for _ in range(2):
        box.fact(Check.NVML, "node", "cards", init=0, count=7, listed=seven, inventory=eight)
        box.after(21)
        box.step(OperatorAccepts(N0))
        assert not box.open()
    box.fact(Check.NVML, "node", "cards", init=0, count=7, listed=seven, inventory=eight)
    box.after(60)
    assert not box.open()
    box.boots_with("b2")  # it is back
    box.boots_with("b3", CARDS[1:])
    assert closed(box) == [("gpu:GPU-0", "lost")]


def test_an_incomplete_answer_states_nothing_about_cards(box: Plain) -> None:
    box.boots_with("b1")
    box.boot, box.seq = "b2", 0
    box.fact(Check.NVML, "node", "cards", init=0, problem="no answer", inventory=())
    box.after(60)
    assert not box.open()


def test_a_port_that_is_missing_since_the_boot_takes_its_rail_off(box: Plain) -> None:
    box.boots_with("b1")
    box.boots_with("b2", ports=(0, 1, 2, 4, 5, 6, 7))
    box.after(20)
    assert not box.open() or box.verdict().rails_off == ()
    box.after(241)
    assert box.verdict().rails_off == ("rail:mlx5_3",)
    assert "0000:a3:00.0" in box.only().why
    box.fact(Check.PORTS, "rail:mlx5_3", "port", state="4: ACTIVE", pci="0000:a3:00.0")
    box.after(601)
    assert box.verdict().rails_off == ()


def test_a_missing_port_is_accepted_with_its_node(box: Plain) -> None:
    box.boots_with("b1")
    box.boots_with("b2", ports=(0, 1, 2))
    box.after(300)
    assert len(box.verdict().rails_off) == 5
    box.step(OperatorAccepts(N0))
    box.after(601)
    assert box.verdict().rails_off == ()
    box.boots_with("b3", ports=(0, 1, 2))
    box.after(300)
    assert box.verdict().rails_off == ()


def test_without_any_report_on_ports_none_is_missing(box: Plain) -> None:
    box.boots_with("b1")
    box.boots_with("b2", ports=())
    box.after(600)
    assert not box.open()


@pytest.mark.parametrize("entity", ["node", "gpu:GPU-1", "rail:", ""])
def test_a_port_of_something_else_is_not_remembered(box: Plain, entity: str) -> None:
    box.boots_with("b1")
    box.fact(Check.PORTS, entity, "port", state="4: ACTIVE")
    box.boots_with("b2")
    box.after(60)
    assert not box.open()


def test_fewer_nvlinks_than_before_the_boot_are_found_without_a_profile(box: Plain) -> None:
    box.boots_with("b1", nvlinks_active=12)
    box.boots_with("b2", nvlinks_active=11)
    box.after(60)
    assert not box.verdict().multi_gpu
    assert "11 of 12 NVLinks" in box.open()[0].why


def test_a_deleted_node_is_forgotten(box: Plain) -> None:
    box.boots_with("b1")
    box.step(NodeSeen(N0, (), gone=True))
    box.seen()
    box.boots_with("b2", CARDS[:4])
    box.after(60)
    assert not box.open()


def test_an_agent_that_lists_new_cards_without_end_fills_no_memory(box: Plain) -> None:
    for place in range(40):
        box.boots_with(f"b{place}", tuple(f"gpu:GPU-{place}-{card}" for card in range(16)), ports=())
        for port in range(8):
            box.fact(Check.PORTS, f"rail:x{place}_{port}", "port", state="4: ACTIVE")
    parts = box.engine.dump().nodes["n0"].parts
    assert max(len(parts.cards), len(parts.links), len(parts.ports), len(parts.removed)) <= 128
    for port in range(200):
        box.fact(Check.PORTS, f"rail:y{port}", "port", state="4: ACTIVE")
    assert len(box.engine.dump().nodes["n0"].counted.ports) <= 128


def test_what_is_remembered_is_stored_once_and_not_with_each_report(box: Plain) -> None:
    box.boots_with("b1")
    box.engine.changed()
    for card in CARDS:
        box.card(card, pci=f"0000:{CARDS.index(card):02x}:00")
    assert box.engine.changed() == set()
