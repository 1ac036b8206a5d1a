"""Random histories of twelve nodes; the incident engine keeps its invariants after every step (docs/reference/invariants.md, S21 to S24)."""

import copy
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.hbox_health.incident_world import GPU, OTHER, World, finding, lost, of_program, port_down, reset

from hbox_common.model import IncidentState, NodeName
from hbox_common.model.remedy import Outcome, Verb
from hbox_health.core.judge.breaker import Breaker
from hbox_health.core.judge.courses import MAINTENANCE
from hbox_health.core.judge.finding import Action, Scope, Severity
from hbox_health.core.judge.happenings import (
    AgentSeen,
    Event,
    Found,
    HoldersStopped,
    IncidentChanged,
    JobsSeen,
    Maintenance,
    OperatorCloses,
    PodOnCards,
    Policy,
    Remedied,
    Tick,
    Validated,
    Waiting,
)

NODES = [NodeName(f"n{index}") for index in range(12)]
READ_ONLY = finding(Action.CORDON, "node", kind="filesystem", code="read-only", severity=Severity.FATAL_NODE, scope=Scope.NODE)
FINDINGS = [
    reset(),
    reset(OTHER, "95"),
    lost(),
    lost(OTHER),
    READ_ONLY,
    of_program(),
    finding(Action.REPLACE, kind="nvml", code="remap"),
]
CLOSING = finding(Action.CLOSE_REASON, code="154", severity=Severity.NONE)

node = st.sampled_from(NODES)
card = st.sampled_from((GPU, OTHER))
boot = st.sampled_from(("b1", "b2", "b3"))


@st.composite
def events(draw: st.DrawFn) -> Event:
    name = draw(node)
    match draw(st.integers(0, 10)):
        case 0 | 1:
            return Found(name, draw(boot), (draw(st.sampled_from([*FINDINGS, CLOSING])),), record=str(draw(st.integers(0, 50))))
        case 2:
            down = draw(st.booleans())
            return Found(
                name, "", (port_down(),) if down else (), source="port", group=draw(st.sampled_from(("", "switch:l1")))
            )
        case 3:
            return AgentSeen(name, draw(boot))
        case 4:
            job = draw(st.sampled_from(("ns/a", "ns/b")))
            pod = PodOnCards(f"{job}-{name}", job, job, (draw(card),), draw(st.sampled_from(Policy)), 60.0, draw(st.booleans()))
            return JobsSeen(name, (pod,) if draw(st.booleans()) else ())
        case 5:
            return Remedied(name, draw(card), Verb.RESET, draw(st.sampled_from(Outcome)))
        case 6:
            return Validated(name, draw(st.sampled_from(("node", GPU))), draw(st.booleans()))
        case 7:
            return OperatorCloses(name)
        case 8:
            return HoldersStopped(name, draw(card))
        case 9:
            return Maintenance(name, draw(st.sampled_from((0.0, 1_000_500.0, 1_010_000.0, 1_100_000.0))), "maintenance")
        case _:
            return Tick()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(events(), st.sampled_from((0.0, 1.0, 30.0, 300.0, 4000.0)), st.booleans()), max_size=60))
def test_incidents_keep_their_invariants(history: list[tuple[Event, float, bool]]) -> None:
    world = World()
    world.nodes(12)
    closings: Counter[str] = Counter()
    for event, passing, restarts in history:
        world.after(passing)
        world.step(event)
        breaker: Breaker = world.engine.dump().breaker
        assert len(breaker.restricted) <= breaker.most, "S21"
        maintained = {i.node for i in world.incidents.values() if i.kind == MAINTENANCE and i.state is not IncidentState.CLOSED}
        assert world.cordoned - maintained <= set(breaker.restricted), "S21"
        current = [i for i in world.incidents.values() if i.state is not IncidentState.CLOSED]
        assert max(Counter((i.node, i.entity, i.kind) for i in current).values(), default=0) <= 1, "S22"
        assert world.engine.step(Tick(), world.now) == [], "S24: a review of what did not change decides nothing"
        if restarts:
            loaded = World(world.policies, copy.deepcopy(world.engine.dump()), now=world.now)
            out = [effect for effect in loaded.step(Tick()) if not isinstance(effect, Waiting)]
            assert out == [], "S24: a new leader repeats nothing"
    for effect in world.sent(IncidentChanged):
        assert not closings[effect.incident.id], "S23: nothing follows the close of an incident"
        closings[effect.incident.id] += effect.incident.state is IncidentState.CLOSED
