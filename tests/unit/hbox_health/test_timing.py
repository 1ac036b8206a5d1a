"""How long incidents take, and how many cards they keep out of use."""

import math

import pytest
from pydantic import TypeAdapter

from hbox_common.model import NodeName
from hbox_common.telemetry.metrics import REGISTRY
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.finding import Finding
from hbox_health.core.judge.happenings import (
    Effect,
    Found,
    Maintenance,
    Measured,
    NodeSeen,
    OperatorCloses,
    Scopes,
    Step,
    Validated,
    VerdictSeen,
)
from hbox_health.core.judge.memory import Memory
from hbox_health.core.judge.timing import MOST_ENDED, lost_cards
from hbox_health.metrics import LostCards

from .incident_world import GPU, OTHER, World, lost, port_down, reset

N0 = NodeName("n0")
MIG = tuple(f"mig:MIG-{n}" for n in range(4))


@pytest.fixture
def world() -> World:
    world = World()
    world.nodes(10)
    return world


def reported(
    world: World, *findings: Finding, age: float, wait: float = 0.0, node: str = "n0", record: str = "r"
) -> list[Effect]:
    return world.step(
        Found(NodeName(node), "b1", findings, record=f"{record}{world.records}", wait_s=wait, read_at=world.now - age)
    )


def measured(effects: list[Effect]) -> list[tuple[str, str, float | None]]:
    return [(one.step, one.family, one.seconds) for one in effects if isinstance(one, Measured)]


def read_back(world: World, node: str = "n0", **other: object) -> list[Effect]:
    return world.step(VerdictSeen(NodeName(node), world.verdict(node) if not other else Scopes(**other)))  # type: ignore[arg-type]


def test_detection_lasts_from_the_agents_reading_until_the_incident_is_confirmed(world: World) -> None:
    assert measured(reported(world, reset(), age=1.5, wait=2.0)) == []
    assert measured(world.after(2.0)) == [(Step.DETECT, "card", 3.5)]


def test_an_incident_is_detected_once(world: World) -> None:
    reported(world, reset(), age=1.0)
    assert measured(reported(world, reset(code="95"), age=0.0, record="second")) == []


@pytest.mark.parametrize(
    ("age", "seconds"),
    [(-3.0, 0.0), (-6.0, None), (86_401.0, None), (math.nan, None), (-math.inf, None), (86_399.0, 86_399.0)],
)
def test_a_wrong_clock_of_an_agent_is_no_duration(world: World, age: float, seconds: float | None) -> None:
    assert measured(reported(world, reset(), age=age)) == [(Step.DETECT, "card", seconds)]


def test_an_incident_without_a_report_has_no_time_of_detection(world: World) -> None:
    world.step(Maintenance(N0, world.now + 60, "new cable"))
    assert Step.DETECT not in {step for step, _, _ in measured(world.effects)}


def test_a_card_is_isolated_when_the_verdict_is_read_back(world: World) -> None:
    world.record(reset())
    world.now += 0.25
    assert measured(read_back(world, cards=(OTHER,))) == []
    assert measured(read_back(world)) == [(Step.ISOLATE, "card", 0.25)]
    assert measured(read_back(world)) == []


def test_a_node_is_isolated_when_its_cordon_is_observed(world: World) -> None:
    world.obey = False
    world.record(lost())
    world.now += 4.0
    assert measured(read_back(world)) == []
    assert measured(world.seen(unschedulable=True, ours=True)) == [(Step.ISOLATE, "node-fault", 4.0)]


def test_without_cordons_a_node_is_isolated_by_its_verdict() -> None:
    world = World(Policies(cordon=False))
    world.nodes(10)
    world.record(lost())
    assert measured(read_back(world)) == [(Step.ISOLATE, "node-fault", 0.0)]


def test_an_adapter_is_isolated_when_the_verdict_is_read_back(world: World) -> None:
    world.record(port_down())
    assert measured(read_back(world, rails_off=("rail:mlx5_0",))) == [(Step.ISOLATE, "rail", 0.0)]


def test_a_card_returns_when_no_incident_takes_it(world: World) -> None:
    world.record(reset())
    world.now += 100
    effects = world.step(OperatorCloses(N0))
    assert measured(effects) == [(Step.RETURN, "card", 100.0)]
    assert world.engine.dump().nodes["n0"].timed == {}


def test_a_node_returns_when_it_is_schedulable(world: World) -> None:
    world.record(lost())
    world.boots("b2")
    world.now += 60
    world.obey = False
    world.step(Validated(N0, "node", passed=True))
    assert Step.RETURN not in {step for step, _, _ in measured(world.effects)}
    world.now += 5
    assert measured(world.seen(unschedulable=False)) == [(Step.RETURN, "node-fault", 65.0)]


def test_a_card_that_another_incident_keeps_does_not_return(world: World) -> None:
    world.record(reset())
    card = world.only()
    world.step(Maintenance(N0, world.now + 3600, "new cable"))
    world.now += 10
    world.step(OperatorCloses(N0, incident=card.id))
    assert Step.RETURN not in {step for step, _, _ in measured(world.effects)}
    world.step(OperatorCloses(N0))
    assert [family for step, family, _ in measured(world.effects) if step is Step.RETURN] == ["card", "maintenance"]


def test_a_card_incident_that_a_worse_one_absorbs_is_measured_as_the_worse_one(world: World) -> None:
    world.record(reset())
    world.record(lost())
    assert [one.kind for one in world.engine.dump().nodes["n0"].timed.values()] == ["node-fault"]
    world.boots("b2")
    world.step(Validated(N0, "node", passed=True))
    assert [family for step, family, _ in measured(world.effects) if step is Step.RETURN] == ["node-fault"]


def test_times_survive_a_restart_and_an_isolation_that_no_process_saw_has_none(world: World) -> None:
    adapter = TypeAdapter(Memory)
    world.record(reset())
    again = World(memory=adapter.validate_json(adapter.dump_json(world.engine.dump())))
    again.now = world.now + 30
    assert measured(again.step(VerdictSeen(N0, world.verdict()))) == []
    assert measured(again.step(OperatorCloses(N0))) == [(Step.RETURN, "card", 30.0)]


def test_a_node_remembers_a_bounded_number_of_ended_incidents(world: World) -> None:
    world.step(Maintenance(N0, world.now + 1e6, "long"))
    world.seen()
    node = world.engine.dump().nodes["n0"]
    timed = next(iter(node.timed.values()))
    for index in range(MOST_ENDED + 10):
        node.timed[f"old-{index}"] = type(timed)("card", "hardware", ["node"], world.now)
    world.seen(refused=(GPU,))
    assert len(node.timed) == MOST_ENDED + 1


# --- card-hours


def out(world: World) -> dict[tuple[str, str], float]:
    return lost_cards(world.engine.dump())


def test_a_sick_card_is_one_card_lost_to_hardware(world: World) -> None:
    world.record(reset())
    assert out(world) == {("card", "hardware"): 1.0}


def test_all_cards_of_a_closed_node_are_lost(world: World) -> None:
    world.record(lost())
    assert out(world) == {("node-fault", "hardware"): 2.0}


def test_a_maintenance_loses_cards_to_the_operator_and_the_sick_one_to_hardware(world: World) -> None:
    world.record(reset())
    world.now += 1
    world.step(Maintenance(N0, world.now + 60, "new cable"))
    assert out(world) == {("card", "hardware"): 1.0, ("maintenance", "operator"): 1.0}


def test_an_adapter_that_is_down_loses_no_card(world: World) -> None:
    world.record(port_down())
    assert world.verdict().rails_off
    assert out(world) == {}


def test_an_instance_is_its_part_of_a_card(world: World) -> None:
    world.step(NodeSeen(N0, (*MIG, GPU, OTHER), parents=dict.fromkeys(MIG, GPU)))
    world.record(reset(MIG[0]))
    assert out(world) == {("card", "hardware"): 0.25}
    world.record(reset(GPU))
    assert out(world) == {("card", "hardware"): 1.0}


def test_a_node_that_is_gone_loses_nothing(world: World) -> None:
    world.record(lost())
    world.step(NodeSeen(N0, gone=True))
    assert out(world) == {}


def hours_lost() -> float:
    return REGISTRY.get_sample_value("hbox_health_card_hours_lost_total", {"kind": "card", "blame": "hardware"}) or 0.0


def test_hours_are_cards_times_time_and_a_process_that_stood_still_counts_a_minute() -> None:
    before = hours_lost()
    hours = LostCards()
    hours.count({("card", "hardware"): 6.0}, 100.0)
    hours.count({("card", "hardware"): 6.0}, 130.0)
    assert hours_lost() - before == pytest.approx(6 * 30 / 3600)
    hours.count({}, 9000.0)
    hours.count({}, 9060.0)
    assert hours_lost() - before == pytest.approx(6 * 90 / 3600)
