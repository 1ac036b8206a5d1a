"""The log shows each state of an incident once."""

from dataclasses import replace

from hbox_common.model import Incident, IncidentState, NodeName
from hbox_health.incidentlog import MOST_TEXTS, IncidentLog

INCIDENT = Incident(
    id="n1-1", node=NodeName("n1"), entity="gpu:GPU-0", kind="card", code="48", state=IncidentState.SUSPECT, severity="", blame="", scope="",
    action="", opened=1.0, changed=1.0,
)  # fmt: skip
S, C, D, R, V, X = (
    IncidentState.SUSPECT, IncidentState.CONFIRMED, IncidentState.DRAINING, IncidentState.REPAIRING, IncidentState.VALIDATING, IncidentState.CLOSED,
)  # fmt: skip


def logged(*states: IncidentState, why: str = "a double-bit error") -> list[bool]:
    log = IncidentLog()
    return [log.note(replace(INCIDENT, state=state, why=why)) for state in states]


def test_pods_that_come_and_go_are_not_logged() -> None:
    assert logged(S, C, D, C, D, C, D) == [True, True, True, False, False, False, False]


def test_a_repair_that_failed_is_logged_each_time() -> None:
    assert logged(C, D, R, C, R, V, C, R) == [True] * 8


def test_more_evidence_is_not_logged_and_another_reason_is() -> None:
    log = IncidentLog()
    one = replace(INCIDENT, state=C, why="one")
    assert [log.note(one), log.note(replace(one, evidence=("more",))), log.note(replace(one, why="two"))] == [True, False, True]


def test_a_closed_incident_is_logged_and_forgotten() -> None:
    assert logged(C, X, C) == [True] * 3


def test_ever_new_texts_fill_no_memory() -> None:
    log = IncidentLog()
    for number in range(3 * MOST_TEXTS):
        log.note(replace(INCIDENT, state=C, why=str(number)))
    assert not log.note(replace(INCIDENT, state=C, why=str(3 * MOST_TEXTS - 1)))
    assert log.note(replace(INCIDENT, state=C, why="0")), "forgotten"
