"""A state that an agent restates with the same value is not judged again, unless something changed that its judgement depends on."""

from dataclasses import replace
from typing import Any

import pytest

from hbox_common.health.report import Check, Fact
from hbox_common.model import IncidentState, NodeName
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.facts import Assessor
from hbox_health.core.judge.happenings import FactSeen, Found, NodeSeen, OperatorCloses
from hbox_health.core.judge.incidents import Incidents
from hbox_health.core.judge.memory import NodeMemory
from hbox_health.core.judge.unchanged import MOST_STATES
from hbox_health.data import shipped_rules

from .incident_world import GPU, OTHER, World

N0 = NodeName("n0")


class Restated(World):
    """A node whose agent states everything again and again. `judged`: facts that were judged."""

    def __init__(self, box: str = "generic") -> None:
        super().__init__(Policies())
        self.judged: list[Fact] = []
        self.assessor = Assessor(shipped_rules())
        self.engine = Incidents(self.policies, self._assess)
        self.seq = 0
        self.box(box)

    def _assess(self, event: FactSeen, node: NodeMemory, now: float) -> Found | None:
        self.judged.append(event.fact)
        return self.assessor(event, node, now)

    def box(self, name: str) -> None:
        self.step(NodeSeen(N0, (GPU, OTHER), labels={"hbox.io/profile": name}))

    def fact(self, check: Check, entity: str, name: str, /, boot: str = "b1", **value: Any) -> None:
        self.seq += 1
        self.step(FactSeen(N0, boot, Fact(self.seq, 5.0, check, entity, name, value)))

    def card(self, entity: str = GPU, /, boot: str = "b1", **value: Any) -> None:
        self.fact(Check.NVML, entity, "card", boot, **({"recovery_action": 0, "nvlinks_active": 8} | value))


def test_a_healthy_state_is_judged_once() -> None:
    node = Restated()
    for _ in range(5):
        node.card(GPU)
        node.card(OTHER)
        node.fact(Check.PORTS, "rail:mlx5_0", "port", state="4: ACTIVE")
        node.fact(Check.DCGM, GPU, "card", temp=40)
        node.fact(Check.UNITS, "node", "units", units={"nvidia-fabricmanager": "active"})
    assert len(node.judged) == 5
    node.card(GPU, nvlinks_active=7)
    assert len(node.judged) == 6, "another value"


def test_the_number_of_a_skipped_fact_counts() -> None:
    node = Restated()
    node.card()
    node.card()
    assert node.engine.dump().nodes[N0].seq == 2
    node.step(FactSeen(N0, "b1", Fact(2, 5.0, Check.NVML, GPU, "card", {"recovery_action": 1})))
    assert not node.engine.dump().nodes[N0].open, "fact 2 was received before"


@pytest.mark.parametrize(
    ("check", "code"), [(Check.KERNEL_LOG, "13"), (Check.DCGM, "13"), (Check.AGENT, "lost"), ("gpio", "pin")]
)
def test_each_event_is_judged(check: Check, code: str) -> None:
    node = Restated()
    for _ in range(3):
        node.fact(check, GPU, code, kind="xid", code=13, pci="0000:18:00")
    assert len(node.judged) == 3


def test_a_state_with_a_finding_is_judged_each_time() -> None:
    node = Restated()
    for _ in range(3):
        node.card(recovery_action=1)
    assert len(node.judged) == 3


def test_a_fault_that_lasts_opens_an_incident_after_its_mute() -> None:
    node = Restated()
    node.card(recovery_action=1)
    node.step(OperatorCloses(N0))
    node.card(recovery_action=1)
    assert not node.engine.dump().nodes[N0].open
    node.engine.dump().nodes[N0].held.clear()
    node.after(node.policies.mute_s + 1)
    node.card(recovery_action=1)
    assert len(node.engine.dump().nodes[N0].open) == 1


def test_a_known_healthy_state_takes_an_unhealthy_one_back() -> None:
    node = Restated()
    node.card()
    node.card(recovery_action=1)
    node.card()
    [incident] = node.engine.dump().nodes[N0].open.values()
    assert incident.state is IncidentState.VALIDATING


def test_a_known_healthy_state_ends_what_a_maintenance_holds_back() -> None:
    node = Restated()
    node.card()
    node.engine.dump().nodes[N0].maintenance_until = node.now + 100
    node.card(recovery_action=1)
    node.card()
    assert not node.engine.dump().nodes[N0].held


def test_another_profile_judges_the_same_state_anew() -> None:
    node = Restated()
    node.card()
    node.box("H100")
    node.card()
    [incident] = node.engine.dump().nodes[N0].open.values()
    assert (incident.kind, incident.entity) == ("multi-gpu", GPU), "8 of 18 NVLinks"


def test_other_rules_judge_the_same_state_anew() -> None:
    node = Restated()
    node.card()
    rules = shipped_rules()
    node.assessor.rules = replace(rules, profiles=dict(rules.profiles) | {"generic": rules.profiles["H100"]})
    node.engine.use(node.policies)
    node.card()
    assert [one.kind for one in node.engine.dump().nodes[N0].open.values()] == ["multi-gpu"]


def test_a_state_counts_anew_after_a_boot() -> None:
    node = Restated()
    node.card()
    node.seq = 0
    node.card(boot="b2")
    assert list(node.engine.dump().nodes[N0].counted.links) == [GPU]


def test_a_node_that_returns_is_judged_anew() -> None:
    node = Restated()
    node.card()
    node.step(NodeSeen(N0, gone=True))
    node.box("generic")
    node.card()
    assert len(node.judged) == 2


def test_another_driver_judges_the_same_state_anew() -> None:
    node = Restated()
    node.card()
    node.fact(Check.NVML, "node", "cards", init=0, count=2, listed=("GPU-a", "GPU-b"), driver="535.1")
    node.card()
    assert len(node.judged) == 3


def test_an_agent_that_names_ever_new_entities_fills_no_memory() -> None:
    node = Restated()
    for _ in range(2):
        for index in range(MOST_STATES + 10):
            node.card(f"gpu:GPU-{index}")
    assert len(node.judged) == MOST_STATES + 20
