"""Random facts of three nodes: an engine that skips unchanged states remembers and decides the same as one that judges each of them."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.hbox_health.incident_world import GPU, OTHER

from hbox_common.health.report import Check, Fact
from hbox_common.model import NodeName
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.facts import Assessor
from hbox_health.core.judge.happenings import (
    AgentSeen,
    Event,
    FactSeen,
    Maintenance,
    NodeSeen,
    OperatorAccepts,
    OperatorCloses,
    Tick,
)
from hbox_health.core.judge.incidents import Incidents
from hbox_health.core.judge.unchanged import Unchanged
from hbox_health.data import shipped_rules

NODES = [NodeName(f"n{index}") for index in range(3)]
CARD: dict[str, Any] = {"recovery_action": 0, "nvlinks_active": 18}
STATES: list[tuple[Check, str, str, dict[str, Any]]] = [
    (Check.NVML, GPU, "card", CARD),
    (Check.NVML, OTHER, "card", CARD),
    (Check.NVML, GPU, "card", CARD | {"recovery_action": 1}),
    (Check.NVML, GPU, "card", CARD | {"nvlinks_active": 8}),
    (Check.NVML, OTHER, "card", {"every_call": 15}),
    (Check.NVML, "node", "cards", {"init": 0, "count": 2, "listed": ("GPU-a", "GPU-b"), "inventory": ("GPU-a", "GPU-b"), "driver": "535.1"}),
    (Check.NVML, "node", "cards", {"init": 0, "count": 1, "listed": ("GPU-a",), "inventory": ("GPU-a",), "driver": "570.1"}),
    (Check.NVML, "node", "cards", {"init": 9, "problem": "NVML does not start"}),
    (Check.PORTS, "rail:mlx5_0", "port", {"state": "4: ACTIVE"}),
    (Check.PORTS, "rail:mlx5_0", "port", {"state": "1: DOWN"}),
    (Check.UNITS, "node", "units", {"units": {"nvidia-fabricmanager": "active"}}),
    (Check.UNITS, "node", "units", {"units": {"nvidia-fabricmanager": "inactive"}}),
    (Check.DCGM, "node", "exporter", {"rows": ("GPU-a",), "inventory": ("GPU-a", "GPU-b"), "nvml_count": None}),
    (Check.DCGM, "node", "exporter", {"rows": ("GPU-a", "GPU-b"), "inventory": ("GPU-a", "GPU-b"), "nvml_count": None}),
    (Check.KERNEL_LOG, GPU, "48", {"kind": "xid", "code": 48, "pci": "0000:18:00"}),
]  # fmt: skip


@st.composite
def events(draw: st.DrawFn) -> Event | str:
    name = draw(st.sampled_from(NODES))
    match draw(st.integers(0, 12)):
        case 0:
            return NodeSeen(name, (GPU, OTHER), labels={"hbox.io/profile": draw(st.sampled_from(("generic", "H100", "L20")))})
        case 1:
            return NodeSeen(name, draw(st.sampled_from(((), (GPU, OTHER)))), gone=draw(st.booleans()))
        case 2:
            return AgentSeen(name, draw(st.sampled_from(("b1", "b2"))))
        case 3:
            return Maintenance(name, draw(st.sampled_from((0.0, 1_000_500.0))), "maintenance")
        case 4:
            others: list[Event] = [OperatorCloses(name), OperatorAccepts(name), Tick()]
            return draw(st.sampled_from(others))
        case 5:
            return "rules"
        case _:
            check, entity, code, value = draw(st.sampled_from(STATES))
            boot = draw(st.sampled_from(("b1", "b1", "b1", "b2")))
            return FactSeen(name, boot, Fact(0, 5.0, check, entity, code, value))


class Engine:
    def __init__(self) -> None:
        self.assessor = Assessor(shipped_rules())
        self.engine = Incidents(Policies(), self.assessor)

    def step(self, event: Event | str, now: float) -> Any:
        if event == "rules":
            rules = shipped_rules()
            other = self.assessor.rules.profiles["generic"] is rules.profiles["H100"]
            generic = rules.profiles["generic" if other else "H100"]
            self.assessor.rules = replace(rules, profiles=dict(rules.profiles) | {"generic": generic})
            self.engine.use(Policies())
            return self.engine.step(Tick(), now)
        assert not isinstance(event, str)
        return self.engine.step(event, now)


class JudgesAll(Engine):
    def step(self, event: Event | str, now: float) -> Any:
        self.engine._unchanged = Unchanged()
        return super().step(event, now)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(events(), st.sampled_from((0.0, 0.0, 1.0, 30.0, 700.0))), max_size=60))
def test_skipped_states_decide_nothing(history: list[tuple[Event | str, float]]) -> None:
    skips, judges, now = Engine(), JudgesAll(), 1_000_000.0
    for seq, (event, passing) in enumerate(history, start=1):
        now += passing
        numbered = replace(event, fact=replace(event.fact, seq=seq)) if isinstance(event, FactSeen) else event
        assert skips.step(numbered, now) == judges.step(numbered, now)
    assert skips.engine.dump() == judges.engine.dump()
