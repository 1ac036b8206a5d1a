"""Incidents that only an operator brings further."""

import pytest

from hbox_common.model import IncidentState, NodeName
from hbox_common.model.healthorder import Exemption
from hbox_common.model.remedy import Verb
from hbox_common.telemetry.metrics import REGISTRY
from hbox_health import metrics
from hbox_health.core.judge.courses import Policies
from hbox_health.core.judge.finding import Action, Finding, Severity
from hbox_health.core.judge.happenings import Exempted, Maintenance

from .incident_world import World, finding, pod, reset


def waiting(*findings: Finding, verbs: frozenset[Verb] = frozenset(), busy: bool = False) -> bool:
    world = World(Policies(verbs=verbs, validator=True))
    world.nodes(10)
    world.pods(*([pod()] if busy else []))
    world.record(*findings)
    return metrics.needs_hands(world.only())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (reset(), True),
        (finding(Action.REPLACE, code="64"), True),
        (finding(Action.REPORT, "node", kind="hangs", code="nvml", severity=Severity.UNKNOWN), True),
        (finding(Action.REPORT, "node", kind="unit", code="dcgm", severity=Severity.MISCONFIGURED), True),
        (finding(Action.REPORT, code="1", severity=Severity.SUSPECT), False),
        (finding(Action.WATCH, code="92", severity=Severity.DEGRADED), False),
        (finding(Action.RESET_WHEN_IDLE, code="63", severity=Severity.DEGRADED), True),
    ],
)
def test_without_remedies_a_confirmed_incident_waits_unless_it_is_an_observation(found: Finding, expected: bool) -> None:
    assert waiting(found) is expected


def test_an_incident_that_a_remedy_repairs_waits_for_no_operator() -> None:
    assert not waiting(reset(), verbs=frozenset(Verb))


def test_a_pending_remap_of_a_busy_card_waits_for_its_job() -> None:
    assert not waiting(finding(Action.RESET_WHEN_IDLE, code="63", severity=Severity.DEGRADED), busy=True)


def test_an_order_of_an_operator_is_not_waited_for() -> None:
    world = World()
    world.nodes(3)
    world.step(Maintenance(NodeName("n0"), world.now + 60, "new cable"))
    assert world.only().state is IncidentState.CONFIRMED
    assert not metrics.needs_hands(world.only())
    world.record(reset(), node="n1")
    world.step(Exempted(Exemption("ann", "card is ordered", world.now + 60, NodeName("n1"), "", "", "", "e1")))
    assert not metrics.needs_hands(world.only("n1"))


def test_labels_are_families_of_kinds() -> None:
    world = World(Policies())
    world.nodes(3)
    world.pods()
    world.record(reset())
    world.state("s", finding(Action.TICKET, "node", kind="nvml", code="return-999"), node="n1")
    metrics.count_incidents([world.only(), world.only("n1")])
    for kind in ("card", "nvml"):
        assert REGISTRY.get_sample_value("hbox_health_incidents", {"kind": kind, "state": "confirmed"}) == 1
        assert REGISTRY.get_sample_value("hbox_health_incidents_waiting", {"kind": kind}) == 1
    metrics.count_incidents([])
    assert REGISTRY.get_sample_value("hbox_health_incidents_waiting", {"kind": "nvml"}) is None
